package partition

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"ponor/metadata"
)

// Proof answers whether this node's incarnation still was in its rights at a
// moment (ans-2), by whatever means: a slot of its WAL written since, or a read
// barrier at the metadata quorum begun since. It speaks of the incarnation as a
// whole; what the image says of one partition is asked after it (Host.Owns).
type Proof interface {
	// ProvenSince says, without waiting, that a proof begun at or after t has
	// succeeded.
	ProvenSince(t time.Time) bool
	// Prove returns nil as soon as ProvenSince(t) holds, and seeks a proof
	// itself if need be. An error means that there is none: answer "not leader",
	// never a guess.
	Prove(ctx context.Context, t time.Time) error
}

// fetchProofAge is how old a proof may be for a Fetch (ans-2).
const fetchProofAge = 10 * time.Second

// proofTimeout bounds the wait for a proof: a fetch may be willing to wait for
// minutes, but for data, not for a quorum that is gone.
const proofTimeout = 2 * time.Second

// failureAge is how long a failed barrier answers for those that come after it.
// A fetch asks for each of its partitions; ten thousand of them must not wait
// one after another.
const failureAge = 500 * time.Millisecond

// BarrierProof proves by read barriers. At most one is in flight, and it
// serves everyone who arrived before it began; whoever waits runs the next one,
// so there is no goroutine.
type BarrierProof struct {
	barrier func(ctx context.Context) (*metadata.Image, error)
	turn    chan struct{} // holds a token while a barrier is in flight
	proven  atomic.Pointer[time.Time]
	failed  atomic.Pointer[failure]
}

// failure is a barrier that failed, and when.
type failure struct {
	at  time.Time
	err error
}

// NewBarrierProof makes a Proof of a linearizable read barrier, Meta.Barrier.
func NewBarrierProof(barrier func(ctx context.Context) (*metadata.Image, error)) *BarrierProof {
	return &BarrierProof{barrier: barrier, turn: make(chan struct{}, 1)}
}

// ProvenSince implements Proof.
func (b *BarrierProof) ProvenSince(t time.Time) bool {
	p := b.proven.Load()
	return p != nil && !p.Before(t)
}

// Prove implements Proof.
func (b *BarrierProof) Prove(ctx context.Context, t time.Time) error {
	if done, err := b.settled(t); done {
		return err
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a read barrier: %w", ctx.Err())
	}
	defer func() { <-b.turn }()
	if done, err := b.settled(t); done { // the one before began after we arrived
		return err
	}
	begun := time.Now()
	if _, err := b.barrier(ctx); err != nil {
		err = fmt.Errorf("read barrier: %w", err)
		if ctx.Err() == nil || time.Since(begun) >= failureAge { // not for one caller's haste
			b.failed.Store(&failure{time.Now(), err})
		}
		return err
	}
	b.proven.Store(&begun)
	return nil
}

// settled says whether there is an answer without another barrier.
func (b *BarrierProof) settled(t time.Time) (bool, error) {
	if b.ProvenSince(t) {
		return true, nil
	}
	if f := b.failed.Load(); f != nil && time.Since(f.at) < failureAge {
		return true, f.err
	}
	return false, nil
}

// proveRecent makes sure of a proof not older than a Fetch may rely on. With
// one at hand it asks nothing further: the Set closes what the image takes away
// within milliseconds.
func (p *Partition) proveRecent(ctx context.Context, now time.Time) error {
	t := now.Add(-fetchProofAge)
	if h := p.host.Proof; h == nil || h.ProvenSince(t) {
		return p.sureSince(ctx, t)
	}
	return p.prove(ctx, t)
}

// Prove returns nil if this node provably led the partition at t or later, after a
// question to the quorum if need be (ans-2). ErrNotLeader: it cannot be proven.
func (p *Partition) Prove(ctx context.Context, t time.Time) error { return p.prove(ctx, t) }

// prove makes sure that this node led the partition at t or later.
func (p *Partition) prove(ctx context.Context, t time.Time) error {
	if h := p.host.Proof; h != nil && !h.ProvenSince(t) {
		ctx, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		if err := h.Prove(ctx, t); err != nil {
			return fmt.Errorf("%w: cannot prove that this node still leads %s at epoch %d: %w", ErrNotLeader, p.id, p.epoch, err)
		}
	}
	if err := p.sureSince(ctx, t); err != nil {
		return err
	}
	if owns := p.host.Owns; owns != nil && !owns(p.id.TopicID, p.id.Partition, p.epoch) {
		return fmt.Errorf("%w: %s has a newer epoch or owner than %d; refresh metadata", ErrNotLeader, p.id, p.epoch)
	}
	if p.closed.Load() {
		return p.errClosed()
	}
	return nil
}
