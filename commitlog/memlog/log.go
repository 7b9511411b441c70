package memlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ponor/commitlog"
)

// Log is one owner's handle. Everything below opts is guarded by Store.mu.
type Log struct {
	store *Store
	m     *medium
	epoch commitlog.Epoch
	opts  commitlog.Options
	gone  chan struct{} // closed when the log is lost or closed

	lost     error // why appends and reads are refused; nil while owned
	closing  bool
	end      commitlog.Offset
	pending  []commitlog.Batch // appended, not durable
	unstable int64             // bytes of pending
	slot     *commitlog.Slot   // resolves all of pending
	flushing bool
	recovery commitlog.Recovery

	wg sync.WaitGroup // the flushing goroutine and the last OnStable
}

// Append implements commitlog.Log.
func (l *Log) Append(batch commitlog.Batch) (commitlog.Commit, error) {
	if err := batch.Check(); err != nil {
		return commitlog.Commit{}, fmt.Errorf("append to log %s: %w", l.m.id, err)
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	switch {
	case l.lost != nil:
		return commitlog.Commit{}, l.lost
	case l.closing:
		return commitlog.Commit{}, fmt.Errorf("%w: log %s is closing", commitlog.ErrClosed, l.m.id)
	case l.unstable > 0 && l.unstable+int64(len(batch)) > l.store.cfg.Budget:
		return commitlog.Commit{}, fmt.Errorf("%w: log %s has %d bytes that are not durable", commitlog.ErrBackpressure, l.m.id, l.unstable)
	}
	b := slices.Clone(batch) // C12
	b.SetBase(l.end, l.epoch)
	l.pending = append(l.pending, b)
	l.unstable += int64(len(b))
	l.end = b.LastOffset() + 1
	if !l.flushing {
		l.flushing = true
		l.wg.Go(l.flush)
	}
	return commitlog.NewCommit(b.BaseOffset(), b.LastOffset(), l.slot), nil
}

// flush makes pending batches durable, group after group, until there are none.
func (l *Log) flush() {
	for l.pause() && l.flushOnce() {
	}
}

// pause waits for the medium. It says whether the log is still owned.
func (l *Log) pause() bool {
	if l.store.cfg.Latency > 0 {
		t := time.NewTimer(l.store.cfg.Latency)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.gone:
		}
	}
	for {
		l.store.mu.Lock()
		held, lost := l.store.mu.held, l.lost != nil
		l.store.mu.Unlock()
		if lost || held == nil {
			return !lost
		}
		select {
		case <-held:
		case <-l.gone:
		}
	}
}

// flushOnce makes one group durable. It says whether Stable moved; if not, the
// goroutine ends.
func (l *Log) flushOnce() bool {
	set := l.settings() // asked outside the lock: it is the caller's code
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.lost != nil || len(l.pending) == 0 || l.store.mu.held != nil {
		// A Hold that came in between is waited for by a new goroutine.
		l.flushing = false
		if l.lost == nil && len(l.pending) > 0 {
			l.flushing = true
			l.wg.Go(l.flush)
		}
		return false
	}
	failure := l.store.mu.failure
	if failure == nil || l.store.cfg.LandFailed {
		for _, b := range l.pending {
			l.m.add(b, set, l.opts.Checkpoints)
		}
	}
	if failure != nil {
		l.flushing = false
		l.loseLocked(fmt.Errorf("%w: write to log %s: %w", commitlog.ErrFenced, l.m.id, failure), true)
		return false
	}
	if l.opts.OnStable != nil {
		l.opts.OnStable()
	}
	// Resolved under the lock, so that Open cannot return in between (C5).
	l.slot.Resolve(nil)
	l.pending, l.unstable, l.slot = nil, 0, commitlog.NewSlot()
	return true
}

// loseLocked ends the ownership and fails what is pending.
func (l *Log) loseLocked(why error, notify bool) {
	if l.lost != nil {
		return
	}
	l.lost = why
	close(l.gone)
	if l.m.owner == l {
		l.m.owner = nil
	}
	l.slot.Resolve(why)
	l.pending, l.unstable = nil, 0
	if notify && l.opts.OnStable != nil {
		l.wg.Go(l.opts.OnStable)
	}
}

// settings fills in Kafka's defaults.
func (l *Log) settings() commitlog.Settings {
	var set commitlog.Settings
	if l.opts.Settings != nil {
		set = l.opts.Settings()
	}
	if set.SegmentBytes <= 0 {
		set.SegmentBytes = 1 << 30
	}
	if set.SegmentAge <= 0 {
		set.SegmentAge = 7 * 24 * time.Hour
	}
	return set
}

// Read implements commitlog.Log.
func (l *Log) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	if err := ctx.Err(); err != nil {
		return commitlog.Records{}, err
	}
	l.store.mu.Lock()
	lost, start, end, limit := l.lost, l.m.start, l.end, l.m.stable
	batches := l.m.batches
	at := l.m.find(from)
	l.store.mu.Unlock()
	if lost != nil {
		return commitlog.Records{}, lost
	}
	if from < start || from > end {
		return commitlog.Records{}, fmt.Errorf("read log %s at %d: %w: it is %d to %d", l.m.id, from, commitlog.ErrOffsetOutOfRange, start, end)
	}
	if opts.Limit > 0 {
		limit = min(limit, opts.Limit)
	}
	var bufs [][]byte
	left := opts.MaxBytes
	for _, b := range batches[at:] {
		if b.BaseOffset() >= limit || (len(b) > left && (len(bufs) > 0 || !opts.MinOne)) {
			break
		}
		if err := b.CheckCRC(); err != nil { // C14
			return commitlog.Records{}, fmt.Errorf("read log %s: %w", l.m.id, err)
		}
		bufs = append(bufs, b)
		left -= len(b)
	}
	return commitlog.NewRecords(bufs, nil), nil
}

// BatchAt implements commitlog.Log.
func (l *Log) BatchAt(ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
	return l.search(ctx, func(batches []commitlog.Batch) int {
		return slices.IndexFunc(batches, func(b commitlog.Batch) bool { return b.MaxTimestamp() >= ts })
	})
}

// MaxTimestampBatch implements commitlog.Log.
func (l *Log) MaxTimestampBatch(ctx context.Context) (commitlog.Offset, bool, error) {
	return l.search(ctx, func(batches []commitlog.Batch) int {
		found := -1
		for at, b := range batches {
			if found < 0 || b.MaxTimestamp() > batches[found].MaxTimestamp() {
				found = at
			}
		}
		return found
	})
}

func (l *Log) search(ctx context.Context, find func([]commitlog.Batch) int) (commitlog.Offset, bool, error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	l.store.mu.Lock()
	lost, batches := l.lost, l.m.batches
	l.store.mu.Unlock()
	if lost != nil {
		return 0, false, lost
	}
	if at := find(batches); at >= 0 {
		return batches[at].BaseOffset(), true, nil
	}
	return 0, false, nil
}

// Bounds implements commitlog.Log.
func (l *Log) Bounds() commitlog.Bounds {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	stable := min(l.m.stable, l.end) // a lost log does not see what the next owner does
	return commitlog.Bounds{Start: min(l.m.start, stable), Stable: stable, End: l.end}
}

// Segments implements commitlog.Log.
func (l *Log) Segments() []commitlog.Segment {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	out := make([]commitlog.Segment, len(l.m.segments))
	for i, s := range l.m.segments {
		out[i] = s.Segment
	}
	return out
}

// Bytes implements commitlog.Log.
func (l *Log) Bytes() int64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.m.bytes + l.unstable
}

// Trim implements commitlog.Log.
func (l *Log) Trim(ctx context.Context, to commitlog.Offset) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	switch {
	case l.lost != nil:
		return l.lost
	case to > l.m.stable:
		return fmt.Errorf("trim log %s to %d: %w: %d is stable", l.m.id, to, commitlog.ErrOffsetOutOfRange, l.m.stable)
	case to > l.m.start:
		l.m.trim(to)
	}
	return nil
}

// Recovered implements commitlog.Log.
func (l *Log) Recovered(context.Context) (commitlog.Recovery, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	r := l.recovery
	l.recovery = commitlog.Recovery{}
	return r, l.lost
}

// Seal implements commitlog.Log. Writes never linger here.
func (l *Log) Seal() {}

// Close implements commitlog.Log.
func (l *Log) Close(ctx context.Context) error {
	l.store.mu.Lock()
	l.closing = true
	slot, waiting := l.slot, len(l.pending) > 0
	l.store.mu.Unlock()
	var err error
	if waiting {
		select {
		case <-slot.Done():
		case <-ctx.Done():
			err = fmt.Errorf("close log %s: %w", l.m.id, ctx.Err())
		}
	}
	l.store.mu.Lock()
	l.loseLocked(fmt.Errorf("%w: log %s", commitlog.ErrClosed, l.m.id), false)
	l.store.mu.Unlock()
	l.wg.Wait()
	return err
}
