package nemesis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ponor/internal/steer"
	"ponor/internal/wall"
	"ponor/jepsen/cluster"
	"ponor/jepsen/nemesis"
)

// ill is a cluster of the test whose nodes have clocks and disks of the test.
type ill struct {
	cluster.Cluster
	clocks   map[int32]*cluster.Clock
	files    map[int32]string
	tampered map[int32]string
	calls    atomic.Int64
	over     error // why what was tampered with is no more
	down     map[int32]bool
	idle     atomic.Bool // nothing is written to quorum logs
}

func (c *ill) Nodes() []int32               { return []int32{1, 2, 3, 4, 5} }
func (c *ill) Can(string) bool              { return true }
func (c *ill) Clock(n int32) *cluster.Clock { return c.clocks[n] }
func (c *ill) Down(n int32) bool            { return c.down[n] }
func (c *ill) Start(_ context.Context, n int32) error {
	delete(c.down, n)
	return nil
}

func (c *ill) Tamper(n int32, inject string) error {
	c.tampered[n] = inject
	return nil
}

func (c *ill) Untamper(n int32) error {
	delete(c.tampered, n)
	return c.over
}

func (c *ill) Tampered(int32) (int, error) {
	if c.idle.Load() {
		return 0, c.over
	}
	return int(c.calls.Add(1)) - 1, c.over
}

func newIll(t *testing.T) (*ill, *nemesis.Env) {
	t.Helper()
	c := &ill{clocks: map[int32]*cluster.Clock{}, files: map[int32]string{}, tampered: map[int32]string{}, down: map[int32]bool{}}
	for _, n := range c.Nodes() {
		c.files[n] = filepath.Join(t.TempDir(), "clock")
		c.clocks[n] = cluster.NewClock(c.files[n])
		if err := c.clocks[n].Set(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	return c, &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(3, 1)), Now: func() int64 { return 0 }, Topics: func() []string { return nil }, Nodes: &nemesis.Claims{}}
}

func (c *ill) skew(t *testing.T, n int32) (s wall.Skew) {
	t.Helper()
	b, err := os.ReadFile(c.files[n])
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A clock is off until the fault is undone, and its node has said so.
func TestClock(t *testing.T) {
	c, env := newIll(t)
	again(t, func() { // what nodes do
		for _, file := range c.files {
			var s wall.Skew
			b, err := os.ReadFile(file)
			if err != nil || json.Unmarshal(b, &s) != nil || s.By == 0 {
				continue
			}
			seen, _ := json.Marshal(wall.Seen{Serial: s.Serial, Told: 5})
			if os.WriteFile(file+".new", seen, 0o600) == nil {
				_ = os.Rename(file+".new", file+steer.SeenSuffix)
			}
		}
	})
	k, err := nemesis.Find("clock")
	if err != nil {
		t.Fatal(err)
	}
	ahead, strobes, clocks := 0, 0, map[int]int{}
	for range 20 {
		f := k.New()
		e, err := f.Start(t.Context(), env)
		if err != nil || !strings.Contains(e.Proof, "5 times") {
			t.Fatalf("started: %+v, %v", e, err)
		}
		clocks[len(e.Target)]++
		off := 0
		for _, n := range c.Nodes() {
			s := c.skew(t, n)
			if s.By == 0 {
				continue
			}
			if off++; !slices.Contains(e.Target, fmt.Sprint("node ", n)) || s.By.Abs().Hours() > 1 {
				t.Errorf("node %d is off by %v, target %v", n, s.By, e.Target)
			}
			if s.By > 0 {
				ahead++
			}
			if s.Strobe > 0 {
				strobes++
			}
		}
		if off != len(e.Target) {
			t.Errorf("%d clocks are off, of %v", off, e.Target)
		}
		if e, err := f.Stop(t.Context(), env); err != nil || e.Proof == "" {
			t.Errorf("stopped: %+v, %v", e, err)
		}
		for _, n := range c.Nodes() {
			if s := c.skew(t, n); s.By != 0 {
				t.Errorf("node %d is still off by %v", n, s.By)
			}
		}
	}
	all := clocks[1] + 2*clocks[2]
	if ahead == 0 || ahead == all || strobes == 0 || strobes == all {
		t.Errorf("of %d clocks %d were ahead, %d jumped to and fro", all, ahead, strobes)
	}
	if clocks[1] == 0 || clocks[2] == 0 || len(clocks) != 2 {
		t.Errorf("so many clocks of five were off, so often: %v", clocks)
	}
}

// A disk is slow or fails on one node, which no other fault has meanwhile.
func TestDisk(t *testing.T) {
	for name, want := range map[string]string{"disk-slow": "delay", "disk-errors": "EIO"} {
		c, env := newIll(t)
		k, err := nemesis.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		f := k.New()
		e, err := f.Start(t.Context(), env)
		if err != nil || !strings.Contains(e.Proof, want) || len(e.Target) != 1 || len(c.tampered) != 1 {
			t.Errorf("%s started: %+v, %v, %v", name, e, err, c.tampered)
		}
		if free := env.Nodes.Take(env.Rand, c.Nodes(), 5); len(free) != 4 {
			t.Errorf("%s: others can have %v", name, free)
		}
		if _, err := f.Stop(t.Context(), env); err != nil || len(c.tampered) != 0 {
			t.Errorf("%s stopped: %v, %v", name, err, c.tampered)
		}
		if free := env.Nodes.Take(env.Rand, c.Nodes(), 5); len(free) != 1 {
			t.Errorf("%s: it was not given back, others can have %v", name, free)
		}
	}
}

// A fault that ended before it was to is no fault without an error, when it begins and
// when it is undone.
func TestDiskThatGoesOn(t *testing.T) {
	c, env := newIll(t)
	k, err := nemesis.Find("disk-errors")
	if err != nil {
		t.Fatal(err)
	}
	early := errors.New("strace ended by itself")
	c.over = early
	if _, err := k.New().Start(t.Context(), env); !errors.Is(err, early) {
		t.Errorf("one that was over when it began: %v", err)
	}
	c.over = nil
	f := k.New()
	if _, err := f.Start(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	c.over = early
	if _, err := f.Stop(t.Context(), env); !errors.Is(err, early) {
		t.Errorf("one that was over before it was undone: %v", err)
	}
}

// A node that gives up is started again, and its end is the fault's: while it is on, and
// when it was over before.
func TestDiskThatEndsNodes(t *testing.T) {
	c, env := newIll(t)
	k, err := nemesis.Find("disk-errors")
	if err != nil {
		t.Fatal(err)
	}
	f := k.New()
	e, err := f.Start(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	for n := range c.tampered {
		c.down[n], c.over = true, errors.New("strace ended by itself")
	}
	if e, err = f.Stop(t.Context(), env); err != nil || !strings.Contains(e.Proof, "ended the node") || len(c.down) > 0 {
		t.Errorf("undone: %+v, %v, down %v", e, err, c.down)
	}
	for _, n := range c.Nodes() {
		c.down[n] = true
	}
	if e, err := f.Start(t.Context(), env); err != nil || len(e.Target) > 0 || len(c.tampered) > 0 || len(c.down) != 4 {
		t.Errorf("on a node that is down: %+v, %v, %v, down %v", e, err, c.tampered, c.down)
	}
	if e, err := f.Stop(t.Context(), env); err != nil || len(e.Target) > 0 {
		t.Errorf("undone, though it had not begun: %+v, %v", e, err)
	}
	if free := env.Nodes.Take(env.Rand, c.Nodes(), 5); len(free) != 5 {
		t.Errorf("others can have %v", free)
	}
}

// If nobody writes to the quorum's log, the fault does.
func TestDiskHasSomethingToWrite(t *testing.T) {
	c, env := newIll(t)
	c.idle.Store(true)
	env.Topics = func() []string { // it looks for partitions to move
		c.idle.Store(false)
		return nil
	}
	k, err := nemesis.Find("disk-errors")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if e, err := k.New().Start(ctx, env); err != nil || e.Proof == "" {
		t.Errorf("started: %+v, %v", e, err)
	}
}
