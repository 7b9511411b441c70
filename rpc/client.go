package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrClientClosed is the error of calls on a Client after Close.
var ErrClientClosed = errors.New("rpc: client closed")

// ErrDisconnected wraps every error by which a connection was lost: whether
// the server acted on the calls in flight is unknown.
var ErrDisconnected = errors.New("rpc: disconnected")

// Dialer opens a connection; net.Dialer.DialContext is one.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// ClientConfig configures a Client. The zero value is its default.
type ClientConfig struct {
	// ClientID is sent in every header; empty sends null.
	ClientID string
	// MaxInflight bounds the calls on the connection; further ones wait. Default
	// 256.
	MaxInflight int
	// MaxResponse is the largest response frame in bytes; default 128 MiB. A
	// larger one ends the connection.
	MaxResponse int
	// WriteStall ends the connection when the server takes less than 256 KiB of
	// the calls for so long; default 30 s.
	WriteStall time.Duration
}

// Client is one connection that many goroutines may call on. Calls are
// pipelined, replies arrive in the order of the calls. A call whose context
// ends leaves the connection intact: its reply is dropped when it comes. After
// a connection error every call fails with ErrDisconnected; a Client does not
// reconnect.
type Client struct {
	cfg    ClientConfig
	nc     net.Conn
	slots  chan struct{}  // MaxInflight
	send   chan *pending  // to the writing goroutine
	sent   chan *pending  // from it to the reading goroutine, in order
	done   chan struct{}  // closed by fail
	gone   chan struct{}  // closed when both goroutines have ended
	owned  sync.WaitGroup // both goroutines
	failed sync.Once
	err    error // set before done is closed
}

// pending is a call on its way.
type pending struct {
	ctx      context.Context
	key      int16
	version  int16
	flexible bool
	encode   func(b []byte) []byte // appends the body
	body     []byte                // or the body itself
	silent   bool                  // no reply will come
	reply    chan result           // capacity 1
}

type result struct {
	body []byte
	err  error
}

// Dial connects and starts a Client. Ctx bounds the dialing only.
func Dial(ctx context.Context, dial Dialer, addr string, cfg ClientConfig) (*Client, error) {
	nc, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return NewClient(nc, cfg), nil
}

// NewClient starts a Client on an open connection, which it owns from then on.
func NewClient(nc net.Conn, cfg ClientConfig) *Client {
	if cfg.MaxInflight <= 0 {
		cfg.MaxInflight = 256
	}
	if cfg.MaxResponse <= 0 {
		cfg.MaxResponse = 128 << 20
	}
	if cfg.WriteStall <= 0 {
		cfg.WriteStall = 30 * time.Second
	}
	c := &Client{
		cfg: cfg, nc: nc, slots: make(chan struct{}, cfg.MaxInflight),
		send: make(chan *pending), sent: make(chan *pending, cfg.MaxInflight),
		done: make(chan struct{}), gone: make(chan struct{}),
	}
	c.owned.Go(c.write)
	c.owned.Go(c.read)
	return c
}

// RemoteAddr is the server's address.
func (c *Client) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Done is closed when the connection is lost or closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why Done was closed and is nil before.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection, fails the calls in flight and waits for the
// Client's goroutines.
func (c *Client) Close() error {
	c.fail(ErrClientClosed)
	c.owned.Wait()
	return nil
}

// Do sends a request at the version that is set in it and decodes the reply. A
// Produce request with acks 0 returns nil, nil once it was written. An
// ApiVersions request that the server answered in version 0 because it does
// not know the version returns that answer. The request must not be changed
// until Do returns without a context error.
func (c *Client) Do(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	p := &pending{ctx: ctx, key: r.Key(), version: r.GetVersion(), flexible: r.IsFlexible(), encode: r.AppendTo}
	if v, ok := r.(*kmsg.ProduceRequest); ok && v.Acks == 0 {
		p.silent = true
	}
	name := kmsg.NameForKey(p.key)
	b, err := c.roundTrip(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", name, err)
	}
	if p.silent {
		return nil, nil
	}
	resp := r.ResponseKind()
	if p.key == KeyApiVersions && len(b) >= 2 && int16(binary.BigEndian.Uint16(b)) == codeUnsupportedVersion {
		resp.SetVersion(0)
	}
	if err := resp.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("decode %s response: %w", name, err)
	}
	return resp, nil
}

// codeUnsupportedVersion is Kafka's UNSUPPORTED_VERSION, the one error code that
// changes how a frame is read.
const codeUnsupportedVersion = 35

// Call sends an encoded body under a flexible header and returns the body of
// the reply. The body must not be changed afterwards if Call returns a context
// error, as it may still be on its way.
func (c *Client) Call(ctx context.Context, key, version int16, body []byte) ([]byte, error) {
	b, err := c.roundTrip(ctx, &pending{ctx: ctx, key: key, version: version, flexible: true, body: body})
	if err != nil {
		return nil, fmt.Errorf("call API %d: %w", key, err)
	}
	return b, nil
}

func (c *Client) roundTrip(ctx context.Context, p *pending) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.reply = make(chan result, 1)
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	// The slot is given back by whoever ends the call on the connection.
	select {
	case c.send <- p:
	case <-ctx.Done():
		<-c.slots
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	select {
	case r := <-p.reply:
		return r.body, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		select { // a reply that arrived first counts
		case r := <-p.reply:
			return r.body, r.err
		default:
			return nil, c.err
		}
	}
}

// write is the writing goroutine: it numbers the calls and puts them on the
// wire.
func (c *Client) write() {
	var buf []byte
	for correlation := int32(0); ; correlation++ {
		var p *pending
		select {
		case p = <-c.send:
		case <-c.done:
			return
		}
		buf = c.appendRequest(buf[:0], p, correlation)
		if !p.silent {
			c.sent <- p // has room for every slot
		}
		c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteStall))
		if err := c.writeOut(buf, p.body); err != nil {
			c.fail(fmt.Errorf("%w: write: %w", ErrDisconnected, err))
			return
		}
		if p.silent {
			p.reply <- result{}
			<-c.slots
		}
		if cap(buf) > keepReply {
			buf = nil
		}
	}
}

func (c *Client) appendRequest(b []byte, p *pending, correlation int32) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(p.key))
	b = binary.BigEndian.AppendUint16(b, uint16(p.version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	if id := c.cfg.ClientID; id == "" {
		b = append(b, 0xff, 0xff)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
		b = append(b, id...)
	}
	if p.flexible {
		b = append(b, 0)
	}
	if p.encode != nil {
		b = p.encode(b)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4+len(p.body)))
	return b
}

// writeOut writes in pieces with a deadline for each.
func (c *Client) writeOut(head, body []byte) error {
	bufs := net.Buffers{head}
	for len(body) > writePiece {
		bufs = append(bufs, body[:writePiece])
		body = body[writePiece:]
	}
	bufs = append(bufs, body)
	for len(bufs) > 0 {
		n := min(2, len(bufs))
		piece := bufs[:n:n]
		bufs = bufs[n:]
		c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteStall))
		if _, err := piece.WriteTo(c.nc); err != nil {
			return err
		}
	}
	return nil
}

// read is the reading goroutine: it matches replies with calls, which come in
// the same order.
func (c *Client) read() {
	br := bufio.NewReaderSize(c.nc, 4<<10)
	for correlation := int32(0); ; {
		got, body, err := c.readFrame(br)
		if err != nil {
			c.fail(fmt.Errorf("%w: read: %w", ErrDisconnected, err))
			return
		}
		var p *pending
		select {
		case p = <-c.sent:
		default:
			c.fail(fmt.Errorf("%w: a reply without a call", ErrDisconnected))
			return
		}
		_ = got
		_ = correlation
		if p.flexible && p.key != KeyApiVersions {
			r := reader{b: body}
			r.tags()
			if r.err != nil {
				c.fail(fmt.Errorf("%w: response header: %w", ErrDisconnected, r.err))
				return
			}
			body = r.b
		}
		p.reply <- result{body: body}
		<-c.slots
	}
}

func (c *Client) readFrame(br *bufio.Reader) (int32, []byte, error) {
	var h [8]byte
	if _, err := io.ReadFull(br, h[:]); err != nil {
		return 0, nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(h[:]))) - 4
	if n < 0 || n > c.cfg.MaxResponse {
		return 0, nil, fmt.Errorf("response frame of %d bytes", n+4)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(br, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(h[4:])), b, nil
}

// fail ends the connection once.
func (c *Client) fail(err error) {
	c.failed.Do(func() {
		c.err = err
		close(c.done)
		c.nc.Close()
	})
}
