package wal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// Config configures a Writer. Zero values mean defaults.
type Config struct {
	// Bucket is the store; required.
	Bucket objstore.Bucket
	// Prefix starts every key: "<cluster id>/<generation>".
	Prefix string
	// ClusterID (at most 31 bytes), Generation and Incarnation go into every
	// slot's header, so that a mix-up is noticed.
	ClusterID   string
	Generation  uint64
	Incarnation metadata.Incarnation
	// Budget bounds the bytes appended and not yet resolved, default 128 MiB.
	// Less refuses appends at every hiccup of the store; more takes memory
	// while the store is down.
	Budget int64
	// CacheBytes bounds the slab memory, unresolved slots included, default 256
	// MiB. Durable slots are evicted, oldest first, to stay below. Less sends
	// consumers that lag a little to the store.
	CacheBytes int64
	// MaxObject is the size in bytes at which a slot is closed; default is the
	// Bucket's TargetObject. A batch larger than that gets a slot of its own.
	MaxObject int
	// MaxInflight is how many slots may be unresolved in the store at once,
	// 1-255; default is the Bucket's.
	MaxInflight int
	// Gather is how long a slot waits for company when nothing is in flight;
	// default is the Bucket's. Negative means not at all.
	Gather time.Duration
	// Linger is the longest a slot stays open while puts are in flight or no
	// token is left, default 250 ms. More makes larger and fewer objects.
	Linger time.Duration
	// PutsPerSecond and PutBurst are the token bucket; default is the Bucket's,
	// 0 there means unlimited.
	PutsPerSecond float64
	PutBurst      int
	// AttemptTimeout ends one attempt of a put, default 30 s; it is retried.
	AttemptTimeout time.Duration
	// OnDurable is called for each slot in order, before its Commit resolves,
	// from the goroutine of Run. It must be quick.
	OnDurable func(seq uint64, s *Slot)
	// OnFenced is called once, from the goroutine of Run, when another
	// incarnation has sealed this WAL or its state became unknowable. All
	// outstanding Commits have failed by then.
	OnFenced func(err error)
	// Rand gives write ids and jitter; default crypto/rand.
	Rand io.Reader
	// Logger, nil discards.
	Logger *slog.Logger
}

// Writer appends to the WAL of this process's own incarnation. All methods are
// safe for concurrent use.
type Writer struct{ cfg Config }

// Ref is where an appended batch lies.
type Ref struct {
	Seq  uint64
	Slot *Slot
	// Bytes is the stored batch in the slab, base offset and epoch patched. It
	// may be touched only while a reference on Slot is held (or by the caller
	// before the slot has resolved).
	Bytes commitlog.Batch
}

// New checks cfg and returns a Writer that works once Run is called.
func New(cfg Config) (*Writer, error) { return &Writer{cfg: cfg}, nil }

// Run writes slots until Close, until the WAL is fenced (the error wraps
// commitlog.ErrFenced) or until ctx ends, which fails everything outstanding
// with commitlog.ErrClosed.
func (w *Writer) Run(ctx context.Context) error { return nil }

// Append copies batch into the open slot, patches base and epoch into the copy
// and returns at once. Appends of one stream come in offset order: the caller
// holds the stream's lock. Errors say that nothing was taken:
// commitlog.ErrBackpressure (budget), ErrUnavailable (the store is in trouble
// for more than 2 s, says why), ErrFenced, ErrClosed.
func (w *Writer) Append(stream commitlog.StreamID, epoch commitlog.Epoch, base commitlog.Offset, batch commitlog.Batch) (Ref, *commitlog.Slot, error) {
	return Ref{}, nil, nil
}

// Seal asks that the open slot is written as soon as a put may start.
func (w *Writer) Seal() {}

// Durable is the number of slots known durable: all below it are.
func (w *Writer) Durable() uint64 { return 0 }

// OldestUnresolved is the age of the oldest batch that is not durable, 0 if
// there is none.
func (w *Writer) OldestUnresolved() time.Duration { return 0 }

// Trouble is why the store does not take writes now, nil if it does.
func (w *Writer) Trouble() error { return nil }

// Close refuses further appends, writes what is open, waits until all is
// resolved or ctx ends (what is left then fails with commitlog.ErrClosed), and
// gives the cache up. Run has returned when Close returns.
func (w *Writer) Close(ctx context.Context) error { return nil }

// SlotKey is the key of a slot object.
func SlotKey(prefix string, inc metadata.Incarnation, seq uint64) string {
	return fmt.Sprintf("%s%020d", SlotPrefix(prefix, inc), seq)
}

// SlotPrefix is what the keys of all slots of an incarnation start with.
func SlotPrefix(prefix string, inc metadata.Incarnation) string {
	return prefix + "/wal/" + inc.String() + "/0/"
}
