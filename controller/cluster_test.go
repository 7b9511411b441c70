package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// cluster is a set of nodes in one process on a memNet.
type cluster struct {
	t     testing.TB
	net   *memNet
	join  []string
	nodes map[int]*node
	all   []*node // also killed ones
	// tune changes a node's config before it starts.
	tune func(*controller.Config)
}

type node struct {
	*controller.Node
	id     int
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done
	log    *logBuffer
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, net: newMemNet(), nodes: map[int]*node{}}
}

// voters starts nodes 1..n as one quorum.
func (c *cluster) voters(n int) {
	if n > 1 {
		for i := 1; i <= n; i++ {
			c.join = append(c.join, fmt.Sprintf("n%d:9093", i))
		}
	}
	for i := 1; i <= n; i++ {
		c.start(i, true)
	}
}

// brokers registers nodes 1..n, of which the first is a quorum of its own and is
// returned.
func (c *cluster) brokers(n int) *node {
	c.t.Helper()
	c.voters(1)
	for id := 2; id <= n; id++ {
		c.start(id, false)
	}
	for id := 1; id <= n; id++ {
		c.broker(c.nodes[id])
	}
	return c.nodes[1]
}

// start starts a node, a voter or a plain broker.
func (c *cluster) start(id int, voter bool) *node {
	return c.startAs(fmt.Sprintf("n%d", id), id, voter)
}

func (c *cluster) startAs(name string, id int, voter bool) *node {
	c.t.Helper()
	cfg := controller.Config{
		NodeID: metadata.BrokerID(id), Voter: voter, Join: c.join,
		Dial: c.net.dialer(name), HeartbeatInterval: 100 * time.Millisecond, SessionTimeout: time.Second,
		ElectionTimeout: 600 * time.Millisecond, RestartGrace: time.Second,
	}
	if voter {
		cfg.ControllerListener = c.net.listen(name + ":9093")
	} else if len(cfg.Join) == 0 {
		cfg.Join = []string{"n1:9093"}
	}
	log := &logBuffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil)).With("node", name)
	if c.tune != nil {
		c.tune(&cfg)
	}
	n, err := controller.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &node{Node: n, id: id, name: name, cancel: cancel, done: make(chan struct{}), log: log}
	c.nodes[id], c.all = x, append(c.all, x)
	go func() { x.err = n.Run(ctx); close(x.done) }()
	c.t.Cleanup(func() { c.stop(x) })
	return x
}

// stop ends a node in order.
func (c *cluster) stop(n *node) {
	n.cancel()
	<-n.done
	if c.t.Failed() {
		c.t.Logf("log of %s:\n%s", n.name, n.log.String())
	}
}

// kill ends a node as kill -9 would seem to the others.
func (c *cluster) kill(n *node) {
	c.net.kill(n.name)
	delete(c.nodes, n.id)
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// leader waits for a node that leads and can act.
func (c *cluster) leader() *node {
	c.t.Helper()
	var found *node
	eventually(c.t, "a leader", func() bool {
		for _, n := range c.nodes {
			if n.Leading() {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// broker registers a node with a listener of its own.
func (c *cluster) broker(n *node) metadata.Incarnation {
	c.t.Helper()
	c.net.listen(n.name + ":9092")
	inc, err := n.Register(c.context(), controller.Registration{
		Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: n.name, Port: 9092, Security: "PLAINTEXT"}},
		Zone:      fmt.Sprintf("z%d", n.id%3),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return inc
}

// topic creates a topic and fails the test if that does not work.
func (c *cluster) topic(n *node, name string, partitions int32, rf int16) metadata.TopicID {
	c.t.Helper()
	r, err := n.CreateTopics(c.context(), []controller.TopicSpec{{Name: name, Partitions: partitions, ReplicationFactor: rf}}, false)
	if err != nil {
		c.t.Fatal(err)
	}
	if r[0].Err != nil {
		c.t.Fatal(r[0].Err)
	}
	return r[0].ID
}

// sameHash waits until all nodes are at one index and compares their images.
func (c *cluster) sameHash() {
	c.t.Helper()
	for {
		var top metadata.Index
		for _, n := range c.nodes {
			top = max(top, n.Image().Index())
		}
		images := map[string]*metadata.Image{}
		for _, n := range c.nodes {
			if err := n.Wait(c.context(), top); err != nil {
				c.t.Fatal(err)
			}
			images[n.name] = n.Image()
		}
		first, equal := "", true
		for name, img := range images {
			if first == "" {
				first = name
			}
			if img.Index() != images[first].Index() {
				equal = false
			}
		}
		if !equal {
			continue // one moved on meanwhile
		}
		for name, img := range images {
			if img.Hash() != images[first].Hash() {
				c.t.Fatalf("images of %s and %s differ at index %d", first, name, img.Index())
			}
		}
		return
	}
}

// patience is how long a test waits for what must come, in virtual time mostly.
const patience = 2 * time.Minute

// eventually waits for a condition that other goroutines bring about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) has(s string) bool { return strings.Contains(l.String(), s) }

func noop() *metadatapb.Command {
	return &metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}}
}

// tcpListen is a loopback listener.
func tcpListen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// relisten takes an address that was free a moment ago, or was used by a node
// that has just stopped.
func relisten(t testing.TB, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	eventually(t, "free port", func() bool {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	return l
}

// flip hands an empty partition to target.
func flip(p metadata.Partition, target metadata.Incarnation) *metadatapb.Command {
	return &metadatapb.Command{Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{Streams: []*metadatapb.FlipStream{{
		Stream: uint64(p.Stream), Epoch: int32(p.Epoch), End: int64(p.End), Target: target.Proto(),
	}}}}}
}
