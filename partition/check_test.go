package partition_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/partition"
)

// defaults are a topic's settings without any override.
func defaults() metadata.TopicSettings {
	return metadata.TopicSettings{
		CompressionType: metadata.CompressionProducer, MaxMessageBytes: 1048588, Delete: true, RetentionMs: 7 * 24 * 3600 * 1000,
		RetentionBytes: -1, SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600 * 1000, IndexIntervalBytes: 4096,
		TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3600 * 1000,
	}
}

// nowMs is the wall clock of the tests.
const nowMs = 1_700_000_000_000

func clientAt(ms int64) partition.AppendOptions {
	return partition.AppendOptions{Now: time.UnixMilli(ms)}
}

// edit returns the batch after a change to its bytes, with a right CRC.
func edit(b kbatch.Batch, change func(p []byte)) []byte {
	p := b.Bytes()
	change(p)
	commitlog.Batch(p).SetCRC()
	return p
}

func two() kbatch.Batch {
	return kbatch.New(kbatch.KV("a", "1").At(nowMs), kbatch.KV("b", "2").At(nowMs+5))
}

// TestOneBatchPerPartition: kafka-behaviour 2; all must be answered.
func TestRefusedBatches(t *testing.T) {
	set := func(change func(*metadata.TopicSettings)) metadata.TopicSettings {
		s := defaults()
		change(&s)
		return s
	}
	put16 := func(at int, v uint16) func([]byte) { return func(p []byte) { binary.BigEndian.PutUint16(p[at:], v) } }
	put32 := func(at int, v uint32) func([]byte) { return func(p []byte) { binary.BigEndian.PutUint32(p[at:], v) } }
	for _, c := range []struct {
		name    string
		records []byte
		set     metadata.TopicSettings
		opts    partition.AppendOptions
		want    error
		text    string
	}{
		{"null records", nil, defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "null"},
		{"zero bytes", []byte{}, defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "no records"},
		{"two batches", append(two().Bytes(), two().Bytes()...), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "exactly one"},
		{"a batch of 0 records", edit(two(), put32(57, 0)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "has 0 records"},
		{"negative record count", edit(two(), put32(57, 0xffffffff)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "has -1 records"},
		{"base offset 7", two().Placed(7, -1).Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "base offset 7"},
		{"magic 1", edit(two(), func(p []byte) { p[16] = 1 }), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "magic 1"},
		{"too short for a header", two().Bytes()[:40], defaults(), clientAt(nowMs), commitlog.ErrCorrupt, ""},
		{"cut", two().Bytes()[:70], defaults(), clientAt(nowMs), commitlog.ErrCorrupt, ""},
		{"negative length", func() []byte { p := two().Bytes(); put32(8, 0x80000000)(p); return p }(), defaults(), clientAt(nowMs), commitlog.ErrCorrupt, ""},
		{"wrong CRC", func() []byte { p := two().Bytes(); p[len(p)-2]++; return p }(), defaults(), clientAt(nowMs), commitlog.ErrCorrupt, "CRC"},
		{"larger than max.message.bytes", two().Bytes(), set(func(s *metadata.TopicSettings) { s.MaxMessageBytes = len(two().Bytes()) - 1 }), clientAt(nowMs), partition.ErrMessageTooLarge, "max.message.bytes"},
		{"larger than a segment", two().Bytes(), set(func(s *metadata.TopicSettings) { s.SegmentBytes = int64(len(two().Bytes()) - 1) }), clientAt(nowMs), partition.ErrRecordListTooLarge, "segment.bytes"},
		{"a control batch from a client", kbatch.Marker(1, 0, true, 0, nowMs).Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "control"},
		{"delete horizon", edit(two(), put16(21, 0x40)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "delete horizon"},
		{"codec 5", edit(two(), put16(21, 5)), defaults(), clientAt(nowMs), partition.ErrUnsupportedCompression, "5"},
		{"zstd in an old request", two().Compressed(kbatch.Zstd).Bytes(), defaults(), partition.AppendOptions{DenyZstd: true}, partition.ErrUnsupportedCompression, "version 7"},
		{"transaction without producer id", edit(two(), put16(21, 0x10)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "producer id"},
		{"negative sequence", two().Idempotent(1, 0, -1).Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "base sequence"},
		{"negative producer epoch", two().Idempotent(1, -1, 0).Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "producer epoch"},
		{"last offset delta", edit(two(), put32(23, 5)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "last offset delta 5"},
		{"LogAppendTime set by the producer", two().AppendedAt(nowMs).Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidTimestamp, "LogAppendTime"},
		{"too far in the future", two().Bytes(), defaults(), clientAt(nowMs - 3600*1000 + 4), partition.ErrInvalidTimestamp, "record 1"},
		{"too old", two().Bytes(), set(func(s *metadata.TopicSettings) { s.TimestampBeforeMaxMs = 10 }), clientAt(nowMs + 11), partition.ErrInvalidTimestamp, "record 0"},
		{"negative timestamp", kbatch.Values(-5, "x").Bytes(), defaults(), clientAt(nowMs), partition.ErrInvalidTimestamp, "negative"},
		{"null key on a compacted topic", kbatch.Values(nowMs, "x").Bytes(), set(func(s *metadata.TopicSettings) { s.Compact = true }), clientAt(nowMs), partition.ErrInvalidRecord, "key"},
		{"a record is cut off", edit(two(), func(p []byte) { p[61] = 100 }), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "end early"},
		{"not gzip", edit(two(), put16(21, 1)), defaults(), clientAt(nowMs), partition.ErrInvalidRecord, "gzip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := partition.Check(c.records, c.set, c.opts)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

func TestSoundBatchesPassAndAreNotCopied(t *testing.T) {
	for _, codec := range kbatch.Codecs() {
		p := two().Compressed(codec).Bytes()
		before := bytes.Clone(p)
		c, err := partition.Check(p, defaults(), clientAt(nowMs))
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if &c.Batch[0] != &p[0] || !bytes.Equal(p, before) || c.AppendTime != -1 {
			t.Errorf("%s: the batch was copied or changed", codec)
		}
	}
}

// TestEveryBadRecordIsNamed: kafka-behaviour 16.
func TestEveryBadRecordIsNamed(t *testing.T) {
	set := defaults()
	set.Compact = true
	b := kbatch.New(kbatch.KV("a", "1"), kbatch.Record{Value: []byte("2")}, kbatch.KV("c", "3"), kbatch.Record{})
	b.Records[2].OffsetDelta = 9
	for _, codec := range []kbatch.Codec{kbatch.None, kbatch.Zstd} {
		_, err := partition.Check(b.Compressed(codec).Bytes(), set, clientAt(nowMs))
		var bad *partition.RecordError
		if !errors.As(err, &bad) {
			t.Fatalf("got %v, want a *RecordError", err)
		}
		var got []int32
		for _, r := range bad.Records {
			got = append(got, r.Index)
			if r.Message == "" {
				t.Errorf("record %d has no message", r.Index)
			}
		}
		if fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("bad records %v, want [1 2 3]", got)
		}
	}
}

func TestTheListOfBadRecordsIsBounded(t *testing.T) {
	set := defaults()
	set.Compact = true
	records := make([]kbatch.Record, partition.MaxRecordErrors+100)
	_, err := partition.Check(kbatch.New(records...).Compressed(kbatch.Gzip).Bytes(), set, clientAt(nowMs))
	var bad *partition.RecordError
	if !errors.As(err, &bad) || len(bad.Records) != partition.MaxRecordErrors {
		t.Fatalf("got %v", err)
	}
}

// TestSizeCountsCompressedBytes: kafka-behaviour 14.
func TestSizeCountsCompressedBytes(t *testing.T) {
	b := kbatch.New(kbatch.Record{Timestamp: nowMs, Value: make([]byte, 60<<20)}).Compressed(kbatch.Gzip).Bytes()
	if len(b) > 100<<10 {
		t.Fatalf("%d bytes", len(b))
	}
	if _, err := partition.Check(b, defaults(), clientAt(nowMs)); err != nil {
		t.Fatal(err)
	}
}

func TestCompressionTypeRecompresses(t *testing.T) {
	names := map[string]kbatch.Codec{"uncompressed": kbatch.None, "gzip": kbatch.Gzip, "snappy": kbatch.Snappy, "lz4": kbatch.LZ4, "zstd": kbatch.Zstd}
	for name, want := range names {
		for _, from := range kbatch.Codecs() {
			set := defaults()
			set.CompressionType = name
			sent := two().Idempotent(7, 1, 5).Compressed(from)
			c, err := partition.Check(sent.Bytes(), set, clientAt(nowMs))
			if err != nil {
				t.Fatalf("%s to %s: %v", from, name, err)
			}
			got, rest, err := kbatch.Decode(c.Batch)
			if err != nil || len(rest) > 0 || c.Batch.CheckCRC() != nil {
				t.Fatalf("%s to %s: %v", from, name, err)
			}
			if id := c.Batch.Attributes() & commitlog.AttrCodec; kbatch.Codec(id) != want {
				t.Errorf("%s to %s: codec %d", from, name, id)
			}
			got.Codec, sent.Codec = kbatch.None, kbatch.None
			if !bytes.Equal(got.Bytes(), sent.Bytes()) {
				t.Errorf("%s to %s: got %v, want %v", from, name, got, sent)
			}
		}
	}
}

// TestUnpackedBatchMayBeTooLarge: the limit holds for what is stored, too.
func TestUnpackedBatchMayBeTooLarge(t *testing.T) {
	set := defaults()
	set.CompressionType, set.MaxMessageBytes = "uncompressed", 1000
	b := kbatch.New(kbatch.Record{Timestamp: nowMs, Value: make([]byte, 2000)}).Compressed(kbatch.Gzip).Bytes()
	if _, err := partition.Check(b, set, clientAt(nowMs)); !errors.Is(err, partition.ErrMessageTooLarge) {
		t.Fatalf("got %v, want ErrMessageTooLarge", err)
	}
}

func TestLogAppendTimeStampsTheBatch(t *testing.T) {
	set := defaults()
	set.LogAppendTime = true
	// No limits apply: the producer's time does not count.
	c, err := partition.Check(kbatch.Values(5, "old").Bytes(), set, clientAt(nowMs))
	if err != nil {
		t.Fatal(err)
	}
	if c.AppendTime != nowMs || c.Batch.MaxTimestamp() != nowMs || c.Batch.Attributes()&commitlog.AttrLogAppendTime == 0 {
		t.Errorf("append time %d, max timestamp %d", c.AppendTime, c.Batch.MaxTimestamp())
	}
	if err := c.Batch.CheckCRC(); err != nil {
		t.Error(err)
	}
}

func TestMaxTimestampIsCorrected(t *testing.T) {
	b := two()
	b.MaxTimestamp = 3
	c, err := partition.Check(b.Bytes(), defaults(), clientAt(nowMs))
	if err != nil || c.Batch.MaxTimestamp() != nowMs+5 || c.Batch.CheckCRC() != nil {
		t.Fatalf("max timestamp %d, %v", c.Batch.MaxTimestamp(), err)
	}
}

func TestRecordsWithoutTimestampPass(t *testing.T) {
	set := defaults()
	set.TimestampBeforeMaxMs = 10
	if _, err := partition.Check(kbatch.Values(-1, "x").Bytes(), set, clientAt(nowMs)); err != nil {
		t.Fatal(err)
	}
}

// FuzzCheck: never panics, and what passes is one batch that a log takes and a
// reader reads.
func FuzzCheck(f *testing.F) {
	for _, codec := range kbatch.Codecs() {
		f.Add(two().Compressed(codec).Bytes(), "producer", false)
		f.Add(two().Idempotent(1, 2, 3).Compressed(codec).Bytes(), "zstd", true)
	}
	f.Fuzz(func(t *testing.T, p []byte, compression string, appendTime bool) {
		set := defaults()
		set.CompressionType, set.LogAppendTime = compression, appendTime
		if len(p) > 61 {
			commitlog.Batch(p).SetCRC() // look behind the CRC
		}
		c, err := partition.Check(p, set, clientAt(nowMs))
		if err != nil {
			return
		}
		if err := c.Batch.Check(); err != nil {
			t.Fatal(err)
		}
		if err := c.Batch.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		if b, _, err := kbatch.Decode(c.Batch); err != nil || len(b.Records) != int(c.Batch.NumRecords()) {
			t.Fatalf("%d records, %v", len(b.Records), err)
		}
	})
}

// TestCheckingAllocatesNothing: neither per record nor per batch.
func TestCheckingAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 100, 1000} {
		p := kbatch.Sized(nowMs, n, n*100, 1).Idempotent(1, 0, 0).Bytes()
		set := defaults()
		if got := testing.AllocsPerRun(100, func() {
			if _, err := partition.Check(p, set, clientAt(nowMs)); err != nil {
				t.Fatal(err)
			}
		}); got > 0 {
			t.Errorf("%d records: %v allocations", n, got)
		}
	}
}

func benchmarkCheck(b *testing.B, codec kbatch.Codec, n, size int) {
	p := kbatch.Sized(nowMs, n, n*size, 1).Compressed(codec).Bytes()
	set := defaults()
	b.SetBytes(int64(n * size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := partition.Check(p, set, clientAt(nowMs)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, codec := range []kbatch.Codec{kbatch.None, kbatch.Snappy, kbatch.LZ4, kbatch.Zstd, kbatch.Gzip} {
		b.Run(fmt.Sprint(codec, "/100x1KiB"), func(b *testing.B) { benchmarkCheck(b, codec, 100, 1024) })
		b.Run(fmt.Sprint(codec, "/1000x100B"), func(b *testing.B) { benchmarkCheck(b, codec, 1000, 100) })
	}
}
