package logtest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog"
)

func keepClauses() []Clause {
	return []Clause{
		{Name: "C10 trim moves start forward only", Test: trimMovesForward},
		{Name: "C10 what was trimmed stays trimmed", Test: trimmedStaysTrimmed},
		{Name: "C10 a log trimmed to its end goes on", Test: trimToEnd},
		{Name: "C11 recovered batches tell all that state depends on", Test: recoveredTellsAll},
		{Name: "C11 recovered checkpoint and batches tell all that state depends on", Test: recoveredCheckpointTellsAll},
		{Name: "Segments tile the log and roll", Test: segmentsTile},
		{Name: "Bytes follow appends and trims", Test: bytesFollow},
		{Name: "OnStable is called when stable moved", Test: onStable},
		{Name: "OnStable is called before the Commit resolves", Test: stableFirst},
		{Name: "OnStable is called when the log is lost", Test: onLost},
		{Name: "Remove forgets the log", Test: removeForgets},
		{Name: "logs do not mix", Test: logsDoNotMix},
	}
}

func trimMovesForward(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	all := e.batches(30) // 60 records
	e.appendWait(l, all...)
	for _, c := range []struct{ to, want commitlog.Offset }{{5, 5}, {3, 5}, {5, 5}, {0, 5}, {24, 24}, {-1, 24}} {
		if err := l.Trim(e.ctx(), c.to); err != nil {
			e.Errorf("trim to %d: %v", c.to, err)
		}
		if got := e.bounds(l); got.Start != c.want || got.Stable != 60 || got.End != 60 {
			e.Errorf("after a trim to %d bounds are %+v, want start %d", c.to, got, c.want)
		}
	}
	if err := l.Trim(e.ctx(), 61); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		e.Errorf("trim past stable gives %v, want ErrOffsetOutOfRange", err)
	}
	if got := e.bounds(l).Start; got != 24 {
		e.Errorf("a refused trim moved start to %d", got)
	}
	e.holds(l, 24, all[12:])
	e.close(l)
}

func trimmedStaysTrimmed(tb testing.TB, w World) {
	e := newEnv(tb, w)
	opts := commitlog.Options{Settings: smallSegments}
	l := e.openWith(0, opts)
	all := e.batches(30)
	e.appendWait(l, all...)
	if err := l.Trim(e.ctx(), 25); err != nil {
		e.Fatalf("trim: %v", err)
	}
	// Without Close first: a trim is durable when it returns.
	l2 := e.openWith(1, opts)
	_ = l.Close(e.ctx())
	for range 2 {
		if got := e.bounds(l2); got.Start != 25 || got.End != 60 {
			e.Errorf("after a re-open bounds are %+v, want 25 to 60", got)
		}
		e.holds(l2, 25, all[13:])
		e.close(l2)
		l2 = e.openWith(2, opts)
	}
	// A start inside a batch is kept too; the batch is still read whole.
	if err := l2.Trim(e.ctx(), 28); err != nil {
		e.Fatalf("trim: %v", err)
	}
	e.close(l2)
	l2 = e.openWith(3, opts)
	if got := e.bounds(l2).Start; got != 28 {
		e.Errorf("start is %d, want 28", got)
	}
	if got := e.readParts(l2, 28, commitlog.ReadOptions{MaxBytes: 1 << 20}); len(got) != 16 || got[0].BaseOffset() != 27 {
		e.Errorf("read at 28 gives %d batches", len(got))
	}
	e.close(l2)
}

func trimToEnd(tb testing.TB, w World) {
	e := newEnv(tb, w)
	opts := commitlog.Options{Settings: smallSegments}
	l := e.openWith(0, opts)
	e.appendWait(l, e.batches(30)...)
	if err := l.Trim(e.ctx(), 60); err != nil {
		e.Fatalf("trim: %v", err)
	}
	if got := e.bounds(l); got != (commitlog.Bounds{Start: 60, Stable: 60, End: 60}) {
		e.Errorf("bounds are %+v", got)
	}
	if got := e.read(l, 60, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true}); len(got) != 0 {
		e.Errorf("an empty log gives %d batches", len(got))
	}
	e.close(l)
	l = e.openWith(1, opts)
	if got := e.bounds(l); got != (commitlog.Bounds{Start: 60, Stable: 60, End: 60}) {
		e.Errorf("after a re-open bounds are %+v", got)
	}
	more := e.batches(3)
	e.appendWait(l, more...)
	e.holds(l, 60, more)
	e.close(l)
	l = e.openWith(2, opts)
	e.holds(l, 60, more)
	e.close(l)
}

// tile checks what Segments promises and returns them.
func (e *env) tile(l commitlog.Log) []commitlog.Segment {
	e.Helper()
	// Bounds before and after, as segments may roll in between.
	before, all, after := l.Bounds(), l.Segments(), l.Bounds()
	if len(all) == 0 {
		e.Fatal("there is no segment")
	}
	for i, s := range all {
		if s.Active != (i == len(all)-1) {
			e.Errorf("segment %d of %d has active %v", i, len(all), s.Active)
		}
		if i > 0 && s.Base != all[i-1].End {
			e.Errorf("segment at %d follows one that ends at %d", s.Base, all[i-1].End)
		}
		if !s.Active && (s.End <= before.Start || s.Bytes <= 0 || s.End <= s.Base) {
			e.Errorf("segment %+v of a log that starts at %d", s, before.Start)
		}
	}
	if first, last := all[0], all[len(all)-1]; first.Base > after.Start || last.End < before.Stable || last.End > after.End {
		e.Errorf("segments from %d to %d of a log with bounds %+v", first.Base, last.End, after)
	}
	return all
}

func segmentsTile(tb testing.TB, w World) {
	e := newEnv(tb, w)
	opts := commitlog.Options{Settings: smallSegments}
	l := e.openWith(0, opts)
	e.tile(l)
	for range 10 {
		e.timed(l, 100, 200, 150, 100, 50)
		e.tile(l)
	}
	all := e.tile(l)
	if len(all) < 3 {
		e.Fatalf("%d bytes in segments of 1500 are %d segments", l.Bytes(), len(all))
	}
	for _, s := range all[:len(all)-1] {
		if s.MaxTimestamp != 200 {
			e.Errorf("segment at %d has max timestamp %d, want 200", s.Base, s.MaxTimestamp)
		}
	}
	if err := l.Trim(e.ctx(), all[1].End); err != nil {
		e.Fatalf("trim: %v", err)
	}
	if got := e.tile(l); got[0].Base != all[2].Base {
		e.Errorf("after a trim to %d the first segment is at %d", all[1].End, got[0].Base)
	}
	e.close(l)
	l = e.openWith(1, opts)
	e.tile(l)
	e.close(l)
}

func bytesFollow(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	sum := int64(0)
	all := e.batches(30)
	for _, b := range all {
		sum += int64(len(b))
	}
	e.appendWait(l, all...)
	if got := l.Bytes(); got < sum*8/10 || got > sum*12/10 {
		e.Errorf("%d bytes, appended %d", got, sum)
	}
	if err := l.Trim(e.ctx(), 60); err != nil {
		e.Fatalf("trim: %v", err)
	}
	if got := l.Bytes(); got > 3000 { // at most what the active segment holds
		e.Errorf("%d bytes of an empty log", got)
	}
	e.close(l)
}

func onStable(tb testing.TB, w World) {
	e := newEnv(tb, w)
	called := make(chan struct{}, 1)
	l := e.openWith(0, commitlog.Options{OnStable: func() {
		select {
		case called <- struct{}{}:
		default:
		}
	}})
	for range 3 {
		c := e.append(l, e.batch(2))
		l.Seal()
		// The call that matters comes when Stable covers the batch.
		for deadline := e.ctx(); e.bounds(l).Stable <= c.Last; {
			select {
			case <-called:
			case <-deadline.Done():
				e.Fatalf("OnStable was not called for batch %d-%d", c.Base, c.Last)
			}
		}
	}
	e.close(l)
}

// Who was told that a batch is durable finds that those who wait for it have been
// told, too: a fetch that begins after an acknowledgement looks at what had news.
func stableFirst(tb testing.TB, w World) {
	e := newEnv(tb, w)
	var called atomic.Int64
	l := e.openWith(0, commitlog.Options{OnStable: func() { called.Add(1) }})
	for range 200 {
		before := called.Load()
		c := e.append(l, e.batch(1))
		l.Seal()
		e.succeeds(c)
		if called.Load() == before {
			e.Fatalf("batch %d-%d: its Commit resolved before OnStable was called", c.Base, c.Last)
		}
	}
	e.close(l)
}

func onLost(tb testing.TB, w World) {
	e := newEnv(tb, w)
	called := make(chan struct{}, 1)
	notify := func() {
		select {
		case called <- struct{}{}:
		default:
		}
	}
	a := e.openWith(0, commitlog.Options{OnStable: notify})
	c := e.append(a, e.batch(1))
	a.Seal()
	e.succeeds(c)
	// Whatever the append called, it has called by the time it is quiet.
	for quiet := false; !quiet; {
		select {
		case <-called:
		case <-time.After(blink):
			quiet = true
		}
	}
	b := e.open(1)
	if c, err := a.Append(e.batch(1)); err == nil {
		a.Seal()
		_ = e.outcome(c)
	}
	select {
	case <-called:
	case <-e.ctx().Done():
		e.Error("OnStable was not called when the log was lost")
	}
	_ = a.Close(e.ctx())
	e.close(b)
}

func removeForgets(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	e.appendWait(l, e.batches(3)...)
	e.close(l)
	for range 2 { // the second time it is not there
		if err := w.Remove(e.ctx(), e.id); err != nil {
			e.Errorf("remove: %v", err)
		}
	}
	// A topic of the same name is another topic, in another stream.
	e.id.TopicID[0]++
	e.id.Stream++
	l = e.open(0)
	if got := e.bounds(l); got != (commitlog.Bounds{}) {
		e.Errorf("bounds after remove are %+v", got)
	}
	all := e.batches(2)
	e.appendWait(l, all...)
	e.holds(l, 0, all)
	e.close(l)
}

func logsDoNotMix(tb testing.TB, w World) {
	e := newEnv(tb, w)
	const n = 5
	var logs [n]commitlog.Log
	var want [n][][]byte
	id := e.id
	for i := range logs {
		e.id.Partition, e.id.Stream = int32(i), commitlog.StreamID(20+i)
		logs[i] = e.open(commitlog.Epoch(i))
	}
	for range 4 {
		var commits []commitlog.Commit
		for i, l := range logs {
			b := e.batch(1 + i)
			commits = append(commits, e.append(l, b))
			want[i] = append(want[i], b)
		}
		for i, c := range commits {
			logs[i].Seal()
			e.succeeds(c)
		}
	}
	for i, l := range logs {
		e.holds(l, 0, want[i])
		e.close(l)
	}
	for i := range logs {
		e.id.Partition, e.id.Stream = int32(i), commitlog.StreamID(20+i)
		l := e.open(commitlog.Epoch(10))
		e.holds(l, 0, want[i])
		e.close(l)
	}
	e.id = id
}
