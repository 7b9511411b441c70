package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/coordinator"
	"ponor/internal/metrics"
	"ponor/metadata"
)

// countReplays has the machines of all nodes count what they replay.
func countReplays(count *atomic.Int64) func(*coordinator.Config[*machine]) {
	return func(c *coordinator.Config[*machine]) {
		c.New = func(n int32) *machine {
			m := newMachine(n)
			m.replays = func() { count.Add(1) }
			return m
		}
	}
}

// pieces are what the owner would send ahead.
func (c *nodes) pieces() []coordinator.Piece {
	c.t.Helper()
	from, _ := c.owner()
	var all []coordinator.Piece
	if err := from.shards.SendAhead(c.t.Context(), c.topic, 0, func(_ context.Context, p coordinator.Piece) error {
		p.Batches = slices.Clone(p.Batches)
		all = append(all, p)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// values is the state at the owner.
func (c *nodes) values() map[string]string {
	c.t.Helper()
	var out map[string]string
	if err := c.retry(c.t.Context(), func(m *machine) []coordinator.Record {
		out = maps.Clone(m.values)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// set changes a value at the owner.
func (c *nodes) set(key, value string) {
	c.t.Helper()
	if err := c.retry(c.t.Context(), func(m *machine) []coordinator.Record { return m.set(key, value) }); err != nil {
		c.t.Fatal(err)
	}
}

// The target of a move has replayed all but what came after it was sent; and has it.
func TestWhatWasSentAheadIsNotReplayedAgain(t *testing.T) {
	var replays atomic.Int64
	c := newNodes(t, 2, countReplays(&replays))
	c.fill(1000)
	to := c.other()
	for _, p := range c.pieces() {
		if err := to.shards.TakeAhead(p); err != nil {
			t.Fatal(err)
		}
	}
	if n := replays.Swap(0); n != 1000 {
		t.Errorf("%d records were replayed ahead, want 1000", n)
	}
	c.set("late", "1")
	c.set("key7", "")
	want := c.values()
	c.move()
	if got := c.values(); !maps.Equal(got, want) {
		t.Errorf("after the move %d values, want %d, late=%q", len(got), len(want), got["late"])
	}
	if n := replays.Load(); n != 2 {
		t.Errorf("%d records were replayed after the move, want 2", n)
	}
	if m, _ := c.owner(); m != to {
		t.Error("it did not move to where it was sent")
	}
}

// A log that is compacted while it is sent begins anew.
func TestALogIsCompactedWhileItIsSentAhead(t *testing.T) {
	var replays atomic.Int64
	c := newNodes(t, 2, func(cfg *coordinator.Config[*machine]) {
		countReplays(&replays)(cfg)
		cfg.CompactBytes = 4 << 20
	})
	big := strings.Repeat("x", 100<<10)
	for i := range 30 {
		c.set(fmt.Sprint("key", i%10), fmt.Sprint(i, big))
	}
	from, _ := c.owner()
	to := c.other()
	part, err := from.set.Get(c.topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	start, firsts := part.Start(), 0
	if err := from.shards.SendAhead(t.Context(), c.topic, 0, func(_ context.Context, p coordinator.Piece) error {
		if p.First {
			firsts++
		}
		if firsts == 1 {
			for i := 0; part.Start() == start; i++ {
				c.set("key1", fmt.Sprint(i, big))
			}
		}
		return to.shards.TakeAhead(p)
	}); err != nil {
		t.Fatal(err)
	}
	if firsts != 2 {
		t.Errorf("sending began %d times, want 2", firsts)
	}
	want := c.values()
	replays.Store(0)
	c.move()
	if !maps.Equal(c.values(), want) {
		t.Error("another state after the move")
	}
	if n := replays.Load(); n != 0 {
		t.Errorf("%d records were replayed after the move, want 0", n)
	}
}

// What was sent ahead of a log that is then compacted does not count: it is read anew.
func TestALogIsCompactedAfterItWasSentAhead(t *testing.T) {
	var meters []*coordinator.Metrics
	c := newNodes(t, 2, func(cfg *coordinator.Config[*machine]) {
		cfg.CompactBytes, cfg.Metrics = 4<<20, new(coordinator.Metrics)
		meters = append(meters, cfg.Metrics)
	})
	big := strings.Repeat("x", 100<<10)
	c.set("key0", big)
	from, _ := c.owner()
	to := c.other()
	part, err := from.set.Get(c.topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := part.Start()
	for _, p := range c.pieces() {
		if err := to.shards.TakeAhead(p); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; part.Start() == start; i++ {
		c.set("key1", fmt.Sprint(i, big))
	}
	want := c.values()
	c.move()
	if !maps.Equal(c.values(), want) {
		t.Error("another state after the move")
	}
	for _, m := range meters {
		var p metrics.Page
		m.Show(&p)
		var page strings.Builder
		if _, err := p.WriteTo(&page); err != nil {
			t.Fatal(err)
		}
		if line := "ponor_coordinator_replayed_total{when=\"ahead\"} 0\n"; !strings.Contains(page.String(), line) {
			t.Errorf("want %s in %s", line, page.String())
		}
	}
}

// What does not belong to the log, as it is now, is refused and does no harm.
func TestPiecesThatAreOfNoUse(t *testing.T) {
	c := newNodes(t, 2, nil)
	c.fill(2000)
	to := c.other()
	good := c.pieces()[0]
	next := good
	next.First, next.From = false, good.From+1000
	for what, change := range map[string]func(*coordinator.Piece){
		"of another topic":     func(p *coordinator.Piece) { p.Topic = c.plain },
		"of a later partition": func(p *coordinator.Piece) { p.Partition = 7 },
		"of an earlier epoch":  func(p *coordinator.Piece) { p.Epoch-- },
		"of a later epoch":     func(p *coordinator.Piece) { p.Epoch++ },
		"without a beginning":  func(p *coordinator.Piece) { p.First = false },
	} {
		p := good
		change(&p)
		if err := to.shards.TakeAhead(p); !errors.Is(err, coordinator.ErrNotAhead) {
			t.Errorf("a piece %s: %v", what, err)
		}
	}
	if err := to.shards.TakeAhead(good); err != nil {
		t.Fatal(err)
	}
	if err := to.shards.TakeAhead(next); !errors.Is(err, coordinator.ErrNotAhead) {
		t.Errorf("a piece behind a gap: %v", err)
	}
	torn := good
	torn.Batches = good.Batches[:len(good.Batches)-3]
	if err := to.shards.TakeAhead(torn); err == nil {
		t.Error("a torn piece was taken")
	}
	if err := to.shards.TakeAhead(next); !errors.Is(err, coordinator.ErrNotAhead) {
		t.Errorf("a piece behind a torn one: %v", err)
	}
	if from, _ := c.owner(); !errors.Is(from.shards.TakeAhead(good), coordinator.ErrNotAhead) {
		t.Error("the owner takes a piece of its own log")
	}
	want := c.values()
	c.move()
	if !maps.Equal(c.values(), want) {
		t.Error("another state after the move")
	}
}

// What was sent ahead is used up by the move that it was sent for.
func TestWhatWasSentAheadIsForOneMove(t *testing.T) {
	var replays atomic.Int64
	c := newNodes(t, 2, countReplays(&replays))
	c.fill(1000)
	first, _ := c.owner()
	for _, p := range c.pieces() {
		if err := c.other().shards.TakeAhead(p); err != nil {
			t.Fatal(err)
		}
	}
	c.move()
	want := c.values()
	c.move()
	if got := c.values(); !maps.Equal(got, want) {
		t.Error("another state after the move back")
	}
	replays.Store(0)
	c.move()
	if got := c.values(); !maps.Equal(got, want) {
		t.Error("another state after the third move")
	}
	if n := replays.Load(); n != 1000 {
		t.Errorf("%d records were replayed, want all 1000", n)
	}
	if m, _ := c.owner(); m == first {
		t.Error("it is where it began")
	}
}

// A move that does not happen leaves nothing behind for long.
func TestWhatWasSentAheadIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		piece := coordinator.Piece{Topic: metadata.TopicID(r.id.TopicID), First: true}
		for _, wait := range []time.Duration{0, 29 * time.Second, 29 * time.Second} {
			time.Sleep(wait)
			if err := r.shards.TakeAhead(piece); err != nil {
				t.Fatalf("after %v: %v", wait, err)
			}
			piece.First = false
		}
		time.Sleep(31 * time.Second)
		if err := r.shards.TakeAhead(piece); !errors.Is(err, coordinator.ErrNotAhead) {
			t.Errorf("after 31 s: %v", err)
		}
	})
}
