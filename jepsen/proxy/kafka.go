package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxFrame    = 128 << 20 // bytes of a request
	dialTimeout = 5 * time.Second
	// lingerTimeout is how long answers are waited for that nobody will read.
	lingerTimeout = 10 * time.Second
	// ahead is how many requests are read before the one in hand is through, to
	// notice that a client has gone.
	ahead = 16
)

// Kafka is a proxy for the clients of one broker.
type Kafka struct {
	node    int32
	target  string
	journal func(Applied)
	door    *door
	rules   rules
	gate    gate // of both directions
	slow    atomic.Pointer[Slow]
	stalled atomic.Int64 // requests and answers
	slowed  atomic.Int64
}

// Slow makes a proxy slow.
type Slow struct {
	Delay time.Duration // of each request and answer
	Rate  float64       // bytes in a second, 0: no bound
}

// NewKafka listens at a free port for the broker at target. Journal is told about
// every action; nil: nobody is.
func NewKafka(node int32, target string, journal func(Applied)) (*Kafka, error) {
	if journal == nil {
		journal = func(Applied) {}
	}
	p := &Kafka{node: node, target: target, journal: journal}
	d, err := newDoor(p.serve)
	if err != nil {
		return nil, fmt.Errorf("listen for clients of node %d: %w", node, err)
	}
	p.door = d
	return p, nil
}

// Address is what clients are to dial.
func (p *Kafka) Address() string { return p.door.address }

// Add starts a rule. The first that matches decides about a request.
func (p *Kafka) Add(r Rule) *Active { return p.rules.add(r) }

// Seen are the requests so far by API.
func (p *Kafka) Seen() map[int16]int64 {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	return maps.Clone(p.rules.seen)
}

// Stall keeps all requests and answers until Resume, also those of new connections.
func (p *Kafka) Stall() { p.gate.shut() }

// Resume lets go on what Stall keeps.
func (p *Kafka) Resume() { p.gate.open() }

// Stalled are the requests and answers that were ever kept by Stall.
func (p *Kafka) Stalled() int64 { return p.stalled.Load() }

// Slow slows everything down, until it is given the zero Slow.
func (p *Kafka) Slow(s Slow) { p.slow.Store(&s) }

// Slowed are the requests and answers that were ever slowed down.
func (p *Kafka) Slowed() int64 { return p.slowed.Load() }

// ResetAll resets every connection and says how many there were.
func (p *Kafka) ResetAll() int { return p.door.resetAll() }

// Heal ends everything that is done to connections.
func (p *Kafka) Heal() {
	p.rules.clear()
	p.gate.open()
	p.slow.Store(nil)
}

// Open accepts connections, Shut refuses them, as if the broker's process was not
// there.
func (p *Kafka) Open() error { return p.door.open() }

// Shut is the opposite of Open.
func (p *Kafka) Shut() { p.door.close() }

// Close heals and ends the proxy.
func (p *Kafka) Close() {
	p.Heal()
	p.door.end()
}

// request is a frame from a client.
type request struct {
	frame       []byte // with its size
	api         int16
	version     int16
	correlation int32
	client      string
}

// readRequest reads a frame and the header that all versions have.
func readRequest(r io.Reader) (*request, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 10 || n > maxFrame {
		return nil, fmt.Errorf("a request of %d bytes", n)
	}
	q := &request{frame: make([]byte, 4+n)}
	copy(q.frame, size[:])
	if _, err := io.ReadFull(r, q.frame[4:]); err != nil {
		return nil, err
	}
	b := q.frame[4:]
	q.api, q.version = int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	q.correlation = int32(binary.BigEndian.Uint32(b[4:]))
	if l := int(int16(binary.BigEndian.Uint16(b[8:]))); l > 0 && 10+l <= len(b) {
		q.client = string(b[10 : 10+l])
	}
	return q, nil
}

const apiProduce = 0

// idempotent says that a second copy of the request must have no effect of its
// own on a log. Only Produce requests can be otherwise.
func (q *request) idempotent() bool {
	if q.api != apiProduce {
		return true
	}
	var p kmsg.ProduceRequest
	p.Version = q.version
	body := q.frame[14+len(q.client):]
	if p.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return false // tags in a header: nobody sends them
		}
		body = body[1:]
	}
	if p.ReadFrom(body) != nil {
		return false
	}
	for _, t := range p.Topics {
		for _, part := range t.Partitions {
			var b kmsg.RecordBatch
			if b.ReadFrom(part.Records) != nil || b.ProducerID < 0 {
				return false
			}
		}
	}
	return true
}

// conn is one client's connection with its twin.
type conn struct {
	p        *Kafka
	client   net.Conn
	upstream net.Conn
	gone     chan struct{} // the client has closed
	done     chan struct{} // the twin has ended

	mu      sync.Mutex
	pending map[int32]*pending
	answers sync.Cond // pending has become less
}

// pending is a request that is to be answered.
type pending struct {
	request *request
	rule    *Active // what is done to its answer, nil: nothing
}

func (p *Kafka) serve(client net.Conn) {
	if !p.pass(nil) {
		return
	}
	upstream, err := dial(p.target)
	if err != nil {
		reset(client)
		return
	}
	c := &conn{p: p, client: client, upstream: upstream, gone: make(chan struct{}), done: make(chan struct{}), pending: make(map[int32]*pending)}
	c.answers.L = &c.mu
	requests := make(chan *request, ahead)
	go func() {
		defer close(requests)
		defer close(c.gone)
		r := bufio.NewReaderSize(client, 64<<10)
		for {
			q, err := readRequest(r)
			if err != nil {
				return
			}
			select {
			case requests <- q:
			case <-c.done:
				return
			}
		}
	}()
	go func() {
		c.answer()
		c.mu.Lock()
		close(c.done)
		c.answers.Broadcast()
		c.mu.Unlock()
		_ = client.Close()
	}()
	late := false
	for q := range requests {
		l, ok := c.forward(q)
		late = late || l
		if !ok {
			break
		}
	}
	if late {
		c.linger()
	}
	_ = upstream.Close()
	_ = client.Close()
	<-c.done
	for range requests { // the reader ends
	}
}

// pass waits while everything is stalled, and is slow if it should be.
func (p *Kafka) pass(done <-chan struct{}) bool {
	if p.gate.wait() != nil {
		p.stalled.Add(1)
	}
	return p.gate.pass(done)
}

// crawl takes the time that n bytes take.
func (p *Kafka) crawl(n int, done <-chan struct{}) {
	s := p.slow.Load()
	if s == nil || *s == (Slow{}) {
		return
	}
	p.slowed.Add(1)
	d := s.Delay
	if s.Rate > 0 {
		d += time.Duration(float64(n) / s.Rate * float64(time.Second))
	}
	select {
	case <-time.After(d):
	case <-done:
	}
}

// forward does to a request what the rules say. It says whether it was delivered
// though the client had gone, and whether the connection goes on.
func (c *conn) forward(q *request) (late, ok bool) {
	a := c.p.rules.match(q)
	then := &pending{request: q}
	var held time.Duration
	if a != nil {
		switch a.rule.Action {
		case Hold:
			held, late = c.hold(a)
		case Drop:
			c.note(q, a, Applied{})
			return false, false
		default:
			then.rule = a
		}
	}
	if !c.p.pass(c.done) {
		return late, false
	}
	c.p.crawl(len(q.frame), c.done)
	c.mu.Lock()
	c.pending[q.correlation] = then
	c.mu.Unlock()
	if _, err := c.upstream.Write(q.frame); err != nil {
		return late, false
	}
	if held > 0 {
		c.note(q, a, Applied{Took: held, Late: late})
	}
	if a != nil && a.rule.Action == Reset {
		c.note(q, a, Applied{})
		reset(c.client)
		return true, false // the broker reads it
	}
	return late, true
}

// hold keeps a request, and says for how long and if its client gave it up
// meanwhile.
func (c *conn) hold(a *Active) (held time.Duration, late bool) {
	begun := time.Now()
	var over <-chan time.Time
	if a.rule.Wait > 0 {
		t := time.NewTimer(a.rule.Wait)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-a.ended:
	case <-c.done: // the broker is gone
		return 0, false
	}
	select {
	case <-c.gone:
		late = true
	default:
	}
	return max(1, time.Since(begun)), late
}

// note counts a complete action.
func (c *conn) note(q *request, a *Active, e Applied) {
	n := Counts{Done: 1}
	if e.Late {
		n.Late = 1
	}
	a.add(n)
	e.At, e.Node, e.Action = time.Now(), c.p.node, a.rule.Action
	e.API, e.Version, e.Correlation, e.Client = Name(q.api), q.version, q.correlation, q.client
	c.p.journal(e)
}

// linger waits until what was sent is answered: a broker may drop the requests of
// a connection that ends.
func (c *conn) linger() {
	t := time.AfterFunc(lingerTimeout, func() { _ = c.upstream.Close() })
	defer t.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 {
		select {
		case <-c.done:
			return
		default:
		}
		c.answers.Wait()
	}
}

// answer passes answers on until one side ends.
func (c *conn) answer() {
	r := bufio.NewReaderSize(c.upstream, 64<<10)
	deaf := false // nobody reads answers any more
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		size := int64(binary.BigEndian.Uint32(head[:]))
		if size < 4 || size > maxFrame {
			return
		}
		correlation := int32(binary.BigEndian.Uint32(head[4:]))
		c.mu.Lock()
		then := c.pending[correlation]
		c.mu.Unlock()
		if !c.p.pass(c.gone) {
			deaf = true
		}
		c.p.crawl(int(size), c.gone)
		if deaf {
			if _, err := io.CopyN(io.Discard, r, size-4); err != nil {
				return
			}
		} else if err := c.reply(then, head[:], r, size-4); err != nil {
			if errors.Is(err, errLost) {
				return
			}
			deaf = true
		}
		c.mu.Lock()
		delete(c.pending, correlation)
		c.answers.Broadcast()
		c.mu.Unlock()
	}
}

var errLost = errors.New("the answer is lost")

// reply does with an answer what the rules say.
func (c *conn) reply(then *pending, head []byte, r io.Reader, rest int64) error {
	if then == nil || then.rule == nil {
		body := &io.LimitedReader{R: r, N: rest}
		_, err := c.client.Write(head)
		if err == nil {
			_, err = io.Copy(c.client, body)
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, body)
		}
		return err
	}
	body := make([]byte, rest)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if then.rule.rule.Action == Reset {
		return net.ErrClosed // or soon
	}
	if then.rule.rule.Action == Lose {
		c.note(then.request, then.rule, Applied{})
		_ = c.client.Close()
		return errLost
	}
	if err := c.again(then.request); err == nil {
		c.note(then.request, then.rule, Applied{})
	}
	_, err := c.client.Write(append(head, body...))
	return err
}

// again sends a request on a connection of its own and waits for the answer.
func (c *conn) again(q *request) error {
	twin, err := dial(c.p.target)
	if err != nil {
		return err
	}
	defer twin.Close()
	_ = twin.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := twin.Write(q.frame); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(twin, size[:]); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, twin, int64(binary.BigEndian.Uint32(size[:])))
	return err
}
