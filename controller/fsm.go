package controller

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"ponor/metadata"
)

// fsm is Raft's view of images. All meaning is in metadata.Apply.
type fsm struct {
	images *images
	// fail stops the node: an entry that cannot be read or differs from what
	// was pushed leaves nothing sound to go on with.
	fail func(error)
}

// Apply advances the image. The response is []metadata.Result, nil if the
// image had the entry from the leader's stream.
func (f *fsm) Apply(l *raft.Log) any {
	results, err := f.images.apply(metadata.Index(l.Index), l.Data)
	if err != nil {
		f.fail(err)
	}
	return results
}

// Snapshot only takes a reference; images are immutable. The image may be
// ahead of Raft's applied index by what the leader pushed; the snapshot carries
// its own index, so replaying the entries between is harmless.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	return snapshot{f.images.image(), &f.images.count}, nil
}

// Restore installs a snapshot unless the process already knows a newer image.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read metadata snapshot: %w", err)
	}
	img, err := decodeSnapshot(b)
	if err != nil {
		return err
	}
	return f.images.install(img)
}

type snapshot struct {
	img   *metadata.Image
	count *counts
}

// Persist writes the encoded image, a topic at a time.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	begun, counted := time.Now(), &countedWriter{w: sink}
	if err := s.img.WriteSnapshot(counted); err != nil {
		_ = sink.Cancel()
		return fmt.Errorf("write metadata snapshot: %w", err)
	}
	if err := sink.Close(); err != nil {
		return err
	}
	s.count.snapshots.Observe(time.Since(begun))
	s.count.snapshotBytes.Store(counted.n)
	return nil
}

// Release has nothing to free.
func (snapshot) Release() {}

func encodeSnapshot(img *metadata.Image) ([]byte, error) {
	var b bytes.Buffer
	if err := img.WriteSnapshot(&b); err != nil {
		return nil, fmt.Errorf("encode metadata snapshot: %w", err)
	}
	return b.Bytes(), nil
}

func decodeSnapshot(b []byte) (*metadata.Image, error) {
	img, err := metadata.DecodeSnapshot(b)
	if err != nil {
		return nil, fmt.Errorf("load metadata snapshot: %w", err)
	}
	return img, nil
}
