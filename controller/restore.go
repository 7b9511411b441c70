package controller

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Restoration makes the first voter of a new quorum from a backup.
type Restoration struct {
	Backup Backup
	// Generation is the one claimed for the restored cluster in its store, above
	// the backup's.
	Generation uint64
	// Sealed are WALs that went on after the backup and that cannot be recovered
	// from it any more; they are sealed at the ends given, with no records beyond
	// what the backup knows.
	Sealed []*metadatapb.Sealed
	// NodeID and Address are of the voter, DataDir is its controller directory,
	// which must not exist or be empty.
	NodeID  metadata.BrokerID
	Address string
	DataDir string
}

// Run writes the directory. The image in it is of the new generation: every
// incarnation of the backup is fenced. Other voters start empty and are added.
func (r Restoration) Run() (*metadata.Image, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	img, err := r.image()
	if err != nil {
		return nil, fmt.Errorf("restore metadata: %w", err)
	}
	if err := r.write(img); err != nil {
		return nil, fmt.Errorf("restore metadata to %s: %w; remove the directory and begin again", r.DataDir, err)
	}
	return img, nil
}

// Check says why Run could not begin. It changes nothing: what is irrevocable, the
// claim of a generation and the fences, comes after it.
func (r Restoration) Check() error {
	if _, _, err := net.SplitHostPort(r.Address); err != nil {
		return fmt.Errorf("restore metadata: controller address %q: write host:port", r.Address)
	}
	if entries, err := os.ReadDir(r.DataDir); err == nil && len(entries) > 0 {
		return fmt.Errorf("restore metadata: directory %s has files already, %s among them: move them away, or choose an empty directory", r.DataDir, entries[0].Name())
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("restore metadata: %w", err)
	}
	return nil
}

// image is the backup's, a generation later.
func (r Restoration) image() (*metadata.Image, error) {
	now := wall.Milli(time.Now())
	commands := []*metadatapb.Command{{TimeMs: now, Body: &metadatapb.Command_ClaimGeneration{
		ClaimGeneration: &metadatapb.ClaimGeneration{Generation: r.Generation}}}}
	for _, s := range r.Sealed {
		commands = append(commands, &metadatapb.Command{TimeMs: now, Body: &metadatapb.Command_Sealed{Sealed: s}})
	}
	b, err := metadata.EncodeEntry(commands...)
	if err != nil {
		return nil, err
	}
	entry, err := metadata.DecodeEntry(b)
	if err != nil {
		return nil, err
	}
	img, results := metadata.Apply(r.Backup.Image, r.Backup.Image.Index()+1, entry)
	for i, res := range results {
		if err := res.Rejected(); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return img, nil
}

// write makes the directory of a voter that has the image as its Raft snapshot
// and nothing else.
func (r Restoration) write(img *metadata.Image) (err error) {
	dir, err := openDataDir(r.DataDir, r.NodeID)
	if err != nil {
		return err
	}
	defer dir.close()
	v := new(voter)
	defer v.closeStores()
	logs, stable, snaps, err := v.openStores(Config{DataDir: r.DataDir})
	if err != nil {
		return err
	}
	v.fresh = true
	if err := v.identify(Config{NodeID: r.NodeID, AdvertiseController: r.Address}, logs, stable, snaps); err != nil {
		return err
	}
	if err := v.log.begin(r.Generation); err != nil {
		return err
	}
	servers := raft.Configuration{Servers: []raft.Server{{ID: v.id, Address: v.self}}}
	_, transport := raft.NewInmemTransport(v.self)
	sink, err := snaps.Create(raft.SnapshotVersionMax, uint64(img.Index()), 1, servers, uint64(img.Index()), transport)
	if err != nil {
		return fmt.Errorf("make raft snapshot: %w", err)
	}
	if err := (snapshot{img: img, count: new(counts)}).Persist(sink); err != nil {
		return err
	}
	if err := stable.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		return fmt.Errorf("write raft term: %w", err)
	}
	if err := dir.claim(img.ClusterID()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(r.DataDir))
}
