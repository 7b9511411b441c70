package nemesis_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/jepsen/nemesis"
	"ponor/jepsen/proxy"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

// wired is a cluster of the test whose nodes echo what they get, behind real
// proxies and with stores that follow files, all in use.
type wired struct {
	cluster.Cluster
	t       *testing.T
	clients map[int32]*proxy.Kafka
	links   *proxy.Links
	scripts map[int32]*cluster.Script

	answered map[int32]*atomic.Int64     // by node, of clients
	heard    map[proxy.Way]*atomic.Int64 // bytes that came back to who dialled
	stored   map[int32]*atomic.Int64     // puts that succeeded at once
}

func (w *wired) Nodes() []int32                 { return []int32{1, 2, 3} }
func (w *wired) Can(string) bool                { return true }
func (w *wired) Clients(n int32) *proxy.Kafka   { return w.clients[n] }
func (w *wired) Links() *proxy.Links            { return w.links }
func (w *wired) Script(n int32) *cluster.Script { return w.scripts[n] }
func (w *wired) env(seed uint64) *nemesis.Env {
	return &nemesis.Env{Cluster: w, Rand: rand.New(rand.NewPCG(seed, 1)), Now: func() int64 { return 0 }, Nodes: &nemesis.Claims{}}
}

func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// again does something until the test ends.
func again(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				do()
			}
		}
	})
	t.Cleanup(func() { close(done); wg.Wait() })
}

func newWired(t *testing.T) *wired {
	t.Helper()
	w := &wired{
		t: t, clients: map[int32]*proxy.Kafka{}, scripts: map[int32]*cluster.Script{}, answered: map[int32]*atomic.Int64{},
		heard: map[proxy.Way]*atomic.Int64{}, stored: map[int32]*atomic.Int64{},
	}
	for _, n := range w.Nodes() {
		w.addClients(n)
		w.addStore(n)
	}
	w.addLinks()
	return w
}

// addClients has a client send one request after the other, over a new connection
// when one ends.
func (w *wired) addClients(n int32) {
	// The server sends every frame back: so that an answer has the correlation
	// id of its request, that stands where the api key and version are, too.
	p, err := proxy.NewKafka(n, echo(w.t), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.clients[n], w.answered[n] = p, new(atomic.Int64)
	w.t.Cleanup(p.Close)
	api := uint32(12) << 16 // Heartbeat
	frame := binary.BigEndian.AppendUint32(nil, 14)
	frame = binary.BigEndian.AppendUint32(frame, api)
	frame = binary.BigEndian.AppendUint32(frame, api) // the correlation id
	frame = append(frame, 0, 0, 0, 0, 0, 0)
	var conn net.Conn
	again(w.t, func() {
		if conn == nil {
			if conn, err = net.Dial("tcp", p.Address()); err != nil {
				return
			}
		}
		_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := conn.Write(frame)
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, len(frame)))
		}
		if err != nil {
			_ = conn.Close()
			conn = nil
			return
		}
		w.answered[n].Add(1)
	})
}

// addLinks has every node send bytes to every other.
func (w *wired) addLinks() {
	var mu sync.Mutex
	dialled := map[string]int32{}
	w.links = proxy.NewLinks(func(c net.Conn) int32 {
		mu.Lock()
		defer mu.Unlock()
		return dialled[c.RemoteAddr().String()]
	})
	w.t.Cleanup(w.links.Close)
	for _, to := range w.Nodes() {
		address, err := w.links.Add(to, echo(w.t))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, from := range w.Nodes() {
			if from == to {
				continue
			}
			count := new(atomic.Int64)
			w.heard[proxy.Way{From: from, To: to}] = count
			var conn net.Conn
			w.t.Cleanup(func() {
				if conn != nil {
					_ = conn.Close()
				}
			})
			again(w.t, func() {
				if conn == nil {
					mu.Lock()
					conn, err = net.Dial("tcp", address)
					if err != nil {
						mu.Unlock()
						return
					}
					dialled[conn.LocalAddr().String()] = from
					mu.Unlock()
					go func(c net.Conn) {
						b := make([]byte, 100)
						for {
							n, err := c.Read(b)
							if err != nil {
								return
							}
							count.Add(int64(n))
						}
					}(conn)
				}
				_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := conn.Write([]byte("x")); err != nil {
					_ = conn.Close()
					conn = nil
				}
			})
		}
	}
}

// addStore has a node put and list.
func (w *wired) addStore(n int32) {
	dir, err := os.MkdirTemp("", "nemesis")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &cluster.Script{File: filepath.Join(dir, "faults.json")}
	if err := s.Clear(); err != nil {
		w.t.Fatal(err)
	}
	b := fault.New(mem.New(), 1)
	ctx, cancel := context.WithCancel(context.Background())
	if err := b.Follow(ctx, s.File); err != nil {
		w.t.Fatal(err)
	}
	w.scripts[n], w.stored[n] = s, new(atomic.Int64)
	again(w.t, func() {
		begun := time.Now()
		err := b.Put(context.Background(), "k", objstore.BytesBody([]byte("x")))
		seen := 0
		lerr := b.List(context.Background(), "", "", func(objstore.Info) error { seen++; return nil })
		if err == nil && lerr == nil && seen == 1 && time.Since(begun) < 50*time.Millisecond {
			w.stored[n].Add(1)
		}
	})
	w.t.Cleanup(cancel)
}

// goesOn waits until everything goes on.
func (w *wired) goesOn() {
	w.t.Helper()
	counts := map[string]*atomic.Int64{}
	for n, c := range w.answered {
		counts[fmt.Sprint("answers of node ", n)] = c
	}
	for n, c := range w.stored {
		counts[fmt.Sprint("puts of node ", n)] = c
	}
	for way, c := range w.heard {
		counts[fmt.Sprint("bytes ", way)] = c
	}
	for what, c := range counts {
		before := c.Load()
		for end := time.Now().Add(2 * time.Minute); c.Load() < before+5; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				w.t.Fatalf("%s do not go on", what)
			}
		}
	}
}

// Every fault between nodes and others is met, proven and undone. Late writes and
// what is held are given no time.
func TestFaultsAreMetProvenAndUndone(t *testing.T) {
	w := newWired(t)
	w.goesOn()
	for _, k := range nemesis.Kinds() {
		if k.Needs != cluster.NeedsClients && k.Needs != cluster.NeedsLinks && k.Needs != cluster.NeedsStore {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			for seed := range uint64(2) {
				env, n := w.env(seed), k.New()
				if n.Name() != k.Name {
					t.Errorf("it calls itself %s", n.Name())
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				started, err := n.Start(ctx, env)
				if err != nil || started.Proof == "" || len(started.Target) == 0 {
					t.Errorf("start gives %+v, %v", started, err)
				}
				stopped, err := n.Stop(ctx, env)
				if err != nil || stopped.Proof == "" || len(stopped.Target) == 0 {
					t.Errorf("stop gives %+v, %v", stopped, err)
				}
				cancel()
				w.goesOn()
				if s, err := fault.ReadSeen(w.scripts[1].File); err != nil || len(s.Hits) > 0 {
					t.Errorf("the store still has faults: %+v, %v", s, err)
				}
			}
		})
	}
}

// A start that nobody meets is no fault, and can be undone.
func TestUnmetFaultIsAnError(t *testing.T) {
	p, err := proxy.NewKafka(1, "127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	links := proxy.NewLinks(func(net.Conn) int32 { return 0 })
	defer links.Close()
	s := &cluster.Script{File: filepath.Join(t.TempDir(), "f")}
	w := &wired{clients: map[int32]*proxy.Kafka{1: p, 2: p, 3: p}, links: links, scripts: map[int32]*cluster.Script{1: s, 2: s, 3: s}}
	for _, k := range nemesis.Kinds() {
		if k.Needs != cluster.NeedsClients && k.Needs != cluster.NeedsLinks && k.Needs != cluster.NeedsStore || k.Name == "reset" {
			continue
		}
		n, env := k.New(), w.env(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if e, err := n.Start(ctx, env); err == nil || e.Proof != "" {
			t.Errorf("%s: start gives %+v, %v", k.Name, e, err)
		}
		if _, err := n.Stop(t.Context(), env); err != nil {
			t.Errorf("%s: stop gives %v", k.Name, err)
		}
	}
}

// The schedule takes such a fault back, and goes on.
func TestScheduleTakesUnmetFaultsBack(t *testing.T) {
	s := &cluster.Script{File: filepath.Join(t.TempDir(), "f")}
	w := &wired{scripts: map[int32]*cluster.Script{1: s, 2: s, 3: s}}
	list, err := nemesis.Choose([]string{"store-full"}, w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	sched := &nemesis.Schedule{
		Nemeses: list, Every: time.Millisecond, Env: func(string) *nemesis.Env { return w.env(1) },
		Record: func(e *history.Event) { t.Errorf("event %+v", *e) },
	}
	started, err := sched.Run(ctx, rand.New(rand.NewPCG(1, 1)))
	if err != nil || started != 0 || len(sched.On()) > 0 {
		t.Errorf("%d started, %v are on, %v", started, sched.On(), err)
	}
	if b, err := os.ReadFile(s.File); err != nil || strings.Contains(string(b), "full") {
		t.Errorf("the store still has %s, %v", b, err)
	}
}

// locked is a cluster of processes of the test.
type locked struct {
	cluster.Cluster
	mu           sync.Mutex
	down, paused map[int32]bool
	kills        int
	full         map[int32]bool
	joined       bool
}

func newLocked() *locked {
	return &locked{down: map[int32]bool{}, paused: map[int32]bool{}, full: map[int32]bool{}}
}

func (c *locked) change(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

func (c *locked) Nodes() []int32    { return []int32{1, 2, 3} }
func (c *locked) Can(string) bool   { return true }
func (c *locked) Down(n int32) bool { return c.change(func() error { return is(c.down[n]) }) == nil }
func (c *locked) Paused(n int32) bool {
	return c.change(func() error { return is(c.paused[n]) }) == nil
}
func (c *locked) State(n int32) string { return fmt.Sprintf("node %d: down %t", n, c.Down(n)) }
func (c *locked) Start(_ context.Context, n int32) error {
	return c.change(func() error {
		if !c.down[n] {
			return errors.New("it runs")
		}
		c.down[n] = false
		return nil
	})
}

func (c *locked) Kill(_ context.Context, n int32) error {
	return c.change(func() error {
		if c.down[n] || c.paused[n] {
			return errors.New("it does not run")
		}
		c.down[n] = true
		c.kills++
		return nil
	})
}
func (c *locked) Pause(_ context.Context, n int32) error {
	return c.change(func() error { c.paused[n] = true; return nil })
}
func (c *locked) Resume(_ context.Context, n int32) error {
	return c.change(func() error { c.paused[n] = false; return nil })
}
func (c *locked) Fill(n int32) (int64, error) {
	return 1, c.change(func() error { c.full[n] = true; c.down[n] = true; return nil }) // and it gives up
}
func (c *locked) Empty(n int32) error {
	return c.change(func() error { c.full[n] = false; return nil })
}

func (c *locked) Join(context.Context) (int32, error) {
	return 4, c.change(func() error { c.joined = true; return nil })
}

func (c *locked) Leave(context.Context, bool) (string, error) {
	return "node 4 is gone", c.change(func() error { c.joined = false; return nil })
}

func is(b bool) error {
	if b {
		return nil
	}
	return errors.New("no")
}

// After every fault of processes all run, and nodes are free for the next.
func TestProcessesRunAfterwards(t *testing.T) {
	for _, name := range []string{"kill", "kill-all", "pause", "pause-all", "crash-loop", "pause-kill", "disk-full"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLocked()
			claims := &nemesis.Claims{}
			list, err := nemesis.Choose([]string{name}, c)
			if err != nil {
				t.Fatal(err)
			}
			n := list[0]
			env := &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(1, 1)), Now: func() int64 { return 0 }, Nodes: claims}
			for range 2 {
				e, err := n.Start(t.Context(), env)
				if err != nil || e.Proof == "" || len(e.Target) == 0 {
					t.Fatalf("start gives %+v, %v", e, err)
				}
				for end := time.Now().Add(time.Minute); name == "crash-loop" && c.change(func() error { return is(c.kills%3 == 0) }) != nil; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("it is not killed again")
					}
				}
				if e, err = n.Stop(t.Context(), env); err != nil || e.Proof == "" {
					t.Fatalf("stop gives %+v, %v", e, err)
				}
				for _, id := range c.Nodes() {
					if c.Down(id) || c.Paused(id) || c.full[id] {
						t.Errorf("node %d does not run", id)
					}
				}
			}
			if got := claims.Take(env.Rand, c.Nodes(), 3); len(got) != 3 {
				t.Errorf("only nodes %v are free", got)
			}
		})
	}
}

// One more broker leaves, whether clients were told of it or not.
func TestGuestLeaves(t *testing.T) {
	c := newLocked()
	list, err := nemesis.Choose([]string{"join"}, c)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	env := &nemesis.Env{Cluster: c, Admin: kadm.NewClient(cl), Rand: rand.New(rand.NewPCG(1, 1)), Now: func() int64 { return 0 }, Nodes: &nemesis.Claims{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := list[0].Start(ctx, env); err == nil || e.Proof != "" || !c.joined {
		t.Errorf("start gives %+v, %v; joined %t", e, err, c.joined)
	}
	if e, err := list[0].Stop(t.Context(), env); err != nil || e.Proof == "" || c.joined {
		t.Errorf("stop gives %+v, %v; joined %t", e, err, c.joined)
	}
}

// Partitions that do not move are a fault that could not be done, but not while nodes
// are down by another one.
func TestMovesOfAClusterThatIsDown(t *testing.T) {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, down := range []bool{false, true} {
		c := newLocked()
		if down {
			c.down[1] = true
		}
		var said []*history.Event
		env := &nemesis.Env{Cluster: c, Admin: kadm.NewClient(cl), Rand: rand.New(rand.NewPCG(1, 1)), Now: func() int64 { return 0 }, Topics: func() []string { return []string{"t"} }, Nodes: &nemesis.Claims{}}
		list, err := nemesis.Choose([]string{"move"}, c)
		if err != nil {
			t.Fatal(err)
		}
		s := &nemesis.Schedule{Nemeses: list, Env: func(string) *nemesis.Env { return env }, Record: func(e *history.Event) { said = append(said, e) }, Every: 10 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		started, err := s.Run(ctx, rand.New(rand.NewPCG(1, 1)))
		cancel()
		if err != nil || started > 0 || (len(said) == 0) != down {
			t.Errorf("down %t: %d started, %v, %d events", down, started, err, len(said))
		}
	}
}

// A fault that needs all nodes leaves those alone that are another's.
func TestPauseKillWaitsForAllNodes(t *testing.T) {
	c := newLocked()
	claims := &nemesis.Claims{}
	env := &nemesis.Env{Cluster: c, Rand: rand.New(rand.NewPCG(1, 1)), Now: func() int64 { return 0 }, Nodes: claims}
	other := claims.Take(env.Rand, c.Nodes(), 1)
	list, err := nemesis.Choose([]string{"pause-kill"}, c)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := list[0].Start(t.Context(), env); err != nil || len(e.Target) > 0 {
		t.Errorf("start gives %+v, %v", e, err)
	}
	if _, err := list[0].Stop(t.Context(), env); err != nil {
		t.Error(err)
	}
	claims.Free(other)
	if got := claims.Take(env.Rand, c.Nodes(), 3); len(got) != 3 || c.kills > 0 {
		t.Errorf("free are %v, and %d were killed", got, c.kills)
	}
}

// can is a cluster that can have some faults, of three nodes if it does not say.
type can struct {
	cluster.Cluster
	what  []string
	nodes int
}

func (c can) Nodes() []int32 { return []int32{1, 2, 3, 4, 5}[:cmp.Or(c.nodes, 3)] }

func (c can) Can(what string) bool { return slices.Contains(c.what, what) }

func TestChaosIsAllThatTheClusterCanHave(t *testing.T) {
	list, err := nemesis.Choose([]string{"chaos", "kill"}, can{what: []string{"kill", "links"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, n := range list {
		seen[n.Name()]++
	}
	for name, want := range map[string]int{"kill": 1, "isolate": 1, "move": 1, "pause": 0, "hold": 0, "chaos": 0, "store-slow": 0} {
		if seen[name] != want {
			t.Errorf("%s is there %d times, want %d", name, seen[name], want)
		}
	}
	_, err = nemesis.Choose([]string{"hold"}, can{})
	if err == nil || !strings.Contains(err.Error(), "run's own") {
		t.Errorf("a cluster without proxies can have requests held: %v", err)
	}
	left := nemesis.LeftOut([]string{"chaos"}, can{what: []string{"kill", "links", "quorum"}, nodes: 2})
	for _, want := range []string{
		"chaos leaves out pause, pause-all: the cluster has no command to pause its nodes and to undo that",
		"chaos leaves out pause-kill, bridge: it needs 3 nodes or more",
	} {
		if !slices.Contains(left, want) {
			t.Errorf("%q lacks %q", left, want)
		}
	}
	if i := slices.IndexFunc(left, func(s string) bool { return strings.HasSuffix(s, "only a cluster of the run's own can have it") }); i < 0 || !strings.Contains(left[i], "disk-full") {
		t.Errorf("%q does not say that others have no small disks", left)
	}
	if left := nemesis.LeftOut([]string{"kill"}, can{}); left != nil {
		t.Errorf("kill leaves out %q", left)
	}
}

// A fault that needs more nodes than there are is refused, and not tried.
func TestChooseCountsNodes(t *testing.T) {
	what := []string{"kill", "pause", "stop", "clients", "links", "store", "disk", "trace", "clock", "quorum", cluster.NeedsPauseKill}
	for _, k := range nemesis.Kinds() {
		if k.Name == nemesis.Chaos {
			continue
		}
		for n := 1; n <= 3; n++ {
			_, err := nemesis.Choose([]string{k.Name}, can{what: what, nodes: n})
			if refused := err != nil; refused != (n < k.Least()) {
				t.Errorf("%s of %d nodes, of which it needs %d: %v", k.Name, n, k.Least(), err)
			}
		}
	}
	for name, want := range map[string]int{"kill": 1, "halves": 2, "move": 2, "bridge": 3, "pause-kill": 3} {
		if k, err := nemesis.Find(name); err != nil || k.Least() != want {
			t.Errorf("%s needs %d nodes, want %d", name, k.Least(), want)
		}
	}
}

func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		names, want []string
	}{
		{[]string{"none"}, nil},
		{[]string{"kill", "move"}, []string{"kill"}},
		{[]string{"hold", "duplicate", "store-slow"}, []string{"clients", "store"}},
		{[]string{"disk-full"}, []string{"disk"}},
		{[]string{"chaos"}, []string{"kill", "pause", "stop", cluster.NeedsPauseKill, "clients", "links", "store", "clock", "quorum"}},
	} {
		if got := nemesis.Needs(c.names); !slices.Equal(got, c.want) {
			t.Errorf("%v need %v, want %v", c.names, got, c.want)
		}
	}
}
