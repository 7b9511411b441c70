package rpc

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"
)

const (
	// readPiece is how much of a frame must arrive within ReadStall.
	readPiece = 64 << 10
	// firstPart is how much of a frame gets its memory before anything of it
	// arrived: more than producers send by default. nextPart is how many times
	// as much it gets when that is full; the less, the more copies.
	firstPart = 2 << 20
	nextPart  = 8
	// unreadInflight is how many requests are read ahead while a reply is being
	// written. A peer that reads does not notice, as a write ends at once; one
	// that never reads costs these requests instead of ConnInflight.
	unreadInflight = 8
)

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
	turn := c.arrived.Add(1)
	c.hurry()
	c.reading.Store(c.srv.clock())
	defer c.reading.Store(0)
	head, err := c.br.Peek(headBytes)
	if err != nil {
		return nil, c.readErr(err)
	}
	h := parseHead(head)
	r, err := c.admit(h)
	if err != nil {
		c.stranger(head, h)
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
	q := &call{route: r, turn: turn, size: h.size + 4, charge: frameCost(h.size), budget: c.srv.budget(h.size)}
	if err := c.acquire(q.budget, q.charge); err != nil {
		return nil, err
	}
	c.inflight.Add(1)
	c.bytes.Add(q.charge)
	_, _ = c.br.Discard(headBytes) // was peeked
	if err := c.fill(q, h.size-(headBytes-4)); err != nil {
		c.release(q)
		return nil, c.readErr(err)
	}
	q.Request = Request{Key: h.key, Version: h.version, Correlation: h.correlation, Conn: c, Received: time.Now(), call: q}
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

// fill reads the n bytes of a frame. A large one gets its memory as it arrives:
// what a peer announces and does not send costs its budget only.
func (c *Conn) fill(q *call, n int) error {
	q.frame = allocFrame(min(n, firstPart), q.route.Raw)
	for have := 0; ; {
		if err := c.readFull(q.frame[have:]); err != nil {
			return err
		}
		if have = len(q.frame); have == n {
			return nil
		}
		part := q.frame
		q.frame = allocFrame(min(n, nextPart*have), q.route.Raw)
		copy(q.frame, part)
		if q.route.Raw {
			freeFrame(part)
		}
	}
}

// readFull fills b in pieces, so that the reaper sees progress.
func (c *Conn) readFull(b []byte) error {
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

// begin parses a request's header and runs its Begin. Bodies that need not be
// decoded for that are decoded by the ordered goroutine: it is deep work, and
// the reading goroutine keeps its stack while the connection is idle.
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
	q.Raw = body
	if q.Unsupported {
		// The body's layout is unknown; the reply is version 0 (KIP-511).
		q.Body = &kmsg.ApiVersionsRequest{}
	}
	c.greeted.Store(true)
	if q.route.Begin == nil {
		return nil
	}
	if !q.route.Raw {
		if err := c.decode(q); err != nil {
			return fmt.Errorf("decode %s version %d: %w", q.route.name, q.Version, err)
		}
	}
	q.next = q.route.Begin(c.ctx, &q.Request)
	return nil
}

// decode turns the body into a kmsg request after weighing it (R3).
func (c *Conn) decode(q *call) error {
	body := q.Raw
	q.Raw = nil
	cost, err := q.route.layout(q.Version).weigh(body, decodeLimit(q.route.Limit))
	if err != nil {
		return err
	}
	if err := c.acquire(c.srv.decoded, cost); err != nil {
		return err
	}
	q.decoded = cost
	q.Body = kmsg.RequestForKey(q.Key)
	q.Body.SetVersion(q.Version)
	if err := q.Body.ReadFrom(body); err != nil {
		return err
	}
	if v, ok := q.Body.(*kmsg.ApiVersionsRequest); ok && q.Version >= 3 {
		c.mu.Lock()
		c.software = Software{Name: shorten(v.ClientSoftwareName), Version: shorten(v.ClientSoftwareVersion)}
		c.mu.Unlock()
	}
	return nil
}

// acquire takes n bytes from a budget and waits for them if it must, as long as
// the connection lives.
func (c *Conn) acquire(budget *semaphore.Weighted, n int64) error {
	if budget.TryAcquire(n) { // without a wait there is no need of a Done channel
		return nil
	}
	if err := budget.Acquire(c.ctx, n); err != nil {
		return c.reason()
	}
	return nil
}

// shorten keeps an idle connection from holding what a client made up.
func shorten(s string) string { return strings.Clone(s[:min(len(s), keepName)]) }

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
