package sharedlog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// reopening is a node with a stream that has both packed and unpacked data and is
// closed, and another one by which packing can be asked for.
func reopening(f *fixture, tune func(*sharedlog.Config, *sharedlogtest.Node)) (n *sharedlogtest.Node, p metadata.Partition, end commitlog.Offset, pack func()) {
	f.Helper()
	n = f.start(1, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.ReadCacheBytes = time.Hour, time.Hour, 1
		if tune != nil {
			tune(c, n)
		}
	})
	parts := f.topic(2, n)
	other := f.open(n, parts[1])
	pack = func() {
		f.fill(other, 1, 100)
		if err := other.Trim(f.ctx(), other.Bounds().Stable); err != nil {
			f.Error(err)
		}
	}
	p = parts[0]
	l := f.open(n, p)
	f.fill(l, 2, 100)
	pack()
	c := f.append(l, kbatch.Values(1, "a", "b").Idempotent(7, 0, 0).Bytes())
	l.Seal()
	if err := c.Wait(f.ctx()); err != nil {
		f.Fatal(err)
	}
	end = l.Bounds().Stable
	if err := l.Close(f.ctx()); err != nil {
		f.Fatal(err)
	}
	return n, p, end, pack
}

// What is packed while a stream is opened is missing neither from the deltas nor
// from the extents that recovery looks at (prod-1).
func TestPackWhileAStreamIsRecovered(t *testing.T) {
	f := newFixture(t)
	reads := &tailReads{Bucket: f.b}
	n, p, _, pack := reopening(f, func(c *sharedlog.Config, _ *sharedlogtest.Node) { c.Bucket = reads })
	hold := make(chan struct{})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetTail}, Key: "/seg/", Hold: hold, Times: 1})
	before := reads.n.Load()
	opened := make(chan commitlog.Log)
	go func() {
		// Without Checkpoints, so that the pack does not wait for the same read.
		l, err := n.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{})
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	f.until("it waits for the read", func() bool { return reads.n.Load() > before })
	pack()
	close(hold)
	l := <-opened
	if l == nil {
		return
	}
	if got, want := f.state(l), f.replayed(l); got != want {
		t.Errorf("recovered %s, replay gives %s", got, want)
	}
}

// tailReads counts the reads of ends of objects that have begun.
type tailReads struct {
	objstore.Bucket
	n atomic.Int64
}

func (r *tailReads) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	r.n.Add(1)
	return r.Bucket.GetTail(ctx, key, dst)
}

// An image that was read before a pack must not decide where a stream goes on
// that the pack has forgotten since.
func TestPackBetweenImageAndOpen(t *testing.T) {
	f := newFixture(t)
	meta := &slowImage{}
	n, p, end, pack := reopening(f, func(c *sharedlog.Config, _ *sharedlogtest.Node) {
		meta.Meta = c.Meta
		c.Meta = meta
	})
	meta.then.Store(&pack)
	l := f.open(n, p)
	if got := l.Bounds(); got.End != end || got.Stable != end {
		t.Errorf("opened with %+v, the log ends at %d", got, end)
	}
}

// slowImage lets something happen after the next Image was read and before it is
// returned.
type slowImage struct {
	sharedlog.Meta
	then atomic.Pointer[func()]
}

func (s *slowImage) Image() *metadata.Image {
	img := s.Meta.Image()
	if then := s.then.Swap(nil); then != nil {
		(*then)()
	}
	return img
}

// A stream that goes to another broker and comes back while a round of packing
// ends keeps what was appended since.
func TestAStreamComesBackWhilePackingEnds(t *testing.T) {
	f := newFixture(t)
	meta := &aroundImage{}
	n := f.start(1, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery = time.Hour, time.Hour
		meta.Meta = c.Meta
		c.Meta = meta
	})
	m := f.start(2, nil)
	parts := f.topic(2, n)
	p := parts[0]
	first, other := f.open(n, p), f.open(n, parts[1])
	want := f.fill(first, 2, 100)
	f.fill(other, 1, 100)
	var again commitlog.Log
	away := func() { again = f.moved(first, n, m, p) }
	back := func() {
		again = f.moved(again, m, n, p)
		want = append(want, f.fill(again, 2, 100)...)
	}
	// The image is asked for first, after the commit, by what ends the round.
	committed := false
	f.c.Hook = func(from metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if from == n.Incarnation && cmd.GetCommitExtents() != nil && !committed {
			committed = true
			meta.around.Store(&[2]func(){away, back})
		}
		return sharedlogtest.Applied
	}
	if err := other.Trim(f.ctx(), other.Bounds().Stable); err != nil {
		t.Fatal(err)
	}
	if meta.around.Load() != nil || again == nil {
		t.Fatal("the stream did not move")
	}
	if err := again.Close(f.ctx()); err != nil {
		t.Fatal(err)
	}
	f.holds(f.open(n, p), want)
}

// aroundImage does something before and after the next Image is read.
type aroundImage struct {
	sharedlog.Meta
	around atomic.Pointer[[2]func()]
}

func (a *aroundImage) Image() *metadata.Image {
	around := a.around.Swap(nil)
	if around == nil {
		return a.Meta.Image()
	}
	around[0]()
	img := a.Meta.Image()
	around[1]()
	return img
}
