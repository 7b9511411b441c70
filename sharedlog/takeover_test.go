package sharedlog_test

import (
	"context"
	"errors"
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
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/sharedlogtest"
)

// An old owner that wakes up after its WAL was sealed acknowledges nothing, and
// whoever waits on it is told (C5).
func TestOldOwnerWakesUp(t *testing.T) {
	f := newFixture(t)
	gate := newGate(f.b)
	a := f.start(1, func(c *sharedlog.Config) { c.Bucket = gate })
	p := f.topic(1, a)[0]
	woken := make(chan struct{}, 16)
	l, err := a.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{OnStable: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := f.fill(l, 5, 100)
	a.Meta.Cut(true) // it hears nothing of what follows
	gate.close()
	late := f.append(l, f.batch(1, 100))
	l.Seal()
	<-gate.reached // the late slot is on its way
	b := f.start(2, nil)
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	m := f.open(b, p)
	f.holds(m, want)
	for len(woken) > 0 {
		<-woken
	}
	gate.open()
	<-late.Done()
	if late.Err() == nil {
		t.Fatal("the old owner acknowledged an append after it was sealed")
	}
	<-a.Fenced()
	select {
	case <-woken:
	case <-f.ctx().Done():
		t.Error("nobody was told that the log is lost")
	}
	if _, err := l.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("append to a fenced log: %v, want ErrFenced", err)
	}
	if _, err := l.Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1}); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("read of a fenced log: %v, want ErrFenced", err)
	}
	if _, err := a.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{}); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("open in a fenced store: %v, want ErrFenced", err)
	}
	f.holds(m, want)
}

// gate is one process's way to the store, which can be closed for writes.
type gate struct {
	objstore.Bucket
	reached chan struct{} // somebody waits
	mu      sync.Mutex
	shut    chan struct{}
}

func newGate(b objstore.Bucket) *gate { return &gate{Bucket: b, reached: make(chan struct{}, 100)} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) PutNew(ctx context.Context, key string, body objstore.Body) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		g.reached <- struct{}{}
		select {
		case <-shut:
		case <-ctx.Done(): // the process was killed
			return ctx.Err()
		}
	}
	return g.Bucket.PutNew(ctx, key, body)
}

// A command that the metadata refuses because the incarnation is fenced ends
// the store, also before the fence in the store is met (cmd-3).
func TestMetadataFences(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, nil)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	f.fill(l, 2, 100)
	b := f.start(2, nil)
	f.c.Fence(a.Incarnation, b.Incarnation)
	if err := l.Trim(f.ctx(), 1); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("trim by a fenced owner: %v, want ErrFenced", err)
	}
	l2, err := a.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{})
	if !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("open gives %v, %v, want ErrFenced", l2, err)
	}
}

// settles counts what is settled.
type settles struct {
	objstore.Bucket
	keys atomic.Int64
}

func (s *settles) Settle(ctx context.Context, prefix string) error {
	n := 0
	if err := s.List(ctx, prefix, "", func(objstore.Info) error { n++; return nil }); err != nil {
		return err
	}
	s.keys.Add(int64(n))
	return s.Bucket.Settle(ctx, prefix)
}

// A takeover makes sure of the last slots only, and once: all others have a later
// one that says they are durable.
func TestATakeoverSettlesTheLastSlotsOnly(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, lazy)
	count := &settles{Bucket: f.b}
	b := sharedlogtest.Start(f, f.c, count, 2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	for range 40 { // a slot each, one after the other
		f.fill(l, 1, 100)
	}
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	if n := count.keys.Load(); n != 1 {
		t.Errorf("%d of 40 slots were settled, want the last one", n)
	}
}

// Nobody opens before the WAL is sealed (slot-4), and Open waits for it.
func TestOpenWaitsForSeal(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, nil)
	p := f.topic(1, a)[0]
	want := f.fill(f.open(a, p), 3, 100)
	b := f.start(2, nil)
	f.c.Fence(a.Incarnation, b.Incarnation)
	short, cancel := context.WithTimeout(f.ctx(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Open(short, p.ID(), p.Epoch+1, commitlog.Options{}); err == nil {
		t.Fatal("a stream was opened before its old WAL was sealed")
	}
	opened := make(chan commitlog.Log)
	go func() {
		l, err := b.Open(f.ctx(), p.ID(), p.Epoch+1, commitlog.Options{Checkpoints: remembers{}})
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	if err := f.c.Seal(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	f.holds(<-opened, want)
}

// A process that restarts finds everything by sealing its own past.
func TestRestart(t *testing.T) {
	f := newFixture(t)
	var want [][]byte
	var p metadata.Partition
	for i := range 5 {
		before, had := f.c.Image().WAL(metadata.Incarnation{Broker: 1, Epoch: uint64(i)})
		n := f.start(1, func(c *sharedlog.Config) {
			if i%2 == 1 {
				c.PackAge = time.Millisecond
			}
		})
		if i == 0 {
			p = f.topic(1, n)[0]
		} else if had {
			if err := f.c.Seal(f.ctx(), before.Incarnation, n); err != nil {
				t.Fatal(err)
			}
		}
		l := f.open(n, p)
		f.holds(l, want)
		want = append(want, f.fill(l, 4, 200)...)
		n.Crash()
	}
}

// A second open in the same store takes the log from the first, keeping what is
// in memory.
func TestReopenInOneStore(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	want := f.fill(l, 3, 100)
	l2 := f.open(n, p)
	if _, err := l.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("append by the first handle: %v, want ErrFenced", err)
	}
	want = append(want, f.fill(l2, 3, 100)...)
	if err := l2.Close(f.ctx()); err != nil {
		t.Fatal(err)
	}
	l3 := f.open(n, p)
	f.holds(l3, want)
	if got, want := f.state(l3), f.replayed(l3); got != want {
		t.Errorf("recovered %s, replay gives %s", got, want)
	}
}

// Sealing and re-opening a thousand partitions reads no body, and its requests
// do not grow with partitions.
func TestTakeoverOfThousandPartitions(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.PackBytes = time.Hour, 1<<40; c.CacheBytes = 128 << 20 })
	ps := f.topic(1000, a)
	var last commitlog.Commit
	for _, p := range ps {
		l := f.open(a, p)
		for range 4 {
			last = f.append(l, f.batch(1, 8<<10))
		}
	}
	if err := last.Wait(f.ctx()); err != nil {
		t.Fatal(err)
	}
	a.Crash()
	count := counted.New(f.b)
	b, err := sharedlogtest.StartAs(f.c, count, f.c.Register(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Crash)
	began := time.Now()
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		l := f.open(b, p)
		if got := l.Bounds().End; got != 4 {
			t.Fatalf("log ends at %d, want 4", got)
		}
	}
	t.Logf("1000 partitions in %v", time.Since(began))
	slots := len(f.keys("wal"))
	for op := range counted.Ops {
		c := count.Total(op)
		t.Logf("%s: %+v", op, c)
		if int(c.Requests) > 2*slots+20 {
			t.Errorf("%s was called %d times for %d slots", op, c.Requests, slots)
		}
	}
}

// The whole works on virtual time: no lock is held across a wait.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		n := f.start(1, func(c *sharedlog.Config) { c.Gather = 2 * time.Millisecond })
		p := f.topic(2, n)
		l := f.open(n, p[0])
		want := f.fill(l, 3, 100)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		now, _ := f.c.Image().PartitionByStream(p[0].Stream)
		if now.End != 6 || n.Stats().UnpackedSlots != 0 {
			t.Errorf("after ten minutes the committed end is %d with %d slots unpacked", now.End, n.Stats().UnpackedSlots)
		}
		f.holds(l, want)
		n.Crash()
	})
}

// A store that never ran can be closed, and one that runs closes in order.
func TestClose(t *testing.T) {
	f := newFixture(t)
	s, err := sharedlog.New(sharedlog.Config{Bucket: f.b, Meta: f.c.Meta(f.c.Register(9)), Incarnation: metadata.Incarnation{Broker: 9, Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(f.ctx()); err != nil {
		t.Errorf("close of a store that never ran: %v", err)
	}
	n := f.start(1, nil)
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	f.fill(l, 1, 100) // so it runs
	c := f.append(l, f.batch(1, 100))
	if err := n.Store.Close(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if !c.Resolved() || c.Err() != nil {
		t.Errorf("an orderly close left an append at %v", c.Err())
	}
	if _, err := l.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("append after close: %v, want ErrClosed", err)
	}
	if _, err := l.Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1}); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("read after close: %v, want ErrClosed", err)
	}
}

// A command whose reply nobody waited for may still apply: what it would refer
// to is no garbage before an own later command has settled it (obj-2).
func TestAbandonedCommandKeepsItsObject(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, nil)
	p := f.topic(1, a)[0]
	first := f.open(a, p)
	f.fill(first, 3, 100)
	if err := first.Trim(f.ctx(), 1); err != nil { // packs
		t.Fatal(err)
	}
	f.fill(first, 3, 100)
	b := f.start(2, func(c *sharedlog.Config) { c.MaintainEvery = time.Hour })
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	l := f.open(b, p)
	ctx, cancel := context.WithCancel(f.ctx())
	var late *metadatapb.Command
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetReplaceExtents() != nil {
			late = cmd
			cancel()
			return sharedlogtest.Dropped // so far
		}
		return sharedlogtest.Applied
	}
	if err := l.Trim(ctx, 12); err == nil {
		t.Fatal("a trim whose context ended succeeded")
	}
	if late == nil || len(f.keys("seg")) != 2 {
		t.Fatalf("no run was uploaded: %v", f.keys("seg"))
	}
	early := f.c.Submit(late) // it applies after all
	if early.Err != nil {
		t.Fatal(early.Err)
	}
	f.c.Hook = nil
	if _, err := b.Sweep(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := f.all(l, 1); len(got) != 6 {
		t.Errorf("the log has %d batches, want 6", len(got))
	}
	if len(f.keys("seg")) != 2 {
		t.Error("an object that a late command refers to was swept")
	}
}

// The sweep settles a command that was given up before it judges what the
// command would refer to: either the object stays, or the command can no longer
// apply (obj-2, cmd-1).
func TestSweepSettlesAbandonedCommandsFirst(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	f.fill(l, 3, 100)
	ctx, cancel := context.WithCancel(f.ctx())
	var late *metadatapb.Command
	if err := l.Trim(f.ctx(), 1); err != nil { // packs
		t.Fatal(err)
	}
	f.fill(l, 3, 100)
	b := f.start(2, func(c *sharedlog.Config) { c.MaintainEvery = time.Hour })
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	l = f.open(b, p)
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetReplaceExtents() != nil {
			late = cmd
			cancel()
			return sharedlogtest.Dropped // so far
		}
		return sharedlogtest.Applied
	}
	if err := l.Trim(ctx, 12); err == nil || late == nil {
		t.Fatalf("trim: %v, command %v", err, late)
	}
	f.c.Hook = nil
	if _, err := b.Sweep(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if res := f.c.Submit(late); res.Err == nil && len(f.keys("seg")) != 2 {
		t.Error("a command applied after what it refers to was swept")
	}
	if got := f.all(l, 1); len(got) != 6 {
		t.Errorf("the log has %d batches, want 6", len(got))
	}
}
