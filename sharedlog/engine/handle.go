package engine

import (
	"context"
	"fmt"

	"ponor/commitlog"
	"ponor/sharedlog/stream"
	"ponor/sharedlog/wal"
)

// handle is a stream opened at an epoch; it implements stream.Stream.
type handle struct {
	s     *streamState
	epoch commitlog.Epoch
	// frozen: a flip is under way, nothing may be appended (cmd-2). Under s.mu.
	frozen bool // beside epoch, which saves memory
	// confirmed is OpenOptions.Confirmed.
	confirmed func()
	err       error // under s.mu: why it does not serve any more
	// found is what Open recovered, until Recovered takes it. Under s.mu.
	found *commitlog.Recovery
}

var _ stream.Stream = (*handle)(nil)

// ID implements stream.Stream.
func (h *handle) ID() commitlog.StreamID { return h.s.id }

// Epoch implements stream.Stream.
func (h *handle) Epoch() commitlog.Epoch { return h.epoch }

// Offsets implements stream.Stream.
func (h *handle) Offsets() commitlog.Bounds {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return commitlog.Bounds{Start: s.startNow(), Stable: s.confirm, End: s.next}
}

// Append implements stream.Stream. The bound on unpacked WAL pushes back here,
// like the WAL's own budget.
func (h *handle) Append(batch commitlog.Batch) (commitlog.Commit, error) {
	s := h.s
	one, rest, err := commitlog.SplitBatch(batch)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes follow the batch", commitlog.ErrCorrupt, len(rest))
	}
	if err != nil {
		return commitlog.Commit{}, fmt.Errorf("append to stream %d: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.err != nil {
		return commitlog.Commit{}, h.err
	}
	if h.frozen {
		return commitlog.Commit{}, fmt.Errorf("stream %d is being handed over: %w", s.id, commitlog.ErrBackpressure)
	}
	if s.e.full.Load() {
		return commitlog.Commit{}, fmt.Errorf("unpacked WAL is at its bound: %w", commitlog.ErrBackpressure)
	}
	return s.appendOne(h.epoch, one)
}

// Fetch implements stream.Stream.
func (h *handle) Fetch(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	s := h.s
	s.mu.Lock()
	if h.err != nil {
		defer s.mu.Unlock()
		return commitlog.Records{}, h.err
	}
	if start := s.startNow(); from < start || from > s.next {
		defer s.mu.Unlock()
		return commitlog.Records{}, fmt.Errorf("read stream %d at %d of [%d, %d]: %w", s.id, from, start, s.next, commitlog.ErrOffsetOutOfRange)
	}
	limit := s.confirm // ext-2
	if opts.Limit > 0 {
		limit = min(limit, opts.Limit)
	}
	if from >= limit {
		s.mu.Unlock()
		return commitlog.Records{}, nil
	}
	recs, ok := s.hot(from, limit, opts)
	s.mu.Unlock()
	if ok {
		s.e.cfg.Metrics.readsHot.Inc()
		return recs, nil
	}
	s.e.cfg.Metrics.readsCold.Inc()
	return s.e.reader.fetch(ctx, h, from, limit, opts)
}

// hot reads from the WAL's memory. false: what is asked for is not there. The
// caller holds s.mu.
func (s *streamState) hot(from, limit commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, bool) {
	i := s.pieceAt(from)
	if i < 0 {
		return commitlog.Records{}, false
	}
	g := gather{from: from, limit: limit, room: opts.MaxBytes, minOne: opts.MinOne, join: true}
	var pins []*wal.Slot
	for ; i < len(s.pieces) && !g.done; i++ {
		p := &s.pieces[i]
		if p.base >= limit || !p.slot.Acquire() {
			break
		}
		pins = append(pins, p.slot)
		for j := p.spanAt(max(from, p.base)); j < len(p.spans) && !g.done; j++ {
			end := p.end
			if j+1 < len(p.spans) {
				end = p.base + commitlog.Offset(p.spans[j+1].rel)
			}
			g.add(p.spans[j].data(), p.base+commitlog.Offset(p.spans[j].rel), end)
		}
	}
	if len(pins) == 0 {
		return commitlog.Records{}, false
	}
	release := func() {
		for _, p := range pins {
			p.Release()
		}
	}
	if len(g.bufs) == 0 {
		release()
		return commitlog.Records{}, true
	}
	return commitlog.NewRecords(g.bufs, release), true
}

// Flush implements stream.Stream.
func (h *handle) Flush() { h.s.e.wal.Seal() }

// Close implements stream.Stream.
func (h *handle) Close(ctx context.Context) error {
	s := h.s
	s.mu.Lock()
	if h.err == nil {
		h.err = fmt.Errorf("stream %d: %w", s.id, commitlog.ErrClosed)
	}
	last := s.last
	s.mu.Unlock()
	var err error
	if last != nil {
		s.e.wal.Seal()
		select {
		case <-last.Done():
		case <-ctx.Done():
			err = fmt.Errorf("close stream %d: %w", s.id, ctx.Err())
		}
	}
	s.mu.Lock()
	if s.open == h {
		// Unknown, not failed: the WAL may still write them (C4).
		s.resolve(s.confirm, s.next, fmt.Errorf("stream %d was closed before the append was durable: %w", s.id, commitlog.ErrClosed))
	}
	s.mu.Unlock()
	if h.confirmed != nil {
		h.confirmed()
	}
	s.detach(h)
	return err
}

// Destroy implements stream.Stream.
func (h *handle) Destroy(context.Context) error {
	s := h.s
	s.fail(fmt.Errorf("stream %d is destroyed: %w", s.id, commitlog.ErrClosed))
	s.detach(h)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.streams[s.id] == s {
		delete(s.e.streams, s.id)
	}
	return nil
}

// detach makes the state ownerless, and forgets it if all of it is packed.
func (s *streamState) detach(h *handle) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == h {
		s.open = nil
	}
	if s.open == nil && s.committed == s.next && e.streams[s.id] == s {
		delete(e.streams, s.id)
	}
}
