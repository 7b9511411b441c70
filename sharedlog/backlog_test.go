package sharedlog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// reads counts the reads of slots that are under way.
type reads struct {
	*fault.Bucket
	now atomic.Int32
}

func (r *reads) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	r.now.Add(1)
	defer r.now.Add(-1)
	return r.Bucket.GetRange(ctx, key, off, dst)
}

// A log of small slots that are not packed is read several slots at a time, as
// many as half of the cold reads, and comes out in order; a damaged slot stops it
// there.
func TestSmallSlotsAreReadSideBySide(t *testing.T) {
	for name, own := range map[string]bool{"own": true, "inherited": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const slots, coldReads, bad = 50, 8, 30
				f := newFixture(t)
				tune := func(c *sharedlog.Config) {
					c.PackAge, c.MaintainEvery, c.CacheBytes, c.ColdReads = time.Hour, time.Hour, 1, coldReads
				}
				r := &reads{Bucket: f.b}
				n := sharedlogtest.Start(f, f.c, r, 1, tune)
				p := f.topic(1, n)[0]
				l := f.open(n, p)
				var want [][]byte
				for range slots {
					want = append(want, f.fill(l, 1, 100)...)
				}
				nodes := []*sharedlogtest.Node{n}
				if !own {
					m := sharedlogtest.Start(f, f.c, r, 2, tune)
					if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
						t.Fatal(err)
					}
					l, nodes = f.open(m, p), append(nodes, m)
				}
				hold := make(chan struct{})
				undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Key: "/wal/", Hold: hold})
				batches := 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					got, err := l.Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
					if err != nil {
						t.Errorf("read: %v", err)
					}
					_, batches = f.count(got)
				}()
				synctest.Wait()
				if got := r.now.Load(); got != coldReads/2 {
					t.Errorf("%d slots are read at a time, want %d", got, coldReads/2)
				}
				undo()
				close(hold)
				<-done
				if batches != slots {
					t.Errorf("one read gave %d batches of %d", batches, slots)
				}
				f.holds(l, want)

				m := sharedlogtest.Start(f, f.c, r, 3, tune) // with nothing in its cache
				if err := f.c.Takeover(f.ctx(), nodes[len(nodes)-1].Incarnation, m); err != nil {
					t.Fatal(err)
				}
				l, nodes = f.open(m, p), append(nodes, m)
				key, pos, err := sharedlogtest.Locate(f.ctx(), f.c, f.raw, p.Stream, 2*bad)
				if err == nil {
					err = sharedlogtest.Flip(f.ctx(), f.raw, key, pos+70)
				}
				if err != nil {
					t.Fatal(err)
				}
				opts := commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true}
				before, err := l.Read(f.ctx(), 0, opts)
				if err != nil {
					t.Fatal(err)
				}
				if _, batches = f.count(before); batches != bad {
					t.Errorf("a read gave %d batches, the one after %d is damaged", batches, bad)
				}
				if _, err := l.Read(f.ctx(), 2*bad, opts); !errors.Is(err, commitlog.ErrCorrupt) {
					t.Errorf("read of a damaged slot: %v, want ErrCorrupt", err)
				}
				for _, n := range nodes {
					n.Crash()
				}
			})
		})
	}
}

// Inherited slots are repacked several at a time, too: a dead WAL of small slots
// shall not need a read after the other before it can go. A slot that is damaged
// keeps only its own stream from that.
func TestInheritedSlotsAreRepackedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		tune := func(c *sharedlog.Config) {
			c.PackAge, c.MaintainEvery, c.CacheBytes = time.Hour, time.Minute, 1
		}
		r := &reads{Bucket: f.b}
		n := sharedlogtest.Start(f, f.c, r, 1, tune)
		ps := f.topic(2, n)
		var want [2][][]byte
		for i, p := range ps {
			l := f.open(n, p)
			for range 10 {
				want[i] = append(want[i], f.fill(l, 1, 100)...)
			}
		}
		m := sharedlogtest.Start(f, f.c, r, 2, tune)
		if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
			t.Fatal(err)
		}
		key, pos, err := sharedlogtest.Locate(f.ctx(), f.c, f.raw, ps[0].Stream, 4)
		if err == nil {
			err = sharedlogtest.Flip(f.ctx(), f.raw, key, pos+70)
		}
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Key: "/wal/", Hold: hold})
		f.open(m, ps[0])
		l := f.open(m, ps[1])
		time.Sleep(2 * time.Minute)
		if got := r.now.Load(); got != 4 {
			t.Errorf("%d slots are read at a time, want 4", got)
		}
		undo()
		close(hold)
		time.Sleep(time.Minute)
		for i, direct := range []bool{false, true} {
			if now, _ := f.c.Image().PartitionByStream(ps[i].Stream); (len(now.Extents) == 1 && !now.Extents[0].Indirect) != direct {
				t.Errorf("stream %d of a slot that is intact (%v) has extents %v", i, direct, now.Extents)
			}
		}
		f.holds(l, want[1])
		n.Crash()
		m.Crash()
	})
}
