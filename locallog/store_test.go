package locallog_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/locallog"
)

func TestTheDirectoryBelongsToOneTopicID(t *testing.T) {
	b := newBench(t, commitlog.Settings{})
	b.close(b.open(0))
	other := orders
	other.TopicID[0]++
	if _, err := b.Open(t.Context(), other, 1, commitlog.Options{}); err == nil || !strings.Contains(err.Error(), "partition.metadata") {
		t.Errorf("open under another topic id gives %v", err)
	}
	if err := b.Remove(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(t.Context(), other, 1, commitlog.Options{}); err != nil {
		t.Errorf("open after remove gives %v", err)
	}
}

// A crash inside Remove may leave the offsets of a log that is gone.
func TestOffsetsOfARemovedLogDoNotCount(t *testing.T) {
	b := newBench(t, commitlog.Settings{})
	l := b.open(3)
	b.fill(l, 5)
	if err := l.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	b.close(l)
	fsys := b.disk.boot()
	if err := errors.Join(fsys.Rename(b.dir, "/data/orders-0.123-delete"), fsys.SyncDir("/data")); err != nil {
		t.Fatal(err)
	}
	b.Crash()
	if got := b.open(0).Bounds(); got != (commitlog.Bounds{}) {
		t.Errorf("bounds are %+v", got)
	}
	names, _ := b.disk.boot().ReadDir("/data")
	if strings.Contains(strings.Join(names, " "), "delete") {
		t.Errorf("the removal was not finished: %v", names)
	}
}

func TestOneProcessADirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := locallog.New(locallog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locallog.New(locallog.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the second store gives %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), orders, 0, commitlog.Options{}); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("open in a closed store gives %v", err)
	}
	s, err = locallog.New(locallog.Config{Dir: dir})
	if err != nil {
		t.Fatalf("after close: %v", err)
	}
	_ = s.Close(context.Background())
}

func TestNamesThatAreNoDirectoriesAreRefused(t *testing.T) {
	b := newBench(t, commitlog.Settings{})
	for _, name := range []string{"", ".", "..", "a/b", "../x", strings.Repeat("x", 250), "a b", "a\nb"} {
		if _, err := b.Open(t.Context(), commitlog.ID{Topic: name}, 0, commitlog.Options{}); err == nil {
			t.Errorf("topic %q was opened", name)
		}
	}
}

// Everything that waits while a sync runs shares the next one.
func TestAppendsShareSyncs(t *testing.T) {
	b := newBench(t, commitlog.Settings{})
	l := b.open(0)
	b.fill(l, 1)
	b.Hold()
	before := b.disk.syncs
	var last commitlog.Commit
	for i := range 100 {
		var err error
		if last, err = l.Append(kbatch.Sized(1, 1, 200, uint64(i)).Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	b.Release()
	if err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.disk.syncs - before; n > 2 {
		t.Errorf("100 appends took %d syncs", n)
	}
}

func TestAppendsBeyondTheBudgetArePushedBack(t *testing.T) {
	disk := newPowerFS(1)
	s, err := locallog.New(locallog.Config{Dir: "/data", FS: disk.boot(), Budget: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	l, err := s.Open(t.Context(), orders, 0, commitlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	disk.Hold()
	first, err := l.Append(kbatch.Sized(1, 1, 5000, 1).Bytes())
	if err != nil {
		t.Fatalf("a batch beyond the whole budget: %v", err)
	}
	if _, err := l.Append(kbatch.Sized(1, 1, 100, 1).Bytes()); !errors.Is(err, commitlog.ErrBackpressure) {
		t.Errorf("append beyond the budget gives %v", err)
	}
	disk.Release()
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The budget is given back just after the outcome is known or before.
	for {
		c, err := l.Append(kbatch.Sized(1, 1, 100, 1).Bytes())
		if err == nil {
			if err := c.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, commitlog.ErrBackpressure) {
			t.Fatal(err)
		}
	}
}

func TestSegmentsRollByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, commitlog.Settings{SegmentAge: time.Hour})
		l := b.open(0)
		for range 3 {
			b.append(l, kbatch.Values(time.Now().UnixMilli(), "x"))
			time.Sleep(25 * time.Minute)
		}
		if n := len(l.Segments()); n != 1 {
			t.Errorf("%d segments after 75 minutes in which three batches came within the hour", n)
		}
		b.append(l, kbatch.Values(time.Now().UnixMilli(), "x"))
		if n := len(l.Segments()); n != 2 {
			t.Errorf("%d segments after more than an hour", n)
		}
	})
}

// Relative offsets in an index have 31 bits.
func TestSegmentsRollBeforeRelativeOffsetsOverflow(t *testing.T) {
	b := newBench(t, commitlog.Settings{IndexBytes: 1})
	l := b.open(0)
	wide := kbatch.Values(1, "x")
	wide.LastOffsetDelta = math.MaxInt32 - 10
	b.append(l, wide, wide, wide)
	if n := len(l.Segments()); n != 3 {
		t.Errorf("%d segments", n)
	}
	b.close(l)
	l = b.open(1)
	if got, want := l.Bounds().End, 3*(commitlog.Offset(math.MaxInt32)-9); got != want {
		t.Errorf("the log ends at %d, want %d", got, want)
	}
	b.close(l)
}

// After a failed sync the page cache shows what the disk may not have.
func TestWhatFailedToSyncIsNotTrustedAgain(t *testing.T) {
	b := newBench(t, commitlog.Settings{})
	l := b.open(0)
	b.fill(l, 3)
	b.Fail(errors.New("input/output error"))
	c, err := l.Append(kbatch.Sized(1, 2, 200, 9).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), firstLog) {
		t.Errorf("the commit says %v", err)
	}
	b.Fail(nil)
	l = b.open(1)
	if got := l.Bounds().End; got != 6 {
		t.Errorf("the log ends at %d, want 6", got)
	}
	b.close(l)
}

func TestReadersOfATrimmedSegmentFinish(t *testing.T) {
	b := newBench(t, commitlog.Settings{SegmentBytes: 1500})
	l := b.open(0)
	b.fill(l, 40)
	rec, err := l.Read(t.Context(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Trim(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	if n := len(b.logs()); n > 5 {
		t.Errorf("%d segments are left", n)
	}
	for _, buf := range rec.Bufs {
		for len(buf) > 0 {
			one, rest, err := commitlog.SplitBatch(buf)
			if err == nil {
				err = one.CheckCRC()
			}
			if err != nil {
				t.Fatal(err)
			}
			buf = rest
		}
	}
	rec.Release()
}

// Who closes in haste, as a killed process's remains do, must not keep the
// directory from its successor once nothing is written any more.
func TestAHastyCloseFreesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // both cases of a select are ready, each must be met
			s, err := locallog.New(locallog.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Close(over)
			synctest.Wait()
		}
	})
}
