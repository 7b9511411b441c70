package controller

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// transport is Raft's network transport with two changes.
//
// Heartbeats take no short cut. hashicorp/raft handles a heartbeat on the
// transport's goroutine when the transport offers that, and there changes the
// term beside the leader's loop without a lock: a deposed leader can then
// append an entry under the new leader's term, and logs diverge
// (hashicorp/raft issue 695, fix proposed in 701, not in v1.8.0). With
// SetHeartbeatHandler doing nothing they queue to Raft's main loop like every
// other call, which is how Raft's own in-memory transport works. The price: a
// heartbeat waits behind a disk write, so the election timeout must exceed the
// worst fsync stall (K8). Drop this when a fixed release is in use.
//
// And the node can tell its own Raft to stand for election (see succession.go).
type transport struct {
	*raft.NetworkTransport
	id   raft.ServerID
	self raft.ServerAddress
}

// SetHeartbeatHandler does nothing, on purpose; see transport.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// stand makes the local Raft a candidate at once, as if the leader had handed
// over to it: it sends itself what the leader would. Elections are safe whenever
// they are held; see succession.go for when it is wise. It takes raftTimeout at
// most.
//
// Raft believes that whoever is told to stand has a vote; the caller makes sure.
func (t *transport) stand() error {
	q := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if err := t.TimeoutNow(t.id, t.self, q, new(raft.TimeoutNowResponse)); err != nil {
		return fmt.Errorf("tell the own raft to stand: %w", err)
	}
	return nil
}

// raftLayer gives Raft the connections that the mux sorted out for it, and
// dials others with the preamble.
type raftLayer struct {
	mux      *mux
	self     raft.ServerAddress
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	greeting func() greeting // but for whom it is
	// ctx ends what Raft has dialed. Raft waits for its calls when it shuts down,
	// and one to a server that hangs takes up to raftTimeout.
	ctx context.Context
}

// Accept waits for the next Raft connection.
func (l *raftLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.mux.raft:
		return c, nil
	case <-l.mux.done:
		return nil, net.ErrClosed
	}
}

// Close leaves the listener to the mux, which closes it after Raft has ended.
func (l *raftLayer) Close() error { return nil }

// Addr is this server's Raft address.
func (l *raftLayer) Addr() net.Addr { return advertised(l.self) }

// Dial connects to another server and says whom it wants.
func (l *raftLayer) Dial(raftAddr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if raftAddr == l.self {
		return l.dialSelf()
	}
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	server, address := dialAddress(raftAddr)
	c, err := l.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial voter at %s: %w", address, err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	g := l.greeting()
	g.server = server
	if _, err := c.Write(g.preamble()); err != nil {
		c.Close()
		return nil, fmt.Errorf("greet voter at %s: %w", address, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	return &dialed{c, context.AfterFunc(l.ctx, func() { c.Close() })}, nil
}

// dialed is a connection that ends with its layer's ctx.
type dialed struct {
	net.Conn
	forget func() bool
}

// Close closes it.
func (d *dialed) Close() error {
	d.forget()
	return d.Conn.Close()
}

// dialSelf connects this server to itself, which needs no network: its address
// may be one that only others can reach.
func (l *raftLayer) dialSelf() (net.Conn, error) {
	near, far := net.Pipe()
	c := &muxConn{Conn: far, mux: l.mux}
	if !l.mux.track(c) {
		return nil, net.ErrClosed
	}
	select {
	case l.mux.raft <- c:
		return near, nil
	case <-l.mux.done:
		return nil, net.ErrClosed
	}
}

// advertised is a net.Addr made of text.
type advertised string

// Network is tcp.
func (advertised) Network() string { return "tcp" }

// String is host:port.
func (a advertised) String() string { return string(a) }
