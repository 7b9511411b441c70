package wal

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"ponor/commitlog"
	"ponor/internal/crc32c"
)

// draft is what a slot consists of while it is filled and put. Drafts are
// recycled, so that appends allocate nothing.
type draft struct {
	batches []batchRef
	chunks  []chunkRef
	byKey   map[chunkKey]int32 // position in chunks
	last    int32              // the chunk appended to last

	// What encode makes.
	front, footer []byte
	index         []byte
	parts         [][]byte
	deltas        commitlog.Deltas
}

type chunkKey struct {
	stream commitlog.StreamID
	epoch  commitlog.Epoch
}

// batchRef is a batch in a slab; next is the stream's next one in the slot.
type batchRef struct {
	span
	next int32
}

type chunkRef struct {
	chunkKey
	base, end   commitlog.Offset
	first, tail int32 // in batches
}

func newDraft() *draft { return &draft{byKey: map[chunkKey]int32{}} }

func (d *draft) reset() {
	clear(d.byKey)
	clear(d.parts)
	d.batches, d.chunks, d.last, d.parts = d.batches[:0], d.chunks[:0], 0, d.parts[:0]
}

// find returns the chunk a batch goes to, -1 for a new one. It refuses a batch
// that does not continue its chunk (C1 is the caller's duty; a gap would corrupt
// the log silently).
func (d *draft) find(key chunkKey, base commitlog.Offset) (int32, error) {
	if len(d.chunks) == 0 {
		return -1, nil
	}
	at := d.last
	if d.chunks[at].chunkKey != key {
		i, ok := d.byKey[key]
		if !ok {
			return -1, nil
		}
		at = i
	}
	if end := d.chunks[at].end; end != base {
		return 0, fmt.Errorf("append to stream %d epoch %d: batch at offset %d, the last one ends at %d", key.stream, key.epoch, base, end)
	}
	return at, nil
}

// add records a batch in chunk at, -1 for a new one.
func (d *draft) add(at int32, key chunkKey, base, end commitlog.Offset, p span) {
	n := int32(len(d.batches))
	d.batches = append(d.batches, batchRef{span: p, next: -1})
	if at < 0 {
		at = int32(len(d.chunks))
		d.chunks = append(d.chunks, chunkRef{chunkKey: key, base: base, first: n, tail: n})
		d.byKey[key] = at
	} else {
		d.batches[d.chunks[at].tail].next = n
		d.chunks[at].tail = n
	}
	d.chunks[at].end = end
	d.last = at
}

// layOut sorts the slot's chunks and describes them in its index and spans.
func (s *Slot) layOut() {
	d := s.draft
	slices.SortFunc(d.chunks, func(a, b chunkRef) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.epoch, b.epoch))
	})
	s.index = Index{Seq: s.seq, Chunks: make([]Chunk, len(d.chunks))}
	s.chunks = make([]int32, len(d.chunks))
	s.spans = make([]span, 0, len(d.chunks))
	pos := int64(HeaderBytes)
	for i := range d.chunks {
		s.chunks[i] = int32(len(s.spans))
		s.index.Chunks[i] = s.chunk(&d.chunks[i], pos)
		pos += s.index.Chunks[i].Len
	}
}

// chunk walks one stream's batches.
func (s *Slot) chunk(r *chunkRef, pos int64) Chunk {
	d := s.draft
	c := Chunk{Stream: r.stream, Epoch: r.epoch, Base: r.base, End: r.end, Pos: pos, MaxTimestamp: -1}
	first := len(s.spans)
	for n := r.first; n >= 0; n = d.batches[n].next {
		p := d.batches[n].span
		b := commitlog.Batch(s.memory(p))
		c.CRC32C = crc32c.AddBatch(c.CRC32C, b)
		c.Len += int64(p.n)
		c.MaxTimestamp = max(c.MaxTimestamp, b.MaxTimestamp())
		d.deltas.Add(b.Info())
		if k := len(s.spans) - 1; k >= first && s.spans[k].slab == p.slab && s.spans[k].off+s.spans[k].n == p.off {
			s.spans[k].n += p.n
		} else {
			s.spans = append(s.spans, p)
		}
	}
	c.Batches = d.deltas.Infos()
	d.deltas.Reset()
	return c
}

// encode makes the slot's body. recent has the encoded chunks of the last slots
// by seq mod repeatEvery; the slot's own are added.
func (s *Slot) encode(h Header, recent *[repeatEvery][]byte) {
	s.layOut()
	d := s.draft
	own := appendChunks(recent[s.seq%repeatEvery][:0], s.index.Chunks)
	recent[s.seq%repeatEvery] = own
	d.index = appendRepeated(append(d.index[:0], own...), s.seq, recent)

	h.Kind, h.Seq, h.WriteID = Data, s.seq, s.writeID
	h.Size = uint64(2*HeaderBytes + s.bytes + int64(len(d.index)))
	h.indexLen = uint32(len(d.index))
	h.indexCRC = crc32.Checksum(d.index, commitlog.Castagnoli)
	d.front = appendHeader(d.front[:0], &h)
	d.footer = append(d.footer[:0], d.front...)

	frame := crc32.Checksum(d.front, commitlog.Castagnoli)
	sum := frame
	d.parts = append(d.parts[:0], d.front)
	for _, p := range s.spans {
		d.parts = append(d.parts, s.memory(p))
	}
	for i := range s.index.Chunks {
		sum = crc32c.Combine(sum, s.index.Chunks[i].CRC32C, s.index.Chunks[i].Len)
	}
	sum = crc32c.Combine(sum, h.indexCRC, int64(len(d.index)))
	sum = crc32c.Combine(sum, frame, HeaderBytes)
	d.parts = append(d.parts, d.index, d.footer)
	s.body.Parts, s.body.CRC32C = d.parts, sum
}

// appendRepeated encodes the indexes that slot seq repeats, as many of the last
// ones as fit.
func appendRepeated(dst []byte, seq uint64, recent *[repeatEvery][]byte) []byte {
	first, size := seq, 0
	if seq%repeatEvery == repeatEvery-1 {
		for first > seq-(repeatEvery-1) {
			if size += len(recent[(first-1)%repeatEvery]); size > maxRepeated {
				break
			}
			first--
		}
	}
	dst = binary.AppendUvarint(dst, seq-first)
	for ; first < seq; first++ {
		b := recent[first%repeatEvery]
		dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...)
	}
	return dst
}
