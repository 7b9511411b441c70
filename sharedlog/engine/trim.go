package engine

import (
	"context"
	"errors"
	"fmt"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/segment"
)

// Trim implements stream.Stream. The start lives in the metadata. Two things
// must hold before it moves there: what lies below it is committed (ext-4), so
// that the WAL's trim does not wait for deleted records; and the newest
// checkpoint is not in an extent that goes, because the deltas behind it say
// nothing without it.
func (h *handle) Trim(ctx context.Context, to commitlog.Offset) error {
	s, e := h.s, h.s.e
	for {
		start, confirm, err := h.readable()
		switch {
		case err != nil:
			return err
		case to <= start:
			return nil
		case to > confirm:
			return fmt.Errorf("trim stream %d to %d, stable is %d: %w", s.id, to, confirm, commitlog.ErrOffsetOutOfRange)
		}
		round := e.nextRound()
		p, ok := e.cfg.Meta.Image().PartitionByStream(s.id)
		switch {
		case !ok || p.Owner != e.cfg.Incarnation || p.Epoch != h.epoch:
			return fmt.Errorf("trim stream %d: owner is %s at epoch %d: %w", s.id, p.Owner, p.Epoch, commitlog.ErrFenced)
		case p.Start >= to:
			s.trimmed(p.Start)
			return nil
		case p.End < to:
			if err := e.awaitPack(ctx, round); err != nil {
				return err
			}
			continue
		}
		safe, err := e.keepsState(ctx, p, to)
		if err == nil && !safe {
			err = e.repackStream(ctx, p)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("save checkpoint of stream %d before trimming: %w", s.id, err)
		}
		s.trimsTo(to)
		err = e.submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_TrimStreams{TrimStreams: &metadatapb.TrimStreams{
			Streams: []*metadatapb.StreamStart{{Stream: uint64(s.id), Epoch: int32(h.epoch), Start: int64(to)}},
		}}})
		if err != nil && !errors.Is(err, errUnsettled) {
			return fmt.Errorf("trim stream %d to %d: %w", s.id, to, metaError(err))
		}
		// Applied, skipped or lost: the image says which.
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

// metaError makes an error of the metadata one that callers know.
func metaError(err error) error {
	var rejected *metadata.Error
	if errors.As(err, &rejected) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", commitlog.ErrUnavailable, err)
}

// nextRound is closed when the next round of packing has ended.
func (e *Engine) nextRound() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.round
}

func (s *streamState) trimmed(start commitlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = max(s.start, start)
}

// trimsTo notes that a command asks for a start.
func (s *streamState) trimsTo(start commitlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimming = max(s.trimming, start)
}

// startNow is the start of the log. A command whose caller went away may still
// apply: as long as one is not known to have, the image says where the log
// starts (ext-2). The caller holds s.mu.
func (s *streamState) startNow() commitlog.Offset {
	if s.trimming > s.start {
		if p, ok := s.e.cfg.Meta.Image().PartitionByStream(s.id); ok {
			s.start = max(s.start, p.Start)
		}
	}
	return s.start
}

// keepsState says whether the extents that stay after a trim still have the
// newest checkpoint, or there is none to lose.
func (e *Engine) keepsState(ctx context.Context, p metadata.Partition, to commitlog.Offset) (bool, error) {
	for i := len(p.Extents) - 1; i >= 0; i-- {
		x := p.Extents[i]
		has, err := e.hasCheckpoint(ctx, p.Stream, x, 0)
		if err != nil {
			return false, err
		}
		if has || i == 0 {
			return x.End > to || i == len(p.Extents)-1, nil
		}
	}
	return true, nil
}

// hasCheckpoint says whether recovery would find a checkpoint in x.
func (e *Engine) hasCheckpoint(ctx context.Context, id commitlog.StreamID, x metadata.Extent, depth int) (bool, error) {
	if isSlot(x.Object) || depth > maxDepth {
		return false, nil
	}
	var sec *segment.Section
	err := e.reader.retry(ctx, id, func() (err error) {
		sec, err = e.reader.sectionOf(ctx, id, x)
		return err
	})
	if err != nil {
		return false, err
	}
	if sec.State.Kind != segment.StateNone || !x.Indirect {
		return sec.State.Kind == segment.StateCheckpoint, nil
	}
	for i := len(sec.Entries) - 1; i >= 0; i-- {
		if has, err := e.hasCheckpoint(ctx, id, sec.Entries[i].Extent, depth+1); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

// isSlot says whether an object is a WAL slot.
func isSlot(object string) bool {
	n, err := metadata.ParseObjectName(object)
	return err == nil && n.Kind == metadata.WALSlot
}
