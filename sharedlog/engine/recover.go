package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

// recovered finds what producer state, transactions and leader epochs depend
// on: the newest checkpoint and the deltas since (C11, prod-1). No record bytes
// are read.
func (e *Engine) recovered(ctx context.Context, h *handle) (commitlog.Recovery, error) {
	var rec commitlog.Recovery
	err := e.reader.retry(ctx, h.s.id, func() (err error) {
		// Before the image: what is packed in between is then found twice and
		// skipped once, instead of missed.
		slots := e.unpackedSlots()
		p, ok := e.cfg.Meta.Image().PartitionByStream(h.s.id)
		if !ok {
			return fmt.Errorf("the stream is gone from the metadata: %w", commitlog.ErrFenced)
		}
		if rec, err = e.committedState(ctx, p); err != nil {
			return err
		}
		h.s.keep(rec)
		rec.Batches = commitlog.KeepRelevant(append(rec.Batches, deltasOf(slots, h.s.id, p.End)...))
		return nil
	})
	return rec, err
}

// committedState is the state up to the committed end.
func (e *Engine) committedState(ctx context.Context, p metadata.Partition) (commitlog.Recovery, error) {
	e.readAhead(ctx, p.Extents)
	w := stateWalk{e: e, stream: p.Stream}
	if err := w.extents(ctx, p.Extents, 0); err != nil {
		return commitlog.Recovery{}, err
	}
	slices.Reverse(w.deltas)
	rec := commitlog.Recovery{Checkpoint: w.checkpoint, CheckpointEnd: w.end}
	for _, d := range w.deltas {
		rec.Batches = append(rec.Batches, d...)
	}
	return rec, nil
}

// readAhead brings the indexes of the slots at the end of a list into the cache,
// side by side: a stream that has just moved has some, and the walk would read one
// after the other. Errors are left to the walk.
func (e *Engine) readAhead(ctx context.Context, list []metadata.Extent) {
	var slots []metadata.ObjectName
	for i := len(list) - 1; i >= 0; i-- {
		n, err := metadata.ParseObjectName(list[i].Object)
		if err != nil || n.Kind != metadata.WALSlot {
			break
		}
		slots = append(slots, n)
	}
	if len(slots) < 2 {
		return
	}
	var wg sync.WaitGroup
	for _, n := range slots {
		wg.Go(func() { _, _ = e.slotIndex(ctx, n) })
	}
	wg.Wait()
}

// stateWalk goes from the newest extent back until it meets a checkpoint.
type stateWalk struct {
	e          *Engine
	stream     commitlog.StreamID
	deltas     [][]commitlog.BatchInfo // newest first
	checkpoint []byte
	end        commitlog.Offset
	found      bool
}

// maxDepth bounds how deep index sections may point at index sections.
const maxDepth = 16

func (w *stateWalk) extents(ctx context.Context, list []metadata.Extent, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("index of stream %d is nested deeper than %d: %w", w.stream, maxDepth, commitlog.ErrCorrupt)
	}
	for i := len(list) - 1; i >= 0 && !w.found; i-- {
		if err := w.extent(ctx, list[i], depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *stateWalk) extent(ctx context.Context, x metadata.Extent, depth int) error {
	if n, err := metadata.ParseObjectName(x.Object); err == nil && n.Kind == metadata.WALSlot {
		return w.slot(ctx, n, x)
	}
	sec, err := w.e.reader.sectionOf(ctx, w.stream, x)
	if err != nil {
		return err
	}
	switch sec.State.Kind {
	case segment.StateCheckpoint:
		w.checkpoint, w.end, w.found = sec.State.Checkpoint, sec.End, true
	case segment.StateDeltas:
		w.deltas = append(w.deltas, sec.State.Deltas)
	case segment.StateNone:
		if !x.Indirect {
			return &badObject{x.Object, x.Position, fmt.Errorf("run of stream %d at %d has no state: %w", w.stream, sec.Base, commitlog.ErrCorrupt)}
		}
		list := make([]metadata.Extent, len(sec.Entries))
		for i := range sec.Entries {
			list[i] = sec.Entries[i].Extent
		}
		return w.extents(ctx, list, depth+1)
	}
	return nil
}

// slot takes the deltas of WAL data from the slot's index.
func (w *stateWalk) slot(ctx context.Context, n metadata.ObjectName, x metadata.Extent) error {
	index, err := w.e.slotIndex(ctx, n)
	if err != nil {
		return err
	}
	for i := range index.Chunks {
		c := &index.Chunks[i]
		if c.Stream == w.stream && c.Base == x.Base && c.End == x.End {
			w.deltas = append(w.deltas, c.Batches)
			return nil
		}
	}
	return fmt.Errorf("%s has no chunk of stream %d at %d: %w", x.Object, w.stream, x.Base, commitlog.ErrCorrupt)
}

func (e *Engine) slotIndex(ctx context.Context, n metadata.ObjectName) (*wal.Index, error) {
	k := cacheKey{object: n.String(), kind: cacheObject}
	v, err := e.reader.cache.get(ctx, k, func(ctx context.Context) (any, int64, error) {
		wl, ok := e.cfg.Meta.Image().WAL(n.Creator)
		if !ok {
			return nil, 0, fmt.Errorf("incarnation of %s is unknown: %w", n, commitlog.ErrCorrupt)
		}
		_, index, err := wal.ReadIndex(ctx, e.bucket(objstore.ReasonRecovery), prefix(e.clusterID, wl.Generation), n.Creator, n.Number)
		return &index, int64(len(index.Chunks)) * 300, err
	})
	if err != nil {
		return nil, fmt.Errorf("read index of %s: %w", n, storeError(err))
	}
	return v.(*wal.Index), nil
}

// unpackedSlots are the durable slots of our own WAL that are not packed.
func (e *Engine) unpackedSlots() []*wal.Slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.unpacked)
}

// deltasOf are the deltas of what slots hold of a stream from an offset on.
func deltasOf(slots []*wal.Slot, id commitlog.StreamID, from commitlog.Offset) []commitlog.BatchInfo {
	var out []commitlog.BatchInfo
	for _, slot := range slots {
		for _, c := range chunksOf(slot.Index(), id) {
			if c.End > from {
				out = append(out, c.Batches...)
			}
		}
	}
	return out
}

// chunksOf are the chunks of one stream in a slot, usually one; they are sorted
// by stream.
func chunksOf(index *wal.Index, id commitlog.StreamID) []wal.Chunk {
	i, _ := slices.BinarySearchFunc(index.Chunks, id, func(c wal.Chunk, id commitlog.StreamID) int {
		if c.Stream < id {
			return -1
		}
		return 1
	})
	j := i
	for j < len(index.Chunks) && index.Chunks[j].Stream == id {
		j++
	}
	return index.Chunks[i:j]
}

// keep remembers a checkpoint for the next pack if it is small.
func (s *streamState) keep(rec commitlog.Recovery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check = nil
	if rec.CheckpointEnd > 0 && len(rec.Batches) == 0 && len(rec.Checkpoint) <= maxKeptCheckpoint {
		s.check = &checkpoint{bytes: rec.Checkpoint, end: rec.CheckpointEnd}
	}
}
