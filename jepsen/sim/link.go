package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// backlog is how many connections a listener holds that nobody accepted yet.
	backlog = 256
	// synTimeout ends a dial that nobody answers.
	synTimeout = 5 * time.Second
)

// Network is a network in memory: hosts by name, directed links between them,
// listeners by host:port. Everything waits on channels and timers of the bubble
// it was made in.
type Network struct {
	mu struct {
		sync.Mutex
		rng       *rand.Rand
		listeners map[string]*listener
		conns     map[*conn]struct{} // the dialling sides
		blocks    map[pair]map[*block]struct{}
		slow      map[pair]time.Duration
		counts    map[string]int
	}
	latency time.Duration // of a link in one direction, at least
}

// pair is a directed link. An empty name is every host.
type pair struct{ from, to string }

// block is one reason why a link carries nothing.
type block struct{ done chan struct{} }

// NewNetwork returns an empty network. Bytes take latency or up to twice that,
// now and then ten times.
func NewNetwork(seed uint64, latency time.Duration) *Network {
	n := &Network{latency: latency}
	n.mu.rng = rand.New(rand.NewPCG(seed, 1))
	n.mu.listeners = map[string]*listener{}
	n.mu.conns = map[*conn]struct{}{}
	n.mu.blocks = map[pair]map[*block]struct{}{}
	n.mu.slow = map[pair]time.Duration{}
	n.mu.counts = map[string]int{}
	return n
}

// Counts says how often each kind of trouble met somebody: bytes held by a
// stall, connections reset, dials refused.
func (n *Network) Counts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := map[string]int{}
	for k, v := range n.mu.counts {
		c[k] = v
	}
	return c
}

func (n *Network) count(what string) {
	n.mu.Lock()
	n.mu.counts[what]++
	n.mu.Unlock()
}

// Block stops the links from one set of hosts to another until unblock is
// called; bytes wait meanwhile. An empty name stands for every host.
func (n *Network) Block(from, to []string) (unblock func()) {
	b := &block{done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	var pairs []pair
	for _, f := range from {
		for _, t := range to {
			p := pair{f, t}
			if n.mu.blocks[p] == nil {
				n.mu.blocks[p] = map[*block]struct{}{}
			}
			n.mu.blocks[p][b] = struct{}{}
			pairs = append(pairs, p)
		}
	}
	return sync.OnceFunc(func() {
		n.mu.Lock()
		for _, p := range pairs {
			delete(n.mu.blocks[p], b)
		}
		n.mu.Unlock()
		close(b.done)
	})
}

// blocked is a channel that closes when a reason for a link to be stopped ends;
// nil if the link is open.
func (n *Network) blocked(from, to string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range [...]pair{{from, to}, {"", to}, {from, ""}} {
		for b := range n.mu.blocks[p] {
			return b.done
		}
	}
	return nil
}

// Slow adds to a link's delay, in both directions, until ended.
func (n *Network) Slow(a, b string, extra time.Duration) (end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.slow[pair{a, b}] += extra
	n.mu.slow[pair{b, a}] += extra
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.slow[pair{a, b}] -= extra
		n.mu.slow[pair{b, a}] -= extra
	}
}

// delay draws how long a write takes to arrive.
func (n *Network) delay(from, to string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.latency + time.Duration(n.mu.rng.Int64N(int64(n.latency)))
	if n.mu.rng.IntN(200) == 0 {
		d *= 10
	}
	if extra := n.mu.slow[pair{from, to}]; extra > 0 {
		n.mu.counts["slowed write"]++
		d += extra
	}
	return d
}

// chance draws a coin that is true once in n.
func (n *Network) chance(in int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.rng.IntN(in) == 0
}

// Reset ends the connections between two hosts, or all of one when the other is
// empty, with what is under way on them. Both may connect again.
func (n *Network) Reset(a, b string) {
	for _, c := range n.between(a, b) {
		n.count("reset connection")
		c.reset()
	}
}

// bury ends the connections of a host whose process died, as its kernel does.
func (n *Network) bury(host string) {
	for _, c := range n.between(host, "") {
		if c.here != host {
			c = c.peer
		}
		c.orphan(n.chance(2))
	}
}

func (n *Network) between(a, b string) (hit []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.mu.conns {
		x, y := c.here, c.there
		if (x == a && (b == "" || y == b)) || (y == a && (b == "" || x == b)) {
			hit = append(hit, c)
		}
	}
	return hit
}

// Listen opens host:port for a process until it dies or closes it.
func (n *Network) Listen(p *life, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.mu.listeners[address]; old != nil && !old.owner.isDead() {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{net: n, owner: p, addr: addr(address), accept: make(chan net.Conn, backlog), done: make(chan struct{})}
	n.mu.listeners[address] = l
	return l, nil
}

// Dialer connects on behalf of a process.
func (n *Network) Dialer(p *life) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := n.dial(ctx, p, address)
		if err != nil {
			return nil, opError("dial", addr(address), err)
		}
		return c, nil
	}
}

// opError dresses an error as package net does; clients tell errors of the
// system from others by that.
func opError(op string, remote net.Addr, err error) error {
	if _, ok := err.(syscall.Errno); ok { //nolint:errorlint // only a bare one is dressed
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: remote, Err: err}
}

func (n *Network) dial(ctx context.Context, p *life, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, synTimeout, syscall.ETIMEDOUT)
	defer cancel()
	to := hostOf(address)
	// SYN and its answer: a stopped link in either direction holds the dial.
	for _, way := range [...]pair{{p.host, to}, {to, p.host}} {
		if err := n.cross(ctx, p, way); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	l := n.mu.listeners[address]
	n.mu.Unlock()
	if l == nil || l.owner.isDead() {
		n.count("refused dial")
		return nil, syscall.ECONNREFUSED
	}
	mine, theirs := newConns(n, p, l.owner, address)
	select {
	case l.accept <- theirs:
		n.mu.Lock()
		n.mu.conns[mine] = struct{}{}
		n.mu.Unlock()
		return mine, nil
	case <-l.done:
	default:
	}
	n.count("refused dial")
	return nil, syscall.ECONNREFUSED
}

// cross waits as long as a packet takes on a link.
func (n *Network) cross(ctx context.Context, p *life, way pair) error {
	t := time.NewTimer(n.delay(way.from, way.to))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.dead:
		return errKilled
	}
	for {
		wait := n.blocked(way.from, way.to)
		if wait == nil {
			return nil
		}
		n.count("stalled dial")
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.dead:
			return errKilled
		}
	}
}

// hostOf is the host of host:port.
func hostOf(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}

type addr string

// Network is "sim".
func (addr) Network() string { return "sim" }

// String is host:port.
func (a addr) String() string { return string(a) }

type listener struct {
	net    *Network
	owner  *life
	addr   addr
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-l.owner.dead:
		return nil, net.ErrClosed
	}
}

// Addr is the address that was asked for.
func (l *listener) Addr() net.Addr { return l.addr }

// Close makes dials fail; connections that were not accepted are reset.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.mu.listeners[string(l.addr)] == l {
			delete(l.net.mu.listeners, string(l.addr))
		}
		l.net.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.accept:
				c.(*conn).reset()
			default:
				return
			}
		}
	})
	return nil
}
