package kbatch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// headerBytes is the length of the batch header up to and with the record count.
const headerBytes = 61

// Attribute bits of a batch header.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is one header of a record. A nil Value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// Record is one record of a batch. Nil Key or Value is Kafka's null.
type Record struct {
	// Timestamp is in milliseconds since the epoch.
	Timestamp int64
	// OffsetDelta is the distance from the batch's base offset. New and With
	// number records from 0; a gap (as compaction leaves) is set by hand.
	OffsetDelta int32
	Key, Value  []byte
	Headers     []Header
}

// KV is a record with key, value and timestamp 0. Use At to set its time.
func KV(key, value string) Record { return Record{Key: []byte(key), Value: []byte(value)} }

// At returns the record with a timestamp in milliseconds.
func (r Record) At(ms int64) Record {
	r.Timestamp = ms
	return r
}

// Batch describes one record batch. Use New or Marker: the zero value would be
// a batch of producer id 0.
type Batch struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	LogAppendTime bool // max timestamp was set by the broker
	Transactional bool
	Control       bool
	DeleteHorizon bool // base timestamp is the horizon, see KIP-534
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	// LastOffsetDelta and MaxTimestamp are derived from the records by New;
	// compaction may leave them larger than any record's.
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	Records         []Record
}

// New is a plain batch of the records: base offset 0, no producer id, leader
// epoch unknown (-1, as producers send it), no compression. Records are
// numbered from 0.
func New(records ...Record) Batch {
	b := Batch{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, MaxTimestamp: -1}
	b.Records = append([]Record(nil), records...)
	for i := range b.Records {
		b.Records[i].OffsetDelta = int32(i)
		if i == 0 {
			b.BaseTimestamp = b.Records[i].Timestamp
		}
		b.MaxTimestamp = max(b.MaxTimestamp, b.Records[i].Timestamp)
	}
	b.LastOffsetDelta = int32(max(len(records)-1, 0))
	return b
}

// Values is a plain batch of records without keys, all at one time.
func Values(ms int64, values ...string) Batch {
	records := make([]Record, len(values))
	for i, v := range values {
		records[i] = Record{Timestamp: ms, Value: []byte(v)}
	}
	return New(records...)
}

// Sized is a plain batch of n records at one time whose encoding is about
// bytes long, filled with a pattern made from seed, so that two seeds differ.
func Sized(ms int64, n, bytes int, seed uint64) Batch {
	n = max(n, 1)
	records := make([]Record, n)
	for i := range records {
		v := make([]byte, max((bytes-headerBytes)/n-8, 1))
		for j := range v {
			// SplitMix-like step: cheap, and no two neighbours repeat.
			seed = seed*6364136223846793005 + 1442695040888963407
			v[j] = byte(seed >> 56)
		}
		records[i] = Record{Timestamp: ms, Value: v}
	}
	return New(records...)
}

// Marker is the control batch that ends a transaction: one record whose key is
// (version 0, type 0 abort or 1 commit) and whose value is (version 0,
// coordinator epoch).
func Marker(producerID int64, producerEpoch int16, commit bool, coordinatorEpoch int32, ms int64) Batch {
	key, value := make([]byte, 4), make([]byte, 6)
	if commit {
		key[3] = 1
	}
	binary.BigEndian.PutUint32(value[2:], uint32(coordinatorEpoch))
	b := New(Record{Timestamp: ms, Key: key, Value: value})
	b.Control, b.Transactional = true, true
	b.ProducerID, b.ProducerEpoch = producerID, producerEpoch
	return b
}

// With returns the batch with more records, numbered on.
func (b Batch) With(records ...Record) Batch {
	n := New(append(append([]Record(nil), b.Records...), records...)...)
	b.Records, b.BaseTimestamp, b.MaxTimestamp, b.LastOffsetDelta = n.Records, n.BaseTimestamp, n.MaxTimestamp, n.LastOffsetDelta
	return b
}

// Idempotent returns the batch as one of an idempotent producer.
func (b Batch) Idempotent(producerID int64, producerEpoch int16, baseSequence int32) Batch {
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = producerID, producerEpoch, baseSequence
	return b
}

// InTransaction returns the batch as part of a transaction.
func (b Batch) InTransaction(producerID int64, producerEpoch int16, baseSequence int32) Batch {
	b = b.Idempotent(producerID, producerEpoch, baseSequence)
	b.Transactional = true
	return b
}

// Compressed returns the batch with another codec.
func (b Batch) Compressed(c Codec) Batch {
	b.Codec = c
	return b
}

// AppendedAt returns the batch as a broker stores it under LogAppendTime: the
// time stands in MaxTimestamp and counts for every record.
func (b Batch) AppendedAt(ms int64) Batch {
	b.LogAppendTime, b.MaxTimestamp = true, ms
	return b
}

// Placed returns the batch as a log stores it.
func (b Batch) Placed(baseOffset int64, leaderEpoch int32) Batch {
	b.BaseOffset, b.LeaderEpoch = baseOffset, leaderEpoch
	return b
}

// Bytes is the encoding, CRC included. It panics if the codec is unknown.
func (b Batch) Bytes() []byte { return b.AppendTo(nil) }

// AppendTo appends the encoding to dst. It panics if the codec is unknown.
func (b Batch) AppendTo(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerBytes)...)
	dst = append(dst, b.Codec.compress(b.encodeRecords())...)
	p := dst[start:]
	binary.BigEndian.PutUint64(p, uint64(b.BaseOffset))
	binary.BigEndian.PutUint32(p[8:], uint32(len(p)-12))
	binary.BigEndian.PutUint32(p[12:], uint32(b.LeaderEpoch))
	p[16] = 2
	binary.BigEndian.PutUint16(p[21:], uint16(b.attributes()))
	binary.BigEndian.PutUint32(p[23:], uint32(b.LastOffsetDelta))
	binary.BigEndian.PutUint64(p[27:], uint64(b.BaseTimestamp))
	binary.BigEndian.PutUint64(p[35:], uint64(b.MaxTimestamp))
	binary.BigEndian.PutUint64(p[43:], uint64(b.ProducerID))
	binary.BigEndian.PutUint16(p[51:], uint16(b.ProducerEpoch))
	binary.BigEndian.PutUint32(p[53:], uint32(b.BaseSequence))
	binary.BigEndian.PutUint32(p[57:], uint32(len(b.Records)))
	binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[21:], castagnoli))
	return dst
}

func (b Batch) attributes() int16 {
	a := int16(b.Codec.id())
	for _, f := range []struct {
		set bool
		bit int16
	}{{b.LogAppendTime, attrLogAppendTime}, {b.Transactional, attrTransactional}, {b.Control, attrControl}, {b.DeleteHorizon, attrDeleteHorizon}} {
		if f.set {
			a |= f.bit
		}
	}
	return a
}

func (b Batch) encodeRecords() []byte {
	var out, body []byte
	for _, r := range b.Records {
		body = append(body[:0], 0)
		body = binary.AppendVarint(body, r.Timestamp-b.BaseTimestamp)
		body = binary.AppendVarint(body, int64(r.OffsetDelta))
		body = appendNullable(body, r.Key)
		body = appendNullable(body, r.Value)
		body = binary.AppendVarint(body, int64(len(r.Headers)))
		for _, h := range r.Headers {
			body = binary.AppendVarint(body, int64(len(h.Name)))
			body = append(body, h.Name...)
			body = appendNullable(body, h.Value)
		}
		out = binary.AppendVarint(out, int64(len(body)))
		out = append(out, body...)
	}
	return out
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// String is for test failures.
func (b Batch) String() string {
	return fmt.Sprintf("batch base=%d records=%d producer=%d/%d seq=%d codec=%s txn=%v control=%v",
		b.BaseOffset, len(b.Records), b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Codec, b.Transactional, b.Control)
}
