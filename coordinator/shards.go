package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"ponor/metadata"
	"ponor/partition"
)

// Partitions are the partitions that this node hosts; *partition.Set is one.
type Partitions interface {
	// Await returns a partition that can serve, and waits a while for one that is
	// opening.
	Await(ctx context.Context, topic metadata.TopicID, number int32) (*partition.Partition, error)
	// CatchUp returns once Await goes by metadata that is as new as the quorum's was
	// at the call.
	CatchUp(ctx context.Context) error
}

// Config is what Shards need. Topic, New, Image and Partitions are required.
type Config[M Machine] struct {
	// Topic is the name of the internal topic.
	Topic string
	// New makes an empty machine for a partition.
	New func(number int32) M
	// Image is the newest metadata this node has.
	Image func() *metadata.Image
	// Partitions are this node's, which must tell Opened and Closed of them.
	Partitions Partitions
	// LoadWait is how long a call waits for a shard that is loading; default
	// 500 ms. Longer and the connection serves nothing else meanwhile; shorter and
	// clients meet ErrLoading and back off.
	LoadWait time.Duration
	// CompactBytes is the size in bytes below which a log is left alone; default
	// 16 MiB. Smaller logs load faster and are written again more often.
	CompactBytes int64
	// AheadBytes is the size in bytes of a log from which on it is replayed at its next
	// owner before it moves, see SendAhead; default 16 KiB: shorter ones are
	// there at once, also from a slow store.
	AheadBytes int64
	// Parallel bounds how many shards load at a time, default 16; each holds up
	// to 4 MiB of records meanwhile.
	Parallel int
	// Metrics counts; nil: not for anyone to see.
	Metrics *Metrics
	Logger  *slog.Logger
}

// shardKey names a shard.
type shardKey struct {
	topic  metadata.TopicID
	number int32
}

// Shards are the partitions of one internal topic that this node owns, each with
// its machine. All methods are safe for concurrent use.
type Shards[M Machine] struct {
	cfg     Config[M]
	loading chan struct{} // a token for each shard that loads
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup // of the shards' goroutines

	mu     sync.Mutex
	shards map[shardKey]*shard[M]
	ahead  map[shardKey]*ahead[M]            // of partitions that are about to move here
	open   map[shardKey]*partition.Partition // that this node serves
	closed bool
}

// New returns Shards that own nothing until Opened. Close ends what they started.
func New[M Machine](cfg Config[M]) *Shards[M] {
	cfg.LoadWait = cmp.Or(cfg.LoadWait, 500*time.Millisecond)
	cfg.CompactBytes = cmp.Or(cfg.CompactBytes, 16<<20)
	cfg.AheadBytes = cmp.Or(cfg.AheadBytes, 16<<10)
	cfg.Parallel = cmp.Or(cfg.Parallel, 16)
	if cfg.Metrics == nil {
		cfg.Metrics = new(Metrics)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Shards[M]{cfg: cfg, loading: make(chan struct{}, cfg.Parallel),
		shards: make(map[shardKey]*shard[M]), ahead: make(map[shardKey]*ahead[M]), open: make(map[shardKey]*partition.Partition)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func keyOf(p *partition.Partition) shardKey {
	return shardKey{metadata.TopicID(p.ID().TopicID), p.ID().Partition}
}

// Opened is told of every partition that this node begins to serve, of whatever
// topic, before it serves it: partition.SetConfig.Opened.
func (s *Shards[M]) Opened(p *partition.Partition) {
	if p.ID().Topic != s.cfg.Topic {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[keyOf(p)] = p
	a := s.ahead[keyOf(p)]
	s.dropAhead(keyOf(p), a)
	s.load(p, 0, a)
}

// load begins to load a shard, after a pause, in place of one that was there, from
// what was replayed ahead if that is not nil. mu is held.
func (s *Shards[M]) load(p *partition.Partition, pause time.Duration, a *ahead[M]) {
	if s.closed {
		return
	}
	sh := newShard(s, p)
	sh.ahead = a
	s.shards[keyOf(p)] = sh
	s.wg.Go(func() { sh.run(pause) })
}

// again has a shard that was lost load anew, if its partition is still here.
func (s *Shards[M]) again(sh *shard[M], pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[keyOf(sh.part)] == sh.part {
		s.load(sh.part, pause, nil)
	}
}

// Closed is told of every partition that this node gave up:
// partition.SetConfig.Closed.
func (s *Shards[M]) Closed(p *partition.Partition) {
	if p.ID().Topic != s.cfg.Topic {
		return
	}
	k := keyOf(p)
	s.mu.Lock()
	if s.open[k] == p {
		delete(s.open, k)
	}
	sh := s.shards[k]
	s.mu.Unlock()
	if sh != nil && sh.part == p {
		sh.lose(fmt.Errorf("%w: partition %s is not on this node any more", ErrNotCoordinator, p.ID()))
	}
}

// Close gives up every shard and returns when nothing runs any more.
func (s *Shards[M]) Close() {
	s.mu.Lock()
	s.closed = true
	for k, a := range s.ahead {
		s.dropAhead(k, a)
	}
	all := slices.Collect(maps.Values(s.shards))
	s.mu.Unlock()
	for _, sh := range all {
		sh.lose(fmt.Errorf("%w: this broker is shutting down", ErrNotCoordinator))
	}
	s.cancel()
	s.wg.Wait()
}

func (s *Shards[M]) shard(k shardKey) *shard[M] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[k]
}

// forget drops a shard that was lost, unless another has its place.
func (s *Shards[M]) forget(sh *shard[M]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := keyOf(sh.part); s.shards[k] == sh {
		delete(s.shards, k)
	}
}

// find is the loaded shard of a key, after a wait for it if need be.
func (s *Shards[M]) find(ctx context.Context, key string) (*shard[M], error) {
	t, ok := s.topic()
	if !ok {
		return nil, fmt.Errorf("%w: topic %s does not exist yet; FindCoordinator creates it", ErrUnavailable, s.cfg.Topic)
	}
	sh, err := s.here(ctx, shardKey{t.ID, PartitionOf(key, t.Partitions)})
	if err != nil {
		return nil, fmt.Errorf("coordinator of %q: %w", key, err)
	}
	return sh, sh.await(ctx, s.cfg.LoadWait)
}

func (s *Shards[M]) topic() (metadata.Topic, bool) {
	t, ok := s.cfg.Image().Topic(s.cfg.Topic)
	return t, ok && !t.Deleting
}

// here is the shard of a partition, maybe after a wait for it to open.
func (s *Shards[M]) here(ctx context.Context, k shardKey) (*shard[M], error) {
	if sh := s.shard(k); sh != nil {
		return sh, nil
	}
	_, err := s.cfg.Partitions.Await(ctx, k.topic, k.number)
	if sh := s.shard(k); sh != nil {
		return sh, nil
	}
	return nil, absent(k.number, err)
}

// errNoShard: the partition is here and cannot be used: its log makes no sense, or is
// lost, and it is about to go.
var errNoShard = errors.New("its log does not load, or it is closing")

// catchUp is that of Partitions, for as long as a call may wait.
func (s *Shards[M]) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LoadWait)
	defer cancel()
	return s.cfg.Partitions.CatchUp(ctx)
}

// absent is why there is no shard of a partition.
func absent(number int32, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%w: partition %d, which keeps it: %w", ErrNotCoordinator, number, errNoShard)
	case errors.Is(err, partition.ErrOpening):
		return fmt.Errorf("%w: %w", ErrLoading, err)
	case errors.Is(err, partition.ErrNotLeader):
		return fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// Do runs f on the machine that keeps key and returns once all that f can have
// seen or done is durable, and this node provably was the coordinator at arrived
// or later. f must not run for long. Errors: ErrNotCoordinator, ErrLoading,
// ErrUnavailable, ErrTooLarge: f did not run, or nobody has seen or will see what
// it did, except that with ErrNotCoordinator and ctx's error its records may yet
// become durable (C4).
func (s *Shards[M]) Do(ctx context.Context, key string, arrived time.Time, f func(m M, now time.Time) []Record) error {
	_, err := Ask(ctx, s, key, arrived, func(m M, now time.Time, reply func(struct{})) []Record {
		reply(struct{}{})
		return f(m, now)
	})
	return err
}

// All runs f on every machine of this node, one after another, with the promises of
// Do for each, and returns the answers. Partitions that others have, or get meanwhile,
// are left out. An error says that there would be more, and then there are none:
// ErrLoading that one still loads, ErrUnavailable that this node cannot prove that it
// owns one (ans-2), or none but these, or that the log of one makes no sense.
func All[T any, M Machine](ctx context.Context, s *Shards[M], arrived time.Time, f func(m M, now time.Time) (T, []Record)) ([]T, error) {
	t, ok := s.topic()
	if !ok {
		return nil, nil
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	fresh := false
	var answers []T
	var missing error // why there would be more; the others are asked all the same
	for number := range t.Partitions {
		k := shardKey{t.ID, number}
		if !fresh && s.shard(k) == nil {
			// It may have come here a moment ago.
			if err := s.catchUp(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
			fresh = true
		}
		sh, err := s.here(over, k)
		if sh == nil && errors.Is(err, ErrLoading) {
			sh, err = s.here(ctx, k) // it is ours, and opens
		}
		if err == nil {
			err = sh.await(ctx, s.cfg.LoadWait)
		}
		var answer T
		if err == nil {
			answer, err = ask(ctx, sh, arrived, func(m M, now time.Time, reply func(T)) []Record {
				v, records := f(m, now)
				reply(v)
				return records
			})
		}
		switch {
		case err == nil:
			answers = append(answers, answer)
		case !errors.Is(err, ErrNotCoordinator):
			return nil, err
		case sh != nil && s.shard(k) != nil && s.shard(k) != sh:
			missing = cmp.Or(missing, fmt.Errorf("%w: partition %s begins anew", ErrLoading, sh.part.ID()))
		case errors.Is(err, errNoShard), sh != nil && s.serves(sh.part):
			missing = cmp.Or(missing, fmt.Errorf("%w: %w", ErrUnavailable, err))
		}
	}
	if missing != nil {
		return nil, missing
	}
	return answers, nil
}

// serves says whether this node has the partition, loaded or not.
func (s *Shards[M]) serves(p *partition.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[keyOf(p)] == p
}
