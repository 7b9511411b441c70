package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"ponor/metadata"
)

// Stopped is the metadata that a stopped voter left on its disk.
type Stopped struct {
	Image *metadata.Image
	// Term and Index are of the last entry in its Raft log; 0 of a bare snapshot.
	// Of all voters' logs the one with the highest term, and then the highest
	// index, has everything that was ever committed.
	Term, Index uint64
}

// Newer says whether s is ahead of o, as voters compare their logs; a restored
// quorum is ahead of what it was restored from.
func (s Stopped) Newer(o Stopped) bool {
	if a, b := s.Image.Generation(), o.Image.Generation(); a != b {
		return a > b
	}
	if s.Term != o.Term {
		return s.Term > o.Term
	}
	if s.Index != o.Index {
		return s.Index > o.Index
	}
	return s.Image.Newer(o.Image)
}

// ReadStopped reads metadata from a disk without writing to it: from the data
// directory of a stopped voter, with all entries of its log, or from a snapshot,
// which is a directory or the file state.bin in it. The log's last entries may
// not have been committed; the voter would propose them again if it led.
func ReadStopped(path string) (Stopped, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stopped{}, fmt.Errorf("read metadata: %w", err)
	}
	if !info.IsDir() {
		img, err := readSnapshotFile(path)
		return Stopped{Image: img}, err
	}
	if _, err := os.Stat(filepath.Join(path, "state.bin")); err == nil {
		img, err := readSnapshotFile(filepath.Join(path, "state.bin"))
		return Stopped{Image: img}, err
	}
	for _, dir := range []string{path, filepath.Join(path, "metadata")} {
		if _, err := os.Stat(filepath.Join(dir, "raft.db")); err == nil {
			return readLog(dir)
		}
	}
	return Stopped{}, fmt.Errorf("read metadata: %s has neither raft.db nor state.bin: give the data directory of a controller or a snapshot", path)
}

func readSnapshotFile(path string) (*metadata.Image, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = CheckSnapshotMeta(filepath.Join(filepath.Dir(path), "meta.json"), b)
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	img, err := decodeSnapshot(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return img, nil
}

// readLog replays what lies in a voter's directory.
func readLog(dir string) (Stopped, error) {
	// A running voter has the file locked.
	db, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, "raft.db"), BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: 500 * time.Millisecond},
	})
	if errors.Is(err, bbolt.ErrTimeout) {
		return Stopped{}, fmt.Errorf("read metadata: the node of %s is running: stop it, or ask the cluster itself", dir)
	}
	if err != nil {
		return Stopped{}, fmt.Errorf("open raft log in %s: %w", dir, err)
	}
	defer func() { _ = db.Close() }() // it was only read
	img, err := newestSnapshot(dir)
	if err != nil {
		return Stopped{}, err
	}
	s := Stopped{Image: img}
	first, err := db.FirstIndex()
	if err != nil {
		return Stopped{}, fmt.Errorf("read raft log in %s: %w", dir, err)
	}
	last, err := db.LastIndex()
	if err != nil {
		return Stopped{}, fmt.Errorf("read raft log in %s: %w", dir, err)
	}
	if first > uint64(img.Index())+1 {
		return Stopped{}, fmt.Errorf("read metadata: the raft log in %s begins at %d, its newest snapshot is of %d: a snapshot is missing or damaged", dir, first, img.Index())
	}
	var entry raft.Log
	for i := max(first, 1); i <= last; i++ {
		if err := db.GetLog(i, &entry); err != nil {
			return Stopped{}, fmt.Errorf("read raft log entry %d in %s: %w", i, dir, err)
		}
		s.Term, s.Index = entry.Term, i
		if entry.Type != raft.LogCommand || i <= uint64(s.Image.Index()) {
			continue
		}
		e, err := metadata.DecodeEntry(entry.Data)
		if err != nil {
			return Stopped{}, fmt.Errorf("raft log entry %d in %s: %w", i, dir, err)
		}
		s.Image, _ = metadata.Apply(s.Image, metadata.Index(i), e)
	}
	return s, nil
}

// newestSnapshot is the newest image among a voter's snapshots that is whole,
// the empty one if there is none.
func newestSnapshot(dir string) (*metadata.Image, error) {
	newest := metadata.Empty()
	list, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list raft snapshots: %w", err)
	}
	for _, e := range list {
		if !e.IsDir() || filepath.Ext(e.Name()) == ".tmp" { // one that was not finished
			continue
		}
		img, err := readSnapshotFile(filepath.Join(dir, "snapshots", e.Name(), "state.bin"))
		if err != nil {
			return nil, err
		}
		if img.Newer(newest) {
			newest = img
		}
	}
	return newest, nil
}

// CheckSnapshotMeta compares a snapshot with Raft's note about it, the file
// meta.json beside it, if there is one: the snapshot itself has no checksum.
func CheckSnapshotMeta(path string, b []byte) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var meta struct {
		Size int64
		CRC  []byte // CRC-64, ECMA
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if meta.Size != int64(len(b)) {
		return fmt.Errorf("snapshot has %d bytes, %s says %d", len(b), path, meta.Size)
	}
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = h.Write(b)
	if got := h.Sum(nil); !bytes.Equal(got, meta.CRC) {
		return fmt.Errorf("snapshot's CRC is %x, %s says %x", got, path, meta.CRC)
	}
	return nil
}
