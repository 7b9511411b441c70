package proxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// gate lets traffic of one direction pass, or keeps it.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil: it is open
}

// shut keeps everything from now on.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

// open lets go on what was kept.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// wait is nil while the gate is open, else closed when it opens.
func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// pass waits until the gate is open. False: done was closed before.
func (g *gate) pass(done <-chan struct{}) bool {
	for {
		w := g.wait()
		if w == nil {
			return true
		}
		select {
		case <-w:
		case <-done:
			return false
		}
	}
}

// door accepts connections at one address, which it keeps while it is closed, so
// that who dials then is refused as by a process that is not there.
type door struct {
	address string
	serve   func(net.Conn)

	mu struct {
		sync.Mutex
		listener net.Listener
		conns    map[net.Conn]struct{}
	}
	wg sync.WaitGroup
}

// newDoor is open, at a free port of 127.0.0.1.
func newDoor(serve func(net.Conn)) (*door, error) {
	d := &door{address: "127.0.0.1:0", serve: serve}
	d.mu.conns = make(map[net.Conn]struct{})
	return d, d.open()
}

// openPatience is how long a port may be somebody else's, who was given it for a
// connection while the door was closed.
const openPatience = 5 * time.Second

func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.listener != nil {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", d.address)
	for end := time.Now().Add(openPatience); err != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		l, err = lc.Listen(context.Background(), "tcp", d.address)
	}
	if err != nil {
		return err
	}
	d.mu.listener, d.address = l, l.Addr().String()
	d.wg.Go(func() { d.accept(l) })
	return nil
}

func (d *door) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !d.keep(c) {
			reset(c)
			return
		}
		d.wg.Go(func() {
			defer d.forget(c)
			d.serve(c)
		})
	}
}

func (d *door) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.listener == nil {
		return false
	}
	d.mu.conns[c] = struct{}{}
	return true
}

func (d *door) forget(c net.Conn) {
	_ = c.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.conns, c)
}

// close refuses who dials from now on. Connections go on.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.listener != nil {
		_ = d.mu.listener.Close()
		d.mu.listener = nil
	}
}

// resetAll resets all connections and says how many there were.
func (d *door) resetAll() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.mu.conns {
		reset(c)
	}
	return len(d.mu.conns)
}

// end closes the door and all connections and waits until they are served.
func (d *door) end() {
	d.close()
	d.resetAll()
	d.wg.Wait()
}

// reset closes a connection with an RST: what was sent and not read is lost.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

func dial(target string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(context.Background(), "tcp", target)
}
