package sharedlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/internal/metrics"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/engine"
	"ponor/sharedlog/stream"
)

// Config configures a Store; see engine.Config for every field.
type Config = engine.Config

// Meta is what a Store needs of the metadata.
type Meta = engine.Meta

// Store keeps the shared logs of one incarnation of a broker. It implements
// commitlog.Store and the controller's Sealer. After Fenced, register anew and
// make a new Store. All methods are safe for concurrent use.
type Store struct {
	engine *engine.Engine
	made   time.Time
	client stream.Client
	ctx    context.Context // of background loads; ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

var _ commitlog.Store = (*Store)(nil)

// New returns a Store that works once Run is called. It fails if the metadata
// does not know the incarnation.
func New(cfg Config) (*Store, error) {
	e, err := engine.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{engine: e, made: time.Now(), client: e}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Run writes the WAL, packs, maintains and sweeps until ctx ends, the
// incarnation is fenced (the error wraps commitlog.ErrFenced) or Close.
func (s *Store) Run(ctx context.Context) error { return s.engine.Run(ctx) }

// Close makes what was appended durable, as far as ctx allows, ends Run and gives
// memory back; it must be called, also after a fence.
// Logs answer commitlog.ErrClosed then. What is not packed stays in the WAL for
// whoever seals it.
func (s *Store) Close(ctx context.Context) error {
	s.cancel()
	err := s.engine.Close(ctx)
	s.tasks.Wait()
	return err
}

// Fenced is closed when the incarnation has lost everything: every Log answers
// commitlog.ErrFenced. FencedErr says why.
func (s *Store) Fenced() <-chan struct{} { return s.engine.Fenced() }

// FencedErr is the reason after Fenced, nil before.
func (s *Store) FencedErr() error { return s.engine.FencedErr() }

// Fence says from outside, because of reason, that the incarnation has ended:
// what waits for the store fails at once with commitlog.ErrFenced, its outcome
// unknown, instead of waiting for a store that hangs or for the fence in the WAL.
func (s *Store) Fence(reason error) { s.engine.Fence(reason) }

// OldestUnresolved is the age of the oldest append that is not durable, for
// heartbeats: a broker whose store alone is stuck must not sit on its
// partitions.
func (s *Store) OldestUnresolved() time.Duration { return s.engine.WAL().OldestUnresolved() }

// Trouble is why the store does not take writes now, and since when; nil if it
// does.
func (s *Store) Trouble() (since time.Time, err error) { return s.engine.WAL().Trouble() }

// ProvenSince says, without waiting, that this incarnation was in its rights at
// t or later (ans-2): a slot of its WAL or a read barrier begun since says so.
func (s *Store) ProvenSince(t time.Time) bool { return s.engine.ProvenSince(t) }

// Prove returns nil as soon as ProvenSince(t) holds, asking the quorum if need
// be. An error means that there is no proof until ctx ended.
func (s *Store) Prove(ctx context.Context, t time.Time) error { return s.engine.Prove(ctx, t) }

// Flip hands the logs of streams to other incarnations without copying; see
// engine.Flip.
func (s *Store) Flip(ctx context.Context, streams []*metadatapb.FlipStream, freeze func()) []error {
	return s.engine.Flip(ctx, streams, freeze)
}

// Stats are the store's numbers now.
func (s *Store) Stats() engine.Stats { return s.engine.Stats() }

// Metrics are what Stores count; see Config.
type Metrics = engine.Metrics

// Show writes to a page what is so now; what was counted is in Config.Metrics.
func (s *Store) Show(p *metrics.Page) { s.engine.Show(p) }

// Seal ends the WAL of another incarnation and returns the command that makes
// the metadata know; see engine.Seal.
func (s *Store) Seal(ctx context.Context, w metadata.WAL) (*metadatapb.Sealed, error) {
	return s.engine.Seal(ctx, w)
}

// Sweep looks for garbage now, as Run does periodically, and returns how many
// objects it deleted.
func (s *Store) Sweep(ctx context.Context) (int, error) { return s.engine.Sweep(ctx) }

// Open implements commitlog.Store. It waits until the metadata names this
// incarnation as the owner at epoch and every older WAL is sealed.
func (s *Store) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	l := &Log{store: s, settings: opts.Settings}
	st, err := s.client.Open(ctx, id.Stream, stream.OpenOptions{
		Epoch: epoch, Confirmed: opts.OnStable, Checkpoints: opts.Checkpoints,
		RetentionAge: func() time.Duration { return l.current().RetentionAge },
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", id, err)
	}
	l.stream = st
	if err := l.load(ctx); err != nil {
		_ = st.Close(ctx)
		return nil, fmt.Errorf("open %s: %w", id, err)
	}
	return l, nil
}

// Remove implements commitlog.Store. The data of a stream that the metadata no
// longer names is garbage and swept, soon; here it is only forgotten.
func (s *Store) Remove(ctx context.Context, id commitlog.ID) error {
	defer s.engine.SweepSoon()
	st, ok := s.client.Get(id.Stream)
	if !ok {
		return nil
	}
	return st.Destroy(ctx)
}
