package controller

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftMagic opens every Raft connection. Its first byte makes it a negative
// Kafka frame size, so that it cannot be mistaken for a request; then a
// version, and a greeting.
const (
	raftMagic       = "\xffPONORR\x02"
	clusterIDBytes  = 22
	preambleBytes   = len(raftMagic) + clusterIDBytes + 8 + maxServerID
	preambleTimeout = 10 * time.Second
)

// mux shares the controller listener: Raft connections to one side, all others
// to the rpc server. It owns every connection until the side that got it
// closes it, so that close ends them all.
type mux struct {
	listener net.Listener
	raft     chan net.Conn
	rpc      func(context.Context, net.Conn)
	// welcome says whether a Raft connection may go on.
	welcome func(remote net.Addr, g greeting) bool

	done chan struct{} // closed by close
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		conns  map[net.Conn]struct{}
		closed bool
	}
}

func newMux(l net.Listener) *mux {
	m := &mux{listener: l, raft: make(chan net.Conn), done: make(chan struct{})}
	m.mu.conns = map[net.Conn]struct{}{}
	return m
}

// run accepts until close.
func (m *mux) run(ctx context.Context) error {
	defer m.wg.Wait()
	delay := 5 * time.Millisecond
	for {
		c, err := m.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || m.isClosed() {
				return nil
			}
			// Out of file descriptors, usually: it passes.
			select {
			case <-time.After(delay):
				delay = min(2*delay, time.Second)
				continue
			case <-m.done:
				return nil
			}
		}
		delay = 5 * time.Millisecond
		c = &muxConn{Conn: c, mux: m}
		if !m.track(c) {
			_ = c.Close()
			return nil
		}
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			m.sort(ctx, c.(*muxConn))
		}()
	}
}

// sort reads as little as needed to tell a Raft connection from others.
func (m *mux) sort(ctx context.Context, c *muxConn) {
	_ = c.SetReadDeadline(time.Now().Add(preambleTimeout))
	var first [1]byte
	if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
		_ = c.Close()
		return
	}
	if first[0] != raftMagic[0] {
		_ = c.SetReadDeadline(time.Time{})
		c.prefix = first[:]
		defer func() { _ = c.Close() }()
		m.rpc(ctx, c)
		return
	}
	buf := make([]byte, preambleBytes-1)
	if _, err := io.ReadFull(c.Conn, buf); err != nil || string(buf[:len(raftMagic)-1]) != raftMagic[1:] {
		_ = c.Close()
		return
	}
	if !m.welcome(c.RemoteAddr(), readGreeting(buf[len(raftMagic)-1:])) {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	select {
	case m.raft <- c:
	case <-m.done:
		_ = c.Close()
	}
}

func trimZeros(b []byte) string {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return string(b[:n])
}

// greeting says who is on a Raft connection.
type greeting struct {
	cluster    string        // the sender's, empty while it knows none
	generation uint64        // in which the sender's log began, 0 without a log
	server     raft.ServerID // who is meant to answer
}

// preamble is what a Raft connection begins with.
func (g greeting) preamble() []byte {
	b := make([]byte, preambleBytes)
	n := copy(b, raftMagic)
	copy(b[n:n+clusterIDBytes], g.cluster)
	n += clusterIDBytes
	binary.BigEndian.PutUint64(b[n:], g.generation)
	copy(b[n+8:], g.server)
	return b
}

// readGreeting reads what follows the magic.
func readGreeting(b []byte) greeting {
	return greeting{
		cluster: trimZeros(b[:clusterIDBytes]), generation: binary.BigEndian.Uint64(b[clusterIDBytes:]),
		server: raft.ServerID(trimZeros(b[clusterIDBytes+8:])),
	}
}

func (m *mux) isClosed() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

func (m *mux) track(c net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return false
	}
	m.mu.conns[c] = struct{}{}
	return true
}

// close ends the listener and every connection that came through it.
func (m *mux) close() {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return
	}
	m.mu.closed = true
	conns := m.mu.conns
	m.mu.conns = nil
	m.mu.Unlock()
	close(m.done)
	_ = m.listener.Close()
	for c := range conns {
		_ = c.(*muxConn).Conn.Close()
	}
}

// muxConn gives back the byte that was read to sort it.
type muxConn struct {
	net.Conn
	mux    *mux
	prefix []byte
}

// Read serves the prefix first.
func (c *muxConn) Read(b []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(b, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// Close closes the connection and forgets it.
func (c *muxConn) Close() error {
	c.mux.mu.Lock()
	delete(c.mux.mu.conns, c)
	c.mux.mu.Unlock()
	return c.Conn.Close()
}
