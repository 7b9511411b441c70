package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"ponor/internal/vfs"
	"ponor/metadata"
)

// dataDir is the node's directory on disk: a lock, its identity, and for
// voters Raft's log and snapshots. A nil *dataDir keeps nothing.
type dataDir struct {
	path string
	lock *os.File
	mu   struct {
		sync.Mutex
		id identity
	}
}

// identity is what a directory remembers of whose it is, so that a node never
// starts on another's disk (K9).
type identity struct {
	Version   int               `json:"version"`
	NodeID    metadata.BrokerID `json:"node_id"`
	ClusterID string            `json:"cluster_id"`
}

const identityVersion = 1

// openDataDir creates the directory if needed, locks it against a second
// process and checks whose it is.
func openDataDir(path string, node metadata.BrokerID) (*dataDir, error) {
	if path == "" {
		return nil, nil
	}
	if err := vfs.MakeDirs(path); err != nil {
		return nil, fmt.Errorf("create controller directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open controller lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock controller directory %s: another process is using it; stop that one or choose another directory: %w", path, err)
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.load(node); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

func (d *dataDir) file() string { return filepath.Join(d.path, "identity.json") }

func (d *dataDir) load(node metadata.BrokerID) error {
	b, err := os.ReadFile(d.file())
	if errors.Is(err, os.ErrNotExist) {
		return d.save(identity{Version: identityVersion, NodeID: node})
	}
	if err != nil {
		return fmt.Errorf("read node identity: %w", err)
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return fmt.Errorf("read node identity %s: %w", d.file(), err)
	}
	if id.Version != identityVersion {
		return fmt.Errorf("read node identity %s: version %d is not supported by this binary", d.file(), id.Version)
	}
	if id.NodeID != node {
		return fmt.Errorf("controller directory %s belongs to node %d, not to node %d: start with node id %d or with an empty directory", d.path, id.NodeID, node, id.NodeID)
	}
	d.mu.id = id
	return nil
}

// save replaces the identity file durably.
func (d *dataDir) save(id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode node identity: %w", err)
	}
	tmp := d.file() + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return fmt.Errorf("write node identity: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, d.file())
	}
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("write node identity: %w", err)
	}
	d.mu.Lock()
	d.mu.id = id
	d.mu.Unlock()
	return nil
}

func syncDir(path string) error { return vfs.OS{}.SyncDir(path) }

// clusterID is what the directory remembers, empty if nothing.
func (d *dataDir) clusterID() string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.id.ClusterID
}

// claim binds the directory to a cluster, or refuses if it is bound to
// another.
func (d *dataDir) claim(cluster string) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	id := d.mu.id
	d.mu.Unlock()
	switch id.ClusterID {
	case cluster:
		return nil
	case "":
		id.ClusterID = cluster
		return d.save(id)
	}
	return fmt.Errorf("controller directory %s belongs to cluster %s, but this node met cluster %s: check the join list, or start with an empty directory: %w",
		d.path, id.ClusterID, cluster, ErrWrongCluster)
}

// writeMetaProperties tells Kafka's tools whose directory this is:
// kafka-metadata-quorum add-controller looks for the file in metadata.log.dir.
// Nothing here reads it.
func (d *dataDir) writeMetaProperties(cluster string, node metadata.BrokerID, dir DirectoryID) error {
	if d == nil {
		return nil
	}
	text := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", cluster, node, dir)
	if err := os.WriteFile(filepath.Join(d.path, "meta.properties"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write meta.properties: %w", err)
	}
	return nil
}

func (d *dataDir) close() {
	if d != nil {
		_ = d.lock.Close()
	}
}
