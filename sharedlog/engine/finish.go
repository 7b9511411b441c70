package engine

import (
	"context"
	"slices"
	"time"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/wal"
)

// finishPack forgets n slots, whose data is committed, and deletes their
// objects: they are below the trim, and only we could have made a first
// reference to them (obj-1, obj-2).
func (e *Engine) finishPack(ctx context.Context, streams []*packStream, n int) {
	img := e.cfg.Meta.Image()
	e.mu.Lock()
	e.cfg.Metrics.packs.Inc()
	done := e.unpacked[:n:n]
	e.unpacked = slices.Clone(e.unpacked[n:])
	var keys []string
	for _, slot := range done {
		for i := range slot.Index().Chunks {
			e.bytes -= slot.Index().Chunks[i].Len
		}
		object := metadata.ObjectName{Kind: metadata.WALSlot, Creator: e.cfg.Incarnation, Number: slot.Seq()}.String()
		_, adopted := e.adopted[object]
		if !adopted && img.References(object) == 0 && e.neverMoved(img, slot) {
			keys = append(keys, e.prefix+"/"+object)
		}
	}
	e.trim = done[n-1].Seq() + 1
	e.packed = append(e.packed, done...)
	e.since = time.Now()
	e.boundLocked()
	e.mu.Unlock()

	// Also those that an earlier round committed, whose reply was lost.
	for _, slot := range done {
		for i := range slot.Index().Chunks {
			id := slot.Index().Chunks[i].Stream
			if s := e.state(id); s != nil {
				s.mu.Lock()
				// Read under mu, so that it is at least as new as what the handle was
				// opened by: a stream may have gone and come back meanwhile, and what was
				// appended since is not committed.
				if p, ok := e.cfg.Meta.Image().PartitionByStream(id); ok && p.Owner == e.cfg.Incarnation {
					s.committed = max(s.committed, p.End)
				} else {
					s.committed = s.next // no longer our business
				}
				s.mu.Unlock()
			}
		}
	}
	for _, ps := range streams {
		s := e.state(ps.id)
		if s == nil {
			continue
		}
		s.mu.Lock()
		s.check = nil
		if ps.folded && len(ps.check) <= maxKeptCheckpoint {
			// Of its own end, which is not the committed one if the stream went to
			// another broker and came back since.
			s.check = &checkpoint{bytes: ps.check, end: ps.runs[len(ps.runs)-1].end}
		}
		s.mu.Unlock()
		s.detach(nil)
	}
	e.forgetEvicted()
	if len(keys) == 0 {
		return
	}
	if err := e.bucket(objstore.ReasonPack).Delete(ctx, keys...); err != nil && ctx.Err() == nil {
		e.cfg.Logger.Info("trimmed slots are left to the sweep", "object", keys[0], "err", err)
	}
}

// neverMoved says that no stream in the slot was given to another broker since:
// a hand-over may refer to the slot from within an index object, which only the
// sweep reads.
func (e *Engine) neverMoved(img *metadata.Image, slot *wal.Slot) bool {
	for i := range slot.Index().Chunks {
		c := &slot.Index().Chunks[i]
		if p, ok := img.PartitionByStream(c.Stream); ok && (p.Owner != e.cfg.Incarnation || p.Epoch != c.Epoch) {
			return false
		}
	}
	return true
}

// maxPackedSlots bounds how many committed slots are kept as cache, because
// each costs some memory beside its slabs.
const maxPackedSlots = 8192

// forgetEvicted drops the pieces of committed slots whose memory is gone. The
// WAL evicts oldest first.
func (e *Engine) forgetEvicted() {
	for {
		e.mu.Lock()
		if len(e.packed) == 0 {
			e.mu.Unlock()
			return
		}
		slot := e.packed[0]
		if len(e.packed) <= maxPackedSlots && slot.Acquire() {
			slot.Release()
			e.mu.Unlock()
			return
		}
		e.packed = e.packed[1:]
		e.mu.Unlock()
		for _, c := range slot.Index().Chunks {
			if s := e.state(c.Stream); s != nil {
				s.forget(slot.Seq())
			}
		}
	}
}
