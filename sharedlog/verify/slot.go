package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/wal"
)

// readSlot reads and checks header, footer and index of a slot.
func (w *worker) readSlot(ctx context.Context, n metadata.ObjectName) (h wal.Header, index wal.Index, err error) {
	err = w.c.ask(ctx, func() (err error) {
		h, index, err = wal.ReadIndex(ctx, w.c.cfg.Bucket, w.c.prefix(n.Creator), n.Creator, n.Number)
		return err
	})
	if err != nil {
		return h, index, err
	}
	gen := w.c.img.Generation()
	if l, ok := w.c.img.WAL(n.Creator); ok {
		gen = l.Generation
	}
	if h.ClusterID != w.c.img.ClusterID() || h.Generation != gen || h.Lane != 0 {
		err = fmt.Errorf("%w: slot is of cluster %q, generation %d, lane %d", commitlog.ErrCorrupt, h.ClusterID, h.Generation, h.Lane)
	}
	return h, index, err
}

// slot checks the extents that lie in a slot.
func (w *worker) slot(ctx context.Context, n metadata.ObjectName, wants []want) ([]finding, error) {
	h, index, err := w.readSlot(ctx, n)
	switch {
	case err != nil && isBad(err):
		return []finding{{n, wants, badBytes{kindOf(err), 0, err}}}, nil
	case err != nil:
		return nil, fmt.Errorf("read slot %s: %w", n, err)
	case h.Kind == wal.Fence:
		return []finding{{n, wants, *bad(Mismatch, 0, "slot is a fence")}}, nil
	}
	var found []finding
	var chunks []*wal.Chunk
	var of []want
	for _, x := range wants {
		i := slices.IndexFunc(index.Chunks, func(c wal.Chunk) bool {
			return c.Stream == x.p.Stream && c.Base == x.x.Base && c.End == x.x.End && c.Pos == x.x.Position && c.Len == x.x.Length
		})
		switch {
		case x.x.Indirect:
			found = append(found, finding{n, []want{x}, *bad(Mismatch, x.x.Position, "a slot is no index")})
		case i < 0:
			found = append(found, finding{n, []want{x}, *bad(Mismatch, x.x.Position, "slot has no chunk of stream %d, offsets %d to %d", x.p.Stream, x.x.Base, x.x.End)})
		case index.Chunks[i].Epoch != x.x.Epoch || index.Chunks[i].MaxTimestamp != x.x.MaxTimestamp:
			found = append(found, finding{n, []want{x}, *bad(Mismatch, x.x.Position, "chunk is of epoch %d and timestamp %d, the extent of %d and %d",
				index.Chunks[i].Epoch, index.Chunks[i].MaxTimestamp, x.x.Epoch, x.x.MaxTimestamp)})
		default:
			chunks, of = append(chunks, &index.Chunks[i]), append(of, x)
		}
	}
	wrong, err := w.chunks(ctx, n, &h, chunks)
	for i := range wrong {
		f := finding{object: n, badBytes: wrong[i].badBytes}
		if at := wrong[i].chunk; at >= 0 {
			f.wants = of[at : at+1]
		} else {
			f.wants = wants
		}
		found = append(found, f)
	}
	return found, err
}

// badChunk is what is wrong with one of some chunks, or with the slot if chunk
// is -1.
type badChunk struct {
	chunk int
	badBytes
}

// chunks checks the bytes of chunks, which are in order of position, and the
// header in front of them.
func (w *worker) chunks(ctx context.Context, n metadata.ObjectName, h *wal.Header, chunks []*wal.Chunk) ([]badChunk, error) {
	var head []byte
	spans := []span{whole(0, wal.HeaderBytes, &head)}
	read := make([]*batches, len(chunks))
	for i, c := range chunks {
		read[i] = newBatches(metadata.Extent{Position: c.Pos, Length: c.Len, Base: c.Base, End: c.End, Epoch: c.Epoch, MaxTimestamp: c.MaxTimestamp}, nil)
		read[i].deltas = new(commitlog.Deltas)
		spans = append(spans, read[i].span())
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.pos, b.pos) })
	err := w.scan(ctx, w.c.key(n), spans)
	switch {
	case err != nil && isBad(err):
		return []badChunk{{-1, badBytes{kindOf(err), 0, err}}}, nil
	case err != nil:
		return nil, fmt.Errorf("read slot %s: %w", n, err)
	}
	var wrong []badChunk
	if front, err := wal.DecodeHeader(head); err != nil {
		wrong = append(wrong, badChunk{-1, *bad(Damaged, 0, "header: %w", err)})
	} else if front != *h {
		wrong = append(wrong, badChunk{-1, *bad(Damaged, 0, "header and footer differ")})
	}
	for i, c := range chunks {
		damage := read[i].finish()
		if damage == nil && read[i].crc != c.CRC32C {
			damage = bad(Damaged, c.Pos, "chunk has CRC %08x, the index says %08x", read[i].crc, c.CRC32C)
		}
		if damage == nil && !sameDeltas(read[i].deltas.Infos(), c.Batches) {
			damage = bad(Mismatch, c.Pos, "the index's deltas of stream %d from offset %d on are not those of its batches", c.Stream, c.Base)
		}
		if damage != nil {
			wrong = append(wrong, badChunk{i, *damage})
			continue
		}
		w.c.sound(int64(c.End-c.Base), 0)
	}
	return wrong, nil
}

// sameDeltas compares what batches say with what an index kept of them: of a
// batch without a producer id, no sequence.
func sameDeltas(read, kept []commitlog.BatchInfo) bool {
	for i := range read {
		if r := &read[i]; r.ProducerID == -1 {
			r.ProducerEpoch, r.BaseSequence = -1, -1
			r.LastSequence = int32((-1 + int64(r.LastOffset-r.BaseOffset)) & 0x7fffffff)
		}
	}
	return slices.Equal(read, kept)
}
