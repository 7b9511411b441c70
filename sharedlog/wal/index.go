package wal

import (
	"encoding/binary"
	"fmt"

	"ponor/commitlog"
)

// Index says what one slot holds.
type Index struct {
	Seq    uint64
	Chunks []Chunk // sorted by stream, then by epoch
}

// Chunk is the run of one stream's batches in a slot, in the order they were
// appended.
type Chunk struct {
	Stream    commitlog.StreamID
	Epoch     commitlog.Epoch
	Base, End commitlog.Offset // End is exclusive
	// Pos and Len delimit the chunk in the slot object, in bytes.
	Pos, Len     int64
	MaxTimestamp int64 // ms
	CRC32C       uint32
	// Batches are the deltas, in offset order: what commitlog.Deltas keeps of the
	// chunk's batches, which always starts with the first one. Their LeaderEpoch
	// is the chunk's.
	Batches []commitlog.BatchInfo
}

const (
	chunkRecords = 1 // kind byte; 2 and 3 are reserved, see doc.go
	// repeatEvery is how often a slot repeats the indexes before it.
	repeatEvery = 32
	// maxRepeated bounds the repeated indexes of one slot, in bytes: with
	// thousands of streams an index is large, and writing it twice is enough.
	maxRepeated = 1 << 20
	// minChunk and minDelta are the least bytes of an encoded chunk and delta;
	// counts are checked against them before anything is allocated.
	minChunk = 12
	minDelta = 5
)

// appendChunks encodes the number of chunks and the chunks.
func appendChunks(dst []byte, chunks []Chunk) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(chunks)))
	for i := range chunks {
		c := &chunks[i]
		dst = append(dst, chunkRecords)
		dst = binary.AppendUvarint(dst, uint64(c.Stream))
		dst = binary.AppendUvarint(dst, uint64(c.Epoch))
		dst = binary.AppendUvarint(dst, uint64(c.Base))
		dst = binary.AppendUvarint(dst, uint64(c.End-c.Base))
		dst = binary.AppendUvarint(dst, uint64(c.Len))
		dst = binary.AppendVarint(dst, c.MaxTimestamp)
		dst = binary.BigEndian.AppendUint32(dst, c.CRC32C)
		dst = binary.AppendUvarint(dst, uint64(len(c.Batches)))
		for j := range c.Batches {
			dst = appendDelta(dst, c, &c.Batches[j])
		}
	}
	return dst
}

func appendDelta(dst []byte, c *Chunk, b *commitlog.BatchInfo) []byte {
	dst = binary.AppendUvarint(dst, uint64(b.BaseOffset-c.Base))
	dst = binary.AppendUvarint(dst, uint64(b.LastOffset-b.BaseOffset))
	dst = binary.AppendUvarint(dst, uint64(uint16(b.Attributes)))
	dst = binary.AppendVarint(dst, b.MaxTimestamp-c.MaxTimestamp)
	dst = binary.AppendVarint(dst, b.ProducerID)
	if b.ProducerID != -1 {
		dst = binary.AppendVarint(dst, int64(b.ProducerEpoch))
		dst = binary.AppendVarint(dst, int64(b.BaseSequence))
	}
	if b.Attributes&commitlog.AttrControl != 0 {
		dst = binary.AppendVarint(dst, int64(b.Marker))
		dst = binary.AppendVarint(dst, int64(b.CoordinatorEpoch))
	}
	return dst
}

// decoder reads varints from a buffer; the first failure sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: WAL index: %s", commitlog.ErrCorrupt, fmt.Sprintf(format, args...))
		d.b = nil
	}
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// upTo reads an unsigned number that may not exceed limit.
func (d *decoder) upTo(limit int64, what string) int64 {
	v := d.uvarint()
	if v > uint64(limit) {
		d.fail("%s %d exceeds %d", what, v, limit)
		return 0
	}
	return int64(v)
}

// within reads a signed number of a narrower type.
func (d *decoder) within(lo, hi int64, what string) int64 {
	v := d.varint()
	if v < lo || v > hi {
		d.fail("%s %d is out of range", what, v)
		return 0
	}
	return v
}

func (d *decoder) uint8() byte {
	if len(d.b) < 1 {
		d.fail("ends early")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint32() uint32 {
	if len(d.b) < 4 {
		d.fail("ends early")
		return 0
	}
	v := binary.BigEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *decoder) bytes(n int64) []byte {
	if n > int64(len(d.b)) {
		d.fail("ends early")
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// count reads a number of entries of at least min bytes each.
func (d *decoder) count(min int, what string) int {
	return int(d.upTo(int64(len(d.b)/min), what))
}

const maxInt63 = 1<<63 - 1

// chunks decodes the number of chunks and the chunks. Positions are checked
// against end, the position of the index in the object.
func (d *decoder) chunks(end int64) []Chunk {
	n := d.count(minChunk, "number of chunks")
	if n == 0 {
		return nil
	}
	chunks := make([]Chunk, 0, n)
	pos := int64(HeaderBytes)
	for range n {
		kind := d.uint8()
		if d.err == nil && kind != chunkRecords {
			d.err = fmt.Errorf("%w: WAL chunk of kind %d", ErrUnsupported, kind)
		}
		if d.err != nil {
			return nil
		}
		c := Chunk{Pos: pos}
		d.chunk(&c)
		if c.Len > end-pos {
			d.fail("chunks end at %d, the index starts at %d", pos+c.Len, end)
		}
		pos += c.Len
		if k := len(chunks); k > 0 && !chunkLess(&chunks[k-1], &c) {
			d.fail("chunks are out of order")
		}
		chunks = append(chunks, c)
	}
	if d.err != nil {
		return nil
	}
	return chunks
}

func chunkLess(a, b *Chunk) bool {
	return a.Stream < b.Stream || a.Stream == b.Stream && a.Epoch < b.Epoch
}

func (d *decoder) chunk(c *Chunk) {
	c.Stream = commitlog.StreamID(d.uvarint())
	c.Epoch = commitlog.Epoch(d.upTo(1<<31-1, "epoch"))
	c.Base = commitlog.Offset(d.upTo(maxInt63, "offset"))
	c.End = c.Base + commitlog.Offset(d.upTo(maxInt63-int64(c.Base), "number of offsets"))
	c.Len = d.upTo(maxInt63, "length")
	c.MaxTimestamp = d.varint()
	c.CRC32C = d.uint32()
	n := d.count(minDelta, "number of deltas")
	if n == 0 {
		return
	}
	c.Batches = make([]commitlog.BatchInfo, n)
	for i := range c.Batches {
		d.delta(c, &c.Batches[i])
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) delta(c *Chunk, b *commitlog.BatchInfo) {
	b.LeaderEpoch = c.Epoch
	b.BaseOffset = c.Base + commitlog.Offset(d.upTo(int64(c.End-c.Base), "delta's offset"))
	b.LastOffset = b.BaseOffset + commitlog.Offset(d.upTo(int64(c.End-b.BaseOffset), "last offset delta"))
	b.Attributes = int16(d.upTo(1<<16-1, "attributes"))
	b.MaxTimestamp = c.MaxTimestamp + d.varint()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Marker = d.varint(), -1, -1, -1
	if b.ProducerID != -1 {
		b.ProducerEpoch = int16(d.within(-1<<15, 1<<15-1, "producer epoch"))
		b.BaseSequence = int32(d.within(-1<<31, 1<<31-1, "sequence"))
	}
	b.LastSequence = int32((int64(b.BaseSequence) + int64(b.LastOffset-b.BaseOffset)) & 0x7fffffff)
	if b.Attributes&commitlog.AttrControl != 0 {
		b.Marker = int16(d.within(-1, 1<<15-1, "marker"))
		b.CoordinatorEpoch = int32(d.within(-1<<31, 1<<31-1, "coordinator epoch"))
	}
}

// decodeIndex reads an index section of a slot with this header, and the
// indexes of earlier slots that it repeats, oldest first.
func decodeIndex(h *Header, b []byte) (own Index, repeated []Index, err error) {
	d := &decoder{b: b}
	own = Index{Seq: h.Seq, Chunks: d.chunks(int64(h.Size) - HeaderBytes - int64(h.indexLen))}
	if n := len(own.Chunks); d.err == nil {
		end := int64(HeaderBytes)
		if n > 0 {
			end = own.Chunks[n-1].Pos + own.Chunks[n-1].Len
		}
		if want := int64(h.Size) - HeaderBytes - int64(h.indexLen); end != want {
			d.fail("chunks end at %d, the index starts at %d", end, want)
		}
	}
	r := d.count(2, "number of repeated indexes")
	if r >= repeatEvery || uint64(r) > h.Seq {
		d.fail("slot %d repeats %d indexes", h.Seq, r)
	}
	for i := range r {
		sub := &decoder{b: d.bytes(d.upTo(int64(len(d.b)), "length of a repeated index"))}
		chunks := sub.chunks(maxInt63)
		if d.err == nil {
			d.err = sub.err
		}
		if d.err == nil && len(sub.b) > 0 {
			d.fail("%d bytes after a repeated index", len(sub.b))
		}
		if d.err != nil {
			break
		}
		repeated = append(repeated, Index{Seq: h.Seq - uint64(r) + uint64(i), Chunks: chunks})
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	if d.err != nil {
		return Index{}, nil, d.err
	}
	return own, repeated, nil
}
