package rpc

import (
	"fmt"
	"time"
)

// enqueue hands a call to the ordered goroutine, having one lent if need be.
func (c *Conn) enqueue(q *call) {
	c.mu.Lock()
	c.queue = append(c.queue, q)
	start := !c.running
	c.running = true
	c.mu.Unlock()
	if start {
		c.srv.workers.lend(c)
	}
}

// run is the ordered goroutine: it handles and answers one call after another
// and leaves when there is none.
func (c *Conn) run() {
	for q := c.dequeue(); q != nil; q = c.dequeue() {
		c.handle(q)
	}
}

// dequeue returns the next call. When it returns nil the ordered goroutine
// belongs to the connection no longer.
func (c *Conn) dequeue() *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.running = false
		return nil
	}
	q := c.queue[0]
	c.queue[0] = nil
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return q
}

// handle runs one call to its end. On a connection that ended, what was begun
// is still finished, because it may hold things; what was not is dropped.
func (c *Conn) handle(q *call) {
	defer c.release(q)
	defer func() { // an impossible body, a Release that panics
		if v := recover(); v != nil {
			c.fail(c.panicked(q.route.name, v))
		}
	}()
	if q.next == nil && c.ctx.Err() != nil {
		return
	}
	begun := time.Now()
	resp := c.respond(q)
	handled := time.Now()
	if resp.Throttle > 0 { // before the reply, which lets the client send again
		c.srv.muted.Add(1)
		c.mutedUntil.Store(c.srv.clock() + int64(resp.Throttle))
	}
	n := 0
	if err := c.ctx.Err(); err == nil {
		if n, err = c.out.reply(q, resp); err != nil {
			c.fail(err)
		}
	}
	if resp.Release != nil {
		resp.Release()
	}
	c.active.Store(c.srv.clock())
	if f := c.srv.cfg.OnReply; f != nil {
		f(Served{
			Key: q.Key, Version: q.Version, RequestBytes: q.size, ResponseBytes: n,
			Queued: begun.Sub(q.Received), Handled: handled.Sub(begun) - resp.Held, Written: time.Since(handled),
		})
	}
}

// respond decodes what is not decoded yet, calls the handler and survives both.
func (c *Conn) respond(q *call) (resp Response) {
	defer func() {
		if v := recover(); v != nil {
			resp = Response{CloseErr: c.panicked(q.route.name, v)}
		}
	}()
	if q.next != nil {
		return q.next(c.ctx)
	}
	if !q.Unsupported && !q.route.Raw {
		if err := c.decode(q); err != nil {
			return Response{CloseErr: fmt.Errorf("decode %s version %d: %w", q.route.name, q.Version, err)}
		}
	}
	return q.route.Handle(c.ctx, &q.Request)
}

// release gives back what a call took. It is called exactly once per call that
// next returned, or by next itself.
func (c *Conn) release(q *call) {
	if q.route.Raw {
		freeFrame(q.frame)
	}
	q.frame, q.Raw = nil, nil
	c.giveBack(q)
	c.inflight.Add(-1)
	signal(c.room)
}

// giveBack returns what a call took of the budgets, if it still has it.
func (c *Conn) giveBack(q *call) {
	q.budget.Release(q.charge)
	c.srv.decoded.Release(q.decoded)
	c.bytes.Add(-q.charge)
	q.charge, q.decoded = 0, 0
}
