package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes a connection takes in one direction before a writer
// waits: the two sockets' buffers.
const window = 4 << 20

// flow is one direction of a connection: bytes with the time of their arrival.
type flow struct {
	from, to string
	mu       struct {
		sync.Mutex
		parts []part
		size  int
		err   error // what the reader gets after the bytes
		cut   error // what both sides get at once
		shut  bool  // the reader has closed it
		read  time.Time
		write time.Time
		wake  chan struct{} // closed and replaced at each change
	}
}

type part struct {
	at time.Time
	b  []byte
}

func newFlow(from, to string) *flow {
	f := &flow{from: from, to: to}
	f.mu.wake = make(chan struct{})
	return f
}

func (f *flow) wakeLocked() {
	close(f.mu.wake)
	f.mu.wake = make(chan struct{})
}

// change edits the flow and wakes who waits for it.
func (f *flow) change(edit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit()
	f.wakeLocked()
}

// end lets the reader read what is there, then err.
func (f *flow) end(err error) {
	f.change(func() {
		if f.mu.err == nil {
			f.mu.err = err
		}
	})
}

// cut ends both sides at once; bytes under way are lost, and both know.
func (f *flow) cut(err error) {
	f.change(func() {
		if f.mu.cut == nil {
			f.mu.cut = err
		}
	})
}

// conn is one side of a connection.
type conn struct {
	net           *Network
	owner         *life
	in, out       *flow
	here, there   string
	local, remote addr
	peer          *conn
	dialled       *conn // the side that the network keeps
}

// newConns makes both sides of a connection.
func newConns(n *Network, from, to *life, address string) (mine, theirs *conn) {
	a, b := newFlow(from.host, to.host), newFlow(to.host, from.host)
	source := addr(from.host + ":40000")
	mine = &conn{net: n, owner: from, in: b, out: a, here: from.host, there: to.host, local: source, remote: addr(address)}
	theirs = &conn{net: n, owner: to, in: a, out: b, here: to.host, there: from.host, local: addr(address), remote: source}
	mine.peer, theirs.peer = theirs, mine
	mine.dialled, theirs.dialled = mine, mine
	return mine, theirs
}

// Read waits for bytes that have arrived.
func (c *conn) Read(b []byte) (int, error) {
	for {
		stalled := c.net.blocked(c.in.from, c.in.to)
		n, wait, wake, err := c.take(b, stalled != nil)
		if err == io.EOF { //nolint:errorlint // callers compare it so
			return 0, io.EOF
		}
		if err != nil {
			return 0, opError("read", c.remote, err)
		}
		if n > 0 {
			return n, nil
		}
		var timer *time.Timer
		var due <-chan time.Time
		if wait > 0 {
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-wake:
		case <-stalled:
		case <-due:
		case <-c.owner.dead:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// take copies what may be read now, or says how long to wait: until the next
// bytes arrive or the deadline passes, zero for ever.
func (c *conn) take(b []byte, stalled bool) (n int, wait time.Duration, wake chan struct{}, err error) {
	if c.owner.isDead() {
		return 0, 0, nil, errKilled
	}
	f := c.in
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	wake = f.mu.wake
	switch {
	case f.mu.shut:
		return 0, 0, nil, net.ErrClosed
	case f.mu.cut != nil:
		return 0, 0, nil, f.mu.cut
	}
	if !f.mu.read.IsZero() {
		if wait = f.mu.read.Sub(now); wait <= 0 {
			return 0, 0, nil, os.ErrDeadlineExceeded
		}
	}
	if stalled {
		return 0, wait, wake, nil
	}
	if len(f.mu.parts) == 0 {
		return 0, wait, wake, f.mu.err
	}
	if left := f.mu.parts[0].at.Sub(now); left > 0 {
		if wait == 0 || left < wait {
			wait = left
		}
		return 0, wait, wake, nil
	}
	for n < len(b) && len(f.mu.parts) > 0 && !f.mu.parts[0].at.After(now) {
		p := &f.mu.parts[0]
		k := copy(b[n:], p.b)
		n += k
		if p.b = p.b[k:]; len(p.b) == 0 {
			f.mu.parts = f.mu.parts[1:]
		}
	}
	if f.mu.size >= window { // a writer may wait for room
		f.wakeLocked()
	}
	f.mu.size -= n
	return n, 0, wake, nil
}

// Write takes all bytes, waiting for room if the other side does not read.
func (c *conn) Write(b []byte) (int, error) {
	for {
		wait, wake, err := c.put(b)
		if err != nil {
			return 0, opError("write", c.remote, err)
		}
		if wake == nil {
			return len(b), nil
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-wake:
		case <-due:
		case <-c.owner.dead:
		}
	}
}

func (c *conn) put(b []byte) (wait time.Duration, wake chan struct{}, err error) {
	if c.owner.isDead() {
		return 0, nil, errKilled
	}
	delay := c.net.delay(c.out.from, c.out.to)
	stalled := c.net.blocked(c.out.from, c.out.to) != nil
	if stalled {
		c.net.count("stalled write")
	}
	f := c.out
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	switch {
	case f.mu.cut != nil:
		return 0, nil, f.mu.cut
	case f.mu.err != nil:
		return 0, nil, net.ErrClosed
	case f.mu.shut && !stalled: // over a stopped link nobody learns of it
		return 0, nil, syscall.EPIPE
	}
	if !f.mu.write.IsZero() {
		if wait = f.mu.write.Sub(now); wait <= 0 {
			return 0, nil, os.ErrDeadlineExceeded
		}
	}
	if f.mu.size >= window {
		return wait, f.mu.wake, nil
	}
	at := now.Add(delay)
	if n := len(f.mu.parts); n > 0 && f.mu.parts[n-1].at.After(at) {
		at = f.mu.parts[n-1].at // bytes stay in order
	}
	f.mu.parts = append(f.mu.parts, part{at: at, b: append([]byte(nil), b...)})
	f.mu.size += len(b)
	f.wakeLocked()
	return 0, nil, nil
}

// Close lets the other side read what was written.
func (c *conn) Close() error {
	if c.owner.isDead() {
		return nil // its death has ended the connection its own way
	}
	c.forget()
	c.in.change(func() { c.in.mu.shut = true })
	c.out.end(io.EOF)
	return nil
}

// orphan ends the side of a process that died. Its kernel tells the other side,
// either after the bytes that were under way or instead of them.
func (c *conn) orphan(deliver bool) {
	c.forget()
	c.in.change(func() { c.in.mu.shut = true })
	if deliver {
		c.out.end(io.EOF)
		return
	}
	c.out.change(func() { c.out.mu.parts = nil })
	c.out.end(syscall.ECONNRESET)
}

func (c *conn) reset() {
	c.forget()
	c.in.cut(syscall.ECONNRESET)
	c.out.cut(syscall.ECONNRESET)
}

func (c *conn) forget() {
	c.net.mu.Lock()
	delete(c.net.mu.conns, c.dialled)
	c.net.mu.Unlock()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.mu.read = t })
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.mu.write = t })
	return nil
}
