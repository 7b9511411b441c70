package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
)

// Host is what a node's partitions share. The zero value is a node that knows
// of no other.
type Host struct {
	// Proof answers whether the node still owns what it did (ans-2); nil
	// believes it always, which only a node without peers may.
	Proof Proof
	// Owns says whether the newest metadata this node has names it the owner
	// of a partition at an epoch. It is asked after every proof; nil is yes.
	Owns func(topic metadata.TopicID, number int32, epoch commitlog.Epoch) bool
	// ProducerExpiration is producer.id.expiration.ms: how long a producer is
	// remembered after its last batch; default 24 h. Too short, and a retry
	// after a long outage is appended twice; too long, and every producer that
	// ever wrote costs 200 bytes.
	ProducerExpiration time.Duration
	// Closed is told of a partition that was given up, once; it must not wait. nil
	// does not care.
	Closed func(*Partition)
	// Metrics counts records; nil does not.
	Metrics *Metrics
	// Logger is for the rare events of partitions; nil discards them.
	Logger *slog.Logger
}

// Config opens one Partition.
type Config struct {
	ID    commitlog.ID
	Epoch commitlog.Epoch
	// Store is the medium that has the log.
	Store commitlog.Store
	// Settings are the topic's, asked at every use so that they change live.
	// Required.
	Settings func() metadata.TopicSettings
	// Host is shared by all partitions of a node; nil is the zero Host.
	Host *Host
}

// Partition is one partition that this node leads, open at one epoch. All
// methods are safe for concurrent use, and none that appends waits.
//
// State is guarded by mu, which is held over the log's Append (that never
// waits) and never over I/O. Readers of stable data do not take it unless they
// ask for the last stable offset. An idle Partition has no goroutine and no
// timer.
type Partition struct {
	id       commitlog.ID
	settings func() metadata.TopicSettings
	host     *Host
	log      commitlog.Log
	// epochStart is the end of the log at Open, where this epoch begins.
	epochStart commitlog.Offset
	// start is the log's start as last seen; Fold asks for it and must not call
	// into the log.
	start atomic.Int64
	// frozen is set while appends wait for a hand-over; it changes under mu.
	frozen  atomic.Pointer[freeze]
	traffic traffic
	watches watchList
	epoch   commitlog.Epoch // the small ones lie together, which saves memory
	closed  atomic.Bool
	claimed atomic.Bool // by the Handover that is under way
	// unsettled is state.unsettled(), or true while a transactional batch is
	// being appended: readers of a log without transactions need no mu.
	unsettled atomic.Bool

	mu      sync.Mutex
	state   State
	pending *commitQueue
}

// Open takes ownership of the partition's log at cfg.Epoch and rebuilds what
// its batches mean (prod-1). Errors are the store's: commitlog.ErrFenced if a
// newer owner exists.
func Open(ctx context.Context, cfg Config) (*Partition, error) {
	p := &Partition{id: cfg.ID, epoch: cfg.Epoch, settings: cfg.Settings, host: cfg.Host}
	if p.host == nil {
		p.host = &Host{}
	}
	log, err := cfg.Store.Open(ctx, cfg.ID, cfg.Epoch, commitlog.Options{
		OnStable:    p.watches.wake,
		Settings:    p.logSettings,
		Checkpoints: (*folder)(p),
	})
	if err != nil {
		return nil, fmt.Errorf("open partition %s at epoch %d: %w", cfg.ID, cfg.Epoch, err)
	}
	p.log = log
	if err := p.recover(ctx); err != nil {
		p.closed.Store(true)
		// The first error is the one to report.
		_ = log.Close(ctx)
		return nil, fmt.Errorf("recover partition %s at epoch %d: %w", cfg.ID, cfg.Epoch, err)
	}
	return p, nil
}

// recover makes the state of what Open of the log found.
func (p *Partition) recover(ctx context.Context) error {
	r, err := p.log.Recovered(ctx)
	if err != nil {
		return err
	}
	s, err := DecodeState(r.Checkpoint)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, b := range r.Batches {
		if b.BaseOffset >= r.CheckpointEnd {
			s.Observe(b)
		}
	}
	for _, q := range s.producers {
		q.idleSince = now
	}
	if plant.On(plant.ForgetProducers) {
		s.producers = nil
	}
	bounds := p.log.Bounds()
	p.epochStart = bounds.End
	p.state = *s
	p.cut(bounds.Start)
	p.settle(bounds.Stable)
	return nil
}

// cut forgets what lies below a new start of the log. mu is held, or p not yet
// shared.
func (p *Partition) cut(start commitlog.Offset) {
	p.start.Store(int64(start))
	p.state.Cut(start)
}

// folder is a Partition as the Checkpointer of its log, without another
// allocation per partition.
type folder Partition

// Fold implements commitlog.Checkpointer.
func (f *folder) Fold(checkpoint []byte, batches []commitlog.BatchInfo) ([]byte, error) {
	c := Checkpointer{Expiration: f.host.ProducerExpiration, Start: func() commitlog.Offset { return commitlog.Offset(f.start.Load()) }}
	return c.Fold(checkpoint, batches)
}

// logSettings are the parts of the topic's settings that the log acts on.
func (p *Partition) logSettings() commitlog.Settings {
	s := p.settings()
	out := commitlog.Settings{SegmentBytes: s.SegmentBytes, SegmentAge: s.SegmentAge(), IndexBytes: s.IndexIntervalBytes, RetentionAge: -1}
	if s.Delete {
		out.RetentionAge = s.RetentionAge()
	}
	return out
}

// ID is the partition's name.
func (p *Partition) ID() commitlog.ID { return p.id }

// Epoch is the leader epoch at which this node serves the partition.
func (p *Partition) Epoch() commitlog.Epoch { return p.epoch }

// Settings are the topic's settings now.
func (p *Partition) Settings() metadata.TopicSettings { return p.settings() }

// Start is the log start offset.
func (p *Partition) Start() commitlog.Offset { return p.log.Bounds().Start }

// End is the log end offset, above what is durable.
func (p *Partition) End() commitlog.Offset { return p.log.Bounds().End }

// HighWatermark is the end of what consumers may see: the log's stable end.
func (p *Partition) HighWatermark() commitlog.Offset { return p.log.Bounds().Stable }

// LastStable is the last stable offset (LSO): the end of what a read_committed
// consumer may see.
func (p *Partition) LastStable() commitlog.Offset {
	_, lso := p.stable()
	return lso
}

// stable reads the log's bounds and the LSO that belongs to them.
func (p *Partition) stable() (commitlog.Bounds, commitlog.Offset) {
	// In this order: a transaction that has a batch below these bounds was
	// noted before its batch was appended, or has ended and is settled.
	if b := p.log.Bounds(); !p.unsettled.Load() {
		return b, b.Stable
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bounds()
	p.settle(b.Stable)
	return b, p.state.FirstUnstable(b.Stable)
}

// settle forgets what only matters until it is stable. mu is held, or p not
// yet shared.
func (p *Partition) settle(stable commitlog.Offset) {
	p.state.Settle(stable)
	p.pending.settle(stable)
	p.unsettled.Store(p.state.unsettled())
}

// Bytes is the size of the log, approximately.
func (p *Partition) Bytes() int64 { return p.log.Bytes() }

// Seal asks the log to make what was appended durable as soon as it can.
func (p *Partition) Seal() { p.log.Seal() }

// State is a copy of the partition's state as a checkpoint would encode it,
// with everything appended so far. A move carries it to the next owner.
func (p *Partition) State() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Encode()
}

// Producer describes one remembered producer, for DescribeProducers.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 if none is known
	LastTimestamp    int64 // ms, -1 if none is known
	CoordinatorEpoch int32 // -1 if there was no marker
	// TxnStart is the first offset of its open transaction, -1 if none.
	TxnStart commitlog.Offset
}

// Producers lists the remembered producers, in no order.
func (p *Partition) Producers() []Producer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Producer, 0, len(p.state.producers))
	for id, q := range p.state.producers {
		d := Producer{ID: id, Epoch: q.epoch, LastSequence: -1, LastTimestamp: q.seen(), CoordinatorEpoch: q.coordinator, TxnStart: -1}
		if q.n > 0 {
			d.LastSequence = q.batches[q.n-1].lastSeq
		}
		if at := p.state.openOf(id); at >= 0 {
			d.TxnStart = p.state.txns().open[at].first
		}
		out = append(out, d)
	}
	return out
}

// errClosed is the answer of a partition that was closed or moved.
func (p *Partition) errClosed() error {
	return fmt.Errorf("%w: %s at epoch %d was given up by this node; refresh metadata", ErrNotLeader, p.id, p.epoch)
}

// logError wraps what the log answered. A log that was lost is a partition
// that this node does not lead.
func (p *Partition) logError(verb string, err error) error {
	if errors.Is(err, commitlog.ErrFenced) || errors.Is(err, commitlog.ErrClosed) {
		return fmt.Errorf("%s partition %s at epoch %d: %w: %w", verb, p.id, p.epoch, ErrNotLeader, err)
	}
	return fmt.Errorf("%s partition %s: %w", verb, p.id, err)
}

// Close gives the partition up: everybody who watches it is woken, calls answer
// ErrNotLeader, and outstanding appends resolve as far as ctx allows.
func (p *Partition) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	p.watches.wake()
	if p.host.Closed != nil {
		p.host.Closed(p)
	}
	err := p.log.Close(ctx)
	// Once more for who began to wait on a Read that had passed before.
	p.watches.wake()
	if err != nil {
		return fmt.Errorf("close partition %s: %w", p.id, err)
	}
	return nil
}

// expireProducers forgets producers that were idle for longer than
// producer.id.expiration.ms.
func (p *Partition) expireProducers(now time.Time) {
	limit := cmp.Or(p.host.ProducerExpiration, DefaultProducerExpiration)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(p.log.Bounds().Stable) // an idle partition keeps nothing of its last burst
	p.state.expire(func(q *producer) bool { return now.Sub(q.idleSince) >= limit })
}

// logger is never nil.
func (h *Host) logger() *slog.Logger {
	if h.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Logger
}
