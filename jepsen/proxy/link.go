package proxy

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Way is a direction between two nodes.
type Way struct{ From, To int32 }

// Links are the connections between nodes: one door for each, and who comes
// through it is known by its process.
type Links struct {
	doors map[int32]*door
	// who tells the node that has the other end of a connection, 0 if none has.
	who  func(net.Conn) int32
	kept atomic.Int64 // bytes

	mu    sync.Mutex
	gates map[Way]*gate
	ways  map[net.Conn]Way // of dialled connections
}

// NewLinks has no nodes yet.
func NewLinks(who func(net.Conn) int32) *Links {
	return &Links{doors: make(map[int32]*door), who: who, gates: make(map[Way]*gate), ways: make(map[net.Conn]Way)}
}

// Add a node that is reached at target.
func (l *Links) Add(node int32, target string) (address string, err error) {
	d, err := newDoor(func(c net.Conn) { l.serve(c, node, target) })
	if err != nil {
		return "", fmt.Errorf("listen for the others of node %d: %w", node, err)
	}
	l.doors[node] = d
	return d.address, nil
}

// Open accepts connections to a node.
func (l *Links) Open(node int32) error { return l.doors[node].open() }

// Shut refuses them, as if its process was not there.
func (l *Links) Shut(node int32) { l.doors[node].close() }

// Cut stalls directions, until Mend.
func (l *Links) Cut(ways ...Way) {
	for _, w := range ways {
		l.gate(w).shut()
	}
}

// Mend lets go on what was stalled.
func (l *Links) Mend(ways ...Way) {
	for _, w := range ways {
		l.gate(w).open()
	}
}

// MendAll mends everything.
func (l *Links) MendAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gates {
		g.open()
	}
}

// Reset resets the connections that have one of the directions, and says how many.
func (l *Links) Reset(ways ...Way) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c, have := range l.ways {
		for _, w := range ways {
			if w == have || w == (Way{have.To, have.From}) {
				reset(c)
				n++
				break
			}
		}
	}
	return n
}

// Conns is how many connections there are between two nodes, of either's making.
func (l *Links) Conns(a, b int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, w := range l.ways {
		if w == (Way{a, b}) || w == (Way{b, a}) {
			n++
		}
	}
	return n
}

// Kept are the bytes that were ever stalled.
func (l *Links) Kept() int64 { return l.kept.Load() }

// Close ends all.
func (l *Links) Close() {
	l.MendAll()
	for _, d := range l.doors {
		d.end()
	}
}

func (l *Links) gate(w Way) *gate {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gates[w]
	if g == nil {
		g = new(gate)
		l.gates[w] = g
	}
	return g
}

func (l *Links) serve(c net.Conn, node int32, target string) {
	from := l.who(c)
	there, back := Way{from, node}, Way{node, from}
	l.mu.Lock()
	l.ways[c] = there
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.ways, c)
		l.mu.Unlock()
	}()
	twin, err := dial(target)
	if err != nil {
		reset(c)
		return
	}
	ended := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(ended); _ = c.Close(); _ = twin.Close() }) }
	var wg sync.WaitGroup
	wg.Go(func() { defer end(); l.pump(twin, c, l.gate(there), ended) })
	wg.Go(func() { defer end(); l.pump(c, twin, l.gate(back), ended) })
	wg.Wait()
}

// pump copies bytes while the gate is open.
func (l *Links) pump(to, from net.Conn, g *gate, ended <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if g.wait() != nil {
				l.kept.Add(int64(n))
			}
			if !g.pass(ended) {
				return
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			// The end of a connection does not get through a cut, either.
			g.pass(ended)
			return
		}
	}
}
