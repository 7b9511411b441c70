package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// readBuffer is what a connection owns while idle. Most requests that are not
// Produce fit, so that they cost one read.
const readBuffer = 256

// errPeerClosed is the ordinary end of a connection.
var errPeerClosed = errors.New("peer closed")

// Conn is one accepted connection. Its methods may be called from any
// goroutine. The reading goroutine owns what has no lock; queue and values are
// guarded by mu, which is held for a few instructions only.
type Conn struct {
	srv    *Server
	nc     net.Conn
	id     uint64
	served context.Context // of the server; its end is the connection's
	ctx    context.Context
	cancel context.CancelFunc

	br       *bufio.Reader
	clientID string // last one seen, so that an unchanged one costs nothing

	// Clock readings for the reaper; 0 is "not now".
	opened  int64        // when the connection was accepted
	active  atomic.Int64 // last frame read or reply written
	reading atomic.Int64 // last progress within an unfinished frame
	writing atomic.Int64 // last progress within an unfinished reply

	inflight      atomic.Int64 // requests read and not answered
	bytes         atomic.Int64 // their frames
	mutedUntil    atomic.Int64 // clock reading, KIP-219
	greeted       atomic.Bool  // a complete request was read
	ended         atomic.Bool  // nothing is read any more
	authenticated atomic.Bool

	arrived atomic.Uint64                 // requests of which something was read
	behind  atomic.Pointer[chan struct{}] // see Request.Behind

	room    chan struct{} // to the reading goroutine: a request was finished
	ordered sync.WaitGroup
	out     writer // owned by the ordered goroutine

	mu       sync.Mutex
	queue    []*call
	running  bool // an ordered goroutine is lent to the connection
	cause    error
	software Software
	values   map[any]any
}

// Software is what a client says it is in ApiVersions 3 and later (KIP-511), at
// most 255 bytes each; empty strings until then.
type Software struct{ Name, Version string }

// call is a request on its way through a connection.
type call struct {
	Request
	route   *route
	next    func(context.Context) Response // what Begin returned
	frame   []byte
	turn    uint64 // its place among the requests of the connection
	size    int    // frame bytes with the size prefix
	charge  int64  // taken from budget
	budget  *semaphore.Weighted
	decoded int64 // taken from the server's decode budget
}

func newConn(ctx context.Context, s *Server, nc net.Conn) *Conn {
	c := &Conn{
		srv: s, nc: nc, served: ctx, id: s.lastID.Add(1), opened: s.clock(),
		room: make(chan struct{}, 1),
	}
	// The end of ctx reaches the connection by way of endServed, as a cause;
	// being a child of ctx too would cost an entry in its table.
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.br = bufio.NewReaderSize(nc, readBuffer)
	c.active.Store(c.opened)
	c.out.init(c)
	return c
}

// ID is unique among the connections of a Server.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is the address that the peer connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// NetConn is the connection below, for its type only (TLS state).
func (c *Conn) NetConn() net.Conn { return c.nc }

// Context ends when the connection does.
func (c *Conn) Context() context.Context { return c.ctx }

// Close ends the connection at once, without the replies that are due. A
// handler that wants earlier replies to go out returns CloseErr instead.
func (c *Conn) Close() { c.fail(errors.New("closed by the server")) }

// SetAuthenticated lifts the frame limit of ServerConfig.AuthRequired.
func (c *Conn) SetAuthenticated(ok bool) { c.authenticated.Store(ok) }

// Software is what the client announced.
func (c *Conn) Software() Software {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.software
}

// Value returns what SetValue stored under key, or nil.
func (c *Conn) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values[key]
}

// SetValue stores per-connection state such as a principal. Key should have a
// type of the caller's package.
func (c *Conn) SetValue(key, value any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[any]any{}
	}
	c.values[key] = value
}

// serve reads until the connection ends, then waits for what was read.
func (c *Conn) serve() {
	err := c.read()
	c.ended.Store(true)
	c.hurry()
	// A draining server waits as long as its Shutdown does, else a peer that
	// left cannot hold its requests for longer than Linger.
	c.finish(err)
	c.fail(err)
	c.ordered.Wait()
	if c.srv.cfg.OnClose != nil {
		c.srv.cfg.OnClose(c)
	}
	c.srv.log.Debug("connection closed", "conn", c.id, "remote", c.nc.RemoteAddr(), "err", c.reason())
}

// finish waits until what was read is answered, or the connection failed, or
// Linger has passed.
func (c *Conn) finish(err error) {
	if c.inflight.Load() == 0 {
		return
	}
	var linger <-chan time.Time
	if !errors.Is(err, ErrServerClosed) {
		t := time.NewTimer(c.srv.cfg.Linger)
		defer t.Stop()
		linger = t.C
	}
	for c.inflight.Load() > 0 {
		select {
		case <-c.room:
		case <-linger:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// fail ends the connection; the first cause is the one that is logged.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = err
	}
	c.mu.Unlock()
	c.cancel()
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // tls.Conn.Close may wait seconds to write its alert
	}
	nc.Close()
}

func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return c.ctx.Err()
	}
	return c.cause
}

// stopReading makes the reading goroutine stop at the next byte it waits for.
func (c *Conn) stopReading() {
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // fails on a connection that ended
}

// panicked logs a recovered panic and turns it into the connection's end (R5).
func (c *Conn) panicked(where string, v any) error {
	c.srv.log.Error("panic while serving", "conn", c.id, "remote", c.nc.RemoteAddr(), "api", where, "err", v, "stack", string(debug.Stack()))
	return fmt.Errorf("panic in %s", where)
}

// signal leaves a wake-up in a channel of capacity one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
