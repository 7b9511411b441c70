package sharedlog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// text is a log that may be read while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// put makes an object that no process of the test has made.
func (f *fixture) put(object string) string {
	f.Helper()
	key := "AAAAAAAAAAAAAAAAAAAAAA/1/" + object
	if err := f.raw.PutNew(f.ctx(), key, objstore.BytesBody([]byte("nothing"))); err != nil {
		f.Fatal(err)
	}
	return key
}

func (f *fixture) exists(key string) bool {
	f.Helper()
	_, err := f.raw.Head(f.ctx(), key)
	return err == nil
}

// Every object is referenced, or garbage and swept, or reported (obj-3).
func TestSweepDeletesGarbageAndReportsTheRest(t *testing.T) {
	f := newFixture(t)
	dead := f.c.Register(9)
	var log text
	a := f.start(1, func(c *sharedlog.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	f.c.Fence(dead, a.Incarnation)
	if err := f.c.Seal(f.ctx(), dead, a); err != nil {
		t.Fatal(err)
	}
	name := func(kind metadata.ObjectKind, inc metadata.Incarnation, n uint64) string {
		return metadata.ObjectName{Kind: kind, Creator: inc, Number: n}.String()
	}
	own := f.put(name(metadata.SegmentObject, a.Incarnation, 999))
	others := f.put(name(metadata.IndexObject, dead, 999))
	unknown := f.put(name(metadata.SegmentObject, metadata.Incarnation{Broker: 7, Epoch: 77}, 1))
	fence := "AAAAAAAAAAAAAAAAAAAAAA/1/" + name(metadata.WALSlot, dead, 0)
	n, err := a.Sweep(f.ctx())
	if err != nil || n != 2 {
		t.Errorf("swept %d objects, %v; want 2", n, err)
	}
	if f.exists(own) || f.exists(others) {
		t.Error("garbage stays")
	}
	if !f.exists(unknown) || !strings.Contains(log.String(), unknown) {
		t.Errorf("an object of an unknown incarnation is gone or not reported:\n%s", log.String())
	}
	if !f.exists(fence) {
		t.Error("the fence of a sealed WAL was swept (slot-3)")
	}
}

// Who deletes a topic wants its space, and does not wait for the next sweep.
func TestDeletedTopicsAreSweptSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		a := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.SweepEvery = time.Second, 24*time.Hour })
		p := f.topic(1, a)[0]
		l := f.open(a, p)
		f.fill(l, 1, 100)
		f.packed(p, l)
		if err := l.Close(f.ctx()); err != nil {
			t.Fatal(err)
		}
		if len(f.keys("seg")) == 0 {
			t.Fatal("nothing was packed")
		}
		f.c.Delete(p.Topic)
		gone := &metadatapb.Command{Body: &metadatapb.Command_TopicsGone{TopicsGone: &metadatapb.TopicsGone{TopicIds: [][]byte{p.Topic[:]}}}}
		if res, err := a.Meta.SubmitOwn(f.ctx(), gone); err != nil || res.Err != nil {
			t.Fatal(res.Err, err)
		}
		if err := a.Remove(f.ctx(), p.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if left := f.keys("seg"); len(left) > 0 {
			t.Errorf("a minute later there are still %v", left)
		}
	})
}

// A sweep judges by an image that it fetched after the listing (obj-2). Without
// one it deletes nothing.
func TestSweepNeedsAFreshImage(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, nil)
	key := f.put(metadata.ObjectName{Kind: metadata.SegmentObject, Creator: a.Incarnation, Number: 999}.String())
	a.Meta.Cut(true)
	if n, err := a.Sweep(f.ctx()); err == nil || n > 0 || !f.exists(key) {
		t.Errorf("swept %d objects without a quorum, %v", n, err)
	}
	a.Meta.Cut(false)
	if n, err := a.Sweep(f.ctx()); err != nil || n != 1 {
		t.Errorf("swept %d objects, %v; want 1", n, err)
	}
}

// What is uploaded while a sweep lists may be in the listing, and gets its
// reference later: it is no garbage (obj-2).
func TestSweepKeepsWhatIsUnderWay(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.ObjectBytes = time.Hour, 1 })
	parts := f.topic(2, a)
	var logs []commitlog.Log
	var want [][][]byte
	for _, p := range parts {
		l := f.open(a, p)
		logs, want = append(logs, l), append(want, f.fill(l, 3, 100))
	}
	listing, second := make(chan struct{}), make(chan struct{})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.List}, Key: "/seg/", Times: 1, Hold: listing})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Skip: 1, Hold: second})
	swept := make(chan error, 1)
	f.put(metadata.ObjectName{Kind: metadata.WALSlot, Creator: a.Incarnation, Number: 999}.String()) // something to list
	go func() {
		_, err := a.Sweep(context.Background())
		swept <- err
	}()
	trimmed := make(chan error, 1)
	go func() { trimmed <- logs[0].Trim(context.Background(), 1) }() // packs both
	f.until("one of two objects is there", func() bool { return len(f.keys("seg")) == 1 })
	close(listing)
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	close(second)
	if err := <-trimmed; err != nil {
		t.Fatal(err)
	}
	for i, l := range logs {
		f.packed(parts[i], l)
		from := l.Bounds().Start
		if got := f.all(l, from); len(got) < len(want[i])-1 {
			t.Errorf("log %d has %d batches", i, len(got))
		}
	}
	if n := len(f.keys("seg")); n != 2 {
		t.Errorf("%d segment objects are there, want 2", n)
	}
}

// An object that was there before the first attempt is not ours, whatever its
// name: another one is written (obj-2).
func TestANameThatIsTakenIsPassedOver(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, func(c *sharedlog.Config) { c.CacheBytes = 1 })
	f.put(metadata.ObjectName{Kind: metadata.SegmentObject, Creator: a.Incarnation}.String())
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	want := f.fill(l, 3, 100)
	if err := l.Trim(f.ctx(), 2); err != nil { // packs
		t.Fatal(err)
	}
	f.packed(p, l)
	now, _ := f.c.Image().PartitionByStream(p.Stream)
	if object := now.Extents[0].Object; !strings.HasSuffix(object, fmt.Sprintf("%020d", 1)) {
		t.Errorf("packed into %s, which was there before", object)
	}
	if got := f.all(l, 2); len(got) != len(want)-1 {
		t.Errorf("the log has %d batches, want %d", len(got), len(want)-1)
	}
}

// naming is a Meta that looks at what is submitted.
type naming struct {
	*sharedlogtest.Meta
	mu   sync.Mutex
	from []metadata.Incarnation
}

func (n *naming) SubmitOwn(ctx context.Context, cmd *metadatapb.Command) (metadata.Result, error) {
	n.mu.Lock()
	n.from = append(n.from, metadata.IncarnationFrom(cmd.GetFrom()))
	n.mu.Unlock()
	return n.Meta.SubmitOwn(ctx, cmd)
}

// Commands say which incarnation they are of, so that a process that has a new
// one by now cannot be taken at its old word (cmd-1).
func TestCmd1CommandsNameTheirIncarnation(t *testing.T) {
	f := newFixture(t)
	var meta *naming
	a := f.start(1, func(c *sharedlog.Config) {
		meta = &naming{Meta: c.Meta.(*sharedlogtest.Meta)}
		c.Meta = meta
	})
	l := f.open(a, f.topic(1, a)[0])
	f.fill(l, 3, 100)
	if err := l.Trim(f.ctx(), 2); err != nil {
		t.Fatal(err)
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if len(meta.from) < 2 {
		t.Fatalf("%d commands were submitted, want a commit and a trim", len(meta.from))
	}
	for _, inc := range meta.from {
		if inc != a.Incarnation {
			t.Errorf("a command is of %v, want %v", inc, a.Incarnation)
		}
	}
}

// A WAL is sealed only after its fence is in the image, because until then its
// trim and ends move (cmd-4).
func TestSealNeedsAFencedWAL(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, nil), f.start(2, nil)
	l := f.open(a, f.topic(1, a)[0])
	f.fill(l, 1, 100)
	w, _ := f.c.Image().WAL(a.Incarnation)
	if _, err := b.Seal(f.ctx(), w); err == nil {
		t.Error("a live broker's WAL was sealed")
	}
	f.fill(l, 1, 100) // and is not harmed
}

// ans-3: an object that is gone from where the image had it is looked for in a
// fresh image, and no image means no answer.
func TestAns3AMissingObjectNeedsAFreshImage(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.CacheBytes, c.ReadCacheBytes = time.Millisecond, 1, 1 })
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	f.fill(l, 3, 100)
	f.packed(p, l)
	f.until("the slots are evicted", func() bool {
		f.fill(l, 1, 100)
		return len(f.keys("seg")) > 0
	})
	gone := f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange, fault.GetTail, fault.Head}, Key: "/seg/", Times: 1, Before: objstore.ErrNotFound})
	read := func() error {
		r, err := l.Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
		if err == nil && r.Bytes == 0 {
			return fmt.Errorf("an empty answer")
		}
		if err == nil {
			r.Release()
		}
		return err
	}
	if err := read(); err != nil {
		t.Errorf("read while an object is not found once: %v", err)
	}
	gone()
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange, fault.GetTail, fault.Head}, Key: "/seg/", Before: objstore.ErrNotFound})
	a.Meta.Cut(true)
	if err := read(); !isRetriable(err) {
		t.Errorf("read without a quorum: %v, want a retriable error", err)
	}
}

// slowReads takes 50 ms of virtual time for a read, and knows how many were under way
// at once.
type slowReads struct {
	objstore.Bucket
	on, now, most atomic.Int64
	reads         atomic.Int64
}

func (s *slowReads) GetRange(ctx context.Context, key string, pos int64, b []byte) (int, error) {
	if s.on.Load() > 0 && strings.Contains(key, "/idx/") {
		s.reads.Add(1)
		s.most.Store(max(s.most.Load(), s.now.Add(1)))
		time.Sleep(50 * time.Millisecond)
		s.now.Add(-1)
	}
	return s.Bucket.GetRange(ctx, key, pos, b)
}

// A stream whose chunks stayed in their slots has an index object for each round of
// packing. A sweep reads them side by side, but not too many.
func TestASweepReadsIndexesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		slow := &slowReads{Bucket: f.b}
		n, err := sharedlogtest.StartAs(f.c, slow, f.c.Register(1), func(c *sharedlog.Config) {
			adopting(c)
			c.ReadCacheBytes, c.MaxExtents = 1, 4
		})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Crash()
		p := f.topic(1, n)[0]
		l := f.open(n, p)
		const rounds = 160
		f.grow(l, p, rounds, func(int) int { return 5 << 10 })
		f.until("few extents are left", func() bool {
			now, _ := f.c.Image().PartitionByStream(p.Stream)
			return len(now.Extents) <= 4
		})
		if _, err := n.Sweep(f.ctx()); err != nil {
			t.Fatal(err)
		}
		slow.on.Store(1)
		before := time.Now()
		if _, err := n.Sweep(f.ctx()); err != nil {
			t.Fatal(err)
		}
		if got := slow.reads.Load(); got < rounds {
			t.Fatalf("%d reads of %d index objects", got, rounds)
		}
		if waits := time.Since(before) / (50 * time.Millisecond); waits > rounds/4 {
			t.Errorf("%d reads took %d waits one after the other", slow.reads.Load(), waits)
		}
		if got := slow.most.Load(); got > 17 { // half of the cold reads, and the sweep itself
			t.Errorf("%d reads at once", got)
		}
	})
}
