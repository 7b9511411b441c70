package sharedlog_test

import (
	"testing"
	"time"

	"ponor/sharedlog"
	"ponor/sharedlog/objstore/fault"
)

// By the time a pack is done with its slots, what it wrote may be listed in the
// index object of another owner, and in the image no longer. It is needed all
// the same (obj-2).
func TestPackedObjectInAnothersIndexStays(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.MaxExtents = time.Millisecond, time.Hour, 4
	})
	b := f.start(2, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.MaxExtents, c.ReadCacheBytes = time.Hour, time.Millisecond, 4, 1
	})
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	want := f.grow(l, p, 4, func(i int) int { return 150 + i%2*(70<<10) })
	f.until("the slots that were packed are deleted", func() bool { return len(f.keys("wal")) == 0 })
	slow := make(chan struct{})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.Delete}, Key: "/wal/", Hold: slow})
	want = append(want, f.grow(l, p, 1, func(int) int { return 150 })...)
	end := l.Bounds().Stable
	for range 3 { // the tail
		want = append(want, f.fill(l, 1, 100)...)
	}
	l = f.moved(l, a, b, p)
	f.until("the new owner lists it in an index", func() bool {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		return now.Extents[0].Indirect && now.Extents[0].End >= end
	})
	close(slow)
	time.Sleep(100 * time.Millisecond)
	f.holds(l, want)
}
