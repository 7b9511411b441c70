package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Flipper is a shared store that hands logs to other nodes without copying.
// SetConfig.Shared may be one.
type Flipper interface {
	// Flip makes the move: it fills in where each stream ends. It calls freeze
	// at most once; the caller lets nothing be appended to these logs from then on. An
	// error, one per stream, means that the log is still ours and takes appends,
	// or is lost. It returns only when the outcome is known (cmd-2).
	Flip(ctx context.Context, streams []*metadatapb.FlipStream, freeze func()) []error
}

// Handover asks to give one partition to another node.
type Handover struct {
	Topic     metadata.TopicID
	Partition int32
	// Epoch at which this node must own it; a partition that has moved on is
	// left alone.
	Epoch  commitlog.Epoch
	Target metadata.Incarnation
}

// HandedOver is what became of one Handover.
type HandedOver struct {
	Handover
	Topic string
	// Err is nil if the target owns the partition now.
	Err error
	// Pause is how long appends were held up.
	Pause time.Duration
}

const (
	// frozenPark is how long appends to a frozen partition wait: a move takes
	// milliseconds, and replies on a connection are in order, so that a parked
	// request holds up those behind it.
	frozenPark = 500 * time.Millisecond
	// drainPatience bounds the wait for outstanding appends before a move.
	drainPatience = 2 * time.Second
	// handoverGroup is how many partitions freeze together. All of them pause as
	// long as the slowest; each group costs a command and perhaps an object.
	handoverGroup = 256
)

// freeze is a partition on its way to another node.
type freeze struct {
	since time.Time
	over  chan struct{} // closed when the outcome is known
}

// freeze stops appends. false: it is frozen or closed already.
func (p *Partition) freeze() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() || p.frozen.Load() != nil {
		return false
	}
	p.frozen.Store(&freeze{since: time.Now(), over: make(chan struct{})})
	return true
}

// thaw lets appends in again (move-2), or has those that wait find the partition
// closed.
// It returns how long they could not.
func (p *Partition) thaw() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.frozen.Swap(nil)
	if f == nil {
		return 0
	}
	close(f.over)
	return time.Since(f.since)
}

// errMoving is the answer while the partition is frozen.
func (p *Partition) errMoving() error {
	return fmt.Errorf("%w: %w: %s at epoch %d is being handed to another broker", ErrNotLeader, ErrMoving, p.id, p.epoch)
}

// AwaitMove waits for the end of the move that had an append answered with
// ErrMoving, at most until the move is half a second old or ctx ends. It says
// whether the move has ended: find the partition again and retry.
func (p *Partition) AwaitMove(ctx context.Context) bool {
	f := p.frozen.Load()
	if f == nil {
		return true
	}
	t := time.NewTimer(frozenPark - time.Since(f.since))
	defer t.Stop()
	select {
	case <-f.over:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// sureSince makes sure that no hand-over stands between a proof of the node's
// rights and this partition: what was frozen after t was still ours at t, what
// was frozen before may be another's, so wait for the outcome (ans-2).
func (p *Partition) sureSince(ctx context.Context, t time.Time) error {
	f := p.frozen.Load()
	if f == nil || !f.since.Before(t) {
		return nil
	}
	if !p.AwaitMove(ctx) {
		return p.errMoving()
	}
	if p.closed.Load() {
		return p.errClosed()
	}
	return nil
}

// Handover gives open partitions to other nodes and returns once the outcome
// is known, one result each. A partition that is not ours at that epoch, not
// open, or under way already, is left as it is. ctx bounds only what can still
// be called off.
func (s *Set) Handover(ctx context.Context, list []Handover) []HandedOver {
	out := make([]HandedOver, 0, len(list))
	for len(list) > 0 {
		n := min(len(list), handoverGroup)
		out = append(out, s.handoverGroup(ctx, list[:n])...)
		list = list[n:]
	}
	return out
}

func (s *Set) handoverGroup(ctx context.Context, list []Handover) []HandedOver {
	out := make([]HandedOver, len(list))
	var streams []*metadatapb.FlipStream
	var parts []*Partition
	var at []int
	for i, h := range list {
		out[i].Handover = h
		p, err := s.movable(h)
		if err != nil {
			out[i].Err = err
			continue
		}
		out[i].Topic = p.id.Topic
		streams = append(streams, &metadatapb.FlipStream{Stream: uint64(p.id.Stream), Epoch: int32(p.epoch), Target: h.Target.Proto()})
		parts, at = append(parts, p), append(at, i)
	}
	if len(parts) == 0 {
		return out
	}
	s.forgetGiven()
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	errs := s.cfg.Shared.(Flipper).Flip(ctx, streams, func() {
		for _, p := range parts {
			p.freeze()
		}
	})
	for i, p := range parts {
		if errs[i] == nil {
			// Gone before anyone who waited looks again: they shall be told of the
			// new owner, who is in the image by now. Nothing is outstanding, so
			// this does not wait.
			s.drop(p)
			_ = p.Close(ctx)
		}
		out[at[i]].Err, out[at[i]].Pause = errs[i], p.thaw()
		s.cfg.Metrics.moved(out[at[i]])
		p.claimed.Store(false)
	}
	return out
}

// movable finds the partition of a Handover and claims it.
func (s *Set) movable(h Handover) (*Partition, error) {
	if _, ok := s.cfg.Shared.(Flipper); !ok {
		return nil, errors.New("this store cannot hand logs over")
	}
	p, err := s.Get(h.Topic, h.Partition)
	switch {
	case err != nil:
		return nil, err
	case p.epoch != h.Epoch:
		return nil, fmt.Errorf("%w: %s is at epoch %d, not %d", ErrNotLeader, p.id, p.epoch, h.Epoch)
	case p.settings().Local:
		return nil, fmt.Errorf("partition %s has storage.mode local, its data is on this node", p.id)
	case !p.claimed.CompareAndSwap(false, true):
		return nil, p.errMoving()
	}
	return p, nil
}

// drop stops serving a partition that was handed over, and remembers that it was.
func (s *Set) drop(p *Partition) {
	s.serving.mu.Lock()
	defer s.serving.mu.Unlock()
	k := key{p.id.TopicID, p.id.Partition}
	if s.serving.m[k] == p {
		delete(s.serving.m, k)
	}
	s.serving.given[k] = given{next: p.epoch + 1, at: time.Now()}
}

// given is a partition that was handed over.
type given struct {
	next commitlog.Epoch // of its new owner
	at   time.Time
}

// givenFor is how long requests for what was handed over are taken for late. A
// client hears of the move within milliseconds.
const givenFor = time.Second

// justGave says whether a request for a partition is most likely one that was on
// its way when this node handed the partition over. Its client waits for the
// answer before it turns to the new owner, and the quorum, which could only
// confirm it, is busy with what ends the move. Should the partition have come back
// already, the client knows an owner of a later epoch than we tell it.
func (s *Set) justGave(k key) bool {
	s.serving.mu.RLock()
	g, ok := s.serving.given[k]
	s.serving.mu.RUnlock()
	if !ok || time.Since(g.at) > givenFor {
		return false
	}
	p, ok := s.cfg.Meta.Image().Partition(k.topic, k.number)
	return ok && p.Epoch == g.next
}

// forgetGiven drops what was handed over long ago.
func (s *Set) forgetGiven() {
	s.serving.mu.Lock()
	defer s.serving.mu.Unlock()
	for k, g := range s.serving.given {
		if time.Since(g.at) > givenFor {
			delete(s.serving.given, k)
		}
	}
}
