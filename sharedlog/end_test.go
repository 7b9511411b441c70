package sharedlog_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
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
