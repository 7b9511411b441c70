package rpc

import "sync"

// maxSpare bounds the goroutines that wait for work. A burst on more
// connections than that starts some anew, which costs each a stack to grow.
const maxSpare = 512

// workers are the ordered goroutines of all connections. One is lent to a
// connection while it has requests to handle and taken back when it has none,
// so that there are as many as connections are busy at a time, with stacks that
// have grown already, however many connections are open. The workers owned by a
// Server end in close.
type workers struct {
	group sync.WaitGroup

	mu     sync.Mutex
	idle   []*worker // the last to come is the first to go: its stack is in the cache
	spare  int       // least len(idle) since the last trim
	closed bool
}

// worker is one goroutine; conn holds the connection it is lent to next and is
// closed to end it. It has room for one, so that lending never waits.
type worker struct{ conn chan *Conn }

// lend gives c a goroutine that calls c.run once; c.ordered waits for it.
func (p *workers) lend(c *Conn) {
	c.ordered.Add(1)
	p.mu.Lock()
	var w *worker
	if n := len(p.idle) - 1; n >= 0 {
		w, p.idle[n] = p.idle[n], nil
		p.idle = p.idle[:n]
		p.spare = min(p.spare, n)
	}
	p.mu.Unlock()
	if w != nil {
		w.conn <- c
		return
	}
	p.group.Go(func() { p.work(&worker{make(chan *Conn, 1)}, c) })
}

// work is a worker's goroutine.
func (p *workers) work(w *worker, c *Conn) {
	for ok := true; ok; c, ok = <-w.conn {
		c.run()
		// Parked before c may end, so that the reaper, which ends with the last
		// connection, sees it.
		stay := p.park(w)
		c.ordered.Done()
		if !stay {
			return
		}
	}
}

// park takes a worker back and says whether it is to wait.
func (p *workers) park(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxSpare {
		return false
	}
	p.idle = append(p.idle, w)
	return true
}

// trim ends the workers that were idle all the time since the last call; with
// all set, every idle one.
func (p *workers) trim(all bool) {
	p.mu.Lock()
	n := p.spare
	if all {
		n = len(p.idle)
	}
	end := append([]*worker(nil), p.idle[:n]...)
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	p.spare = rest
	p.mu.Unlock()
	for _, w := range end {
		close(w.conn)
	}
}

// close ends all workers and waits for them. No connection may be open.
func (p *workers) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.trim(true)
	p.group.Wait()
}
