package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"ponor/commitlog"
	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/partition/record"
)

// Origin says who hands records in, and so what they may be.
type Origin uint8

const (
	// FromClient is a Produce request.
	FromClient Origin = iota
	// FromCoordinator is the cluster itself; it may write control batches.
	FromCoordinator
)

// AppendOptions accompany an append.
type AppendOptions struct {
	// Now is the wall clock that LogAppendTime and the timestamp limits go by;
	// zero is time.Now.
	Now    time.Time
	Origin Origin
	// DenyZstd refuses zstd, for Produce below version 7 (KIP-110).
	DenyZstd bool
}

// Checked is a batch that has passed Check. Batch aliases the bytes handed to
// Check unless it was recompressed.
type Checked struct {
	Batch commitlog.Batch
	// AppendTime is the time stamped under LogAppendTime in ms, else -1.
	AppendTime int64

	now    time.Time
	origin Origin
}

// Check examines the records of one partition of a Produce request, under no
// lock, and makes them what will be stored: exactly one sound batch of magic 2
// within the topic's limits, recompressed if compression.type asks for it,
// stamped under LogAppendTime. It may change header fields of records in place
// (they belong to the request until the log has copied them). Errors:
// *RecordError, commitlog.ErrCorrupt, ErrMessageTooLarge,
// ErrRecordListTooLarge, ErrUnsupportedCompression.
func Check(records []byte, set metadata.TopicSettings, opts AppendOptions) (Checked, error) {
	c := Checked{AppendTime: -1, now: opts.Now, origin: opts.Origin}
	if c.now.IsZero() {
		c.now = time.Now()
	}
	b, err := oneBatch(records)
	if err != nil {
		return c, err
	}
	if err := checkSize(b, set); err != nil {
		return c, err
	}
	if err := checkHeader(b, opts); err != nil {
		return c, err
	}
	if err := b.CheckCRC(); err != nil {
		return c, err
	}
	k := checker{set: set, base: b.BaseTimestamp(), now: wall.Milli(c.now), maxTimestamp: -1}
	k.limits(b)
	if c.Batch, err = k.records(b); err != nil {
		return c, err
	}
	switch {
	case b.Control(): // its timestamp is the coordinator's
	case set.LogAppendTime:
		c.AppendTime = k.now
		setAppendTime(c.Batch, k.now)
	case c.Batch.MaxTimestamp() != k.maxTimestamp:
		// Kafka too corrects the header of a producer that got it wrong:
		// retention and ListOffsets go by it.
		setMaxTimestamp(c.Batch, k.maxTimestamp)
	}
	return c, nil
}

// oneBatch finds the one batch that records must be.
func oneBatch(records []byte) (commitlog.Batch, error) {
	switch {
	case records == nil:
		return nil, refused("the records are null; a produce request needs exactly one record batch per partition")
	case len(records) == 0:
		return nil, refused("there are no records; a produce request needs exactly one record batch per partition")
	case len(records) > 16 && records[16] != 2:
		return nil, refused("the record batch has magic %d; only message format v2 is supported", int8(records[16]))
	}
	b, rest, err := commitlog.SplitBatch(records)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, refused("%d bytes follow the record batch; a produce request needs exactly one per partition", len(rest))
	}
	return b, nil
}

// checkSize holds a batch, as compressed, against the topic's limits.
func checkSize(b commitlog.Batch, set metadata.TopicSettings) error {
	if len(b) > set.MaxMessageBytes {
		return fmt.Errorf("%w: the record batch has %d bytes, max.message.bytes is %d", ErrMessageTooLarge, len(b), set.MaxMessageBytes)
	}
	if set.SegmentBytes > 0 && int64(len(b)) > set.SegmentBytes {
		return fmt.Errorf("%w: the record batch has %d bytes, segment.bytes is %d", ErrRecordListTooLarge, len(b), set.SegmentBytes)
	}
	return nil
}

// checkHeader looks at everything that the header says.
func checkHeader(b commitlog.Batch, opts AppendOptions) error {
	attributes, client := b.Attributes(), opts.Origin == FromClient
	codec := record.Codec(attributes & commitlog.AttrCodec)
	switch {
	case codec > record.Zstd:
		return fmt.Errorf("%w: %d", ErrUnsupportedCompression, int8(codec))
	case codec == record.Zstd && opts.DenyZstd:
		return fmt.Errorf("%w: zstd needs Produce version 7 or newer", ErrUnsupportedCompression)
	case b.BaseOffset() != 0:
		return refused("the record batch has base offset %d; a producer counts from 0", b.BaseOffset())
	case b.NumRecords() <= 0:
		return refused("the record batch has %d records", b.NumRecords())
	case int64(b.LastOffsetDelta()) != int64(b.NumRecords())-1:
		return refused("the record batch has %d records and last offset delta %d", b.NumRecords(), b.LastOffsetDelta())
	case client && b.Control():
		return refused("a producer must not write control batches")
	case attributes&attrDeleteHorizon != 0:
		return refused("a producer must not set a delete horizon")
	case b.Control() && (codec != record.None || b.NumRecords() != 1):
		return refused("a control batch must be one uncompressed record")
	case b.ProducerID() < 0 && (b.Transactional() || b.Control()):
		return refused("a transactional batch needs a producer id")
	case b.ProducerID() < -1:
		return refused("producer id %d is negative", b.ProducerID())
	case b.ProducerID() >= 0 && b.ProducerEpoch() < 0:
		return refused("producer epoch %d is negative", b.ProducerEpoch())
	case b.ProducerID() >= 0 && !b.Control() && b.BaseSequence() < 0:
		return refused("base sequence %d is negative", b.BaseSequence())
	case attributes&commitlog.AttrLogAppendTime != 0:
		return &RecordError{Kind: ErrInvalidTimestamp, Message: flawAppendTime.Error()}
	}
	return nil
}

// attrDeleteHorizon marks a compacted batch whose base timestamp is when its
// tombstones may go (KIP-534).
const attrDeleteHorizon = 0x40

// setAppendTime stamps a batch with the broker's clock, which then counts for
// each of its records.
func setAppendTime(b commitlog.Batch, ms int64) {
	binary.BigEndian.PutUint16(b[21:], uint16(b.Attributes()|commitlog.AttrLogAppendTime))
	setMaxTimestamp(b, ms)
}

// setMaxTimestamp corrects the field and the CRC that covers it.
func setMaxTimestamp(b commitlog.Batch, ms int64) {
	binary.BigEndian.PutUint64(b[35:], uint64(ms))
	b.SetCRC()
}

// checker walks the records of one batch.
type checker struct {
	set          metadata.TopicSettings
	base, now    int64 // ms
	least, most  int64 // bounds of a timestamp, ms
	checkTime    bool
	checkKey     bool
	maxTimestamp int64
	bad          []BadRecord
	badTime      bool
}

// limits works out the bounds of timestamps, without overflow.
func (k *checker) limits(b commitlog.Batch) {
	k.least, k.most = math.MinInt64, math.MaxInt64
	k.checkKey = k.set.Compact && !b.Control()
	if k.checkTime = !k.set.LogAppendTime && !b.Control(); !k.checkTime {
		return
	}
	if before := k.set.TimestampBeforeMaxMs; before < k.now {
		k.least = k.now - before
	}
	if after := k.set.TimestampAfterMaxMs; after < math.MaxInt64-k.now {
		k.most = k.now + after
	}
}

// records walks the batch once and recompresses it on the way if need be.
func (k *checker) records(b commitlog.Batch) (commitlog.Batch, error) {
	pack, err := newPacker(b, k.set)
	if err != nil {
		return nil, err
	}
	defer pack.discard()
	var r record.Reader
	defer r.Close()
	err = r.Reset(b, record.Check, pack.tee())
	if err == nil {
		err = k.walk(&r)
	}
	switch {
	case err != nil && errors.Is(err, record.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrMessageTooLarge, err)
	case err != nil:
		return nil, refused("%s", err.Error())
	case len(k.bad) > 0:
		return nil, k.refusal()
	}
	return pack.finish()
}

// walk checks every record. What a record is refused for is collected; an
// error ends the walk.
func (k *checker) walk(r *record.Reader) error {
	var rec record.Record
	for i := int32(0); ; i++ {
		switch err := r.Next(&rec); {
		case err == nil:
			k.record(i, &rec)
		case errors.Is(err, io.EOF):
			return nil
		default:
			var flaw record.Flaw
			if !errors.As(err, &flaw) {
				if len(k.bad) > 0 { // part of a list that names others already
					k.add(i, err.Error())
					return nil
				}
				return fmt.Errorf("record %d: %w", i, err)
			}
			k.add(i, string(flaw))
		}
	}
}

// record checks one record beyond its layout.
func (k *checker) record(i int32, rec *record.Record) {
	if rec.OffsetDelta != i {
		k.add(i, string(flawOffset))
		return
	}
	if k.checkKey && rec.KeyBytes < 0 {
		k.add(i, string(flawKey))
		return
	}
	t := k.base + rec.TimestampDelta
	if (rec.TimestampDelta > 0) != (t > k.base) && rec.TimestampDelta != 0 {
		t = -2 // overflow
	}
	k.maxTimestamp = max(k.maxTimestamp, t)
	if !k.checkTime || t == -1 { // -1: the producer gave none
		return
	}
	switch {
	case t < -1:
		k.badTime = true
		k.add(i, string(flawNegative))
	case t < k.least || t > k.most:
		k.badTime = true
		k.add(i, string(flawTimestamp))
	}
}

func (k *checker) add(i int32, message string) {
	if len(k.bad) < MaxRecordErrors {
		k.bad = append(k.bad, BadRecord{Index: i, Message: message})
	}
}

// refusal is the error for what was collected; one bad timestamp gives the
// whole batch that kind, as in Kafka.
func (k *checker) refusal() error {
	e := &RecordError{Kind: ErrInvalidRecord, Records: k.bad}
	if k.badTime {
		e.Kind = ErrInvalidTimestamp
	}
	e.Message = fmt.Sprintf("%d records of the batch were refused", len(k.bad))
	return e
}
