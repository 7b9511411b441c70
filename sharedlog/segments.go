package sharedlog

import (
	"context"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/stream"
)

// segment is a logical segment: a range of the log that retention keeps or lets
// go as one.
type segment struct {
	base, end commitlog.Offset
	bytes     int64
	maxTime   int64
}

// load groups what the stream is stored in to segments: their rolls are not
// kept, but any grouping by the same limits serves retention as well. Nothing
// is read from the store; where an index section stands for many runs, one
// coarse segment does for now.
func (l *Log) load(ctx context.Context) error {
	runs, fine, err := l.stream.Runs(ctx, false)
	if err != nil {
		return err
	}
	end := l.stream.Offsets().End
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(group(runs, end, l.current()), segment{base: end, end: end, maxTime: -1})
	l.live = len(l.segments) - 1
	l.firstTime, l.coarse = -1, !fine
	return nil
}

// group joins runs below end to segments of at most SegmentBytes and SegmentAge.
func group(runs []stream.Run, end commitlog.Offset, s commitlog.Settings) []segment {
	var out []segment
	var first int64
	for _, r := range runs {
		if r.Base >= end {
			break
		}
		n := len(out) - 1
		if n < 0 || out[n].bytes+r.Bytes > s.SegmentBytes || r.MaxTimestamp-first > s.SegmentAge.Milliseconds() {
			out = append(out, segment{base: r.Base, end: r.End, bytes: r.Bytes, maxTime: r.MaxTimestamp})
			first = r.MaxTimestamp
			continue
		}
		out[n].end = r.End
		out[n].bytes += r.Bytes
		out[n].maxTime = max(out[n].maxTime, r.MaxTimestamp)
	}
	return out
}

// appended adds a batch to the active segment, rolling it first if it is full
// or old, as Kafka does.
func (l *Log) appended(base, end commitlog.Offset, bytes, ts int64) {
	s := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.segments[len(l.segments)-1]
	if a.bytes > 0 && (a.bytes+bytes > s.SegmentBytes || ts-l.firstTime > s.SegmentAge.Milliseconds()) {
		l.segments = append(l.segments, segment{base: base, maxTime: -1})
		a = &l.segments[len(l.segments)-1]
		l.firstTime = -1
	}
	if a.bytes == 0 {
		l.firstTime, l.begun = ts, time.Since(l.store.made)
	}
	a.end = end
	a.bytes += bytes
	a.maxTime = max(a.maxTime, ts)
}

// Segments implements commitlog.Log. An active segment that was begun longer
// than segment.ms ago is rolled, so that an idle log expires too. The clock is
// the process's: the records' own times may be of any age.
func (l *Log) Segments() []commitlog.Segment {
	s := l.current()
	b := l.stream.Offsets()
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.segments[len(l.segments)-1]; a.bytes > 0 && time.Since(l.store.made)-l.begun > s.SegmentAge {
		l.segments = append(l.segments, segment{base: a.end, end: a.end, maxTime: -1})
		l.firstTime = -1
	}
	if l.coarse && !l.refining {
		l.refining = true
		l.store.tasks.Go(func() { l.refine(l.store.ctx) })
	}
	l.cut(b.Start)
	out := make([]commitlog.Segment, len(l.segments))
	for i, seg := range l.segments {
		out[i] = commitlog.Segment{
			Base: max(seg.base, b.Start), End: max(seg.end, b.Start), Bytes: seg.bytesFrom(b.Start),
			MaxTimestamp: seg.maxTime, Active: i == len(l.segments)-1,
		}
	}
	return out
}

// cut drops segments that are trimmed away. The caller holds l.mu.
func (l *Log) cut(start commitlog.Offset) {
	n := 0
	for n < len(l.segments)-1 && l.segments[n].end <= start {
		n++
	}
	if n > 0 {
		l.segments = append([]segment(nil), l.segments[n:]...)
		l.live = max(l.live-n, 0)
	}
}

// bytesFrom is the size of what is left from start on, as if bytes were spread
// evenly.
func (s segment) bytesFrom(start commitlog.Offset) int64 {
	switch {
	case start <= s.base:
		return s.bytes
	case start >= s.end:
		return 0
	default:
		return max(1, int64(float64(s.bytes)*float64(s.end-start)/float64(s.end-s.base)))
	}
}

// Bytes implements commitlog.Log.
func (l *Log) Bytes() int64 {
	start := l.stream.Offsets().Start
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, s := range l.segments {
		n += s.bytesFrom(start)
	}
	return n
}

// refine replaces coarse segments after reading the index sections behind them.
func (l *Log) refine(ctx context.Context) {
	runs, fine, err := l.stream.Runs(ctx, true)
	s := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refining = false
	if err != nil || !fine {
		return // the next Segments tries again
	}
	l.coarse = false
	if l.live == 0 {
		return
	}
	old := group(runs, l.segments[l.live].base, s)
	l.segments = append(old, l.segments[l.live:]...)
	l.live = len(old)
}
