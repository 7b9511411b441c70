package rpc

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// writePiece is how much of a reply the peer must take within WriteStall.
	writePiece = 256 << 10
	// joinBytes: buffers smaller than this are copied together on connections
	// that have no writev, where each would be a packet or TLS record.
	joinBytes = 4 << 10
	// keepReply is the largest encoding buffer that goes back to the pool.
	keepReply = 256 << 10
)

// replyPool holds encoding buffers; a connection has none while it is idle.
var replyPool = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// writer writes replies. Only the ordered goroutine uses it.
type writer struct {
	conn   *Conn
	vector bool // the connection has writev
}

// vector is the scratch of one writev: rest is what WriteTo has not written.
type vector struct{ all, rest net.Buffers }

var vectorPool = sync.Pool{New: func() any { return new(vector) }}

func (w *writer) init(c *Conn) {
	w.conn = c
	switch c.nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		w.vector = true
	}
}

// reply writes the response to a call and returns the bytes written.
func (w *writer) reply(q *call, resp Response) (int, error) {
	switch {
	case resp.CloseErr != nil:
		return 0, resp.CloseErr
	case resp.Nothing:
		return 0, nil
	case resp.Body == nil && resp.Buffers == nil && q.Key < InternalKey:
		w.conn.srv.log.Error("handler returned no response", "api", q.route.name)
		return 0, fmt.Errorf("no response to %s", q.route.name)
	}
	defer w.conn.writing.Store(0)
	p := replyPool.Get().(*[]byte)
	defer func() {
		if cap(*p) <= keepReply {
			replyPool.Put(p)
		}
	}()
	b := append((*p)[:0], 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(q.Correlation))
	if q.Key != KeyApiVersions && q.route.flexible(q.Version) {
		b = append(b, 0) // no tagged fields
	}
	if resp.Body != nil {
		b = q.appendBody(b, &resp)
	}
	*p = b
	n := len(b)
	for _, v := range resp.Buffers {
		n += len(v)
	}
	binary.BigEndian.PutUint32(b, uint32(n-4))
	if len(resp.Buffers) == 0 {
		return n, w.write(b)
	}
	if w.vector {
		return n, w.writev(b, resp.Buffers)
	}
	return n, w.join(b, resp.Buffers)
}

// appendBody encodes a body at the version that was asked for.
func (q *call) appendBody(b []byte, resp *Response) []byte {
	version := q.Version
	if q.Unsupported {
		version = 0
	}
	if t, ok := resp.Body.(kmsg.SetThrottleResponse); ok && resp.Throttle > 0 {
		t.SetThrottle(int32(min(resp.Throttle.Milliseconds(), math.MaxInt32)))
	}
	resp.Body.SetVersion(version)
	return resp.Body.AppendTo(b)
}

// write writes one buffer in pieces, so that the reaper sees progress.
func (w *writer) write(b []byte) error {
	for len(b) > 0 {
		w.conn.writing.Store(w.conn.srv.clock())
		n := min(len(b), writePiece)
		if _, err := w.conn.nc.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// writev writes first and then bufs in vectors of at most writePiece bytes.
func (w *writer) writev(first []byte, bufs net.Buffers) error {
	v := vectorPool.Get().(*vector)
	defer vectorPool.Put(v)
	v.all = append(v.all[:0], first)
	room := writePiece - len(first)
	for _, b := range bufs {
		for len(b) > 0 {
			if room <= 0 {
				if err := w.flush(v); err != nil {
					return err
				}
				room = writePiece
			}
			n := min(len(b), room)
			v.all = append(v.all, b[:n])
			b, room = b[n:], room-n
		}
	}
	return w.flush(v)
}

// flush writes a vector and empties it of references.
func (w *writer) flush(v *vector) error {
	w.conn.writing.Store(w.conn.srv.clock())
	v.rest = v.all
	_, err := v.rest.WriteTo(w.conn.nc)
	clear(v.all)
	v.all, v.rest = v.all[:0], nil
	return err
}

// join is writev for connections without it: small neighbours are copied into
// one write, large buffers are not copied.
func (w *writer) join(first []byte, bufs net.Buffers) error {
	acc := first
	for _, b := range bufs {
		if len(b) < joinBytes {
			acc = append(acc, b...)
			if len(acc) < joinBytes {
				continue
			}
			b = nil
		}
		if err := w.write(acc); err != nil {
			return err
		}
		acc = acc[:0]
		if err := w.write(b); err != nil {
			return err
		}
	}
	return w.write(acc)
}
