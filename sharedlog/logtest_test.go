package sharedlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/logtest"
	"ponor/metadata"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
)

// world makes a logtest.World of a test cluster: every Open of a stream is by a
// new incarnation of a broker, which takes over from the one before.
type world struct {
	tb     testing.TB
	c      *sharedlogtest.Cluster
	bucket *fault.Bucket
	raw    objstore.Bucket
	tune   func(*sharedlog.Config)

	mu     sync.Mutex
	owners map[commitlog.StreamID]*sharedlogtest.Node
	unhold func()
	hold   chan struct{}
	unfail func()
	broker metadata.BrokerID
}

func newWorld(tb testing.TB, raw objstore.Bucket, tune func(*sharedlog.Config)) *world {
	w := &world{tb: tb, c: sharedlogtest.New(), raw: raw, bucket: fault.New(raw, 1), tune: tune, owners: map[commitlog.StreamID]*sharedlogtest.Node{}}
	tb.Cleanup(w.Release)
	return w
}

func (w *world) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	w.mu.Lock()
	old := w.owners[id.Stream]
	w.broker++
	broker := w.broker
	w.mu.Unlock()
	p, exists := w.c.Image().PartitionByStream(id.Stream)
	if exists && epoch < p.Epoch {
		return old.Open(ctx, id, epoch, opts) // must be refused
	}
	n := sharedlogtest.Start(w.tb, w.c, w.bucket, broker, w.tune)
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

func (w *world) Remove(ctx context.Context, id commitlog.ID) error {
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
func (w *world) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = make(chan struct{})
	w.unhold = w.bucket.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Hold: w.hold})
}

func (w *world) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		w.unhold()
		close(w.hold)
		w.hold = nil
	}
}

// Crash takes every process; what waits for the store never gets there.
func (w *world) Crash() {
	w.mu.Lock()
	owners := w.owners
	w.mu.Unlock()
	for _, n := range owners {
		n.Crash()
	}
	w.Release()
}

// Corrupt flips one bit of the object that holds the batch at offset.
func (w *world) Corrupt(id commitlog.ID, offset commitlog.Offset) (string, error) {
	w.mu.Lock()
	n := w.owners[id.Stream]
	w.mu.Unlock()
	ctx := context.Background()
	// Take over once, so that all of the log is in committed extents.
	w.mu.Lock()
	w.broker++
	broker := w.broker
	w.mu.Unlock()
	next := sharedlogtest.Start(w.tb, w.c, w.bucket, broker, w.tune)
	if err := w.c.Takeover(ctx, n.Incarnation, next); err != nil {
		return "", err
	}
	w.mu.Lock()
	w.owners[id.Stream] = next
	w.mu.Unlock()
	w.c.SetEpoch(id.Stream, 0)
	key, pos, err := locate(ctx, w.c, w.raw, id.Stream, offset)
	if err != nil {
		return "", err
	}
	return key, flip(ctx, w.raw, key, pos+70)
}

// flip damages one byte of an object.
func flip(ctx context.Context, b objstore.Bucket, key string, pos int64) error {
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

var _ = errors.Is

func TestContract(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World { return newWorld(tb, mem.New(), nil) })
}

// Packing after every slot, folding and merging at once: the same contract over
// segment and index objects.
func TestContractPacked(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World { return newWorld(tb, mem.New(), eager) })
}

// eager does all background work as soon as it can, and caches nothing.
func eager(c *sharedlog.Config) {
	c.MaxSlots, c.PackBytes, c.PackAge = 2, 1, time.Millisecond
	c.MaxSlots = 1 << 20
	c.MaintainEvery, c.MaxExtents = time.Millisecond, 3
	c.CacheBytes = 1
}
