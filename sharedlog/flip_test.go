package sharedlog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// flip hands a partition over as the image has it and returns the outcome.
func (f *fixture) flip(ctx context.Context, from, to *sharedlogtest.Node, freeze func(), parts ...metadata.Partition) []error {
	f.Helper()
	var streams []*metadatapb.FlipStream
	for _, p := range parts {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		streams = append(streams, &metadatapb.FlipStream{Stream: uint64(p.Stream), Epoch: int32(now.Epoch), Target: to.Incarnation.Proto()})
	}
	return from.Flip(ctx, streams, freeze)
}

// moved hands a partition over, expects that to work, closes the old log and
// opens the new one.
func (f *fixture) moved(l commitlog.Log, from, to *sharedlogtest.Node, p metadata.Partition) commitlog.Log {
	f.Helper()
	if err := f.flip(f.ctx(), from, to, func() {}, p)[0]; err != nil {
		f.Fatal(err)
	}
	if _, err := l.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrFenced) {
		f.Fatalf("append after the hand-over: %v, want ErrFenced", err)
	}
	if err := l.Close(f.ctx()); err != nil {
		f.Fatal(err)
	}
	return f.open(to, p)
}

// lazy nodes pack only when told, so that tails stay in the WAL.
func lazy(c *sharedlog.Config) {
	c.PackAge, c.PackBytes, c.MaintainEvery = time.Hour, 1<<30, time.Millisecond
}

// A stream goes back and forth: bytes, offsets and producer state stay
// (prod-1), whether the tail is short, long or packed, and no record is copied
// for it.
func TestFlipKeepsBytesAndState(t *testing.T) {
	f := newFixture(t)
	nodes := []*sharedlogtest.Node{f.start(1, lazy), f.start(2, lazy)}
	p := f.topic(1, nodes[0])[0]
	l := f.open(nodes[0], p)
	var want [][]byte
	for i, batches := range []int{1, 0, 2 * 4, 30, 1, 3, 0, 12} {
		from, to := nodes[i%2], nodes[(i+1)%2]
		for range batches { // one slot each
			want = append(want, f.fill(l, 1, 300)...)
		}
		segments := len(f.keys("seg"))
		l = f.moved(l, from, to, p)
		if n := len(f.keys("seg")); n > segments && i == 0 {
			t.Errorf("the move wrote %d segment objects", n-segments)
		}
		if got, replayed := f.state(l), f.replayed(l); got != replayed {
			t.Fatalf("move %d: recovered state is\n%s\na replay gives\n%s", i, got, replayed)
		}
		f.holds(l, want)
	}
	img := f.c.Image()
	if now, _ := img.PartitionByStream(p.Stream); now.End != l.Bounds().End || now.Epoch != p.Epoch+8 {
		t.Errorf("committed end %d, epoch %d", now.End, now.Epoch)
	}
	if err := metadata.Check(img); err != nil {
		t.Error(err)
	}
}

// What a pack planned before the flip neither commits twice nor loses, and the
// slots that the new owner's log lies in stay until it has repacked them.
func TestFlipWhilePacking(t *testing.T) {
	f := newFixture(t)
	eager := func(c *sharedlog.Config) {
		c.PackAge, c.PackBytes, c.MaintainEvery = time.Millisecond, 1<<10, time.Millisecond
	}
	nodes := []*sharedlogtest.Node{f.start(1, eager), f.start(2, eager)}
	p := f.topic(1, nodes[0])[0]
	l := f.open(nodes[0], p)
	var want [][]byte
	for i := range 60 {
		want = append(want, f.fill(l, 1+i%7, 200)...)
		l = f.moved(l, nodes[i%2], nodes[(i+1)%2], p)
		if got, replayed := f.state(l), f.replayed(l); got != replayed {
			t.Fatalf("move %d: recovered state is\n%s\na replay gives\n%s", i, got, replayed)
		}
		f.holds(l, want)
		if i%10 == 9 {
			for _, n := range nodes {
				if _, err := n.Sweep(f.ctx()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// An append that is not durable yet is part of the move or stops it, never left
// behind.
func TestFlipWaitsForAppends(t *testing.T) {
	f := newFixture(t)
	gate := newGate(f.b)
	a := f.start(1, func(c *sharedlog.Config) { lazy(c); c.Bucket = gate })
	b := f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	want := f.fill(l, 2, 100)
	gate.close()
	slow := f.batch(2, 100)
	want = append(want, slow)
	c := f.append(l, slow)
	short, cancel := context.WithTimeout(f.ctx(), 50*time.Millisecond)
	defer cancel()
	if err := f.flip(short, a, b, func() {
		if _, err := l.Append(f.batch(1, 10)); err != nil {
			t.Errorf("append before the freeze: %v", err)
		} else {
			want = append(want, nil)
		}
	}, p)[0]; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("flip with an append under way: %v, want DeadlineExceeded", err)
	}
	if now, _ := f.c.Image().PartitionByStream(p.Stream); now.Owner != a.Incarnation {
		t.Fatal("flipped without waiting for an append")
	}
	if _, err := l.Append(f.batch(1, 10)); err != nil {
		t.Fatalf("append after a hand-over that was not submitted: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.flip(f.ctx(), a, b, func() { gate.open() }, p)[0] }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !c.Resolved() || c.Err() != nil {
		t.Errorf("the append ended with %v", c.Err())
	}
	if got := len(f.all(f.open(b, p), 0)); got != len(want)+1 {
		t.Errorf("the new owner has %d batches, want %d", got, len(want)+1)
	}
}

// together lets nobody read the tail of a slot before a number of readers is there.
type together struct {
	objstore.Bucket
	readers int
	mu      sync.Mutex
	there   int
	all     chan struct{}
}

func (g *together) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	if strings.Contains(key, "/wal/") {
		g.mu.Lock()
		if g.there++; g.there == g.readers {
			close(g.all)
		}
		g.mu.Unlock()
		select {
		case <-g.all:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	return g.Bucket.GetTail(ctx, key, dst)
}

// While a stream is frozen, a move writes what was appended and nothing else, if
// few slots are left to tell of; and the new owner reads them side by side.
func TestAFrozenStreamWaitsForNoIndex(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, lazy)
	const before, since = 4, 5
	store := &together{Bucket: f.b, readers: before + since, all: make(chan struct{})}
	b := f.start(2, func(c *sharedlog.Config) { lazy(c); c.Bucket = store })
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	var want [][]byte
	for range before { // a slot each
		want = append(want, f.fill(l, 1, 100)...)
	}
	freeze := func() {
		for range since {
			want = append(want, f.fill(l, 1, 100)...)
		}
	}
	if err := f.flip(f.ctx(), a, b, freeze, p)[0]; err != nil {
		t.Fatal(err)
	}
	if n := len(f.keys("idx")); n != 0 {
		t.Errorf("the move wrote %d index objects", n)
	}
	m := f.open(b, p)
	if got, replayed := f.state(m), f.replayed(m); got != replayed {
		t.Errorf("recovered state is\n%s\na replay gives\n%s", got, replayed)
	}
	f.holds(m, want)
}

// cmd-2: without a reply the source stays frozen, whatever time passes, until
// an own later command has applied; then the image decides.
func TestFlipOfUnknownOutcome(t *testing.T) {
	for name, fate := range map[string]sharedlogtest.Fate{"applied": sharedlogtest.Lost, "not applied": sharedlogtest.Dropped} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a, b := f.start(1, lazy), f.start(2, lazy)
			p := f.topic(1, a)[0]
			l := f.open(a, p)
			want := f.fill(l, 7, 100)
			var lost, commands atomic.Int32
			f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
				commands.Add(1)
				if cmd.GetFlip() != nil {
					lost.Add(1)
					a.Meta.CutLocked()
					return fate
				}
				return sharedlogtest.Applied
			}
			short, cancel := context.WithCancel(f.ctx())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- f.flip(short, a, b, func() {}, p)[0] }()
			f.until("the flip is submitted", func() bool { return lost.Load() == 1 })
			cancel()
			for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if _, err := l.Append(f.batch(1, 100)); err == nil {
					t.Fatal("cmd-2: appended while nobody knows whose stream it is")
				}
			}
			select {
			case err := <-done:
				t.Fatalf("flip returned %v without an own later command", err)
			default:
			}
			a.Meta.Cut(false)
			err := <-done
			if commands.Load() < 2 {
				t.Error("no own later command")
			}
			if fate == sharedlogtest.Dropped {
				if err == nil {
					t.Fatal("a flip that nobody applied succeeded")
				}
				want = append(want, f.fill(l, 1, 100)...)
				f.holds(l, want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrFenced) {
				t.Errorf("append after the hand-over: %v", err)
			}
			f.holds(f.open(b, p), want)
		})
	}
}

// Whoever dies when, the owner in the image gets every acknowledged record.
func TestDeathAroundFlip(t *testing.T) {
	for _, when := range []string{"source before", "source after", "target after", "source with the reply lost"} {
		t.Run(when, func(t *testing.T) {
			f := newFixture(t)
			a, b, heir := f.start(1, lazy), f.start(2, lazy), f.start(3, lazy)
			p := f.topic(1, a)[0]
			l := f.open(a, p)
			want := f.fill(l, 9, 100)
			if when == "source with the reply lost" {
				f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
					if cmd.GetFlip() != nil {
						a.Meta.CutLocked()
						return sharedlogtest.Lost
					}
					return sharedlogtest.Applied
				}
				done := make(chan []error, 1)
				go func() { done <- f.flip(f.ctx(), a, b, func() {}, p) }()
				f.until("the flip is applied", func() bool {
					now, _ := f.c.Image().PartitionByStream(p.Stream)
					return now.Owner == b.Incarnation
				})
				a.Crash()
				if err := (<-done)[0]; err == nil {
					t.Error("a store that died reports success")
				}
				f.c.Fence(a.Incarnation, heir.Incarnation)
				if err := f.c.Seal(f.ctx(), a.Incarnation, heir); err != nil {
					t.Fatal(err)
				}
				f.holds(f.open(b, p), want)
				return
			}
			dead, owner := a, heir
			if when != "source before" {
				l = f.moved(l, a, b, p)
				dead, owner = b, heir
				if when == "source after" {
					dead, owner = a, b
				} else {
					want = append(want, f.fill(l, 3, 100)...)
				}
			}
			dead.Crash()
			if err := f.c.Takeover(f.ctx(), dead.Incarnation, heir); err != nil {
				t.Fatal(err)
			}
			if when == "source after" {
				f.holds(l, want)
				want = append(want, f.fill(l, 1, 100)...)
				f.holds(l, want)
			} else {
				l = f.open(owner, p)
				f.holds(l, want)
			}
			if got, replayed := f.state(l), f.replayed(l); when != "source after" && got != replayed {
				t.Errorf("recovered state is\n%s\na replay gives\n%s", got, replayed)
			}
		})
	}
}

// Many streams go in few commands of a bounded size; one whose target is gone
// stays without holding up the others.
func TestFlipOfManyStreams(t *testing.T) {
	const n = 3000
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	gone := f.start(3, lazy)
	parts := f.topic(n, a)
	logs := make([]commitlog.Log, n)
	for i, p := range parts {
		logs[i] = f.open(a, p)
	}
	var last commitlog.Commit
	for round := range 7 {
		for i := range logs {
			if (i+round)%3 == 0 {
				last = f.append(logs[i], f.batch(1, 60))
			}
		}
		logs[0].Seal()
		if err := last.Wait(f.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	var commands atomic.Int32
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetFlip() != nil {
			commands.Add(1)
			if size := proto.Size(cmd); size > 256<<10 {
				t.Errorf("a flip of %d bytes", size)
			}
		}
		return sharedlogtest.Applied
	}
	begun := time.Now()
	for i, err := range f.flip(f.ctx(), a, b, func() {}, parts[1:]...) {
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	t.Logf("%d streams in %d commands, %v", n-1, commands.Load(), time.Since(begun))
	if got := commands.Load(); got < 1 || got > 6 {
		t.Errorf("%d commands", got)
	}
	for _, i := range []int{1, 2, 3, n / 2, n - 1} {
		l := f.open(b, parts[i])
		if l.Bounds().End != logs[i].Bounds().End {
			t.Errorf("stream %d ends at %d, was %d", i, l.Bounds().End, logs[i].Bounds().End)
		}
	}
	f.c.Fence(gone.Incarnation, b.Incarnation)
	p := parts[1]
	now, _ := f.c.Image().PartitionByStream(p.Stream)
	errs := b.Flip(f.ctx(), []*metadatapb.FlipStream{
		{Stream: uint64(p.Stream), Epoch: int32(now.Epoch), Target: gone.Incarnation.Proto()},
		{Stream: uint64(parts[2].Stream), Epoch: int32(now.Epoch), Target: a.Incarnation.Proto()},
	}, func() {})
	if errs[0] == nil || errs[1] != nil {
		t.Errorf("flip to a fenced and to a live target: %v", errs)
	}
}

// Nothing stops for a quorum that does not answer.
func TestFlipWithoutQuorum(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	want := f.fill(l, 9, 100)
	a.Meta.Cut(true)
	if err := f.flip(f.ctx(), a, b, func() { t.Error("frozen without a quorum") }, p)[0]; err == nil {
		t.Fatal("moved without a quorum")
	}
	want = append(want, f.fill(l, 1, 100)...)
	a.Meta.Cut(false)
	f.holds(f.moved(l, a, b, p), want)
}

// A store that takes no index object stops the move before it is submitted.
func TestFlipWithoutStore(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	var want [][]byte
	for range 9 {
		want = append(want, f.fill(l, 1, 100)...)
	}
	undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/idx/", Before: objstore.ErrFull})
	short, cancel := context.WithTimeout(f.ctx(), 50*time.Millisecond)
	defer cancel()
	if err := f.flip(short, a, b, func() {}, p)[0]; err == nil {
		t.Fatal("moved without an index of the tail")
	}
	want = append(want, f.fill(l, 1, 100)...)
	undo()
	f.holds(f.moved(l, a, b, p), want)
}

// A pack that was planned before the stream went away and came back knows
// nothing of what others wrote meanwhile: its checkpoint must not pass for one
// of the present end (prod-1).
func TestCheckpointOfAPackThatWasOvertaken(t *testing.T) {
	f := newFixture(t)
	slow := fault.New(f.raw, 2)
	tune := func(c *sharedlog.Config) { c.PackAge, c.PackBytes, c.MaintainEvery = time.Millisecond, 1, time.Hour }
	a := f.start(1, func(c *sharedlog.Config) { tune(c); c.Bucket = slow })
	b := f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	hold := make(chan struct{})
	slow.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Hold: hold, Times: 1})
	want := f.fill(l, 3, 100) // is being packed
	l = f.moved(l, a, b, p)
	want = append(want, f.fill(l, 3, 100)...)
	l = f.moved(l, b, a, p)
	close(hold)
	for range 3 { // packed one by one, each on top of the last checkpoint
		want = append(want, f.fill(l, 1, 100)...)
		f.packed(p, l)
	}
	l = f.moved(l, a, b, p)
	f.holds(l, want)
	if got, replayed := f.state(l), f.replayed(l); got != replayed {
		t.Fatalf("recovered state is\n%s\na replay gives\n%s", got, replayed)
	}
}

// unpackable refuses to read slots for a rewrite, as long as on is set.
type unpackable struct {
	objstore.Bucket
	why objstore.Reason
	on  *atomic.Bool
}

func (u *unpackable) For(r objstore.Reason) objstore.Bucket {
	return &unpackable{objstore.For(u.Bucket, r), r, u.on}
}

func (u *unpackable) GetRange(ctx context.Context, key string, pos int64, b []byte) (int, error) {
	if u.on.Load() && u.why == objstore.ReasonRead && strings.Contains(key, "/wal/") {
		return 0, errors.New("not now")
	}
	return u.Bucket.GetRange(ctx, key, pos, b)
}

// unrewriting is a node that cannot rewrite slots as long as on is set, as it is.
func (f *fixture) unrewriting(broker metadata.BrokerID) (n *sharedlogtest.Node, on *atomic.Bool) {
	on = new(atomic.Bool)
	on.Store(true)
	return f.start(broker, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.MaxExtents, c.Bucket = time.Millisecond, time.Millisecond, 4, &unpackable{c.Bucket, 0, on}
	}), on
}

// inSlots says whether an extent of a partition lies directly in a WAL slot.
func inSlots(p metadata.Partition) bool {
	return slices.ContainsFunc(p.Extents, func(x metadata.Extent) bool { return strings.HasPrefix(x.Object, "wal/") })
}

// A tail that was inherited in slots stays out of the index until it is rewritten:
// an index that lists slots could be trimmed at its front, and what was made of it
// would not fit into its place.
func TestInheritedSlotsAreNotFolded(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, lazy)
	b, on := f.unrewriting(2)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	a2 := f.start(3, lazy)
	for i := range 4 { // four slots each, few enough to be handed over without an index
		from, to := a, a2
		if i%2 == 1 {
			from, to = a2, a
		}
		for range 4 {
			f.fill(l, 1, 150)
		}
		if i == 3 {
			to = b
		}
		l = f.moved(l, from, to, p)
	}
	f.grow(l, p, 3, func(int) int { return 150 })
	if err := l.Trim(f.ctx(), 9); err != nil {
		t.Fatal(err)
	}
	f.grow(l, p, 3, func(int) int { return 150 })
	on.Store(false)
	f.until("what was inherited is rewritten, and what was trimmed is gone", func() bool {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		return now.Extents[0].Base == 8 && !inSlots(now)
	})
	if got := f.all(l, 9); len(got) != 18 { // the fifth batch has 8 and 9
		t.Errorf("the log has %d batches, want 18", len(got))
	}
	if err := metadata.Check(f.c.Image()); err != nil {
		t.Error(err)
	}
}

// A slot that cannot be read keeps what was inherited from being rewritten. What
// is packed after it is folded all the same, so that the metadata stays small.
func TestFoldsGoOnBesideADamagedSlot(t *testing.T) {
	f := newFixture(t)
	a := f.start(1, lazy)
	b, on := f.unrewriting(2)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	for range 3 { // a slot each
		f.fill(l, 1, 150)
	}
	l = f.moved(l, a, b, p)
	f.grow(l, p, 20, func(int) int { return 150 })
	f.until("few extents are in the metadata beside the three slots", func() bool {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		return len(now.Extents) <= 3+4
	})
	on.Store(false)
	f.until("what was inherited is rewritten", func() bool {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		return !inSlots(now)
	})
	if got := f.all(l, 0); len(got) != 23 {
		t.Errorf("the log has %d batches, want 23", len(got))
	}
	if err := metadata.Check(f.c.Image()); err != nil {
		t.Error(err)
	}
}
