package sharedlogtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
)

// World is a test cluster as package logtest wants it: every Open of a stream is by a
// new incarnation of a broker, which takes over from the one before.
type World struct {
	tb     testing.TB
	c      *Cluster
	bucket *fault.Bucket
	raw    objstore.Bucket
	tune   func(*sharedlog.Config)

	mu     sync.Mutex
	owners map[commitlog.StreamID]*Node
	unhold func()
	hold   chan struct{}
	broker metadata.BrokerID
}

// NewWorld makes a world whose objects are in raw, which it damages for Corrupt.
// tune may change the config of its stores.
func NewWorld(tb testing.TB, raw objstore.Bucket, tune func(*sharedlog.Config)) *World {
	w := &World{tb: tb, c: New(), raw: raw, bucket: fault.New(raw, 1), tune: tune, owners: map[commitlog.StreamID]*Node{}}
	tb.Cleanup(w.Release)
	return w
}

// Open opens a stream at a new broker.
func (w *World) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	w.mu.Lock()
	old := w.owners[id.Stream]
	w.broker++
	broker := w.broker
	w.mu.Unlock()
	p, exists := w.c.Image().PartitionByStream(id.Stream)
	if exists && epoch < p.Epoch {
		return old.Open(ctx, id, epoch, opts) // must be refused
	}
	n := Start(w.tb, w.c, w.bucket, broker, w.tune)
	if !exists {
		w.c.AddStream(fmt.Sprintf("%s-%d", id.Topic, id.Stream), id.Stream, epoch, n.Incarnation)
	} else {
		if err := w.c.Takeover(ctx, old.Incarnation, n); err != nil {
			return nil, err
		}
		// The suite chooses epochs freely; taking over bumps them by one.
		w.c.SetEpoch(id.Stream, epoch)
	}
	w.mu.Lock()
	w.owners[id.Stream] = n
	w.mu.Unlock()
	return n.Open(ctx, id, epoch, opts)
}

// Remove deletes a stream at its owner.
func (w *World) Remove(ctx context.Context, id commitlog.ID) error {
	w.mu.Lock()
	n := w.owners[id.Stream]
	w.mu.Unlock()
	if n == nil {
		return nil
	}
	return n.Remove(ctx, id)
}

// Hold keeps WAL slots from being written; fences of sealers wait too, so Open
// waits for Release as the contract allows.
func (w *World) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = make(chan struct{})
	w.unhold = w.bucket.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Hold: w.hold})
}

// Release lets what is held go on.
func (w *World) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		w.unhold()
		close(w.hold)
		w.hold = nil
	}
}

// Crash takes every process; what waits for the store never gets there.
func (w *World) Crash() {
	w.mu.Lock()
	owners := w.owners
	w.mu.Unlock()
	for _, n := range owners {
		n.Crash()
	}
	w.Release()
}

// Corrupt flips one bit of the object that holds the batch at offset.
func (w *World) Corrupt(id commitlog.ID, offset commitlog.Offset) (string, error) {
	w.mu.Lock()
	n := w.owners[id.Stream]
	w.mu.Unlock()
	ctx := context.Background()
	// Take over once, so that all of the log is in committed extents.
	w.mu.Lock()
	w.broker++
	broker := w.broker
	w.mu.Unlock()
	next := Start(w.tb, w.c, w.bucket, broker, w.tune)
	if err := w.c.Takeover(ctx, n.Incarnation, next); err != nil {
		return "", err
	}
	w.mu.Lock()
	w.owners[id.Stream] = next
	w.mu.Unlock()
	w.c.SetEpoch(id.Stream, 0)
	key, pos, err := Locate(ctx, w.c, w.raw, id.Stream, offset)
	if err != nil {
		return "", err
	}
	return key, Flip(ctx, w.raw, key, pos+70)
}

// Flip damages one byte of an object.
func Flip(ctx context.Context, b objstore.Bucket, key string, pos int64) error {
	info, err := b.Head(ctx, key)
	if err != nil {
		return err
	}
	body := make([]byte, info.Size)
	if _, err := b.GetRange(ctx, key, 0, body); err != nil {
		return err
	}
	body[pos] ^= 0x10
	return b.Put(ctx, key, objstore.BytesBody(body))
}
