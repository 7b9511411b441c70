package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
)

// proof is what is known of our incarnation's rights (ans-2). Two things prove
// that it still had them at a time t: a slot of our WAL whose put began at or
// after t and succeeded, with all lower ones ours; or a read barrier at the
// metadata leader that began at or after t and names us unfenced.
//
// The first needs no quorum, so a broker that is cut off from it goes on
// serving what is written to.
type proof struct {
	turn chan struct{} // holds a token while a barrier is in flight
	mu   sync.Mutex
	last time.Time     // proven for every t up to here
	news chan struct{} // closed at the next proof; nil while nobody waits

	failed   error // of the last barrier, which answers for a while
	failedAt time.Time
}

// failureAge is how long a failed barrier answers for those who come after it:
// ten thousand who ask must not each wait for one.
const failureAge = 500 * time.Millisecond

// recentFailure is the error of a barrier that failed just now.
func (p *proof) recentFailure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && time.Since(p.failedAt) < failureAge {
		return p.failed
	}
	return nil
}

func (p *proof) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed, p.failedAt = err, time.Now()
}

// slot notes that a slot became durable, in order, so all lower ones are ours
// too. A put begins after the slot was opened.
func (p *proof) slot(opened time.Time) { p.note(opened) }

func (p *proof) note(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.After(p.last) {
		p.last = t
	}
	if p.news != nil {
		close(p.news)
		p.news = nil
	}
}

func (p *proof) since(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.last.IsZero() && !p.last.Before(t)
}

// wait returns a channel closed at the next proof.
func (p *proof) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.news == nil {
		p.news = make(chan struct{})
	}
	return p.news
}

// ProvenSince says, without waiting, that a proof begun at or after t has
// succeeded.
func (e *Engine) ProvenSince(t time.Time) bool {
	return e.FencedErr() == nil && (plant.On(plant.NoProof) || e.proof.since(t) || !e.wal.Proven().Before(t))
}

// barrierPatience is how long a barrier may take; own slots may prove it sooner.
const barrierPatience = time.Second

// Prove returns nil as soon as ProvenSince(t) holds. It asks the quorum, one
// barrier for all who wait; without a quorum it puts a slot, an empty one if
// need be. An error means that there is no proof.
func (e *Engine) Prove(ctx context.Context, t time.Time) error {
	for {
		news := e.proof.wait()
		if err := e.FencedErr(); err != nil {
			return err
		}
		if e.ProvenSince(t) {
			return nil
		}
		var err error
		select {
		case e.proof.turn <- struct{}{}:
			if !e.ProvenSince(t) {
				err = e.seekProof(ctx)
			}
			<-e.proof.turn
		case <-news:
		case <-e.fenced:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("no proof of ownership: %w", err)
		}
	}
}

// seekProof tries one way and then the other. Whoever holds the turn does it for
// all.
func (e *Engine) seekProof(ctx context.Context) error {
	err := e.proof.recentFailure()
	if err == nil {
		err = e.barrier(ctx)
	}
	if err == nil || errors.Is(err, commitlog.ErrFenced) {
		return err
	}
	slot, perr := e.wal.Prove()
	if perr != nil {
		return errors.Join(err, perr)
	}
	select {
	case <-slot.Done():
		return slot.Err()
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// barrier asks the quorum whether we are still who we think we are.
func (e *Engine) barrier(caller context.Context) error {
	ctx, cancel := context.WithTimeout(caller, barrierPatience)
	defer cancel()
	begun := time.Now()
	img, err := e.cfg.Meta.Barrier(ctx)
	if err != nil {
		err = fmt.Errorf("read barrier: %w", err)
		if caller.Err() == nil { // one caller's haste says nothing to others
			e.proof.fail(err)
		}
		return err
	}
	if w, ok := img.WAL(e.cfg.Incarnation); !ok || w.State != metadata.Active {
		err := fmt.Errorf("%w: incarnation %s is %s in the metadata", commitlog.ErrFenced, e.cfg.Incarnation, w.State)
		e.fence(err)
		return err
	}
	e.proof.note(begun)
	return nil
}
