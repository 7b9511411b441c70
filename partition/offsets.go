package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ponor/commitlog"
	"ponor/partition/record"
)

// The special timestamps of ListOffsets.
const (
	TimestampLatest          = -1 // high watermark or LSO
	TimestampEarliest        = -2 // log start
	TimestampMax             = -3 // first record with the largest timestamp (KIP-734)
	TimestampEarliestLocal   = -4 // log start: nothing is tiered (KIP-405)
	TimestampLatestTiered    = -5 // none (KIP-1005)
	TimestampEarliestPending = -6 // none (KIP-1023)
)

// OffsetResult is the answer of ListOffsets; -1 for what there is not.
type OffsetResult struct {
	Offset      commitlog.Offset
	Timestamp   int64 // ms
	LeaderEpoch commitlog.Epoch
}

// noOffset is the answer where nothing was found, which is no error.
var noOffset = OffsetResult{-1, -1, -1}

// scanBytes is how much OffsetFor reads at a time.
const scanBytes = 1 << 20

// OffsetFor finds the offset for a timestamp in ms or one of the special ones:
// otherwise the first record below the high watermark (LSO for read_committed)
// whose timestamp is at or after it. The latest offset needs a proof begun
// after the request arrived (ans-2), one for all partitions that it asks about:
// ErrNotLeader without one. ErrUnsupportedTimestamp: another negative number.
func (p *Partition) OffsetFor(ctx context.Context, arrived time.Time, timestamp int64, isolation Isolation) (OffsetResult, error) {
	if p.closed.Load() {
		return noOffset, p.errClosed()
	}
	prove := p.proveRecent
	if timestamp == TimestampLatest {
		prove = p.prove
	}
	if err := prove(ctx, arrived); err != nil {
		return noOffset, err
	}
	bounds, limit := p.stable()
	if isolation == ReadUncommitted {
		limit = bounds.Stable
	}
	switch timestamp {
	case TimestampLatest:
		return OffsetResult{limit, -1, p.epochAt(limit)}, nil
	case TimestampEarliest, TimestampEarliestLocal:
		return OffsetResult{bounds.Start, -1, p.epochAt(bounds.Start)}, nil
	case TimestampLatestTiered, TimestampEarliestPending:
		return noOffset, nil
	case TimestampMax:
		base, ok, err := p.log.MaxTimestampBatch(ctx)
		if err != nil {
			return noOffset, p.logError("find the largest timestamp of", err)
		}
		if !ok {
			return noOffset, nil
		}
		return p.search(ctx, base, limit, func(b commitlog.Batch) int64 { return b.MaxTimestamp() })
	}
	if timestamp < 0 {
		return noOffset, fmt.Errorf("%w %d", ErrUnsupportedTimestamp, timestamp)
	}
	base, ok, err := p.log.BatchAt(ctx, timestamp)
	if err != nil {
		return noOffset, p.logError("find a timestamp in", err)
	}
	if !ok {
		return noOffset, nil
	}
	return p.search(ctx, base, limit, func(commitlog.Batch) int64 { return timestamp })
}

// search finds the first record from the batch at base on, and from the log's
// start, that has at least the timestamp wanted of its batch. It seldom looks
// beyond the first batch: only where that one's match was trimmed off. Markers
// count as records, as in Kafka.
func (p *Partition) search(ctx context.Context, base, limit commitlog.Offset, want func(commitlog.Batch) int64) (OffsetResult, error) {
	start := p.Start()
	from := max(base, start)
	for from < limit {
		r, err := p.log.Read(ctx, from, commitlog.ReadOptions{MaxBytes: scanBytes, MinOne: true, Limit: limit})
		if err != nil {
			return noOffset, p.logError("search", err)
		}
		next := from
		for b := range batches(r) {
			next = b.LastOffset() + 1
			ts := want(b)
			if b.MaxTimestamp() < ts {
				continue
			}
			out, found, err := searchBatch(b, ts, start)
			if err != nil || (found && out.Offset < limit) {
				r.Release()
				return out, err
			}
		}
		r.Release()
		if next == from {
			break // nothing came: the log ends here
		}
		from = next
	}
	return noOffset, nil
}

// searchBatch finds the first record at or after start whose timestamp is at
// least ts.
func searchBatch(b commitlog.Batch, ts int64, start commitlog.Offset) (OffsetResult, bool, error) {
	var r record.Reader
	defer r.Close()
	if err := r.Reset(b, record.Check, nil); err != nil {
		return noOffset, false, fmt.Errorf("%w: batch at offset %d: %w", commitlog.ErrCorrupt, b.BaseOffset(), err)
	}
	appendTime := b.Attributes()&commitlog.AttrLogAppendTime != 0
	var rec record.Record
	for {
		err := r.Next(&rec)
		if errors.Is(err, io.EOF) {
			return noOffset, false, nil
		}
		if err != nil {
			return noOffset, false, fmt.Errorf("%w: batch at offset %d: %w", commitlog.ErrCorrupt, b.BaseOffset(), err)
		}
		t := b.BaseTimestamp() + rec.TimestampDelta
		if appendTime {
			t = b.MaxTimestamp()
		}
		if o := b.BaseOffset() + commitlog.Offset(rec.OffsetDelta); t >= ts && o >= start {
			return OffsetResult{o, t, b.LeaderEpoch()}, true, nil
		}
	}
}
