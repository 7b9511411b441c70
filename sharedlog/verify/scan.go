package verify

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/segment"
)

// worker is one goroutine's memory for reading.
type worker struct {
	c   *checker
	buf []byte
}

const (
	// pieceBytes is the most one read fetches.
	pieceBytes = 4 << 20
	// gapBytes is the largest gap that is read rather than skipped by another
	// request.
	gapBytes = 64 << 10
)

// span is a range of an object. feed gets its bytes in pieces, in order; they
// are valid during the call only.
type span struct {
	pos, n int64
	feed   func(b []byte)
}

// scan reads spans, which are in order of position, with as few requests as
// make sense. An object that ends early just feeds less.
func (w *worker) scan(ctx context.Context, key string, spans []span) error {
	for i := 0; i < len(spans); {
		lo, hi := spans[i].pos, spans[i].pos+spans[i].n
		j := i + 1
		for j < len(spans) && spans[j].pos <= hi+gapBytes && max(hi, spans[j].pos+spans[j].n)-lo <= pieceBytes {
			hi = max(hi, spans[j].pos+spans[j].n)
			j++
		}
		if err := w.pieces(ctx, key, lo, hi, spans[i:j]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// pieces reads [lo, hi) and gives each span its part.
func (w *worker) pieces(ctx context.Context, key string, lo, hi int64, spans []span) error {
	for lo < hi {
		want := min(hi-lo, pieceBytes)
		if int64(len(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		var n int
		err := w.c.ask(ctx, func() (err error) {
			n, err = w.c.cfg.Bucket.GetRange(ctx, key, lo, w.buf[:want])
			return err
		})
		if err != nil {
			return err
		}
		w.c.sound(0, int64(n))
		for _, s := range spans {
			from, to := max(s.pos, lo), min(s.pos+s.n, lo+int64(n))
			if from < to {
				s.feed(w.buf[from-lo : to-lo])
			}
		}
		if lo += want; int64(n) < want {
			return nil
		}
	}
	return nil
}

// whole collects a span in memory.
func whole(pos, n int64, into *[]byte) span {
	return span{pos, n, func(b []byte) { *into = append(*into, b...) }}
}

// badBytes is what is wrong in an object, and where.
type badBytes struct {
	kind     Kind
	position int64
	err      error
}

func (b *badBytes) Error() string { return b.err.Error() }

func bad(kind Kind, position int64, format string, args ...any) *badBytes {
	return &badBytes{kind, position, fmt.Errorf(format, args...)}
}

// batches checks the bytes of an extent as they come.
type batches struct {
	x      metadata.Extent
	blocks []segment.Block   // of a run: what each must be
	deltas *commitlog.Deltas // of a chunk: gets every batch
	next   commitlog.Offset
	done   int64  // bytes of whole batches so far
	crc    uint32 // of them
	latest int64
	block  uint32 // CRC of the first block's bytes so far
	filled int64  // how many they are
	rest   []byte // beginning of a batch
	err    *badBytes
}

func newBatches(x metadata.Extent, blocks []segment.Block) *batches {
	return &batches{x: x, blocks: blocks, next: x.Base, latest: -1}
}

func (r *batches) span() span { return span{r.x.Position, r.x.Length, r.feed} }

func (r *batches) feed(b []byte) {
	if r.err != nil {
		return
	}
	if len(r.rest) > 0 {
		r.rest = append(r.rest, b...)
		b = r.rest
	}
	for len(b) > 0 && r.err == nil && r.complete(b) {
		batch, after, err := commitlog.SplitBatch(b)
		if err != nil {
			r.err = bad(Damaged, r.at(), "%w", err)
			return
		}
		r.add(batch)
		b = after
	}
	r.rest = append(r.rest[:0:0], b...)
}

func (r *batches) at() int64 { return r.x.Position + r.done }

// complete says whether b has the whole first batch, or never will.
func (r *batches) complete(b []byte) bool {
	left := r.x.Length - r.done
	if len(b) < commitlog.HeaderBytes {
		return left <= int64(len(b))
	}
	n := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
	return n <= int64(len(b)) || n > left
}

func (r *batches) add(b commitlog.Batch) {
	if err := b.CheckCRC(); err != nil {
		r.err = bad(Damaged, r.at(), "%w", err)
		return
	}
	if b.BaseOffset() != r.next || b.LeaderEpoch() != r.x.Epoch {
		r.err = bad(Mismatch, r.at(), "batch is of offset %d at epoch %d, where offset %d at epoch %d belongs", b.BaseOffset(), b.LeaderEpoch(), r.next, r.x.Epoch)
		return
	}
	if b.LastOffsetDelta() < 0 {
		r.err = bad(Damaged, r.at(), "batch at offset %d spans %d offsets", r.next, int64(b.LastOffsetDelta())+1)
		return
	}
	if r.deltas != nil {
		r.deltas.Add(b.Info())
	}
	r.crc = crc32.Update(r.crc, commitlog.Castagnoli, b)
	r.latest = max(r.latest, b.MaxTimestamp())
	r.inBlock(b)
	r.done += int64(len(b))
	r.next = b.LastOffset() + 1
}

// inBlock checks a batch's place in the sparse index.
func (r *batches) inBlock(b commitlog.Batch) {
	if r.blocks == nil {
		return
	}
	if len(r.blocks) == 0 {
		r.err = bad(Mismatch, r.at(), "batch at offset %d is in no block", r.next)
		return
	}
	bl := &r.blocks[0]
	if r.filled == 0 && bl.Base != r.next {
		r.err = bad(Mismatch, r.at(), "block is said to begin at offset %d, its first batch is at %d", bl.Base, r.next)
		return
	}
	r.block = crc32.Update(r.block, commitlog.Castagnoli, b)
	if r.filled += int64(len(b)); r.filled < bl.Length {
		return
	}
	if r.filled != bl.Length || r.block != bl.CRC {
		r.err = bad(Damaged, r.x.Position+bl.Position, "block at offset %d has %d bytes with CRC %08x, its index says %d with %08x", bl.Base, r.filled, r.block, bl.Length, bl.CRC)
		return
	}
	r.blocks, r.filled, r.block = r.blocks[1:len(r.blocks):len(r.blocks)], 0, 0
}

// finish says what is wrong with all of it, nil if nothing is.
func (r *batches) finish() *badBytes {
	switch {
	case r.err != nil:
		return r.err
	case r.done != r.x.Length:
		return bad(Damaged, r.at(), "object ends, or batch is cut off, %d bytes before the end of the extent", r.x.Length-r.done)
	case r.next != r.x.End:
		return bad(Mismatch, r.at(), "batches end at offset %d, the extent at %d", r.next, r.x.End)
	case r.latest != r.x.MaxTimestamp:
		return bad(Mismatch, r.x.Position, "largest timestamp is %d, the extent says %d", r.latest, r.x.MaxTimestamp)
	case len(r.blocks) > 0:
		return bad(Mismatch, r.at(), "%d blocks have no batches", len(r.blocks))
	}
	return nil
}
