package wal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
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
	// from the goroutine of Run. It must be quick and must not call the Writer's
	// Close.
	OnDurable func(seq uint64, s *Slot)
	// OnFenced is called once, from the goroutine of Run, when another
	// incarnation has sealed this WAL or its state became unknowable. All
	// outstanding Commits have failed by then.
	OnFenced func(err error)
	// Metrics counts; nil: not for anyone to see.
	Metrics *Metrics
	// Rand gives write ids and jitter; default crypto/rand.
	Rand io.Reader
	// Logger, nil discards.
	Logger *slog.Logger
}

func (c *Config) validate() error {
	if c.Bucket == nil || c.Incarnation.IsZero() || c.Prefix == "" {
		return errors.New("configure WAL: Bucket, Prefix and Incarnation are required")
	}
	if len(c.ClusterID) > maxCluster {
		return fmt.Errorf("configure WAL: cluster id of %d bytes, at most %d", len(c.ClusterID), maxCluster)
	}
	k := c.Bucket.Kind()
	def(&c.Budget, 128<<20)
	def(&c.CacheBytes, 256<<20)
	def(&c.MaxObject, k.TargetObject)
	def(&c.MaxObject, 1<<20)
	def(&c.MaxInflight, k.MaxInflight)
	c.MaxInflight = min(max(c.MaxInflight, 1), 255)
	def(&c.Gather, time.Duration(k.GatherMillis)*time.Millisecond)
	def(&c.Linger, 250*time.Millisecond)
	def(&c.PutsPerSecond, k.PutsPerSecond)
	def(&c.PutBurst, k.PutBurst)
	def(&c.AttemptTimeout, 30*time.Second)
	if c.Metrics == nil {
		c.Metrics = new(Metrics)
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	} else {
		c.Rand = &lockedReader{r: c.Rand}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Writer appends to the WAL of this process's own incarnation. All methods are
// safe for concurrent use. Slots are filled under mu by Append; everything that
// happens to them afterwards is decided by the goroutine of Run, in slot order.
type Writer struct {
	cfg  Config
	pool slabPool
	kick chan struct{} // wakes Run; has at most one pending signal
	over chan struct{} // closed when Run has ended
	puts sync.WaitGroup

	run runState // owned by Run's goroutine, after over by Close

	mu struct {
		sync.Mutex
		open *Slot // being filled, nil if empty
		// queue has the unresolved slots below open, in order: the first inflight
		// of them are being put, the rest are full and wait for their turn.
		queue    []*Slot
		inflight int
		durable  uint64 // slots below are durable; seq of the first in queue
		next     uint64 // seq of the next slot to be opened

		slab *slab // being filled; the writer holds a reference
		used int   // bytes of it

		proven     time.Time // see Proven
		unresolved int64     // bytes of batches in queue and open
		sealAsked  bool      // put open as soon as possible
		closing    bool      // Close was called
		fenced     error     // wraps commitlog.ErrFenced
		trouble    trouble
		drafts     []*draft
		stop       context.CancelFunc // of Run's context, nil before
	}
}

// trouble is the failure of a slot's put that lasts.
type trouble struct {
	err   error // nil: none
	seq   uint64
	since time.Time
}

// Ref is where an appended batch lies.
type Ref struct {
	Seq  uint64
	Slot *Slot
	// Bytes is the stored batch in the slab, base offset and epoch patched. It
	// may be touched only while a reference on Slot is held: the slot may have
	// failed, and its memory be gone, before Append returns.
	Bytes commitlog.Batch
}

// New checks cfg and returns a Writer that works once Run is called. Close must
// be called in any case, to give its memory back.
func New(cfg Config) (*Writer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, kick: make(chan struct{}, 1), over: make(chan struct{})}
	w.pool.keep = 16
	w.run = newRunState(&w.cfg)
	return w, nil
}

// Append copies batch into the open slot, patches base and epoch into the copy
// and returns at once. The batch's CRC is right. Appends of one stream come in
// offset order: the caller holds the stream's lock. Errors say that nothing was
// taken: commitlog.ErrBackpressure (budget), ErrUnavailable (the store is in
// trouble for more than 2 s, says why), ErrFenced, ErrClosed.
func (w *Writer) Append(stream commitlog.StreamID, epoch commitlog.Epoch, base commitlog.Offset, batch commitlog.Batch) (Ref, *commitlog.Slot, error) {
	if len(batch) < commitlog.HeaderBytes || base < 0 || epoch < 0 || batch.LastOffsetDelta() < 0 {
		return Ref{}, nil, fmt.Errorf("append to stream %d: %w: bad batch header", stream, commitlog.ErrCorrupt)
	}
	key := chunkKey{stream, epoch}
	// The copy is made under mu: at memory speed it is shorter than the
	// book-keeping that copying outside would need, up to some 100 KiB.
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuseLocked(int64(len(batch))); err != nil {
		return Ref{}, nil, err
	}
	if s := w.mu.open; s != nil && s.bytes+int64(len(batch)) > int64(w.cfg.MaxObject) {
		w.closeSlotLocked(flushFull)
	}
	at := int32(-1)
	if s := w.mu.open; s != nil {
		var err error
		if at, err = s.draft.find(key, base); err != nil {
			return Ref{}, nil, err
		}
	}
	if err := w.reserveLocked(len(batch)); err != nil {
		return Ref{}, nil, fmt.Errorf("append to stream %d: %w: %w", stream, commitlog.ErrUnavailable, err)
	}
	s := w.mu.open
	p := span{slab: uint32(len(s.slabs) - 1), off: uint32(w.mu.used), n: uint32(len(batch))}
	stored := commitlog.Batch(s.memory(p))
	copy(stored, batch)
	stored.SetBase(base, epoch)
	s.draft.add(at, key, base, base+commitlog.Offset(batch.LastOffsetDelta())+1, p)
	w.mu.used += len(batch)
	s.bytes += int64(len(batch))
	w.mu.unresolved += int64(len(batch))
	return Ref{Seq: s.seq, Slot: s, Bytes: stored}, s.commit, nil
}

// troubleFor is how long the store may fail before appends are refused; below
// it a hiccup costs only latency.
const troubleFor = 2 * time.Second

// refuseLocked says why no n bytes can be taken now.
func (w *Writer) refuseLocked(n int64) error {
	switch {
	case w.mu.fenced != nil:
		return w.mu.fenced
	case w.mu.closing:
		return errWriterClosed
	case w.mu.trouble.err != nil && time.Since(w.mu.trouble.since) > troubleFor:
		w.cfg.Metrics.trouble.Inc()
		return fmt.Errorf("%w: %w", commitlog.ErrUnavailable, w.mu.trouble.err)
	case w.mu.unresolved > 0 && w.mu.unresolved+n > w.cfg.Budget:
		w.cfg.Metrics.budget.Inc()
		return errBudget
	}
	return nil
}

var (
	errWriterClosed = fmt.Errorf("append to WAL: %w", commitlog.ErrClosed)
	errBudget       = fmt.Errorf("append to WAL: %w", commitlog.ErrBackpressure)
)

// reserveLocked makes sure that there is an open slot whose last slab has room
// for n bytes at used.
func (w *Writer) reserveLocked(n int) error {
	s := w.mu.open
	if w.mu.slab == nil || w.mu.used+n > len(w.mu.slab.mem) {
		next, err := w.pool.get(n)
		if err != nil {
			return err
		}
		if w.mu.slab != nil {
			w.mu.slab.release()
		}
		w.mu.slab, w.mu.used = next, 0
	}
	if s == nil {
		s = w.openLocked()
	}
	if k := len(s.slabs); k == 0 || s.slabs[k-1] != w.mu.slab {
		w.mu.slab.refs.Add(1)
		s.slabs = append(s.slabs, w.mu.slab)
	}
	return nil
}

// openLocked starts a slot; Run decides when it goes.
func (w *Writer) openLocked() *Slot {
	s := &Slot{seq: w.mu.next, commit: commitlog.NewSlot(), opened: time.Now(), draft: w.draftLocked()}
	s.refs.Store(1)
	w.mu.next++
	w.mu.open = s
	w.wake()
	return s
}

func (w *Writer) draftLocked() *draft {
	if n := len(w.mu.drafts); n > 0 {
		d := w.mu.drafts[n-1]
		w.mu.drafts = w.mu.drafts[:n-1]
		return d
	}
	return newDraft()
}

// closeSlotLocked moves the open slot to the queue.
func (w *Writer) closeSlotLocked(why flushReason) {
	w.cfg.Metrics.flushes[why].Inc()
	w.cfg.Metrics.sizes.Observe(w.mu.open.bytes)
	w.mu.queue = append(w.mu.queue, w.mu.open)
	w.mu.open, w.mu.sealAsked = nil, false
	w.wake()
}

func (w *Writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Seal asks that the open slot is written as soon as a put may start.
func (w *Writer) Seal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.open != nil {
		w.mu.sealAsked = true
		w.wake()
	}
}

// Fence ends the WAL because the caller knows that another incarnation has
// sealed it or will: everything outstanding fails as if a fence had been met.
func (w *Writer) Fence(reason error) {
	w.fence(fmt.Errorf("WAL of %s: %w: %w", w.cfg.Incarnation, commitlog.ErrFenced, reason))
}

// fence stops everything; the first reason stays.
func (w *Writer) fence(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.fenced == nil {
		w.mu.fenced = err
		w.wake()
	}
}

// Close refuses further appends, writes what is open, waits until all is
// resolved or ctx ends (what is left then fails with commitlog.ErrClosed), and
// gives the cache up. Run has returned when Close returns. It answers ctx's
// error or the reason of a fence if something failed.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	first := !w.mu.closing
	w.mu.closing = true
	stop := w.mu.stop
	w.wake()
	w.mu.Unlock()
	if stop == nil { // never ran
		if first {
			if w.failAll(errWriterClosed) > 0 {
				w.run.result = errWriterClosed
			}
			close(w.over)
		}
	} else {
		select {
		case <-w.over:
		case <-ctx.Done():
			stop()
			<-w.over
		}
	}
	if first {
		w.dropCache()
	}
	return w.run.result
}
