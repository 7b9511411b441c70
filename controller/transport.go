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
	rpcs chan raft.RPC
	done chan struct{} // closed when forward ended
}

func newTransport(inner *raft.NetworkTransport) *transport {
	return &transport{NetworkTransport: inner, rpcs: make(chan raft.RPC), done: make(chan struct{})}
}

// SetHeartbeatHandler does nothing, on purpose; see transport.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Consumer is what Raft reads calls from.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// forward moves calls from the network to Raft until stop is closed.
func (t *transport) forward(stop <-chan struct{}) {
	defer close(t.done)
	in := t.NetworkTransport.Consumer()
	for {
		select {
		case rpc := <-in:
			select {
			case t.rpcs <- rpc:
			case <-stop:
				return
			}
		case <-stop:
			return
		}
	}
}

// stand makes the local Raft a candidate at once, as if the leader had handed
// over to it. Elections are safe whenever they are held; see succession.go for
// when it is wise.
//
// Raft believes that whoever is told to stand has a vote; the caller makes sure.
func (t *transport) stand(ctx context.Context) error {
	resp := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: resp,
	}
	select {
	case t.rpcs <- rpc:
	case <-t.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case r := <-resp:
		return r.Error
	case <-t.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// raftLayer gives Raft the connections that the mux sorted out for it, and
// dials others with the preamble.
type raftLayer struct {
	mux      *mux
	self     raft.ServerAddress
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	greeting func() greeting // but for whom it is
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
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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
	return c, nil
}

// advertised is a net.Addr made of text.
type advertised string

// Network is tcp.
func (advertised) Network() string { return "tcp" }

// String is host:port.
func (a advertised) String() string { return string(a) }
