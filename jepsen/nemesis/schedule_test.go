package nemesis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/jepsen/nemesis"
)

// nodes is a cluster of the test: maps say what was done to its nodes.
type nodes struct {
	cluster.Cluster
	down, paused map[int32]bool
	refuse       bool // to be killed
}

func newNodes() *nodes { return &nodes{down: map[int32]bool{}, paused: map[int32]bool{}} }

func (c *nodes) Nodes() []int32      { return []int32{1, 2, 3} }
func (c *nodes) Bootstrap() []string { return nil }
func (c *nodes) Can(what string) bool {
	return what != "stop"
}
func (c *nodes) Down(n int32) bool   { return c.down[n] }
func (c *nodes) Paused(n int32) bool { return c.paused[n] }
func (c *nodes) Logs() string        { return "logs" }
func (c *nodes) State(n int32) string {
	return fmt.Sprintf("node %d down %v paused %v", n, c.down[n], c.paused[n])
}
func (c *nodes) Start(_ context.Context, n int32) error {
	if !c.down[n] {
		return errors.New("it runs")
	}
	c.down[n] = false
	return nil
}
func (c *nodes) Kill(_ context.Context, n int32) error {
	if c.refuse {
		return errors.New("no permission")
	}
	if c.down[n] || c.paused[n] {
		return errors.New("it is another's")
	}
	c.down[n] = true
	return nil
}
func (c *nodes) Pause(_ context.Context, n int32) error {
	if c.down[n] || c.paused[n] {
		return errors.New("it is another's")
	}
	c.paused[n] = true
	return nil
}
func (c *nodes) Resume(_ context.Context, n int32) error { c.paused[n] = false; return nil }

// schedule runs faults for a while on virtual time and returns the events.
func schedule(t *testing.T, c *nodes, names []string, seed uint64) []history.Event {
	t.Helper()
	list, err := nemesis.Choose(names, c)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	claims := &nemesis.Claims{}
	var events []history.Event
	s := &nemesis.Schedule{
		Nemeses: list, Record: func(e *history.Event) { events = append(events, *e) },
		Env: func(string) *nemesis.Env {
			return &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(seed, 7)), Now: func() int64 { return int64(time.Since(begun)) }, Nodes: claims}
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := s.Run(ctx, rand.New(rand.NewPCG(seed, 1))); err != nil {
		t.Fatal(err)
	}
	if on := s.On(); len(on) > 0 {
		t.Errorf("still on: %v", on)
	}
	return events
}

// Faults start with a proof, stop as often as they started, never meet on a
// node, and leave nothing behind; the same seed plans the same.
func TestScheduleUndoesWhatItDoes(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			c := newNodes()
			events := schedule(t, c, []string{"kill", "pause"}, seed)
			on := map[string]int{}
			together := false
			var begun []string
			for _, e := range events {
				if e.Err != "" || e.Proof == "" || len(e.Target) == 0 || e.End < e.At {
					t.Errorf("seed %d: %+v", seed, e)
				}
				switch e.Phase {
				case "start":
					on[e.Fault]++
					begun = append(begun, e.Fault)
				case "stop":
					on[e.Fault]--
				}
				together = together || on["kill"] > 0 && on["pause"] > 0
			}
			if len(begun) < 2 || begun[0] == begun[1] {
				t.Errorf("seed %d: one fault has its second turn before the other its first: %v", seed, begun)
			}
			if len(events) < 20 || on["kill"] != 0 || on["pause"] != 0 {
				t.Errorf("seed %d: %d events, left on %v", seed, len(events), on)
			}
			if slices.Contains([]bool{c.down[1], c.down[2], c.down[3], c.paused[1], c.paused[2], c.paused[3]}, true) {
				t.Errorf("seed %d: left %+v", seed, c)
			}
			again := schedule(t, newNodes(), []string{"kill", "pause"}, seed)
			if !slices.EqualFunc(events, again, func(a, b history.Event) bool {
				return a.At == b.At && a.Fault == b.Fault && slices.Equal(a.Target, b.Target)
			}) {
				t.Errorf("seed %d plans differently the second time", seed)
			}
		})
	}
}

// What takes a cluster that works to be undone is undone after what hurts it.
func TestScheduleUndoesInAnOrderThatWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &rolling{newNodes()}
		list, err := nemesis.Choose([]string{"pause", "restart"}, c)
		if err != nil {
			t.Fatal(err)
		}
		both := 0
		on := map[string]bool{}
		s := &nemesis.Schedule{
			Nemeses: list,
			Record: func(e *history.Event) {
				on[e.Fault] = e.Phase == "start"
				if e.Fault == "restart" && e.Phase == "stop" && on["pause"] {
					t.Errorf("restart is undone while nodes are paused")
				}
				if on["pause"] && on["restart"] {
					both++
				}
			},
			Env: func(string) *nemesis.Env {
				return &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(3, 7)), Now: func() int64 { return 0 }, Nodes: &nemesis.Claims{}}
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := s.Run(ctx, rand.New(rand.NewPCG(3, 1))); err != nil {
			t.Fatal(err)
		}
		if both < 5 {
			t.Errorf("both were on %d times", both)
		}
	})
}

// rolling is a cluster whose nodes end in order and come back.
type rolling struct{ *nodes }

func (*rolling) Can(string) bool                     { return true }
func (*rolling) Stop(context.Context, int32) error   { time.Sleep(time.Second); return nil }
func (*rolling) Start(context.Context, int32) error  { return nil }
func (*rolling) Bootstrap() []string                 { return nil }
func (*rolling) Pause(context.Context, int32) error  { return nil }
func (*rolling) Resume(context.Context, int32) error { return nil }
func (*rolling) Paused(int32) bool                   { return true }

// stubborn is a cluster whose nodes do not end when they are told to, and are killed.
type stubborn struct{ *nodes }

func (*stubborn) Can(what string) bool { return what == "stop" }
func (*stubborn) Logs() string         { return "" }
func (c *stubborn) Stop(_ context.Context, n int32) error {
	c.down[n] = true
	return errors.New("it was killed")
}

// A node that was killed because it did not end is started again, when the fault is
// undone and when a cluster is healed of which it is all that can be done.
func TestStubbornNodesAreStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &stubborn{newNodes()}
		list, err := nemesis.Choose([]string{"restart"}, c)
		if err != nil {
			t.Fatal(err)
		}
		env := &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(3, 7)), Now: func() int64 { return 0 }, Nodes: &nemesis.Claims{}}
		if _, err := list[0].Start(t.Context(), env); err == nil || len(c.left()) != 1 {
			t.Fatalf("started with %v, down %v", err, c.left())
		}
		if _, err := list[0].Stop(t.Context(), env); err != nil || len(c.left()) != 0 {
			t.Errorf("undone with %v, down %v", err, c.left())
		}
		c.down[2] = true
		healed := false
		if err := nemesis.Heal(t.Context(), env, func(*history.Event) { healed = true }); err != nil || len(c.left()) != 0 || !healed {
			t.Errorf("healed %v with %v, down %v", healed, err, c.left())
		}
	})
}

// left are the nodes that are down.
func (c *nodes) left() (list []int32) {
	for _, n := range c.Nodes() {
		if c.down[n] {
			list = append(list, n)
		}
	}
	return list
}

// A fault that could not be done is told with its error.
func TestScheduleTellsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes()
		c.refuse = true
		events := schedule(t, c, []string{"kill"}, 1)
		if len(events) == 0 || events[0].Err == "" || events[0].Proof != "" {
			t.Errorf("events %+v", events)
		}
	})
}

func TestChooseRefuses(t *testing.T) {
	if _, err := nemesis.Choose([]string{"meteor"}, newNodes()); err == nil {
		t.Error("an unknown nemesis was chosen")
	}
	if _, err := nemesis.Choose([]string{"restart"}, newNodes()); err == nil {
		t.Error("a nemesis was chosen that the cluster cannot do")
	}
	if list, err := nemesis.Choose([]string{"none"}, newNodes()); err != nil || len(list) != 0 {
		t.Errorf("none is %v, %v", list, err)
	}
}

func TestClaimsAreExclusive(t *testing.T) {
	var c nemesis.Claims
	rng := rand.New(rand.NewPCG(1, 2))
	all := []int32{1, 2, 3}
	a := c.Take(rng, all, 2)
	b := c.Take(rng, all, 3)
	if len(a) != 2 || len(b) != 1 || slices.Contains(a, b[0]) {
		t.Errorf("took %v, then %v", a, b)
	}
	c.Free(a)
	if got := c.Take(rng, all, 3); !slices.Equal(got, a) {
		t.Errorf("took %v, %v were free", got, a)
	}
}

// Healing starts and resumes whatever is left.
func TestHeal(t *testing.T) {
	c := newNodes()
	c.down[1], c.paused[3] = true, true
	var got history.Event
	env := &nemesis.Env{Cluster: c, Now: func() int64 { return 1 }}
	if err := nemesis.Heal(t.Context(), env, func(e *history.Event) { got = *e }); err != nil {
		t.Fatal(err)
	}
	if c.down[1] || c.paused[3] || got.Phase != "heal" || got.Proof == "" {
		t.Errorf("left %+v, event %+v", c, got)
	}
}
