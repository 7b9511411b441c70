package partition

import (
	"context"
	"fmt"
	"time"

	"ponor/commitlog"
)

// Isolation is a consumer's isolation.level.
type Isolation int8

// The isolation levels, as in the protocol.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// MaxReadBytes caps one Read, whatever was asked for: more would pin memory for
// longer than it takes to ask again.
const MaxReadBytes = 16 << 20

// ReadOptions bound a Read.
type ReadOptions struct {
	// MaxBytes is the most to return, cut to MaxReadBytes.
	MaxBytes int
	// MinOne returns the first batch even if it exceeds MaxBytes (KIP-74).
	MinOne    bool
	Isolation Isolation
}

// Read is what a fetch of one partition finds. The holder must call
// Records.Release once.
type Read struct {
	Records commitlog.Records
	// HighWatermark, LastStable and LogStart are from the same moment as the
	// Records or earlier.
	HighWatermark, LastStable, LogStart commitlog.Offset
	// Aborted lists the aborted transactions among the Records, by first offset;
	// nil for read_uncommitted and if there are none.
	Aborted []AbortedTxn
}

// Read returns whole batches from an offset on, below the high watermark or,
// for read_committed, the LSO. At and above it, up to the log's end, there is
// nothing and no error. The offsets of Read are set beside an error too.
//
// commitlog.ErrOffsetOutOfRange: below the start, or above the end of what is
// provably still our log. ErrNotLeader: closed, or no proof younger than 10 s
// to be had (ans-2). commitlog.ErrCorrupt and ErrUnavailable are the log's.
func (p *Partition) Read(ctx context.Context, from commitlog.Offset, opts ReadOptions) (Read, error) {
	arrived := time.Now()
	if p.closed.Load() {
		return Read{HighWatermark: -1, LastStable: -1, LogStart: -1}, p.errClosed()
	}
	if err := p.proveRecent(ctx, arrived); err != nil {
		return Read{HighWatermark: -1, LastStable: -1, LogStart: -1}, err
	}
	bounds, lso := p.stable()
	out := Read{HighWatermark: bounds.Stable, LastStable: lso, LogStart: bounds.Start}
	limit := bounds.Stable
	if opts.Isolation == ReadCommitted {
		limit = lso
	}
	switch {
	case from < bounds.Start:
		return out, p.outOfRange(from, bounds)
	case from > bounds.End:
		// A consumer that is ahead of us may know a newer owner: say "out of
		// range", which makes it reset, only if that cannot be.
		if err := p.prove(ctx, arrived); err != nil {
			return out, err
		}
		return out, p.outOfRange(from, bounds)
	case from >= limit:
		return out, nil
	}
	records, err := p.log.Read(ctx, from, commitlog.ReadOptions{
		MaxBytes: min(opts.MaxBytes, MaxReadBytes), MinOne: opts.MinOne, Limit: limit,
	})
	if err != nil {
		return out, p.logError("read", err)
	}
	out.Records = records
	p.host.Metrics.read(records.Bytes)
	if records.Bytes > 0 {
		p.traffic.add(records.Bytes)
	}
	if opts.Isolation == ReadCommitted && records.Bytes > 0 {
		out.Aborted = p.aborted(from, records)
	}
	return out, nil
}

func (p *Partition) outOfRange(from commitlog.Offset, b commitlog.Bounds) error {
	return fmt.Errorf("%w: offset %d of partition %s, which has %d to %d", commitlog.ErrOffsetOutOfRange, from, p.id, b.Start, b.End)
}

// aborted lists the aborted transactions that touch the records.
func (p *Partition) aborted(from commitlog.Offset, records commitlog.Records) []AbortedTxn {
	p.mu.Lock()
	none := len(p.state.txns().aborted) == 0
	p.mu.Unlock()
	if none {
		return nil
	}
	to := from // the end of the last batch
	for b := range batches(records) {
		to = b.LastOffset() + 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Aborted(from, to)
}

// batches iterates over the whole batches of records.
func batches(records commitlog.Records) func(yield func(commitlog.Batch) bool) {
	return func(yield func(commitlog.Batch) bool) {
		for _, buf := range records.Bufs {
			for len(buf) > 0 {
				b, rest, err := commitlog.SplitBatch(buf)
				if err != nil || !yield(b) {
					return
				}
				buf = rest
			}
		}
	}
}
