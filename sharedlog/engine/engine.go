package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ponor/commitlog"
	"ponor/internal/seldom"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/stream"
	"ponor/sharedlog/wal"
)

// Engine keeps the streams of one incarnation. All methods are safe for
// concurrent use.
type Engine struct {
	cfg       Config
	clusterID string
	prefix    string // "<cluster id>/<generation>" of our own objects
	gen       uint64
	wal       *wal.Writer
	reader    *reader

	fencedOnce sync.Once
	fenced     chan struct{} // closed once the incarnation is lost
	fencedErr  atomic.Pointer[error]
	life       context.Context // ends when everything is lost
	end        context.CancelFunc

	proof   proof
	said    seldom.Log    // what goes wrong again and again
	full    atomic.Bool   // unpacked WAL at its bound: push back
	counter atomic.Uint64 // of our objects' names

	// ledger holds a token while a command that moves committed ends is planned
	// or without outcome: flips and packs plan from where the last one ended.
	ledger chan struct{}

	kick    chan struct{} // packing may be due
	tidy    chan struct{} // maintenance may be due
	garbage chan struct{} // a sweep will find some

	mu       sync.Mutex
	stop     context.CancelFunc // ends Run
	done     chan struct{}      // closed when Run has returned
	closing  bool
	lost     error // why nothing can be opened any more
	streams  map[commitlog.StreamID]*streamState
	unpacked []*wal.Slot // durable, in order, from the trim on
	bytes    int64       // of record data in unpacked
	since    time.Time   // when the oldest of unpacked became durable
	force    bool        // someone waits for a pack
	late     int         // commands that have waited long for the metadata
	backlog  struct {    // of unpacked, what an outage of the metadata has left
		slots int
		bytes int64
	}
	packed  []*wal.Slot // committed elsewhere, perhaps still in memory
	trim    uint64      // first slot of unpacked
	round   chan struct{}
	pending map[string]claim // objects that may still get their first reference
	// sealing has the recovery indexes among pending: the controller submits
	// their Sealed, so they are settled when the WAL is sealed, by anyone.
	sealing map[string]metadata.Incarnation
	// adopted are slots that an index object points into, or may, until they are swept.
	adopted map[string]struct{}
}

// New returns an Engine that works once Run is called.
func New(cfg Config) (*Engine, error) {
	if cfg.Bucket == nil || cfg.Meta == nil || cfg.Incarnation.IsZero() {
		return nil, errors.New("open engine: Bucket, Meta and Incarnation are required")
	}
	cfg.defaults()
	img := cfg.Meta.Image()
	w, ok := img.WAL(cfg.Incarnation)
	if !ok {
		return nil, fmt.Errorf("open engine: the metadata at index %d does not know incarnation %s", img.Index(), cfg.Incarnation)
	}
	e := &Engine{
		cfg: cfg, clusterID: img.ClusterID(), gen: w.Generation,
		prefix:  prefix(img.ClusterID(), w.Generation),
		fenced:  make(chan struct{}),
		ledger:  make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
		tidy:    make(chan struct{}, 1),
		garbage: make(chan struct{}, 1),
		streams: make(map[commitlog.StreamID]*streamState),
		round:   make(chan struct{}),
		pending: make(map[string]claim),
		sealing: make(map[string]metadata.Incarnation),
		adopted: make(map[string]struct{}),
		trim:    w.Trim,
	}
	var err error
	e.wal, err = wal.New(wal.Config{
		Bucket: objstore.For(cfg.Bucket, objstore.ReasonWAL), Prefix: e.prefix, ClusterID: e.clusterID, Generation: e.gen, Incarnation: cfg.Incarnation,
		Budget: cfg.Budget, CacheBytes: cfg.CacheBytes, MaxObject: cfg.MaxObject, MaxInflight: cfg.MaxInflight,
		Gather: cfg.Gather, Linger: cfg.Linger, Rand: cfg.Rand, Logger: cfg.Logger,
		OnDurable: e.onDurable, OnFenced: e.fence, Metrics: &cfg.Metrics.WAL,
	})
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.reader = newReader(e)
	e.proof.turn = make(chan struct{}, 1)
	return e, nil
}

// bucket is the store for requests of one reason.
func (e *Engine) bucket(r objstore.Reason) objstore.Bucket { return objstore.For(e.cfg.Bucket, r) }

func prefix(cluster string, generation uint64) string {
	return fmt.Sprintf("%s/%d", cluster, generation)
}

// Run writes the WAL, packs, maintains and sweeps until ctx ends, the
// incarnation is fenced (the error wraps commitlog.ErrFenced) or Close. It is
// called once.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	e.mu.Lock()
	closed := e.closing
	e.stop, e.done = cancel, done
	e.mu.Unlock()
	if closed {
		return fmt.Errorf("run engine of %s: %w", e.cfg.Incarnation, commitlog.ErrClosed)
	}
	var tasks sync.WaitGroup
	for _, loop := range []func(context.Context){e.packLoop, e.maintainLoop, e.sweepLoop, e.reader.warmLoop, e.reader.warmLoop} {
		tasks.Go(func() { loop(ctx) })
	}
	err := e.wal.Run(ctx)
	cancel()
	tasks.Wait()
	e.lose(errors.Join(commitlog.ErrClosed, err))
	e.endRound() // nobody packs any more: whoever waits for it shall look again
	if p := e.fencedErr.Load(); p != nil {
		return *p
	}
	return err
}

// Close makes what was appended durable as far as ctx allows, ends Run and gives
// memory back; it must be called, also after a fence. Unpacked data stays in the
// WAL, where whoever seals it finds it.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	err := e.wal.Close(ctx)
	e.mu.Lock()
	stop, done := e.stop, e.done
	e.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
	e.lose(fmt.Errorf("engine of %s: %w", e.cfg.Incarnation, commitlog.ErrClosed))
	return err
}

// Fenced is closed when the incarnation has lost everything: register anew and
// make a new Engine.
func (e *Engine) Fenced() <-chan struct{} { return e.fenced }

// FencedErr says why, nil while it is not fenced.
func (e *Engine) FencedErr() error {
	if p := e.fencedErr.Load(); p != nil {
		return *p
	}
	return nil
}

// WAL gives access to the age of the oldest unresolved slot and to the store's
// trouble, for heartbeats and metrics.
func (e *Engine) WAL() *wal.Writer { return e.wal }

// Fence ends the incarnation because of reason, as if the WAL had met a fence.
func (e *Engine) Fence(reason error) { e.fence(reason) }

// fence ends the incarnation: every stream answers ErrFenced from now on and
// everybody who waits is woken. The WAL calls it when it met a fence, the
// background work when the metadata refused it (cmd-3).
func (e *Engine) fence(err error) {
	e.fencedOnce.Do(func() {
		if !errors.Is(err, commitlog.ErrFenced) {
			err = fmt.Errorf("%w: %w", commitlog.ErrFenced, err)
		}
		// First: while the streams end one by one, a flip of unknown outcome lets
		// appends in again (cmd-2). It ends Run.
		e.wal.Fence(err)
		e.fencedErr.Store(&err)
		close(e.fenced)
		e.lose(err)
		e.cfg.Logger.Error("incarnation is fenced", "broker", e.cfg.Incarnation.String(), "err", err)
	})
}

// lose fails every stream with err, those opened from now on too; the first
// reason stays.
func (e *Engine) lose(err error) {
	e.end()
	e.mu.Lock()
	if e.lost == nil {
		e.lost = err
	}
	all := make([]*streamState, 0, len(e.streams))
	for _, s := range e.streams {
		all = append(all, s)
	}
	e.mu.Unlock()
	for _, s := range all {
		s.fail(err)
	}
}

// Get implements stream.Client.
func (e *Engine) Get(id commitlog.StreamID) (stream.Stream, bool) {
	s := e.state(id)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return nil, false
	}
	return s.open, true
}

func (e *Engine) state(id commitlog.StreamID) *streamState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams[id]
}

// onDurable is the WAL's news, slot by slot in order. Streams' confirm offsets
// move here, before the Commits of the slot resolve (T2, C7).
func (e *Engine) onDurable(seq uint64, slot *wal.Slot) {
	e.proof.slot(slot.Opened())
	index := slot.Index()
	var n int64
	states := make([]*streamState, len(index.Chunks))
	e.mu.Lock()
	for i := range index.Chunks {
		n += index.Chunks[i].Len
		states[i] = e.streams[index.Chunks[i].Stream]
	}
	if len(e.unpacked) == 0 {
		e.since = time.Now()
	}
	first := len(e.unpacked) == 0
	e.unpacked = append(e.unpacked, slot)
	e.bytes += n
	e.boundLocked()
	due := first || e.dueLocked()
	e.mu.Unlock()
	if due {
		poke(e.kick)
	}
	for i, s := range states {
		if s != nil {
			s.confirmTo(index.Chunks[i].End)
		}
	}
}

// outageFactor is by how much the bounds on unpacked WAL are raised while the
// metadata takes no commands. They keep takeovers short, of which there are none
// without a quorum, and 64 times is enough for ten minutes at full load.
const outageFactor = 64

// boundLocked notes whether unpacked WAL is at its bound.
func (e *Engine) boundLocked() {
	slots, bytes := e.cfg.MaxSlots, e.cfg.MaxUnpacked
	if e.late > 0 {
		e.backlog.slots, e.backlog.bytes = len(e.unpacked), e.bytes
		slots, bytes = slots*outageFactor, bytes*outageFactor
	} else {
		// What an outage has left behind must shrink, but appends need not wait for
		// all of it.
		e.backlog.slots, e.backlog.bytes = min(e.backlog.slots, len(e.unpacked)), min(e.backlog.bytes, e.bytes)
		slots, bytes = slots+e.backlog.slots, bytes+e.backlog.bytes
	}
	e.full.Store(len(e.unpacked) >= slots || e.bytes >= bytes)
}

// outage counts commands that wait for the metadata for longer than a takeover of
// its leader should take.
func (e *Engine) outage(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.late += n; n > 0 && e.late == 1 {
		e.cfg.Logger.Warn("the metadata takes no commands: unpacked WAL may grow beyond its bound", "broker", e.cfg.Incarnation.String())
	}
	e.boundLocked()
}

// dueLocked says whether packing should start now, age aside.
func (e *Engine) dueLocked() bool {
	return len(e.unpacked) > 0 && (e.force || e.bytes >= e.cfg.PackBytes || len(e.unpacked) >= max(e.cfg.MaxSlots/2, 1))
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// key is the store's key of an object named in an extent: objects lie under the
// generation of the incarnation that made them.
func (e *Engine) key(object string) string {
	if n, err := metadata.ParseObjectName(object); err == nil {
		if w, ok := e.cfg.Meta.Image().WAL(n.Creator); ok {
			return prefix(e.clusterID, w.Generation) + "/" + object
		}
	}
	return e.prefix + "/" + object
}
