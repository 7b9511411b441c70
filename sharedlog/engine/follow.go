package engine

import (
	"context"
	"fmt"

	"ponor/commitlog"
)

// Follower reads a stream that need not be ours, as far as the metadata says where
// its records lie. Those are its for good, whoever owns it: committed extents may be
// merged and trimmed, and an offset below the committed end has the same record for
// ever (ext-3). What its owner has not packed yet it does not see. It is for one
// reader at a time.
type Follower struct{ h *handle }

// Follow returns a Follower of a stream.
func (e *Engine) Follow(id commitlog.StreamID) *Follower {
	// A state that the engine does not know of: nothing is appended to it.
	return &Follower{h: &handle{s: &streamState{e: e, id: id}}}
}

// Bounds are what the newest image has of the stream; zero if it is gone.
func (f *Follower) Bounds() commitlog.Bounds {
	s := f.h.s
	p, _ := s.e.cfg.Meta.Image().PartitionByStream(s.id)
	return commitlog.Bounds{Start: p.Start, Stable: p.End, End: p.End}
}

// Read is that of commitlog.Log.
func (f *Follower) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	s, b := f.h.s, f.Bounds()
	if from < b.Start || from > b.Stable {
		return commitlog.Records{}, fmt.Errorf("follow stream %d at %d of [%d, %d]: %w", s.id, from, b.Start, b.Stable, commitlog.ErrOffsetOutOfRange)
	}
	limit := b.Stable
	if opts.Limit > 0 {
		limit = min(limit, opts.Limit)
	}
	if from >= limit {
		return commitlog.Records{}, nil
	}
	s.e.cfg.Metrics.readsCold.Inc()
	return s.e.reader.fetch(ctx, f.h, from, limit, opts)
}

// Pack has all that is durable of a stream of ours now packed, so that who follows it
// sees it, and returns when the metadata has it.
func (e *Engine) Pack(ctx context.Context, id commitlog.StreamID) error {
	s := e.state(id)
	if s == nil {
		return fmt.Errorf("pack stream %d: it is not open: %w", id, commitlog.ErrFenced)
	}
	s.mu.Lock()
	to := s.confirm
	s.mu.Unlock()
	for {
		round := e.nextRound()
		p, ok := e.cfg.Meta.Image().PartitionByStream(id)
		switch {
		case !ok || p.Owner != e.cfg.Incarnation:
			return fmt.Errorf("pack stream %d: owner is %s at epoch %d: %w", id, p.Owner, p.Epoch, commitlog.ErrFenced)
		case p.End >= to:
			return nil
		}
		if err := e.awaitPack(ctx, round); err != nil {
			return fmt.Errorf("pack stream %d: %w", id, err)
		}
	}
}

// awaitPack has a round of packing made, and waits until round, which is of before, has
// ended.
func (e *Engine) awaitPack(ctx context.Context, round <-chan struct{}) error {
	e.requestPack()
	select {
	case <-round:
		return e.FencedErr()
	case <-e.fenced:
		return e.FencedErr()
	case <-ctx.Done():
		return ctx.Err()
	}
}
