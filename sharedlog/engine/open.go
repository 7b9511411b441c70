package engine

import (
	"context"
	"fmt"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
	"ponor/sharedlog/stream"
)

// Open implements stream.Client. Ownership is decided in the metadata: Open
// waits until the image names our incarnation at the epoch and every older WAL
// is sealed (slot-4), so no older owner can be acknowledged any more (T4).
func (e *Engine) Open(ctx context.Context, id commitlog.StreamID, opts stream.OpenOptions) (stream.Stream, error) {
	for {
		if _, err := e.openable(ctx, id, opts.Epoch); err != nil {
			return nil, fmt.Errorf("open stream %d at epoch %d: %w", id, opts.Epoch, err)
		}
		h, wait, err := e.attach(id, opts)
		if err != nil {
			return nil, fmt.Errorf("open stream %d at epoch %d: %w", id, opts.Epoch, err)
		}
		if h == nil {
			// An append of an earlier handle is still on its way: its outcome must
			// be known first.
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("open stream %d at epoch %d: %w", id, opts.Epoch, ctx.Err())
			}
		}
		rec, err := e.recovered(ctx, h)
		if err != nil {
			h.s.fail(err)
			h.s.detach(h)
			return nil, fmt.Errorf("recover stream %d: %w", id, err)
		}
		h.s.mu.Lock()
		h.found = &rec
		h.s.mu.Unlock()
		poke(e.tidy) // inherited extents may need repacking
		return h, nil
	}
}

// openable waits for slot-4.
func (e *Engine) openable(ctx context.Context, id commitlog.StreamID, epoch commitlog.Epoch) (metadata.Partition, error) {
	img := e.cfg.Meta.Image()
	asked := false
	for {
		if err := e.FencedErr(); err != nil {
			return metadata.Partition{}, err
		}
		p, ok := img.PartitionByStream(id)
		switch {
		case ok && p.Epoch == epoch && p.Owner == e.cfg.Incarnation && p.Openable():
			return p, nil
		case ok && (p.Epoch > epoch || p.Epoch == epoch && p.Owner != e.cfg.Incarnation):
			return p, fmt.Errorf("owner is %s at epoch %d: %w", p.Owner, p.Epoch, commitlog.ErrFenced)
		case !ok && asked:
			return p, fmt.Errorf("the metadata at index %d has no such stream: %w", img.Index(), commitlog.ErrFenced)
		case !ok:
			// Our image may be behind the caller's knowledge.
			asked = true
			fresh, err := e.cfg.Meta.Barrier(ctx)
			if err != nil {
				return p, fmt.Errorf("%w: %w", commitlog.ErrUnavailable, err)
			}
			img = fresh
			continue
		}
		if err := e.cfg.Meta.Wait(ctx, img.Index()+1); err != nil {
			return p, err
		}
		img = e.cfg.Meta.Image()
	}
}

// attach makes a handle the owner of the stream's state. wait is set instead if
// appends of an earlier handle have not resolved.
func (e *Engine) attach(id commitlog.StreamID, opts stream.OpenOptions) (*handle, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != nil {
		return nil, nil, e.lost
	}
	// Read under mu: an older image may have an end from before the pack that
	// had the stream's state forgotten.
	img := e.cfg.Meta.Image()
	if !img.Live(e.cfg.Incarnation) {
		// slot-4 is of the living: what a dead owner has waits for the WALs before its
		// own only, because it never opens.
		return nil, nil, fmt.Errorf("%s is fenced in the metadata at index %d: %w", e.cfg.Incarnation, img.Index(), commitlog.ErrFenced)
	}
	p, ok := img.PartitionByStream(id)
	if !ok || p.Epoch != opts.Epoch || p.Owner != e.cfg.Incarnation {
		return nil, nil, fmt.Errorf("owner is %s at epoch %d: %w", p.Owner, p.Epoch, commitlog.ErrFenced)
	}
	s := e.streams[p.Stream]
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open != nil && s.open.epoch > opts.Epoch {
			return nil, nil, fmt.Errorf("open at epoch %d already: %w", s.open.epoch, commitlog.ErrFenced)
		}
		if s.open != nil && s.open.err == nil {
			s.open.err = fmt.Errorf("stream %d was opened again: %w", s.id, commitlog.ErrFenced)
		}
		if s.confirm < s.next && s.last != nil {
			select {
			case <-s.last.Done():
				if err := s.last.Err(); err != nil {
					return nil, nil, err // the incarnation has lost its WAL
				}
			default:
				return nil, s.last.Done(), nil
			}
		}
		if p.End > s.next && !plant.On(plant.StaleMemory) {
			// Others owned it in between and wrote: what is in memory is history.
			s = nil
		}
	}
	if s == nil {
		s = &streamState{e: e, id: p.Stream, confirm: p.End, next: p.End}
		s.mu.Lock()
		defer s.mu.Unlock()
		e.streams[p.Stream] = s
	}
	s.start = max(s.start, p.Start)
	s.committed = p.End
	s.check = nil
	s.opts = settings{fold: opts.Checkpoints, age: opts.RetentionAge}
	h := &handle{s: s, epoch: opts.Epoch, confirmed: opts.Confirmed}
	s.open = h
	return h, nil, nil
}

// ageClass groups retention times so that what dies together lies together: the
// power of two of hours, 0 for less than one, 63 for unlimited.
func ageClass(age time.Duration) int {
	if age <= 0 {
		return 63
	}
	n := 0
	for h := age / time.Hour; h > 0; h >>= 1 {
		n++
	}
	return n
}

// Recovered implements stream.Stream.
func (h *handle) Recovered(context.Context) (commitlog.Recovery, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.err != nil {
		return commitlog.Recovery{}, h.err
	}
	if h.found == nil {
		return commitlog.Recovery{}, nil
	}
	rec := *h.found
	h.found = nil
	return rec, nil
}
