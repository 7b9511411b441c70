package s3

import (
	"errors"
	"io"
	"sync"

	"ponor/sharedlog/objstore"
)

// errReleased ends a transport's reading of a body whose call has returned.
var errReleased = errors.New("body is released")

// body lends the parts of a put to the HTTP transport. The transport may go on
// reading after its call returned (it gave up, or the answer came early), while
// the caller of a Bucket recycles its memory then: release takes the parts back.
type body struct {
	size int64
	mu   struct {
		sync.Mutex
		parts [][]byte // nil once released
	}
}

func newBody(b objstore.Body) *body {
	l := &body{size: b.Len()}
	l.mu.parts = b.Parts
	return l
}

// release returns when no reader touches the parts any more; none ever will.
func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.parts = nil
}

// reader reads a body from its start. Several of one body may exist: the
// transport takes a fresh one when a connection turns out to be dead before
// anything was written. It has no WriteTo on purpose: that would hand parts to a
// connection's blocking write, with the lock held or without its protection.
type reader struct {
	b         *body
	off       int64
	part, pos int // where off is
}

var _ io.ReadSeeker = (*reader)(nil)

// Read copies into the transport's buffer.
func (r *reader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.off >= r.b.size {
		return 0, io.EOF
	}
	if r.b.mu.parts == nil {
		return 0, errReleased
	}
	n := 0
	for n < len(p) && r.part < len(r.b.mu.parts) {
		c := copy(p[n:], r.b.mu.parts[r.part][r.pos:])
		n += c
		if r.pos += c; r.pos == len(r.b.mu.parts[r.part]) {
			r.part, r.pos = r.part+1, 0
		}
	}
	r.off += int64(n)
	return n, nil
}

// Seek implements io.Seeker; the client library measures and rewinds with it.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.off
	case io.SeekEnd:
		offset += r.b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	r.off, r.part, r.pos = offset, 0, 0
	for _, p := range r.b.mu.parts {
		if offset < int64(len(p)) {
			break
		}
		offset -= int64(len(p))
		r.part++
	}
	r.pos = int(offset)
	return r.off, nil
}

// Close implements io.Closer; the body outlives its readers.
func (r *reader) Close() error { return nil }
