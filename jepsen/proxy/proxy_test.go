package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/proxy"
)

const (
	produce      = 0
	heartbeat    = 12
	offsetCommit = 8
)

// server answers every request with its own bytes.
type server struct {
	l   net.Listener
	mu  sync.Mutex
	got []string // bodies, in the order of arrival
}

func newServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{l: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		client := int(binary.BigEndian.Uint16(frame[8:]))
		body := frame[10+client:]
		s.mu.Lock()
		s.got = append(s.got, string(body))
		s.mu.Unlock()
		_, _ = c.Write(framed(append(bytes.Clone(frame[4:8]), body...)))
	}
}

func (s *server) received(t *testing.T, n int) []string {
	t.Helper()
	until(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.got) >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

func send(t *testing.T, c net.Conn, api int16, correlation int32, body string) {
	t.Helper()
	b := binary.BigEndian.AppendUint16(nil, uint16(api))
	b = binary.BigEndian.AppendUint16(b, 3)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(binary.BigEndian.AppendUint16(b, 2), "me"...)
	if _, err := c.Write(framed(append(b, body...))); err != nil {
		t.Fatal(err)
	}
}

// answer is the body of the next answer.
func answer(t *testing.T, c net.Conn, correlation int32) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	b, err := readFrame(c)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != correlation {
		t.Fatalf("answer to %d, want %d", got, correlation)
	}
	return string(b[4:])
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

type setup struct {
	server  *server
	proxy   *proxy.Kafka
	client  net.Conn
	journal func() []proxy.Applied
}

func newSetup(t *testing.T) setup {
	t.Helper()
	s := newServer(t)
	var mu sync.Mutex
	var list []proxy.Applied
	p, err := proxy.NewKafka(1, s.l.Addr().String(), func(a proxy.Applied) { mu.Lock(); defer mu.Unlock(); list = append(list, a) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return setup{s, p, dial(t, p.Address()), func() []proxy.Applied { mu.Lock(); defer mu.Unlock(); return list }}
}

func wantBodies(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("the broker got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("the broker got %q, want %q", got, want)
		}
	}
}

func TestRequestsPass(t *testing.T) {
	s := newSetup(t)
	for i := range int32(3) {
		send(t, s.client, heartbeat, i, "a")
	}
	for i := range int32(3) {
		if got := answer(t, s.client, i); got != "a" {
			t.Errorf("answer %q", got)
		}
	}
	if n := s.proxy.Seen()[heartbeat]; n != 3 {
		t.Errorf("%d heartbeats seen, want 3", n)
	}
}

// A held request reaches the broker after its rule has ended, also if the client
// has gone; others are not held.
func TestHoldAndRelease(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{APIs: []int16{offsetCommit}, Client: "me", Times: 1, Action: proxy.Hold})
	send(t, s.client, heartbeat, 1, "first")
	answer(t, s.client, 1)
	send(t, s.client, offsetCommit, 2, "held")
	until(t, func() bool { return a.Counts().Matched == 1 })
	_ = s.client.Close()
	other := dial(t, s.proxy.Address())
	send(t, other, offsetCommit, 3, "second") // Times is 1
	answer(t, other, 3)
	wantBodies(t, s.server.received(t, 2), "first", "second")
	a.End()
	wantBodies(t, s.server.received(t, 3), "first", "second", "held")
	until(t, func() bool { return a.Counts().Done == 1 })
	if c := a.Counts(); c.Late != 1 {
		t.Errorf("counts %+v, want one late", c)
	}
	if j := s.journal(); len(j) != 1 || j[0].API != "OffsetCommit" || !j[0].Late || j[0].Correlation != 2 || j[0].Client != "me" || j[0].Took <= 0 {
		t.Errorf("journal %+v", j)
	}
}

// A rule that is retired keeps what it holds, until the proxy is healed.
func TestRetiredRuleHoldsOn(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{Action: proxy.Hold, Wait: time.Hour})
	send(t, s.client, heartbeat, 1, "held")
	until(t, func() bool { return a.Counts().Matched == 1 })
	a.Retire()
	other := dial(t, s.proxy.Address())
	send(t, other, heartbeat, 2, "passes")
	answer(t, other, 2)
	wantBodies(t, s.server.received(t, 1), "passes")
	s.proxy.Heal()
	answer(t, s.client, 1)
}

func TestHoldForAWhile(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{Action: proxy.Hold, Wait: time.Millisecond})
	send(t, s.client, heartbeat, 1, "x")
	answer(t, s.client, 1)
	until(t, func() bool { return a.Counts() == proxy.Counts{Matched: 1, Done: 1} })
}

// closed says how the connection ended.
func closed(t *testing.T, c net.Conn) error {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := readFrame(c)
	if err == nil {
		t.Fatal("there is an answer")
	}
	return err
}

func TestDroppedRequestIsNotDelivered(t *testing.T) {
	s := newSetup(t)
	s.proxy.Add(proxy.Rule{Times: 1, Action: proxy.Drop})
	send(t, s.client, heartbeat, 1, "dropped")
	closed(t, s.client)
	c := dial(t, s.proxy.Address())
	send(t, c, heartbeat, 2, "kept")
	answer(t, c, 2)
	wantBodies(t, s.server.received(t, 1), "kept")
}

func TestLostAnswerWasDelivered(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{Action: proxy.Lose})
	send(t, s.client, heartbeat, 1, "x")
	closed(t, s.client)
	wantBodies(t, s.server.received(t, 1), "x")
	until(t, func() bool { return a.Counts().Done == 1 })
}

func TestResetIsSeen(t *testing.T) {
	s := newSetup(t)
	s.proxy.Add(proxy.Rule{Action: proxy.Reset})
	send(t, s.client, heartbeat, 1, "x")
	if err := closed(t, s.client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	wantBodies(t, s.server.received(t, 1), "x")
}

// The answer comes when the broker has seen both copies.
func TestDuplicate(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{Times: 1, Action: proxy.Duplicate})
	send(t, s.client, heartbeat, 1, "x")
	if got := answer(t, s.client, 1); got != "x" {
		t.Errorf("answer %q", got)
	}
	wantBodies(t, s.server.received(t, 0), "x", "x")
	if a.Counts().Done != 1 {
		t.Errorf("counts %+v", a.Counts())
	}
}

// produceBody is what follows the header of a Produce request of version 3.
func produceBody(id int64) string {
	b := kmsg.NewRecordBatch()
	b.Magic, b.ProducerID = 2, id
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b.AppendTo(nil)
	binary.BigEndian.PutUint32(p.Records[8:], uint32(len(p.Records)-12))
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req := kmsg.NewProduceRequest()
	req.Version, req.Acks, req.Topics = 3, -1, append(req.Topics, topic)
	return string(req.AppendTo(nil))
}

// A second copy of what a producer without an id sends is legal, and nobody
// could tell it from a fault.
func TestOnlyIdempotentProducersAreDuplicated(t *testing.T) {
	s := newSetup(t)
	a := s.proxy.Add(proxy.Rule{Action: proxy.Duplicate})
	for i, c := range []struct {
		id   int64
		want int
	}{{-1, 0}, {7, 1}} {
		send(t, s.client, produce, int32(i), produceBody(c.id))
		answer(t, s.client, int32(i))
		if got := a.Counts().Done; got != c.want {
			t.Errorf("after a request of producer %d: %d duplicated, want %d", c.id, got, c.want)
		}
	}
}

func TestStallKeepsEverything(t *testing.T) {
	s := newSetup(t)
	send(t, s.client, heartbeat, 1, "a")
	answer(t, s.client, 1)
	s.proxy.Stall()
	send(t, s.client, heartbeat, 2, "b")
	fresh := dial(t, s.proxy.Address())
	send(t, fresh, heartbeat, 3, "c")
	until(t, func() bool { return s.proxy.Stalled() == 2 })
	wantBodies(t, s.server.received(t, 1), "a")
	s.proxy.Heal()
	answer(t, s.client, 2)
	answer(t, fresh, 3)
}

func TestShutRefusesAndOpenTakesTheSamePort(t *testing.T) {
	s := newSetup(t)
	s.proxy.Shut()
	if c, err := net.Dial("tcp", s.proxy.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dialled %v, %v; want it refused", c, err)
	}
	if err := s.proxy.Open(); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.proxy.Address())
	send(t, c, heartbeat, 1, "x")
	answer(t, c, 1)
}

func TestSlow(t *testing.T) {
	s := newSetup(t)
	s.proxy.Slow(proxy.Slow{Delay: time.Millisecond, Rate: 1e6})
	send(t, s.client, heartbeat, 1, "x")
	answer(t, s.client, 1)
	if n := s.proxy.Slowed(); n != 2 {
		t.Errorf("%d slowed, want the request and its answer", n)
	}
}

// A cut keeps one direction and lets the other pass.
func TestLinksCutDirections(t *testing.T) {
	s := newServer(t)
	who := int32(2)
	l := proxy.NewLinks(func(net.Conn) int32 { return who })
	t.Cleanup(l.Close)
	address, err := l.Add(1, s.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, address)
	send(t, c, heartbeat, 1, "a")
	answer(t, c, 1)
	if l.Conns(1, 2) != 1 || l.Conns(1, 3) != 0 {
		t.Errorf("%d connections between 1 and 2, %d between 1 and 3", l.Conns(1, 2), l.Conns(1, 3))
	}
	l.Cut(proxy.Way{From: 1, To: 2}) // answers
	send(t, c, heartbeat, 2, "b")
	wantBodies(t, s.received(t, 2), "a", "b")
	until(t, func() bool { return l.Kept() > 0 })
	l.Cut(proxy.Way{From: 2, To: 1})
	before := l.Kept()
	send(t, c, heartbeat, 3, "c")
	until(t, func() bool { return l.Kept() > before })
	wantBodies(t, s.received(t, 2), "a", "b")
	l.Mend(proxy.Way{From: 1, To: 2}, proxy.Way{From: 2, To: 1})
	answer(t, c, 2)
	answer(t, c, 3)
	if n := l.Reset(proxy.Way{From: 1, To: 2}); n != 1 {
		t.Errorf("%d connections reset, want 1", n)
	}
	closed(t, c)
}

func TestDiallerIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial(t, l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := os.Getpid()
	if _, err := os.Stat("/proc/self/net/tcp"); err != nil {
		want = 0
	}
	if got := proxy.Dialler(c, []int{1 << 30, os.Getpid()}); got != want {
		t.Errorf("the dialler is %d, want %d", got, want)
	}
	if got := proxy.Dialler(c, []int{1 << 30}); got != 0 {
		t.Errorf("the dialler is %d, want nobody", got)
	}
}
