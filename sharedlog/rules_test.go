package sharedlog_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// Each test is named for the rule that it fails without.

// The metadata may know of the end of an incarnation before its WAL meets the
// fence: a command that it refuses as fenced is enough.
func TestCmd3ARefusedCommandEndsTheIncarnation(t *testing.T) {
	f := newFixture(t)
	gate := newGate(f.b)
	a, b := f.start(1, func(c *sharedlog.Config) { lazy(c); c.Bucket = gate }), f.start(2, lazy)
	parts := f.topic(2, a)
	l, other := f.open(a, parts[0]), f.open(a, parts[1])
	f.fill(l, 2, 100)
	f.fill(other, 2, 100)
	trimmed := make(chan error, 1)
	gate.close()
	go func() { trimmed <- l.Trim(f.ctx(), 1) }() // packs
	<-gate.reached                                // and is about to submit what it wrote
	f.c.Fence(a.Incarnation, b.Incarnation)
	gate.open()
	if err := <-trimmed; !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("trim: %v, want ErrFenced", err)
	}
	select {
	case <-a.Fenced():
	case <-f.ctx().Done():
		t.Fatal("the broker goes on")
	}
	if _, err := other.Append(f.batch(1, 100)); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("append: %v, want ErrFenced", err)
	}
}

// Slots below the trim are deleted; a sealer that begins there takes the first
// gap for the end.
func TestCmd4SealingBeginsAtTheTrim(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	want := f.fill(l, 3, 100)
	if err := l.Trim(f.ctx(), 1); err != nil { // packs
		t.Fatal(err)
	}
	f.until("the packed slots are gone", func() bool { return len(f.keys("wal")) == 0 })
	want = append(want, f.fill(l, 3, 100)...)
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	m := f.open(b, p)
	if got := f.all(m, m.Bounds().Start); len(got) != len(want) {
		t.Errorf("the next owner has %d batches, want %d", len(got), len(want))
	}
}

// ext-3: what was acknowledged is below the next owner's end, and the state that
// it has for duplicates is that of the records (prod-1).
func TestExt3TheNextOwnerHasAllThatWasAcknowledged(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	var want [][]byte
	for range 7 { // a slot each
		want = append(want, f.fill(l, 1, 100)...)
	}
	if err := f.c.Takeover(f.ctx(), a.Incarnation, b); err != nil {
		t.Fatal(err)
	}
	m := f.open(b, p)
	if end := l.Bounds().Stable; m.Bounds().End < end {
		t.Fatalf("the next owner's log ends at %d, acknowledged is %d", m.Bounds().End, end)
	}
	if got, replayed := f.state(m), f.replayed(m); got != replayed {
		t.Errorf("recovered state is\n%s\na replay gives\n%s", got, replayed)
	}
	f.holds(m, want)
}

// A commit starts at the committed end that its planner saw (ext-1), so packs
// and flips take turns: a pack that commits what a flip has planned to hand over
// would stop the flip, and the other way round.
func TestExt1PacksWaitForAFlip(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	parts := f.topic(2, a)
	l, other := f.open(a, parts[0]), f.open(a, parts[1])
	for range 8 { // a tail that goes into an index before the freeze
		f.fill(l, 1, 100)
	}
	f.fill(other, 1, 100)
	var mu sync.Mutex
	var order []string
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case cmd.GetFlip() != nil:
			order = append(order, "flip")
		case cmd.GetCommitExtents() != nil:
			order = append(order, "commit")
		}
		return sharedlogtest.Applied
	}
	hold := make(chan struct{})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Hold: hold})
	f.append(l, f.batch(1, 100)) // the flip waits for it
	frozen, flipped := make(chan struct{}), make(chan error, 1)
	go func() { flipped <- f.flip(f.ctx(), a, b, func() { close(frozen) }, parts[0])[0] }()
	<-frozen
	trimmed := make(chan error, 1)
	go func() { trimmed <- other.Trim(f.ctx(), 1) }() // packs, l's slots too
	f.until("the pack has written its object", func() bool { return len(f.keys("seg")) == 1 })
	time.Sleep(50 * time.Millisecond) // the time in which a pack that does not wait commits
	close(hold)
	if err := <-flipped; err != nil {
		t.Errorf("flip: %v", err)
	}
	if err := <-trimmed; err != nil {
		t.Errorf("trim: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(order) < 2 || order[0] != "flip" {
		t.Errorf("commands came as %v, want the flip first", order)
	}
}

// obj-1: a slot that has been packed stays as long as a stream that was handed
// over has data in it, whether its extents say so themselves (a short tail) or
// an index object of the new owner does (a long one).
func TestObj1SlotsOfAMovedStreamStay(t *testing.T) {
	for name, slots := range map[string]int{"short tail": 2, "long tail": 9} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a := f.start(1, lazy)
			idle := func(c *sharedlog.Config) { lazy(c); c.MaintainEvery, c.CacheBytes, c.ReadCacheBytes = time.Hour, 1, 1 }
			b := f.start(2, idle)
			parts := f.topic(2, a)
			moving, staying := f.open(a, parts[0]), f.open(a, parts[1])
			var want [][]byte
			for range slots {
				f.append(staying, f.batch(1, 100))
				want = append(want, f.fill(moving, 1, 100)...)
			}
			f.fill(staying, 1, 100)
			moved := f.moved(moving, a, b, parts[0])
			if err := staying.Trim(f.ctx(), staying.Bounds().Stable); err != nil { // packs all slots
				t.Fatal(err)
			}
			f.packed(parts[1], staying)
			f.until("the slot that only the other stream has is gone", func() bool { return len(f.keys("wal")) <= slots })
			f.holds(moved, want)
			if _, err := a.Sweep(f.ctx()); err != nil {
				t.Fatal(err)
			}
			if n := len(f.keys("wal")); n != slots {
				t.Errorf("%d slots are there, want %d", n, slots)
			}
		})
	}
}

// prod-1: a checkpoint goes on from what recovery found, deltas included, not
// from the last checkpoint alone.
func TestProd1ACheckpointHasWhatRecoveryFound(t *testing.T) {
	f := newFixture(t)
	nodes := []*sharedlogtest.Node{f.start(1, lazy), f.start(2, lazy), f.start(3, lazy)}
	p := f.topic(1, nodes[0])[0]
	l := f.open(nodes[0], p)
	for i, n := range nodes[1:] {
		other := f.open(n, f.topic(1, n)[0])
		for pid := range int64(3) { // stays in the WAL, as deltas for the next owner
			f.append(l, kbatch.Values(1, "a").Idempotent(int64(10*i)+pid, 0, 0).Bytes())
		}
		f.fill(l, 1, 100)
		l = f.moved(l, nodes[i], n, p)
		f.fill(l, 1, 100)
		f.fill(other, 1, 100)
		if err := other.Trim(f.ctx(), 1); err != nil { // packs both, with checkpoints
			t.Fatal(err)
		}
		f.packed(p, l)
	}
	l = f.moved(l, nodes[2], nodes[0], p)
	if got, replayed := f.state(l), f.replayed(l); got != replayed {
		t.Errorf("recovered state is\n%s\na replay gives\n%s", got, replayed)
	}
}

// ans-2: a read barrier that names us fenced is no proof, and the end.
func TestAns2ABarrierThatNamesUsFencedProvesNothing(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, nil), f.start(2, nil)
	f.c.Fence(a.Incarnation, b.Incarnation)
	if err := a.Prove(f.ctx(), time.Now()); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("prove: %v, want ErrFenced", err)
	}
	if a.FencedErr() == nil {
		t.Error("the broker goes on")
	}
}
