package controller

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// A heartbeat must reach Raft's main loop like any other call, even though
// Raft registered a short cut for it: on the short cut the term changes beside
// the leader loop (hashicorp/raft issue 695).
func TestHeartbeatsTakeNoShortCut(t *testing.T) {
	serve := func() (*transport, *mux) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m := newMux(l)
		m.welcome = func(net.Addr, greeting) bool { return true }
		m.rpc = func(context.Context, net.Conn) {}
		go m.run(t.Context())
		layer := &raftLayer{
			ctx: t.Context(), mux: m, self: raftAddress("b", l.Addr().String()), dial: (&net.Dialer{}).DialContext,
			greeting: func() greeting { return greeting{} },
		}
		tr := &transport{
			id: "b", self: layer.self,
			NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer, MaxPool: 1, Timeout: 5 * time.Second}),
		}
		t.Cleanup(func() { tr.Close(); m.close() })
		return tr, m
	}
	a, _ := serve()
	b, bm := serve()
	short := make(chan struct{}, 1)
	var tr raft.Transport = b
	tr.SetHeartbeatHandler(func(rpc raft.RPC) { short <- struct{}{}; rpc.Respond(nil, errors.New("short cut")) })
	long := make(chan struct{}, 1)
	go func() {
		rpc := <-b.Consumer()
		long <- struct{}{}
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	}()
	// What Raft itself sends: term and leader, no entries, no positions.
	beat := &raft.AppendEntriesRequest{Term: 1, RPCHeader: raft.RPCHeader{ProtocolVersion: 3, Addr: []byte("n1")}}
	if err := a.AppendEntries("b", raftAddress("b", bm.listener.Addr().String()), beat, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-long:
	default:
		t.Error("heartbeat did not come through the queue")
	}
	select {
	case <-short:
		t.Error("heartbeat took the short cut")
	default:
	}
}

// A node stands for election also where its own address leads nowhere from
// within, and gives up when its transport ends.
func TestStandingNeedsNoNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := newMux(l)
	go m.run(t.Context())
	layer := &raftLayer{ctx: t.Context(), mux: m, self: raftAddress("b", "outside.example:1"), dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way there")
	}}
	tr := &transport{
		id: "b", self: layer.self,
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer, MaxPool: 1, Timeout: 5 * time.Second}),
	}
	for range 2 { // the second time on the connection that is there
		stood := make(chan error, 1)
		go func() { stood <- tr.stand() }()
		rpc := <-tr.Consumer()
		if _, ok := rpc.Command.(*raft.TimeoutNowRequest); !ok {
			t.Fatalf("raft is told %T", rpc.Command)
		}
		rpc.Respond(&raft.TimeoutNowResponse{}, nil)
		if err := <-stood; err != nil {
			t.Fatal(err)
		}
	}
	stood := make(chan error, 1)
	go func() { stood <- tr.stand() }()
	<-tr.Consumer() // Raft ends and never answers
	tr.Close()
	m.close()
	if err := <-stood; err == nil {
		t.Error("stood with a transport that had ended")
	}
}

// Raft must find the methods it looks for by type assertion on our wrapper.
func TestTransportOffersPreVoteAndClose(t *testing.T) {
	var tr any = &transport{}
	if _, ok := tr.(raft.WithPreVote); !ok {
		t.Error("no pre-vote: a node that was cut off disturbs the quorum when it returns")
	}
	if _, ok := tr.(raft.WithClose); !ok {
		t.Error("no close")
	}
}

func TestRaftConnectionThatIsNotWelcomeIsClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := newMux(l)
	told := make(chan greeting, 1)
	m.welcome = func(_ net.Addr, g greeting) bool { told <- g; return false }
	m.rpc = func(context.Context, net.Conn) {}
	done := make(chan error, 1)
	go func() { done <- m.run(t.Context()) }()
	defer func() { m.close(); <-done }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := greeting{cluster: "theirs", generation: 3, server: "7-x"}
	if _, err := c.Write(sent.preamble()); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
	if got := <-told; got != sent {
		t.Errorf("refused %v", got)
	}
}

// K12: nobody votes under the name of a disk that is gone, nor in a quorum of
// another history.
func TestGreetingsDecideWhoIsWelcome(t *testing.T) {
	const cluster = "AAAAAAAAAAAAAAAAAAAAAA"
	fresh := func(fresh bool) *Node {
		n := &Node{cfg: Config{NodeID: 3}, images: newImages(1 << 20), dir: &dataDir{}, warn: newWarner(slog.New(slog.DiscardHandler))}
		n.dir.mu.id.ClusterID = cluster
		v := &voter{id: "3-new"}
		store := raft.NewInmemStore()
		if !fresh {
			if err := setLogGeneration(store, 2); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.log.open(store, fresh); err != nil {
			t.Fatal(err)
		}
		n.vote.Store(v)
		return n
	}
	for _, tt := range []struct {
		what    string
		fresh   bool
		g       greeting
		welcome bool
	}{
		{"its own", false, greeting{cluster, 2, "3-new"}, true},
		{"a cluster without a name yet", false, greeting{"", 2, "3-new"}, true},
		{"another cluster", false, greeting{"BAAAAAAAAAAAAAAAAAAAAA", 2, "3-new"}, false},
		{"another directory", false, greeting{cluster, 2, "3-old"}, false},
		{"no directory", false, greeting{cluster, 2, ""}, false},
		{"an older generation", false, greeting{cluster, 1, "3-new"}, false},
		{"a newer generation", false, greeting{cluster, 3, "3-new"}, false},
		{"no generation", true, greeting{cluster, 0, "3-new"}, false},
		{"the first of an empty log", true, greeting{cluster, 3, "3-new"}, true},
	} {
		n := fresh(tt.fresh)
		if got := n.welcome(advertised("x:1"), tt.g); got != tt.welcome {
			t.Errorf("%s: welcome is %v", tt.what, got)
		}
		if got, err := logGeneration(n.vote.Load().log.stable); tt.fresh && tt.welcome && (err != nil || got != tt.g.generation) {
			t.Errorf("%s: remembered generation %d, %v", tt.what, got, err)
		}
	}
}

func entry(t *testing.T, seq int) []byte {
	t.Helper()
	c := &metadatapb.Command{TimeMs: int64(seq), Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}}
	b, err := metadata.EncodeEntry(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// K1 and K2: the two sources may bring a record in any order and twice, but
// not two records under one index.
func TestImageIsAdvancedByWhoeverIsFirst(t *testing.T) {
	s := newImages(1 << 20)
	for i, in := range []struct {
		index metadata.Index
		moved bool
	}{{3, true}, {3, false}, {5, true}, {4, false}, {3, false}, {6, true}} {
		before := s.image()
		results, err := s.apply(in.index, entry(t, int(in.index)))
		if in.index == 4 {
			if err != nil && !errors.Is(err, ErrDiverged) {
				t.Errorf("step %d: %v", i, err)
			}
			continue
		}
		if err != nil || (results != nil) != in.moved || (s.image() != before) != in.moved {
			t.Errorf("step %d at %d: %v, %v", i, in.index, results, err)
		}
	}
	if _, err := s.apply(5, entry(t, 99)); !errors.Is(err, ErrDiverged) {
		t.Errorf("another record under index 5: %v", err)
	}
}

func TestTailForgetsTheOldestAndSaysSo(t *testing.T) {
	s := newImages(200)
	for i := 1; i <= 100; i++ {
		if _, err := s.apply(metadata.Index(i), entry(t, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := s.since(1, 1<<20); ok {
		t.Error("claims to have everything after index 1")
	}
	entries, img, ok := s.since(s.mu.low, 1<<20)
	if !ok || img.Index() != 100 || len(entries) == 0 || entries[0].index != s.mu.low+1 || entries[len(entries)-1].index != 100 {
		t.Errorf("after %d: %d entries, %v", s.mu.low, len(entries), ok)
	}
	if one, _, _ := s.since(98, 1); len(one) != 1 || one[0].index != 99 {
		t.Errorf("one entry at least, got %d", len(one))
	}
}

// A voter's log that differs from the stream it follows must stop the node.
func TestDivergenceStopsTheNode(t *testing.T) {
	s := newImages(1 << 20)
	if _, err := s.apply(7, entry(t, 1)); err != nil {
		t.Fatal(err)
	}
	var failed error
	f := &fsm{images: s, fail: func(err error) { failed = err }}
	f.Apply(&raft.Log{Index: 7, Data: entry(t, 1)})
	if failed != nil {
		t.Fatalf("same record: %v", failed)
	}
	f.Apply(&raft.Log{Index: 7, Data: entry(t, 2)})
	if !errors.Is(failed, ErrDiverged) {
		t.Errorf("other record: %v", failed)
	}
}
