package sharedlog_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/sharedlogtest"
)

// A stream whose move is made may be back, and open at a later epoch, before the others of
// its hand-over are done. The end of that says nothing of it.
func TestAStreamComesBackBeforeTheOthersAreGone(t *testing.T) {
	f := newFixture(t)
	a, b, gone := f.start(1, lazy), f.start(2, lazy), f.start(3, lazy)
	parts := f.topic(2, a)
	x, y := parts[0], parts[1]
	l := f.open(a, x)
	f.open(a, y)
	want := f.fill(l, 3, 100)
	f.c.Fence(gone.Incarnation, b.Incarnation) // so that the streams go one by one
	var back commitlog.Log
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if s := cmd.GetFlip().GetStreams(); len(s) == 1 && s[0].Stream == uint64(y.Stream) {
			if err := l.Close(f.ctx()); err != nil {
				t.Error(err)
			}
			back = f.moved(f.open(b, x), b, a, x)
		}
		return sharedlogtest.Applied
	}
	errs := a.Flip(f.ctx(), []*metadatapb.FlipStream{
		{Stream: uint64(x.Stream), Epoch: int32(x.Epoch), Target: b.Incarnation.Proto()},
		{Stream: uint64(y.Stream), Epoch: int32(y.Epoch), Target: gone.Incarnation.Proto()},
	}, func() {})
	if errs[0] != nil || errs[1] == nil || back == nil {
		t.Fatalf("%v, back %v; want x to move and come back, and y to stay", errs, back != nil)
	}
	want = append(want, f.fill(back, 2, 100)...)
	f.holds(back, want)
	f.holds(f.moved(back, a, b, x), want)
}

// A stream whose hand-over has an unknown outcome takes nothing any more when the
// incarnation ends, not even while its streams end one after the other.
func TestAnUnknownFlipStaysFrozenWhenTheIncarnationEnds(t *testing.T) {
	const others = 30
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	parts := f.topic(1+others, a)
	x := parts[0]
	l := f.open(a, x)
	f.fill(l, 1, 100)
	var once sync.Once
	var ending atomic.Bool
	done := make(chan error, 1)
	for _, p := range parts[1:] {
		_, err := a.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{Checkpoints: remembers{}, OnStable: func() {
			if !ending.Load() {
				return
			}
			once.Do(func() { // the first of the streams that end
				if err := <-done; err == nil {
					t.Error("a flip of unknown outcome succeeded")
				}
				if _, err := l.Append(f.batch(1, 100)); err == nil {
					t.Error("appended to a stream that may be another's")
				}
			})
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	submitted := make(chan struct{})
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetFlip() != nil {
			a.Meta.CutLocked()
			close(submitted)
			return sharedlogtest.Dropped
		}
		return sharedlogtest.Applied
	}
	go func() { done <- f.flip(f.ctx(), a, b, func() {}, x)[0] }()
	<-submitted
	ending.Store(true)
	a.Fence(errors.New("the store broke"))
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := l.Append(f.batch(1, 100)); errors.Is(err, commitlog.ErrFenced) {
			return
		} else if time.Since(begun) > patience {
			t.Fatalf("the stream of an incarnation that has ended: %v", err)
		}
	}
}

// slot-4: what waits for nobody any more, because its owner had died before it could open
// it, is opened by nobody who has died.
func TestADeadOwnerDoesNotOpen(t *testing.T) {
	f := newFixture(t)
	a, b, c := f.start(1, lazy), f.start(2, lazy), f.start(3, lazy)
	x := f.topic(1, a)[0]
	want := f.fill(f.open(a, x), 3, 100)
	f.c.Fence(a.Incarnation, b.Incarnation)
	fence := func(as ...*metadatapb.Assignment) {
		f.c.Must(&metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: &metadatapb.Fence{Incarnation: b.Incarnation.Proto(), Sealer: c.Incarnation.Proto(), Assignments: as}}})
	}
	fence() // the first of several commands: x is named by a later one
	if err := f.c.Seal(f.ctx(), a.Incarnation, c); err != nil {
		t.Fatal(err)
	}
	now, _ := f.c.Image().PartitionByStream(x.Stream)
	if !now.Openable() || now.Owner != b.Incarnation {
		t.Fatalf("%+v; want it to wait for nobody, and to be of b", now)
	}
	if _, err := b.Open(f.ctx(), x.ID(), now.Epoch, commitlog.Options{Checkpoints: remembers{}}); !errors.Is(err, commitlog.ErrFenced) {
		t.Fatalf("opened by a dead owner: %v", err)
	}
	fence(&metadatapb.Assignment{TopicId: x.Topic[:], Partition: x.Number, Owner: c.Incarnation.Proto()})
	if err := f.c.Seal(f.ctx(), b.Incarnation, c); err != nil {
		t.Fatal(err)
	}
	f.holds(f.open(c, x), want)
}
