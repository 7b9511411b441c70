package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	closed bool
}

// New returns Shards that own nothing until Opened. Close ends what they started.
func New[M Machine](cfg Config[M]) *Shards[M] {
	cfg.LoadWait = cmp.Or(cfg.LoadWait, 500*time.Millisecond)
	cfg.CompactBytes = cmp.Or(cfg.CompactBytes, 16<<20)
	cfg.Parallel = cmp.Or(cfg.Parallel, 16)
	if cfg.Metrics == nil {
		cfg.Metrics = new(Metrics)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Shards[M]{cfg: cfg, loading: make(chan struct{}, cfg.Parallel), shards: make(map[shardKey]*shard[M])}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Opened is told of every partition that this node begins to serve, of whatever
// topic, before it serves it: partition.SetConfig.Opened.
func (s *Shards[M]) Opened(p *partition.Partition) {
	if p.ID().Topic == s.cfg.Topic {
		s.start(p)
	}
}

// start begins to load a shard, in place of one that was there.
func (s *Shards[M]) start(p *partition.Partition) {
	id := p.ID()
	k := shardKey{metadata.TopicID(id.TopicID), id.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	sh := newShard(s, p)
	s.shards[k] = sh
	s.wg.Go(sh.run)
}

// Closed is told of every partition that this node gave up:
// partition.SetConfig.Closed.
func (s *Shards[M]) Closed(p *partition.Partition) {
	id := p.ID()
	if id.Topic != s.cfg.Topic {
		return
	}
	if sh := s.shard(shardKey{metadata.TopicID(id.TopicID), id.Partition}); sh != nil && sh.part == p {
		sh.lose(fmt.Errorf("%w: partition %s is not on this node any more", ErrNotCoordinator, id))
	}
}

// Close gives up every shard and returns when nothing runs any more.
func (s *Shards[M]) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.all()
	s.mu.Unlock()
	for _, sh := range all {
		sh.lose(fmt.Errorf("%w: this broker is shutting down", ErrNotCoordinator))
	}
	s.cancel()
	s.wg.Wait()
}

// all lists the shards. mu is held.
func (s *Shards[M]) all() []*shard[M] {
	out := make([]*shard[M], 0, len(s.shards))
	for _, sh := range s.shards {
		out = append(out, sh)
	}
	return out
}

func (s *Shards[M]) shard(k shardKey) *shard[M] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[k]
}

// forget drops a shard that was lost, unless another has its place.
func (s *Shards[M]) forget(sh *shard[M]) {
	id := sh.part.ID()
	k := shardKey{metadata.TopicID(id.TopicID), id.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shards[k] == sh {
		delete(s.shards, k)
	}
}

// find is the loaded shard of a key, after a wait for it if need be.
func (s *Shards[M]) find(ctx context.Context, key string) (*shard[M], error) {
	t, ok := s.cfg.Image().Topic(s.cfg.Topic)
	if !ok || t.Deleting {
		return nil, fmt.Errorf("%w: topic %s does not exist yet; FindCoordinator creates it", ErrUnavailable, s.cfg.Topic)
	}
	k := shardKey{t.ID, PartitionOf(key, t.Partitions)}
	sh := s.shard(k)
	if sh == nil {
		_, err := s.cfg.Partitions.Await(ctx, k.topic, k.number)
		if sh = s.shard(k); sh == nil {
			return nil, absent(key, err)
		}
	}
	return sh, sh.await(ctx, s.cfg.LoadWait)
}

// absent is why there is no shard for a key.
func absent(key string, err error) error {
	switch {
	case err == nil: // its log is lost, and it is about to go
		return fmt.Errorf("%w of %q: the partition that keeps it is closing", ErrNotCoordinator, key)
	case errors.Is(err, partition.ErrOpening):
		return fmt.Errorf("%w for %q: %w", ErrLoading, key, err)
	case errors.Is(err, partition.ErrNotLeader):
		return fmt.Errorf("%w of %q: %w", ErrNotCoordinator, key, err)
	}
	return fmt.Errorf("%w for %q: %w", ErrUnavailable, key, err)
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

// All runs f on every loaded machine of this node, one after another, with the
// promises of Do for each. Shards that are lost meanwhile are left out. ErrLoading
// says that one is still loading, after all the others were done.
func (s *Shards[M]) All(ctx context.Context, arrived time.Time, f func(m M, now time.Time) []Record) error {
	s.mu.Lock()
	all := s.all()
	s.mu.Unlock()
	var loading error
	for _, sh := range all {
		err := sh.await(ctx, s.cfg.LoadWait)
		if err == nil {
			_, err = ask(ctx, sh, arrived, func(m M, now time.Time, reply func(struct{})) []Record {
				reply(struct{}{})
				return f(m, now)
			})
		}
		switch {
		case errors.Is(err, ErrLoading):
			loading = err
		case err != nil && !errors.Is(err, ErrNotCoordinator):
			return err
		}
	}
	return loading
}
