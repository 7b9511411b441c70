package logtest_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
)

// broken is the memory log with a fault: a World whose logs differ from good
// ones in the methods that are set.
type broken struct {
	*memlog.Store
	open   func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error)
	remove func(ctx context.Context, id commitlog.ID) error
	log    brokenLog
}

func (w *broken) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	open := w.Store.Open
	if w.open != nil {
		open = w.open
	}
	l, err := open(ctx, id, epoch, opts)
	if err != nil {
		return nil, err
	}
	b := w.log
	b.Log, b.seen = l, &seen{}
	return &b, nil
}

func (w *broken) Remove(ctx context.Context, id commitlog.ID) error {
	if w.remove != nil {
		return w.remove(ctx, id)
	}
	return w.Store.Remove(ctx, id)
}

// brokenLog passes on what is not set.
type brokenLog struct {
	commitlog.Log
	seen *seen

	append    func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error)
	read      func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error)
	batchAt   func(l *brokenLog, ctx context.Context, ts int64) (commitlog.Offset, bool, error)
	maxTime   func(l *brokenLog, ctx context.Context) (commitlog.Offset, bool, error)
	bounds    func(l *brokenLog) commitlog.Bounds
	segments  func(l *brokenLog) []commitlog.Segment
	bytes     func(l *brokenLog) int64
	trim      func(l *brokenLog, ctx context.Context, to commitlog.Offset) error
	recovered func(l *brokenLog, ctx context.Context) (commitlog.Recovery, error)
	close     func(l *brokenLog, ctx context.Context) error
}

// seen is what a fault remembers of one log.
type seen struct {
	sync.Mutex
	n       int
	start   commitlog.Offset
	batches map[commitlog.Offset][]byte
}

// count counts calls.
func (s *seen) count() int {
	s.Lock()
	defer s.Unlock()
	s.n++
	return s.n
}

func (l *brokenLog) Append(b commitlog.Batch) (commitlog.Commit, error) {
	if l.append != nil {
		return l.append(l, b)
	}
	return l.Log.Append(b)
}

func (l *brokenLog) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	if l.read != nil {
		return l.read(l, ctx, from, opts)
	}
	return l.Log.Read(ctx, from, opts)
}

func (l *brokenLog) BatchAt(ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
	if l.batchAt != nil {
		return l.batchAt(l, ctx, ts)
	}
	return l.Log.BatchAt(ctx, ts)
}

func (l *brokenLog) MaxTimestampBatch(ctx context.Context) (commitlog.Offset, bool, error) {
	if l.maxTime != nil {
		return l.maxTime(l, ctx)
	}
	return l.Log.MaxTimestampBatch(ctx)
}

func (l *brokenLog) Bounds() commitlog.Bounds {
	if l.bounds != nil {
		return l.bounds(l)
	}
	return l.Log.Bounds()
}

func (l *brokenLog) Segments() []commitlog.Segment {
	if l.segments != nil {
		return l.segments(l)
	}
	return l.Log.Segments()
}

func (l *brokenLog) Bytes() int64 {
	if l.bytes != nil {
		return l.bytes(l)
	}
	return l.Log.Bytes()
}

func (l *brokenLog) Trim(ctx context.Context, to commitlog.Offset) error {
	if l.trim != nil {
		return l.trim(l, ctx, to)
	}
	return l.Log.Trim(ctx, to)
}

func (l *brokenLog) Recovered(ctx context.Context) (commitlog.Recovery, error) {
	if l.recovered != nil {
		return l.recovered(l, ctx)
	}
	return l.Log.Recovered(ctx)
}

func (l *brokenLog) Close(ctx context.Context) error {
	if l.close != nil {
		return l.close(l, ctx)
	}
	return l.Log.Close(ctx)
}

// recorder is a testing.TB whose failures do not fail the test that runs it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) fail(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)) }
func (r *recorder) Fail()                     { r.fail("failed") }
func (r *recorder) FailNow()                  { r.fail("failed"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)         { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)); runtime.Goexit() }

// record runs a test on its own goroutine, which may end it early.
func record(tb testing.TB, test func(testing.TB)) *recorder {
	r := &recorder{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r
}
