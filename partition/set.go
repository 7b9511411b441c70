package partition

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Meta is what a Set needs of the metadata, a controller node.
type Meta interface {
	// Image is the newest image this node has.
	Image() *metadata.Image
	// Changed is closed at the next change of Image.
	Changed() <-chan struct{}
	// Barrier returns an image that is as new as the quorum's was at the call.
	Barrier(ctx context.Context) (*metadata.Image, error)
	// SubmitOwn submits a command of this incarnation (cmd-1).
	SubmitOwn(ctx context.Context, c *metadatapb.Command) (metadata.Result, error)
}

// SetConfig configures a Set.
type SetConfig struct {
	Meta        Meta
	Incarnation metadata.Incarnation
	// Shared and Local open the logs of topics by their storage.mode. Local may
	// be nil: local topics then do not open on this node.
	Shared, Local commitlog.Store
	// Proof overrides the default, read barriers through Meta. A shared store
	// that proves by its own writes spares the quorum.
	Proof Proof
	// ProducerExpiration is producer.id.expiration.ms, see Host.
	ProducerExpiration time.Duration
	// RetentionInterval is log.retention.check.interval.ms; default 5 min.
	// Short ones cost a pass over all partitions each; long ones keep data.
	RetentionInterval time.Duration
	// Parallel bounds how many partitions open, close or are cleaned at a time;
	// default 64. Low ones make a takeover of many partitions slow, high ones
	// flood the store.
	Parallel int
	// OpenWait is how long Await parks a request for a partition that is
	// opening; default 500 ms. Requests of a connection are answered in order,
	// so a parked one holds up those behind it.
	OpenWait time.Duration
	// CloseTimeout bounds how long a closing log may wait for its outstanding
	// appends, and all of them together when the Set stops; default 10 s.
	CloseTimeout time.Duration
	// Opened and Closed are told of each partition when it is about to be served
	// and when it was given up (Closed also of one that was never served); they
	// must not wait. nil does not care.
	Opened, Closed func(*Partition)
	// Metrics counts for this Set and for those that come after it; nil: not for
	// anyone to see.
	Metrics *Metrics
	Logger  *slog.Logger
}

// key names a partition.
type key struct {
	topic  metadata.TopicID
	number int32
}

// Set is the partitions that this node hosts. Run keeps it in step with the
// image; all other methods are safe for concurrent use at any time.
//
// hosting.mu guards what is wanted and what is under way; serving.mu the open
// partitions alone, so that requests never wait for a pass over all.
type Set struct {
	cfg     SetConfig
	host    Host
	barrier *BarrierProof // to catch up with the quorum

	serving struct {
		mu    sync.RWMutex
		m     map[key]*Partition
		given map[key]given // what was handed over lately
	}
	hosting struct {
		mu      sync.Mutex
		m       map[key]*hosted
		queue   []*hosted // have work to do, each at most once
		workers int
		opened  int    // since memory was last given back
		failing int    // wanted, but the last attempt failed
		topic   string // of the last that was opened, for settings
		latest  func() metadata.TopicSettings
		passed  chan struct{} // closed after the next reconcile
		doomed  map[metadata.TopicID]*doomed
		stopped bool
		stopAt  time.Time // when stopped: how long closing may wait, in all
	}
	kick chan struct{}  // wakes Run: something needs a retry
	reap chan struct{}  // wakes the reaper: a deleted topic may be ready
	wg   sync.WaitGroup // everything that Run started
}

// NewSet returns a Set that hosts nothing until Run.
func NewSet(cfg SetConfig) *Set {
	cfg.RetentionInterval = cmp.Or(cfg.RetentionInterval, 5*time.Minute)
	cfg.Parallel = cmp.Or(cfg.Parallel, 64)
	cfg.OpenWait = cmp.Or(cfg.OpenWait, 500*time.Millisecond)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 10*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = new(Metrics)
	}
	barrier := NewBarrierProof(cfg.Meta.Barrier)
	if cfg.Proof == nil {
		cfg.Proof = barrier
	}
	s := &Set{cfg: cfg, barrier: barrier, kick: make(chan struct{}, 1), reap: make(chan struct{}, 1)}
	s.host = Host{Proof: cfg.Proof, Owns: s.owns, ProducerExpiration: cfg.ProducerExpiration, Closed: cfg.Closed, Metrics: cfg.Metrics, Logger: cfg.Logger}
	s.serving.m = make(map[key]*Partition)
	s.serving.given = make(map[key]given)
	s.hosting.m = make(map[key]*hosted)
	s.hosting.doomed = make(map[metadata.TopicID]*doomed)
	s.hosting.passed = make(chan struct{})
	return s
}

// owns is Host.Owns.
func (s *Set) owns(topic metadata.TopicID, number int32, epoch commitlog.Epoch) bool {
	img := s.cfg.Meta.Image()
	p, ok := img.Partition(topic, number)
	return ok && p.Owner == s.cfg.Incarnation && p.Epoch == epoch && img.Live(s.cfg.Incarnation)
}

// Get is an open partition. Errors: ErrUnknown, ErrNotLeader, and ErrOpening
// (which is an ErrNotLeader too) if it is ours but not open yet. The text says
// why.
func (s *Set) Get(topic metadata.TopicID, number int32) (*Partition, error) {
	k := key{topic, number}
	s.serving.mu.RLock()
	p := s.serving.m[k]
	s.serving.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	_, err := s.absent(k)
	return nil, err
}

// Await is Get for a request that may wait: if the partition is opening, up to
// OpenWait. One that is not ours may have become so a moment ago, and whoever
// sent the request has heard of it first, so the quorum is asked; but not about
// one that this node has just handed over.
func (s *Set) Await(ctx context.Context, topic metadata.TopicID, number int32) (*Partition, error) {
	p, err := s.Get(topic, number)
	if err == nil {
		return p, nil
	}
	timer := time.NewTimer(s.cfg.OpenWait)
	defer timer.Stop()
	k := key{topic, number}
	for asked := false; ; {
		change, why := s.absent(k)
		// Asked again after the channel was taken, so that nothing is missed.
		if p, err = s.Get(topic, number); err == nil {
			return p, nil
		}
		if change == nil {
			if asked || s.justGave(k) || !s.catchUpSoon(ctx) {
				return nil, why
			}
			asked = true
			continue
		}
		select {
		case <-change:
		case <-timer.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}

// catchUpPatience bounds the wait for a newer image. A request that came to the
// wrong broker is better sent on soon.
const catchUpPatience = 100 * time.Millisecond

// catchUpSoon is CatchUp within catchUpPatience; false if that failed.
func (s *Set) catchUpSoon(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpPatience)
	defer cancel()
	return s.CatchUp(ctx) == nil
}

// CatchUp has the image be as new as the quorum's is now. Those who ask at the same
// time share a barrier.
func (s *Set) CatchUp(ctx context.Context) error { return s.barrier.Prove(ctx, time.Now()) }

// absent says why a partition is not open, and if that may change soon, by
// which channel.
func (s *Set) absent(k key) (<-chan struct{}, error) {
	part, ok := s.cfg.Meta.Image().Partition(k.topic, k.number)
	if !ok || part.Deleting {
		return nil, fmt.Errorf("%w: partition %d of topic %s", ErrUnknown, k.number, k.topic)
	}
	if part.Owner != s.cfg.Incarnation {
		return nil, fmt.Errorf("%w: %s-%d is led by broker %d at epoch %d", ErrNotLeader, part.TopicName, k.number, part.Owner.Broker, part.Epoch)
	}
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	if s.hosting.stopped {
		return nil, fmt.Errorf("%w: this broker is shutting down", ErrNotLeader)
	}
	why := "its turn to open has not come"
	change := s.hosting.passed
	if h := s.hosting.m[k]; h != nil && h.wanted {
		if h.change == nil {
			h.change = make(chan struct{})
		}
		change = h.change
		switch {
		case !h.openable:
			why = "the write-ahead log of its last owner is not sealed yet"
		case h.trouble() != nil:
			why = h.trouble().Error()
		}
	}
	return change, fmt.Errorf("%w: %w: %s-%d at epoch %d: %s", ErrNotLeader, ErrOpening, part.TopicName, k.number, part.Epoch, why)
}

// All lists the open partitions, in no order.
func (s *Set) All() []*Partition {
	s.serving.mu.RLock()
	defer s.serving.mu.RUnlock()
	out := make([]*Partition, 0, len(s.serving.m))
	for _, p := range s.serving.m {
		out = append(out, p)
	}
	return out
}

// Run keeps the Set in step with the image until ctx ends, then closes every
// partition and returns once all it started has ended. It must run once.
func (s *Set) Run(ctx context.Context) error {
	s.wg.Go(func() { s.retain(ctx) })
	s.wg.Go(func() { s.reapTopics(ctx) })
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last *metadata.Image
	passes := passBudget{left: passBurst, at: time.Now()}
	for ctx.Err() == nil {
		changed := s.cfg.Meta.Changed()
		img := s.cfg.Meta.Image()
		begun := time.Now()
		if last == nil || !img.SameOwned(last, s.cfg.Incarnation) {
			s.reconcile(ctx, img)
		}
		last = img
		timer.Reset(s.retry(ctx))
		if d := passes.spend(begun, time.Now()); d > 0 {
			rest(ctx, d)
		}
		select {
		case <-changed:
		case <-s.kick:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s.stop(ctx)
	s.wg.Wait()
	return nil
}

// A pass over 100,000 partitions takes some 20 ms. Where images follow each other
// faster, the Set rests, so that passes take a tenth of a core. A few are free:
// whoever waits for a partition that has just moved here waits for the rest, too,
// and on a busy machine a short pass may take long.
const (
	passShare = 10
	passBurst = 50 * time.Millisecond
	passRest  = 200 * time.Millisecond // at most
)

// passBudget is the time that passes may still take.
type passBudget struct {
	left time.Duration
	at   time.Time // when left was right
}

// spend takes a pass from the budget and returns how long to rest after it.
func (b *passBudget) spend(begun, ended time.Time) time.Duration {
	b.left = min(passBurst, b.left+ended.Sub(b.at)/passShare) - ended.Sub(begun)
	b.at = ended
	if b.left >= 0 {
		return 0
	}
	return min(-b.left*passShare, passRest)
}

// rest waits, less long if ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// poke signals a channel of capacity 1.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// retain is the one retention ticker of all partitions.
func (s *Set) retain(ctx context.Context) {
	t := time.NewTicker(s.cfg.RetentionInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.Retain(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Retain applies retention to every open partition now and returns when that
// is done.
func (s *Set) Retain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, s.cfg.Parallel)
	for _, p := range s.All() {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.Retain(ctx, time.Now()); err != nil && ctx.Err() == nil && !p.closed.Load() {
				s.host.logger().Warn("retention failed, it will be tried again", "topic", p.id.Topic, "partition", p.id.Partition, "err", err)
			}
		})
	}
}
