package sharedlog_test

import (
	"sync"
	"testing"
	"time"

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
