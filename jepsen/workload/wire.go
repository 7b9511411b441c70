package workload

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// wire is all connections of one process. A crash cuts them at once, without a
// goodbye; a stall keeps them and lets nothing through, as when the process is
// stopped.
type wire struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	gate  chan struct{} // nil: open; else closed when the stall ends
}

var errCut = errors.New("the process has crashed")

func newWire() *wire { return &wire{conns: make(map[net.Conn]bool)} }

// dial is for kgo.Dialer.
func (w *wire) dial(ctx context.Context, network, host string) (net.Conn, error) {
	if err := w.pass(ctx.Done()); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	c := &wired{Conn: conn, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = conn.Close()
		return nil, errCut
	}
	w.conns[c] = true
	return c, nil
}

// crash cuts all connections for good.
func (w *wire) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
	for c := range w.conns {
		_ = c.(*wired).Conn.Close()
	}
	w.conns = nil
}

// stall holds everything until the returned function is called.
func (w *wire) stall() (resume func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || w.gate != nil {
		return func() {}
	}
	w.gate = gate
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.gate == gate {
			close(gate)
			w.gate = nil
		}
	}
}

// pass waits while there is a stall.
func (w *wire) pass(done <-chan struct{}) error {
	w.mu.Lock()
	gate, cut := w.gate, w.cut
	w.mu.Unlock()
	if cut {
		return errCut
	}
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
	case <-done:
	}
	return nil
}

// wired is one connection of a process.
type wired struct {
	net.Conn
	wire *wire
}

// Read implements net.Conn.
func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if perr := c.wire.pass(nil); perr != nil {
		return 0, perr
	}
	return n, err
}

// Write implements net.Conn.
func (c *wired) Write(b []byte) (int, error) {
	if err := c.wire.pass(nil); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *wired) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}
