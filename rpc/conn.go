package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// readBuffer is what a connection owns while idle. Most requests that are
	// not Produce fit, so that they cost one read.
	readBuffer = 512
	// readPiece is how much of a frame must arrive within ReadStall.
	readPiece = 64 << 10
	// unreadInflight is how many requests are read ahead while a reply is being
	// written. A peer that reads does not notice, as a write ends at once; one
	// that never reads costs these requests instead of ConnInflight.
	unreadInflight = 8
)

// errPeerClosed is the ordinary end of a connection.
var errPeerClosed = errors.New("peer closed")

// Conn is one accepted connection. Its methods may be called from any
// goroutine. The reading goroutine owns what has no lock; queue and values are
// guarded by mu, which is held for a few instructions only.
type Conn struct {
	srv    *Server
	nc     net.Conn
	id     uint64
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
	authenticated atomic.Bool
	retire        atomic.Bool // the ordered goroutine should leave if idle

	work    chan struct{} // to the ordered goroutine: the queue has changed
	room    chan struct{} // to the reading goroutine: a request was finished
	ordered sync.WaitGroup
	out     writer // owned by the ordered goroutine

	mu       sync.Mutex
	queue    []*call
	running  bool // the ordered goroutine exists
	cause    error
	software Software
	values   map[any]any
}

// Software is what a client says it is in ApiVersions 3 and later (KIP-511);
// empty strings until then.
type Software struct{ Name, Version string }

// call is a request on its way through a connection.
type call struct {
	Request
	route   *route
	next    func(context.Context) Response // what Begin returned
	frame   []byte
	size    int   // frame bytes with the size prefix
	charge  int64 // taken from the server's frame budget
	decoded int64 // taken from the server's decode budget
}

func newConn(ctx context.Context, s *Server, nc net.Conn) *Conn {
	c := &Conn{
		srv: s, nc: nc, id: s.lastID.Add(1), opened: s.clock(),
		work: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
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
	stop := context.AfterFunc(c.ctx, func() { c.fail(context.Cause(c.ctx)) })
	defer stop()
	err := c.read()
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

// read is the reading goroutine.
func (c *Conn) read() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.panicked("read", v)
		}
	}()
	if c.srv.cfg.OnOpen != nil {
		if err := c.srv.cfg.OnOpen(c); err != nil {
			return err
		}
	}
	for {
		q, err := c.next()
		if err != nil {
			return err
		}
		if err := c.begin(q); err != nil {
			c.release(q)
			return err
		}
		c.enqueue(q)
	}
}

// next reads one frame. It has taken the frame's bytes from the budgets when it
// returns a call.
func (c *Conn) next() (*call, error) {
	if _, err := c.br.Peek(1); err != nil {
		return nil, c.readErr(err)
	}
	c.reading.Store(c.srv.clock())
	defer c.reading.Store(0)
	head, err := c.br.Peek(headBytes)
	if err != nil {
		return nil, c.readErr(err)
	}
	h := parseHead(head)
	r, err := c.admit(h)
	if err != nil {
		return nil, err
	}
	// From here on the server is the slow one, not the peer.
	c.reading.Store(0)
	if err := c.unmuted(); err != nil {
		return nil, err
	}
	if err := c.waitRoom(h.size); err != nil {
		return nil, err
	}
	q := &call{route: r, size: h.size + 4, charge: frameCost(h.size)}
	if err := c.srv.frames.Acquire(c.ctx, q.charge); err != nil {
		return nil, c.reason()
	}
	c.inflight.Add(1)
	c.bytes.Add(q.charge)
	c.br.Discard(headBytes)
	q.frame = allocFrame(h.size-(headBytes-4), r.Raw)
	if err := c.fill(q.frame); err != nil {
		c.release(q)
		return nil, c.readErr(err)
	}
	q.Request = Request{Key: h.key, Version: h.version, Correlation: h.correlation, Conn: c, Received: time.Now()}
	c.active.Store(c.srv.clock())
	return q, nil
}

// admit checks a frame's head against the table before anything is allocated
// for it (R3).
func (c *Conn) admit(h head) (*route, error) {
	if h.size < headBytes-4 {
		return nil, fmt.Errorf("frame of %d bytes is too short for a request header", h.size)
	}
	r := c.srv.routes[h.key]
	if r == nil {
		return nil, fmt.Errorf("API key %d is not served", h.key)
	}
	if !r.serves(h.version) && h.key != KeyApiVersions {
		return nil, fmt.Errorf("%s version %d is not served, only %d to %d", r.name, h.version, r.Min, r.Max)
	}
	limit := r.Limit
	if c.srv.cfg.AuthRequired && !c.authenticated.Load() {
		limit = min(limit, DefaultFrameLimit)
	}
	if h.size > limit {
		return nil, fmt.Errorf("%s request of %d bytes is larger than its limit of %d", r.name, h.size, limit)
	}
	return r, nil
}

// fill reads a frame in pieces, so that the reaper sees progress.
func (c *Conn) fill(b []byte) error {
	for len(b) > 0 {
		c.reading.Store(c.srv.clock())
		n := min(len(b), readPiece)
		if _, err := io.ReadFull(c.br, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	c.reading.Store(0)
	return nil
}

// begin parses and decodes a request and runs its Begin.
func (c *Conn) begin(q *call) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.panicked(q.route.name, v)
		}
	}()
	body, err := c.parseHeader(q)
	if err != nil {
		return fmt.Errorf("parse %s header: %w", q.route.name, err)
	}
	q.Unsupported = !q.route.serves(q.Version)
	switch {
	case q.Unsupported:
		// The body's layout is unknown; the reply is version 0 (KIP-511).
		q.Body, q.Raw = &kmsg.ApiVersionsRequest{}, body
	case q.route.Raw:
		q.Raw = body
	default:
		if err := c.decode(q, body); err != nil {
			return fmt.Errorf("decode %s version %d: %w", q.route.name, q.Version, err)
		}
	}
	c.greeted.Store(true)
	if q.route.Begin != nil {
		q.next = q.route.Begin(c.ctx, &q.Request)
	}
	return nil
}

// decode turns the body into a kmsg request after weighing it (R3).
func (c *Conn) decode(q *call, body []byte) error {
	cost, err := q.route.layout(q.Version).weigh(body, decodeLimit(q.route.Limit))
	if err != nil {
		return err
	}
	if err := c.srv.decoded.Acquire(c.ctx, cost); err != nil {
		return c.reason()
	}
	q.decoded = cost
	q.Body = kmsg.RequestForKey(q.Key)
	q.Body.SetVersion(q.Version)
	if err := q.Body.ReadFrom(body); err != nil {
		return err
	}
	if v, ok := q.Body.(*kmsg.ApiVersionsRequest); ok && q.Version >= 3 {
		c.mu.Lock()
		c.software = Software{Name: v.ClientSoftwareName, Version: v.ClientSoftwareVersion}
		c.mu.Unlock()
	}
	return nil
}

// unmuted waits until a throttled connection may be read again.
func (c *Conn) unmuted() error {
	for {
		d := c.mutedUntil.Load() - c.srv.clock()
		if d <= 0 {
			return nil
		}
		if c.srv.isDraining() {
			return ErrServerClosed
		}
		c.srv.sleep(c.ctx, time.Duration(d))
		if c.ctx.Err() != nil {
			return c.reason()
		}
	}
}

// waitRoom waits until the connection's own bounds admit one more request.
func (c *Conn) waitRoom(size int) error {
	for {
		n, most := c.inflight.Load(), int64(c.srv.cfg.ConnInflight)
		if c.writing.Load() != 0 {
			most = min(most, unreadInflight)
		}
		if n == 0 || n < most && c.bytes.Load()+frameCost(size) <= c.srv.cfg.ConnBudget {
			return nil
		}
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return c.reason()
		}
	}
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
func (c *Conn) stopReading() { c.nc.SetReadDeadline(time.Unix(1, 0)) }

func (c *Conn) readErr(err error) error {
	switch {
	case c.srv.isDraining():
		return ErrServerClosed
	case errors.Is(err, io.EOF):
		return errPeerClosed
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w within a request", errPeerClosed)
	}
	return fmt.Errorf("read request: %w", err)
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
