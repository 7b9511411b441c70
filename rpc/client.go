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
// reconnect. A server that vanished without a word is noticed by TCP
// keep-alive only, so calls should have deadlines.
type Client struct {
	cfg   ClientConfig
	nc    net.Conn
	slots chan struct{} // one for each call on the connection
	send  chan *pending // to the writing goroutine
	sent  chan *pending // from it to the reading goroutine, in order
	done  chan struct{} // closed by fail
	owned sync.WaitGroup
	once  sync.Once
	err   error // set before done is closed
}

// pending is a call on its way. Its frame belongs to the writing goroutine from
// send on, so that a caller may leave at any time.
type pending struct {
	ctx         context.Context
	head        *[]byte // whole frame, or all of it before body; from replyPool
	body        []byte
	correlation int32
	tagged      bool // the response header has tags
	silent      bool // no reply will come
	reply       chan result
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
		done: make(chan struct{}),
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
// not know the version returns that answer.
func (c *Client) Do(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	name := kmsg.NameForKey(r.Key())
	p := c.prepare(ctx, r.Key(), r.GetVersion(), r.IsFlexible())
	*p.head = r.AppendTo(*p.head)
	if v, ok := r.(*kmsg.ProduceRequest); ok && v.Acks == 0 {
		p.silent = true
	}
	silent := p.silent
	b, err := c.roundTrip(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", name, err)
	}
	if silent {
		return nil, nil
	}
	resp := r.ResponseKind()
	if r.Key() == KeyApiVersions && len(b) >= 2 && int16(binary.BigEndian.Uint16(b)) == codeUnsupportedVersion {
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
	p := c.prepare(ctx, key, version, true)
	p.body = body
	b, err := c.roundTrip(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("call API %d: %w", key, err)
	}
	return b, nil
}

// prepare starts a frame; size and correlation id follow in write.
func (c *Client) prepare(ctx context.Context, key, version int16, flexible bool) *pending {
	p := &pending{ctx: ctx, head: replyPool.Get().(*[]byte), tagged: flexible && key != KeyApiVersions, reply: make(chan result, 1)}
	b := append((*p.head)[:0], 0, 0, 0, 0)
	b = appendInt16(b, key)
	b = appendInt16(b, version)
	b = appendInt32(b, 0)
	if c.cfg.ClientID == "" {
		b = appendInt16(b, -1)
	} else {
		b = appendString(b, c.cfg.ClientID, false)
	}
	if flexible {
		b = append(b, 0)
	}
	*p.head = b
	return p
}

func (c *Client) roundTrip(ctx context.Context, p *pending) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	// From here on the slot is given back by whoever ends the call on the
	// connection, which may be long after the caller has left.
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
// wire. Calls that were given up before are left out.
func (c *Client) write() {
	for correlation := int32(0); ; correlation++ {
		var p *pending
		select {
		case p = <-c.send:
		case <-c.done:
			return
		}
		if p.ctx.Err() != nil {
			<-c.slots
			continue
		}
		b := *p.head
		p.correlation = correlation
		binary.BigEndian.PutUint32(b, uint32(len(b)-4+len(p.body)))
		binary.BigEndian.PutUint32(b[8:], uint32(correlation))
		if !p.silent {
			c.sent <- p // has room for every slot
		}
		if err := c.writeFrame(b, p.body); err != nil {
			c.fail(fmt.Errorf("%w: write: %w", ErrDisconnected, err))
			return
		}
		if cap(b) <= keepReply {
			replyPool.Put(p.head)
		}
		if p.silent {
			p.reply <- result{}
			<-c.slots
		}
	}
}

// writeFrame writes in pieces with a deadline for each.
func (c *Client) writeFrame(head, body []byte) error {
	for first := true; first || len(body) > 0; first = false {
		n := min(len(body), writePiece)
		var bufs net.Buffers
		if first {
			bufs = append(bufs, head)
		}
		if n > 0 {
			bufs = append(bufs, body[:n])
		}
		body = body[n:]
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteStall))
		if _, err := bufs.WriteTo(c.nc); err != nil {
			return err
		}
	}
	return nil
}

// read is the reading goroutine: it matches replies with calls, which come in
// the same order.
func (c *Client) read() {
	br := bufio.NewReaderSize(c.nc, 4<<10)
	for {
		if err := c.readReply(br); err != nil {
			c.fail(fmt.Errorf("%w: read: %w", ErrDisconnected, err))
			return
		}
	}
}

func (c *Client) readReply(br *bufio.Reader) error {
	head, err := br.Peek(8)
	if err != nil {
		return err
	}
	size, correlation := int(int32(binary.BigEndian.Uint32(head))), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > c.cfg.MaxResponse {
		return fmt.Errorf("response frame of %d bytes, at most %d are allowed", size, c.cfg.MaxResponse)
	}
	var p *pending
	select {
	case p = <-c.sent:
	default:
		return fmt.Errorf("response %d to no request", correlation)
	}
	if p.correlation != correlation {
		return fmt.Errorf("response %d where %d is due", correlation, p.correlation)
	}
	_, _ = br.Discard(8) // was peeked
	r := reader{b: make([]byte, size-4)}
	if _, err := io.ReadFull(br, r.b); err != nil {
		return err
	}
	if p.tagged {
		r.tags()
	}
	if r.err != nil {
		return fmt.Errorf("response header: %w", r.err)
	}
	p.reply <- result{body: r.b}
	<-c.slots
	return nil
}

// fail ends the connection once.
func (c *Client) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
		c.nc.Close()
	})
}
