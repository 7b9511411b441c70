package controller

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// openLog opens the Raft log in a directory. A new one is made under another
// name: a power cut while it is made must not leave half a file, which could
// never be opened again, nor may its name be lost after it holds a vote.
func openLog(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, "raft.db")
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeLog(path)
	}
	var log *raftboltdb.BoltStore
	if err == nil {
		log, err = raftboltdb.New(raftboltdb.Options{Path: path})
	}
	if err != nil {
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	return log, nil
}

func makeLog(path string) error {
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log, err := raftboltdb.New(raftboltdb.Options{Path: tmp})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// snapshots are Raft's snapshots in files, safe from power cuts.
type snapshots struct {
	*raft.FileSnapshotStore
	path string
}

// openSnapshots opens the snapshots in a directory.
func openSnapshots(dir string, log hclog.Logger) (snapshots, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, log)
	if err != nil {
		return snapshots{}, fmt.Errorf("open raft snapshots: %w", err)
	}
	return snapshots{files, filepath.Join(dir, "snapshots")}, nil
}

// Create implements raft.SnapshotStore. The files of a new snapshot get their
// names now and are only written to later. Raft syncs them and the name of the
// snapshot's directory, but not their names in it; without those the log would be
// cut for a snapshot that is an empty directory.
func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Join(s.path, sink.ID()+".tmp")); err != nil {
		_ = sink.Cancel()
		return nil, fmt.Errorf("sync the directory of snapshot %s: %w", sink.ID(), err)
	}
	return sink, nil
}

// forgetHalfBootstrap undoes what a power cut between the two writes of
// raft.BootstrapCluster leaves: term 1 and no configuration. Raft takes that for
// a voter with a past, which never forms the quorum and waits for ever for
// somebody else's. Nothing else leaves term 1 without a log: the first election of
// a quorum is for term 2, so this voter has given no vote yet.
func forgetHalfBootstrap(log *raftboltdb.BoltStore, snaps raft.SnapshotStore) error {
	key := []byte("CurrentTerm") // Raft's name for it
	term, err := log.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) || err == nil && term != 1 {
		return nil
	}
	var last uint64
	if err == nil {
		last, err = log.LastIndex()
	}
	var list []*raft.SnapshotMeta
	if err == nil {
		list, err = snaps.List()
	}
	if err == nil && last == 0 && len(list) == 0 {
		err = log.SetUint64(key, 0)
	}
	if err != nil {
		return fmt.Errorf("look for a bootstrap that was cut off: %w", err)
	}
	return nil
}
