package sharedlog_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
)

// Appends that race with the end of the incarnation touch no memory that was
// given back.
func TestAppendsWhileTheWALEnds(t *testing.T) {
	for range 10 {
		f := newFixture(t)
		hold := make(chan struct{})
		f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
		a := f.start(1, func(c *sharedlog.Config) {
			c.Budget = 64 << 20
			c.Linger = time.Hour
			c.MaxInflight = 1
			c.MaxObject = 64 << 20
		})
		parts := f.topic(8, a)
		big := f.batch(1, 2<<20+100)
		var wg sync.WaitGroup
		for _, p := range parts {
			l := f.open(a, p)
			wg.Go(func() {
				for {
					if _, err := l.Append(big); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(3 * time.Millisecond)
		a.Crash()
		wg.Wait()
		close(hold)
	}
}

// Whoever learns elsewhere that the incarnation has ended says so, and nothing
// waits for a store that hangs any more.
func TestFenceFromOutsideEndsEveryWait(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, nil)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	f.fill(l, 1, 100)
	hold := make(chan struct{})
	defer close(hold)
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
	c := f.append(l, f.batch(1, 100))
	l.Seal()
	a.Fence(errors.New("told by the cluster"))
	if err := c.Wait(f.ctx()); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("append that waits: %v, want ErrFenced", err)
	}
	if err := l.Close(f.ctx()); f.ctx().Err() != nil {
		t.Errorf("closing waits for the store: %v", err)
	}
	if err := a.FencedErr(); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("fenced: %v", err)
	}
}

// A store that cannot say any more what is durable ends the incarnation, also if
// it is an object beside the WAL that meets it first. One that refuses is asked
// again later, not at once and for ever.
func TestUploadsThatCannotSucceed(t *testing.T) {
	t.Run("undurable", func(t *testing.T) {
		f := newFixture(t)
		a := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond })
		l := f.open(a, f.topic(1, a)[0])
		f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Before: objstore.ErrUndurable})
		f.fill(l, 1, 100)
		select {
		case <-a.Fenced():
		case <-f.ctx().Done():
			t.Fatal("the incarnation goes on")
		}
		if err := a.FencedErr(); !errors.Is(err, objstore.ErrUndurable) || !errors.Is(err, commitlog.ErrFenced) {
			t.Errorf("fenced: %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		f := newFixture(t)
		a := f.start(1, nil)
		l := f.open(a, f.topic(1, a)[0])
		f.fill(l, 1, 100)
		b := f.start(2, nil)
		f.c.Fence(a.Incarnation, b.Incarnation)
		f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/idx/", Before: objstore.ErrRefused})
		w, _ := f.c.Image().WAL(a.Incarnation)
		if _, err := b.Seal(f.ctx(), w); !errors.Is(err, objstore.ErrRefused) {
			t.Errorf("seal: %v, want ErrRefused", err)
		}
		if err := b.FencedErr(); err != nil {
			t.Errorf("fenced: %v", err)
		}
	})
}
