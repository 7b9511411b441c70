package controller_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// memNet is a network in memory for tests: nodes by name, connections that can
// be reset or stall, but never lose bytes silently. It waits on channels only,
// so it works inside a synctest bubble.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	conns     map[*memConn]struct{}
	down      map[string]bool
	stalled   map[string]chan struct{} // closed when the stall ends
}

func newMemNet() *memNet {
	return &memNet{
		listeners: map[string]*memListener{}, conns: map[*memConn]struct{}{},
		down: map[string]bool{}, stalled: map[string]chan struct{}{},
	}
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

type memListener struct {
	net    *memNet
	addr   memAddr
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func (m *memNet) listen(addr string) net.Listener {
	l := &memListener{net: m, addr: memAddr(addr), accept: make(chan net.Conn, 128), done: make(chan struct{})}
	m.mu.Lock()
	m.listeners[addr] = l
	delete(m.down, host(addr))
	m.mu.Unlock()
	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Addr() net.Addr { return l.addr }

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		if l.net.listeners[string(l.addr)] == l {
			delete(l.net.listeners, string(l.addr))
		}
		l.net.mu.Unlock()
	})
	return nil
}

func host(addr string) string {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return h
}

// dialer connects on behalf of a node.
func (m *memNet) dialer(from string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		m.mu.Lock()
		l := m.listeners[addr]
		if l == nil || m.down[from] || m.down[host(addr)] {
			m.mu.Unlock()
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		}
		a, b := newHalf(), newHalf()
		mine := &memConn{net: m, in: a, out: b, local: memAddr(from + ":0"), remote: memAddr(addr)}
		theirs := &memConn{net: m, in: b, out: a, local: memAddr(addr), remote: memAddr(from + ":0")}
		m.conns[mine], m.conns[theirs] = struct{}{}, struct{}{}
		m.mu.Unlock()
		select {
		case l.accept <- theirs:
			return mine, nil
		case <-l.done:
			mine.Close()
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		case <-ctx.Done():
			mine.Close()
			return nil, ctx.Err()
		}
	}
}

// kill resets a node's connections and refuses new ones, as the end of its
// process would.
func (m *memNet) kill(nodes ...string) {
	m.mu.Lock()
	for _, n := range nodes {
		m.down[n] = true
	}
	m.mu.Unlock()
	for _, n := range nodes {
		m.reset(n)
	}
}

// reset ends a node's connections but lets it connect again.
func (m *memNet) reset(node string) {
	m.mu.Lock()
	hit := m.of(node)
	m.mu.Unlock()
	for _, c := range hit {
		c.in.end(syscall.ECONNRESET)
		c.out.end(syscall.ECONNRESET)
	}
}

func (m *memNet) of(node string) (hit []*memConn) {
	for c := range m.conns {
		if host(string(c.local)) == node || host(string(c.remote)) == node {
			hit = append(hit, c)
		}
	}
	return hit
}

// stall holds back all bytes to and from a node until resume: a paused process
// or a partition.
func (m *memNet) stall(node string) (resume func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan struct{})
	m.stalled[node] = ch
	return func() {
		m.mu.Lock()
		delete(m.stalled, node)
		m.mu.Unlock()
		close(ch)
	}
}

func (m *memNet) stallOf(c *memConn) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.stalled[host(string(c.local))]; ch != nil {
		return ch
	}
	return m.stalled[host(string(c.remote))]
}

type half struct {
	mu   sync.Mutex
	data []byte
	err  error
	wake chan struct{}
}

func newHalf() *half { return &half{wake: make(chan struct{})} }

func (h *half) stir() { close(h.wake); h.wake = make(chan struct{}) }

func (h *half) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		h.stir()
	}
}

type memConn struct {
	net           *memNet
	in, out       *half
	local, remote memAddr
	mu            sync.Mutex
	deadline      time.Time
}

func (c *memConn) Read(b []byte) (int, error) {
	for {
		stalled := c.net.stallOf(c)
		c.in.mu.Lock()
		if len(c.in.data) > 0 && stalled == nil {
			n := copy(b, c.in.data)
			c.in.data = c.in.data[n:]
			c.in.mu.Unlock()
			return n, nil
		}
		err, wake := c.in.err, c.in.wake
		c.in.mu.Unlock()
		if err != nil {
			return 0, err
		}
		c.mu.Lock()
		d := c.deadline
		c.mu.Unlock()
		var timeout <-chan time.Time
		if !d.IsZero() {
			if left := time.Until(d); left <= 0 {
				return 0, os.ErrDeadlineExceeded
			} else {
				t := time.NewTimer(left)
				defer t.Stop()
				timeout = t.C
			}
		}
		select {
		case <-wake:
		case <-stalled:
		case <-timeout:
		}
	}
}

func (c *memConn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	dead := c.net.down[host(string(c.local))]
	c.net.mu.Unlock()
	if dead { // it does not get to tell of what it sees while its connections end one by one
		return 0, syscall.EPIPE
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.err != nil {
		return 0, syscall.EPIPE
	}
	c.out.data = append(c.out.data, b...)
	c.out.stir()
	return len(b), nil
}

func (c *memConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	c.in.end(net.ErrClosed)
	c.out.end(io.EOF)
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) SetDeadline(t time.Time) error {
	return c.SetReadDeadline(t)
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	c.in.mu.Lock()
	c.in.stir()
	c.in.mu.Unlock()
	return nil
}

func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
