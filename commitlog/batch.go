package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// HeaderBytes is the length of a v2 record batch header, up to and including
// the record count.
//
//	 0 base offset        int64   patched by the log (C9)
//	 8 batch length       int32   bytes after this field
//	12 leader epoch       int32   patched by the log (C9)
//	16 magic              int8    2
//	17 crc                uint32  CRC32C of everything from attributes on
//	21 attributes         int16   codec 0-2, timestamp type 3, transactional 4, control 5, delete horizon 6
//	23 last offset delta  int32
//	27 base timestamp     int64
//	35 max timestamp      int64
//	43 producer id        int64   -1 if not idempotent
//	51 producer epoch     int16
//	53 base sequence      int32
//	57 record count       int32
const HeaderBytes = 61

// Attribute bits of a batch.
const (
	AttrCodec         = 0x07
	AttrLogAppendTime = 0x08
	AttrTransactional = 0x10
	AttrControl       = 0x20
)

// Castagnoli is the polynomial of Kafka's batch CRC and of every checksum that
// Ponor writes.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one v2 record batch, header and records, as on the wire.
type Batch []byte

// SplitBatch cuts the first batch off b. It checks length and magic, not the
// CRC. An error says how the bytes are not a batch and wraps ErrCorrupt.
func SplitBatch(b []byte) (Batch, []byte, error) {
	if len(b) < HeaderBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes are too few for a record batch header", ErrCorrupt, len(b))
	}
	if b[16] != 2 {
		return nil, nil, fmt.Errorf("%w: record batch has magic %d, only 2 is supported", ErrCorrupt, b[16])
	}
	n := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
	if n < HeaderBytes || n > int64(len(b)) {
		return nil, nil, fmt.Errorf("%w: record batch claims %d bytes of %d", ErrCorrupt, n, len(b))
	}
	return Batch(b[:n:n]), b[n:], nil
}

// Check says whether b is exactly one batch that a log can take: nothing
// before or after it, and at least one offset. The CRC is not looked at.
// Every Log makes this check in Append; an error wraps ErrCorrupt.
func (b Batch) Check() error {
	one, rest, err := SplitBatch(b)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("%w: %d bytes follow the record batch", ErrCorrupt, len(rest))
	case one.LastOffsetDelta() < 0:
		return fmt.Errorf("%w: record batch has last offset delta %d", ErrCorrupt, one.LastOffsetDelta())
	}
	return nil
}

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() Offset { return Offset(binary.BigEndian.Uint64(b)) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(b.LastOffsetDelta()) }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() Epoch { return Epoch(int32(binary.BigEndian.Uint32(b[12:]))) }

// SetBase patches base offset and leader epoch, which the CRC does not cover.
func (b Batch) SetBase(base Offset, epoch Epoch) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
}

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[17:]) }

// CheckCRC recomputes the checksum over what it covers.
func (b Batch) CheckCRC() error {
	if got := crc32.Checksum(b[21:], Castagnoli); got != b.CRC() {
		return fmt.Errorf("%w: record batch at offset %d has CRC %08x, its bytes %08x", ErrCorrupt, b.BaseOffset(), b.CRC(), got)
	}
	return nil
}

// SetCRC stores the checksum after a covered byte changed.
func (b Batch) SetCRC() {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], Castagnoli))
}

// Attributes are the batch's flags.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[21:])) }

// LastOffsetDelta is the last record's offset relative to the base.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[23:])) }

// BaseTimestamp is the first record's timestamp in milliseconds.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[27:])) }

// MaxTimestamp is the largest timestamp of the batch in milliseconds.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[35:])) }

// ProducerID is -1 for a batch of a producer that is not idempotent.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[43:])) }

// ProducerEpoch is the epoch of the producer id.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[51:])) }

// BaseSequence is the first record's sequence number.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[53:])) }

// LastSequence is the last record's sequence number; sequences wrap from
// 2^31-1 to 0.
func (b Batch) LastSequence() int32 {
	return int32((int64(b.BaseSequence()) + int64(b.LastOffsetDelta())) & 0x7fffffff)
}

// NumRecords is the number of records in the batch.
func (b Batch) NumRecords() int32 { return int32(binary.BigEndian.Uint32(b[57:])) }

// Control says whether the batch holds a transaction marker.
func (b Batch) Control() bool { return b.Attributes()&AttrControl != 0 }

// Transactional says whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&AttrTransactional != 0 }
