package locallog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ponor/commitlog"
)

// view is one segment as a reader may see it: file bytes below size, offsets
// below end.
type view struct {
	*segment
	size    int64
	end     commitlog.Offset
	maxTime int64
}

// acquire returns the segment that holds an offset below stable, or the one at
// index at, and keeps its files open until done is called.
func (l *Log) acquire(pick func([]*segment) int) (v view, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.lost != nil {
		return view{}, false, l.mu.lost
	}
	i := pick(l.mu.segments)
	if i < 0 || i >= len(l.mu.segments) {
		return view{}, false, nil
	}
	s := l.mu.segments[i]
	s.readers++
	return view{segment: s, size: s.size, end: s.end, maxTime: s.maxTime}, true, nil
}

// done ends an acquire.
func (l *Log) done(v view) {
	l.mu.Lock()
	v.segment.readers--
	last := v.removed && v.readers == 0
	l.mu.Unlock()
	if last {
		_ = v.close() // of files that are deleted or at rest
	}
}

// holding picks the segment that holds an offset.
func holding(o commitlog.Offset) func([]*segment) int {
	return func(all []*segment) int {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].base <= o {
				return i
			}
		}
		return -1
	}
}

// Read implements commitlog.Log. It copies from the page cache or the disk, and
// checks the CRC of every batch it returns.
func (l *Log) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	l.mu.Lock()
	lost, start, stable, end := l.mu.lost, l.mu.start, l.mu.stable, l.mu.end
	l.mu.Unlock()
	if lost != nil {
		return commitlog.Records{}, lost
	}
	if from < start || from > end {
		return commitlog.Records{}, fmt.Errorf("read local log %s at %d: %w: it is %d to %d", l.name(), from, commitlog.ErrOffsetOutOfRange, start, end)
	}
	limit := stable
	if opts.Limit > 0 {
		limit = min(limit, opts.Limit)
	}
	var bufs [][]byte
	left, minOne := opts.MaxBytes, opts.MinOne
	for from < limit && (left > 0 || minOne) {
		if err := ctx.Err(); err != nil {
			return commitlog.Records{}, fmt.Errorf("read local log %s: %w", l.name(), err)
		}
		v, ok, err := l.acquire(holding(from))
		if err != nil {
			return commitlog.Records{}, err
		}
		if !ok { // trimmed meanwhile
			return commitlog.Records{}, fmt.Errorf("read local log %s at %d: %w: it was trimmed", l.name(), from, commitlog.ErrOffsetOutOfRange)
		}
		buf, next, err := v.read(from, limit, left, minOne)
		l.done(v)
		if err != nil {
			return commitlog.Records{}, fmt.Errorf("read local log: %w", err)
		}
		if len(buf) == 0 {
			break
		}
		bufs, left, minOne = append(bufs, buf), left-len(buf), false
		if from = next; from < v.end {
			break // what follows in this segment is too big or above the limit
		}
	}
	return commitlog.NewRecords(bufs, nil), nil
}

// read returns whole batches from the one that holds from on, as many as fit
// in max, and the offset that follows them.
func (v view) read(from, limit commitlog.Offset, max int, minOne bool) ([]byte, commitlog.Offset, error) {
	pos, size, err := v.locate(from)
	if err != nil {
		return nil, 0, err
	}
	if size > int64(max) {
		if !minOne {
			return nil, from, nil
		}
		max = int(size)
	}
	buf := make([]byte, min(int64(max), v.size-pos))
	if _, err := v.file.ReadAt(buf, pos); err != nil {
		return nil, 0, fmt.Errorf("%s at byte %d: %w", v.name, pos, err)
	}
	n, next := 0, from
	for n < len(buf) {
		b, err := v.batchAt(buf[n:], pos+int64(n))
		if err != nil {
			return nil, 0, err
		}
		if b == nil || b.BaseOffset() >= limit {
			break
		}
		n += len(b)
		next = b.LastOffset() + 1
	}
	return buf[:n:n], next, nil
}

// batchAt takes a batch off bytes read at pos and verifies it; nil if it goes
// on behind them. This is the one place where a read trusts or checks bytes: a
// segment whose bytes were verified and cannot have changed could skip the CRC.
func (v view) batchAt(p []byte, pos int64) (commitlog.Batch, error) {
	if len(p) < commitlog.HeaderBytes {
		return nil, nil
	}
	if n := int64(int32(binary.BigEndian.Uint32(p[8:]))) + 12; n > int64(len(p)) && n <= v.size-pos {
		return nil, nil
	}
	b, _, err := commitlog.SplitBatch(p)
	if err == nil {
		err = b.CheckCRC()
	}
	if err != nil {
		return nil, fmt.Errorf("%s at byte %d: %w", v.name, pos, err)
	}
	return b, nil
}

// locate finds the batch that holds an offset: its position and size.
func (v view) locate(from commitlog.Offset) (pos, size int64, err error) {
	if pos, err = v.index.lookupOffset(int64(from - v.base)); err != nil {
		return 0, 0, err
	}
	err = v.headers(pos, func(b commitlog.Batch, at, n int64) bool {
		if b.LastOffset() < from {
			return true
		}
		if b.BaseOffset() > from {
			return true // a hole: reported below
		}
		pos, size = at, n
		return false
	})
	if err == nil && size == 0 {
		err = fmt.Errorf("%s: %w: no batch holds offset %d", v.name, commitlog.ErrCorrupt, from)
	}
	return pos, size, err
}

// headers walks batch headers from a position on until f returns false. Bodies
// are neither read nor checked.
func (v view) headers(pos int64, f func(header commitlog.Batch, pos, size int64) bool) error {
	var header [commitlog.HeaderBytes]byte
	for pos < v.size {
		if _, err := v.file.ReadAt(header[:], pos); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s at byte %d: %w", v.name, pos, err)
		}
		b := commitlog.Batch(header[:])
		n := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
		if n < commitlog.HeaderBytes || n > v.size-pos || b[16] != 2 || b.LastOffsetDelta() < 0 {
			return fmt.Errorf("%s at byte %d: %w: no batch header", v.name, pos, commitlog.ErrCorrupt)
		}
		if !f(b, pos, n) {
			return nil
		}
		pos += n
	}
	return nil
}

// BatchAt implements commitlog.Log: segments by their largest timestamp, then
// the time index, then headers.
func (l *Log) BatchAt(ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
	start := l.Bounds().Start
	for {
		if err := ctx.Err(); err != nil {
			return 0, false, fmt.Errorf("search local log %s: %w", l.name(), err)
		}
		v, ok, err := l.acquire(func(all []*segment) int {
			for i, s := range all {
				if s.end > start && s.maxTime >= ts {
					return i
				}
			}
			return -1
		})
		if err != nil || !ok {
			return 0, false, err
		}
		base, found, err := v.search(start, ts)
		l.done(v)
		if err != nil {
			return 0, false, fmt.Errorf("search local log: %w", err)
		}
		if found {
			return base, true, nil
		}
		start = v.end // only what was trimmed reached the time
	}
}

// search finds the first batch that reaches a time and ends at or above start.
func (v view) search(start commitlog.Offset, ts int64) (base commitlog.Offset, found bool, err error) {
	relative, err := v.times.lookupTime(ts)
	if err != nil {
		return 0, false, err
	}
	pos, err := v.index.lookupOffset(max(int64(relative), int64(start-v.base)))
	if err != nil {
		return 0, false, err
	}
	err = v.headers(pos, func(b commitlog.Batch, _, _ int64) bool {
		if b.LastOffset() < start || b.MaxTimestamp() < ts {
			return true
		}
		base, found = b.BaseOffset(), true
		return false
	})
	return base, found, err
}

// MaxTimestampBatch implements commitlog.Log.
func (l *Log) MaxTimestampBatch(ctx context.Context) (commitlog.Offset, bool, error) {
	start := l.Bounds().Start
	largest := int64(-1)
	v, ok, err := l.acquire(func(all []*segment) int {
		for _, s := range all[1:] {
			largest = max(largest, s.maxTime)
		}
		return 0
	})
	if err != nil || !ok {
		return 0, false, err
	}
	switch {
	case v.base >= start:
		largest = max(largest, v.maxTime)
	case v.end > start && v.maxTime > largest:
		// The first segment's largest time may belong to what was trimmed.
		err = l.largestFrom(v, start, &largest)
	}
	l.done(v)
	if err != nil {
		return 0, false, fmt.Errorf("search local log: %w", err)
	}
	if largest < 0 {
		return 0, false, nil
	}
	return l.BatchAt(ctx, largest)
}

// largestFrom raises largest to that of the batches at or above start.
func (l *Log) largestFrom(v view, start commitlog.Offset, largest *int64) error {
	pos, err := v.index.lookupOffset(int64(start - v.base))
	if err != nil {
		return err
	}
	return v.headers(pos, func(b commitlog.Batch, _, _ int64) bool {
		if b.LastOffset() >= start {
			*largest = max(*largest, b.MaxTimestamp())
		}
		return true
	})
}
