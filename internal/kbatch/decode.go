package kbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// errRecord is a record that does not fit its bytes.
var errRecord = errors.New("record is damaged")

// Decode takes the first batch off p, records decompressed, and returns what
// follows it. It checks length, magic, CRC and every record. XerialSnappy comes
// back as Snappy. It is meant for tests and tools: clear rather than fast, and
// keys and values are copies.
func Decode(p []byte) (Batch, []byte, error) {
	if len(p) < headerBytes {
		return Batch{}, nil, fmt.Errorf("%d bytes are too few for a batch", len(p))
	}
	n := int64(int32(binary.BigEndian.Uint32(p[8:]))) + 12
	if n < headerBytes || n > int64(len(p)) {
		return Batch{}, nil, fmt.Errorf("batch claims %d bytes of %d", n, len(p))
	}
	rest := p[n:]
	p = p[:n]
	if p[16] != 2 {
		return Batch{}, nil, fmt.Errorf("batch has magic %d", p[16])
	}
	if got, want := crc32.Checksum(p[21:], castagnoli), binary.BigEndian.Uint32(p[17:]); got != want {
		return Batch{}, nil, fmt.Errorf("batch has CRC %08x, its bytes %08x", want, got)
	}
	b := decodeHeader(p)
	body, err := b.Codec.decompress(p[headerBytes:])
	if err != nil {
		return Batch{}, nil, fmt.Errorf("decompress %s batch: %w", b.Codec, err)
	}
	count := int(int32(binary.BigEndian.Uint32(p[57:])))
	// The smallest record is 7 bytes, so the count cannot make us allocate
	// more than the body justifies.
	if count < 0 || count > len(body)/7 {
		return Batch{}, nil, fmt.Errorf("batch claims %d records in %d bytes", count, len(body))
	}
	b.Records = make([]Record, count)
	for i := range b.Records {
		if b.Records[i], body, err = decodeRecord(body, b.BaseTimestamp); err != nil {
			return Batch{}, nil, fmt.Errorf("decode record %d of %d: %w", i, count, err)
		}
	}
	if len(body) > 0 {
		return Batch{}, nil, fmt.Errorf("%d bytes after the last record", len(body))
	}
	return b, rest, nil
}

// DecodeAll takes batch after batch off p until nothing is left.
func DecodeAll(p []byte) ([]Batch, error) {
	var out []Batch
	for len(p) > 0 {
		b, rest, err := Decode(p)
		if err != nil {
			return nil, fmt.Errorf("decode batch %d: %w", len(out), err)
		}
		out, p = append(out, b), rest
	}
	return out, nil
}

func decodeHeader(p []byte) Batch {
	a := int16(binary.BigEndian.Uint16(p[21:]))
	return Batch{
		BaseOffset:      int64(binary.BigEndian.Uint64(p)),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(p[12:])),
		Codec:           Codec(a & attrCodec),
		LogAppendTime:   a&attrLogAppendTime != 0,
		Transactional:   a&attrTransactional != 0,
		Control:         a&attrControl != 0,
		DeleteHorizon:   a&attrDeleteHorizon != 0,
		LastOffsetDelta: int32(binary.BigEndian.Uint32(p[23:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(p[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(p[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(p[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(p[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(p[53:])),
	}
}

func decodeRecord(p []byte, baseTimestamp int64) (Record, []byte, error) {
	outer := reader{p: p}
	body := outer.bytes(outer.varint())
	if outer.err != nil || body == nil {
		return Record{}, nil, errRecord
	}
	r := reader{p: body}
	r.bytes(1) // attributes, unused
	out := Record{Timestamp: baseTimestamp + r.varint(), OffsetDelta: int32(r.varint())}
	out.Key = r.bytes(r.varint())
	out.Value = r.bytes(r.varint())
	n := r.varint()
	if n < 0 || n > int64(len(r.p)) {
		return Record{}, nil, errRecord
	}
	for range n {
		h := Header{Name: string(r.bytes(r.varint()))}
		h.Value = r.bytes(r.varint())
		out.Headers = append(out.Headers, h)
	}
	if r.err != nil || len(r.p) > 0 {
		return Record{}, nil, errRecord
	}
	return out, outer.p, nil
}

// reader takes values off p; after the first error everything is zero.
type reader struct {
	p   []byte
	err error
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.p)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.p = r.p[n:]
	return v
}

// bytes copies n bytes off, nil for n = -1.
func (r *reader) bytes(n int64) []byte {
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(r.p)) {
		r.fail()
		return nil
	}
	out := append(make([]byte, 0, n), r.p[:n]...)
	r.p = r.p[n:]
	return out
}

func (r *reader) fail() {
	r.err, r.p = errRecord, nil
}
