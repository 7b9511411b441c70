package record

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"ponor/commitlog"
)

// MaxUncompressed is the most that one batch may unpack to, in bytes. Kafka
// has no limit of its own but max.message.bytes, which counts compressed
// bytes; a limit is what keeps a small frame from costing minutes.
const MaxUncompressed = 256 << 20

// minRecord is the shortest body: attributes, two deltas, two lengths and a
// header count.
const minRecord = 6

// bufferBytes is the window over a compressed batch.
const bufferBytes = 32 << 10

// Errors that end a walk.
var (
	// ErrTruncated: the records end before the batch's count is reached, or in
	// the middle of one.
	ErrTruncated = errors.New("records end early")
	// ErrTrailing: bytes are left after the last record.
	ErrTrailing = errors.New("bytes are left after the last record")
	// ErrLength: a record's own length is impossible, so the next one cannot be
	// found.
	ErrLength = errors.New("record has an impossible length")
	// ErrTooLarge: more than MaxUncompressed bytes, or more than the writer's
	// limit.
	ErrTooLarge = errors.New("records unpack to too many bytes")
	// ErrCodec: the attributes name a codec that does not exist.
	ErrCodec = errors.New("unknown compression codec")
	// ErrDecompress: the payload is not what the codec says.
	ErrDecompress = errors.New("cannot decompress records")
)

// Flaw is what is wrong with one record, as a short sentence. Flaws are
// constants, so finding a million of them allocates nothing.
type Flaw string

// Error implements error.
func (f Flaw) Error() string { return string(f) }

// The flaws that the layout itself can have.
const (
	FlawVarint  Flaw = "a length or delta is not a valid varint"
	FlawKey     Flaw = "the key's length exceeds the record"
	FlawValue   Flaw = "the value's length exceeds the record"
	FlawHeaders Flaw = "the header count is impossible"
	FlawHeader  Flaw = "a header's key or value exceeds the record"
	FlawRest    Flaw = "bytes are left after the last header"
)

// flaws boxes them once: converting a Flaw to error would allocate.
var errVarint, errKey, errValue, errHeaders, errHeader, errRest error = FlawVarint, FlawKey, FlawValue, FlawHeaders, FlawHeader, FlawRest

// Record is one record. The slices are set by ReadAll readers only, alias the
// batch or the Reader's buffer, and are valid until the next call.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Attributes     int8
	// KeyBytes and ValueBytes are lengths, -1 for null.
	KeyBytes, ValueBytes int32
	Headers              int32
	Key, Value           []byte
	// RawHeaders are the encoded headers behind the count.
	RawHeaders []byte
}

// Mode says how much of each record a Reader yields.
type Mode uint8

const (
	// Check yields deltas and lengths, and looks at every byte's place.
	Check Mode = iota
	// ReadAll yields keys, values and headers too.
	ReadAll
)

// Reader walks the records of one batch. The zero value needs a Reset.
type Reader struct {
	buf  []byte // all records, or a window over them
	pos  int    // next byte of buf
	gone int    // bytes of the stream before buf[0]
	left int32  // records not yet read
	mode Mode
	src  decoder // nil when buf has everything
	eof  bool    // src has ended
	tee  io.Writer
	err  error
	pool *[]byte
}

// Reset begins the walk of a batch, whose header must have been checked. A
// tee, which may be nil, receives the uncompressed bytes as they go by, each
// once; they are complete when Next has returned io.EOF. ErrCodec and
// ErrDecompress say that there is nothing to walk.
func (r *Reader) Reset(b commitlog.Batch, mode Mode, tee io.Writer) error {
	r.Close()
	*r = Reader{left: b.NumRecords(), mode: mode, tee: tee}
	payload := []byte(b[commitlog.HeaderBytes:])
	codec := Codec(b.Attributes() & commitlog.AttrCodec)
	if codec == None {
		r.buf, r.eof = payload, true
		if tee != nil {
			if _, err := tee.Write(payload); err != nil {
				return err
			}
		}
		return nil
	}
	src, err := openDecoder(codec, payload)
	if err != nil {
		return err
	}
	r.src = src
	r.pool = windows.Get().(*[]byte)
	r.buf = (*r.pool)[:0]
	return nil
}

// windows are the buffers of compressed walks.
var windows = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}

// Close gives pooled memory back. It is safe to call twice and on the zero
// value.
func (r *Reader) Close() {
	if r.src != nil {
		r.src.release()
		r.src = nil
	}
	if r.pool != nil {
		windows.Put(r.pool)
		r.pool = nil
	}
	r.buf, r.tee = nil, nil
}

// Next reads the next record into rec. io.EOF follows the last record of a
// sound batch. After a Flaw the walk may go on; after any other error it is
// over.
func (r *Reader) Next(rec *Record) error {
	if r.err != nil {
		return r.err
	}
	if r.left <= 0 {
		return r.finish()
	}
	r.left--
	if r.mode == Check && r.plain(rec) {
		return nil
	}
	n, ok := r.varint32(1 << 62)
	if !ok {
		return r.end(ErrTruncated)
	}
	if n < minRecord {
		return r.end(ErrLength)
	}
	limit := r.at() + int(n)
	if r.src == nil && limit > len(r.buf) {
		return r.end(ErrTruncated)
	}
	if limit > MaxUncompressed && r.src != nil {
		return r.end(ErrTooLarge)
	}
	if r.mode == ReadAll && !r.need(int(n)) {
		return r.end(ErrTruncated)
	}
	flaw := r.fields(rec, limit)
	if r.err != nil {
		return r.err
	}
	if !r.skipTo(limit) {
		return r.end(ErrTruncated)
	}
	return flaw
}

// plain reads a sound record without headers whose numbers are short and that the
// window has whole, which is nearly every one, without a step for each field. Of any
// other it says false, and has read nothing.
func (r *Reader) plain(rec *Record) bool {
	b := r.buf[r.pos:]
	n, i, ok := short(b, 0)
	end := i + int(n)
	if !ok || n < minRecord || end > len(b) {
		return false
	}
	b = b[:end]
	attributes := int8(b[i])
	stamp, i, ok1 := short(b, i+1)
	offset, i, ok2 := short(b, i)
	key, i, ok3 := short(b, i)
	if !ok1 || !ok2 || !ok3 || key < -1 || int(key) > end-i {
		return false
	}
	value, i, ok := short(b, i+max(0, int(key)))
	// All that is left is the value and a count of no headers.
	if !ok || value < -1 || i+max(0, int(value))+1 != end || b[end-1] != 0 {
		return false
	}
	rec.OffsetDelta, rec.TimestampDelta, rec.Attributes = offset, int64(stamp), attributes
	rec.KeyBytes, rec.ValueBytes, rec.Headers = key, value, 0
	r.pos += end
	return true
}

// short reads a zigzag varint of at most three bytes at b[i:], which has three, and says
// where the next field begins.
func short(b []byte, i int) (v int32, next int, ok bool) {
	if i+2 >= len(b) {
		return 0, 0, false
	}
	u := uint32(b[i])
	i++
	if u >= 1<<7 {
		u = u&0x7f | uint32(b[i])<<7
		i++
		if u >= 1<<14 {
			u = u&0x3fff | uint32(b[i])<<14
			i++
		}
	}
	return int32(u>>1) ^ -int32(u&1), i, u < 1<<21
}

// finish checks that nothing is left behind the last record.
func (r *Reader) finish() error {
	if r.pos < len(r.buf) {
		return r.end(ErrTrailing)
	}
	if !r.eof && r.need(1) {
		return r.end(ErrTrailing)
	}
	return r.end(io.EOF)
}

// end makes err final, unless the source has failed before.
func (r *Reader) end(err error) error {
	if r.err == nil {
		r.err = err
	}
	return r.err
}

// fields reads what is between a record's length and its end.
func (r *Reader) fields(rec *Record, limit int) error {
	if !r.need(1) {
		return errVarint
	}
	rec.Attributes = int8(r.buf[r.pos])
	r.pos++
	var ok bool
	if rec.TimestampDelta, ok = r.varint(limit, 10); !ok {
		return errVarint
	}
	if rec.OffsetDelta, ok = r.varint32(limit); !ok {
		return errVarint
	}
	if rec.KeyBytes, rec.Key, ok = r.bytes(limit); !ok {
		return errKey
	}
	if rec.ValueBytes, rec.Value, ok = r.bytes(limit); !ok {
		return errValue
	}
	if rec.Headers, ok = r.varint32(limit); !ok {
		return errVarint
	}
	// A header takes two bytes at least: checked before looping over a claim.
	if rec.Headers < 0 || int(rec.Headers) > (limit-r.at())/2 {
		return errHeaders
	}
	if r.mode == ReadAll {
		rec.RawHeaders = r.buf[r.pos : r.pos+limit-r.at()]
	}
	for range rec.Headers {
		if n, _, ok := r.bytes(limit); !ok || n < 0 { // a header's key is never null
			return errHeader
		}
		if _, _, ok := r.bytes(limit); !ok {
			return errHeader
		}
	}
	if r.at() != limit {
		return errRest
	}
	return nil
}

// at is the position in the uncompressed stream.
func (r *Reader) at() int { return r.gone + r.pos }

// bytes reads a length and skips that many bytes, which it returns in ReadAll
// mode. A length of -1 is null.
func (r *Reader) bytes(limit int) (int32, []byte, bool) {
	n, ok := r.varint32(limit)
	if !ok || n < -1 || int(n) > limit-r.at() {
		return n, nil, false
	}
	if n <= 0 {
		if n == 0 && r.mode == ReadAll {
			return 0, r.buf[r.pos:r.pos:r.pos], true
		}
		return n, nil, true
	}
	if r.mode == ReadAll {
		b := r.buf[r.pos : r.pos+int(n) : r.pos+int(n)]
		r.pos += int(n)
		return n, b, true
	}
	return n, nil, r.skipTo(r.at() + int(n))
}

// varint32 reads a zigzag varint of at most 5 bytes that ends below limit.
func (r *Reader) varint32(limit int) (int32, bool) {
	// One byte is by far the commonest.
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 && r.at() < limit {
		u := uint32(r.buf[r.pos])
		r.pos++
		return int32(u>>1) ^ -int32(u&1), true
	}
	v, ok := r.varint(limit, 5)
	if !ok || v != int64(int32(v)) {
		return 0, false
	}
	return int32(v), true
}

// varint reads a zigzag varint of at most max bytes that ends below limit.
func (r *Reader) varint(limit, max int) (int64, bool) {
	if len(r.buf)-r.pos < max && !r.eof {
		r.need(max) // fewer is fine at the end
	}
	var u uint64
	for i := range max {
		if r.pos >= len(r.buf) || r.at() >= limit {
			return 0, false
		}
		c := r.buf[r.pos]
		r.pos++
		if i == 9 && c > 1 {
			return 0, false // beyond 64 bits
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), true
		}
	}
	return 0, false
}

// skipTo moves on to a position of the stream.
func (r *Reader) skipTo(to int) bool {
	for to > r.gone+len(r.buf) {
		r.pos = len(r.buf)
		if !r.need(1) {
			return false
		}
	}
	r.pos = to - r.gone
	return true
}

// need makes n bytes available at pos, if the source has them.
func (r *Reader) need(n int) bool {
	if len(r.buf)-r.pos >= n {
		return true
	}
	if r.eof || r.err != nil {
		return false
	}
	if r.pos > 0 { // keep what is unread, at the front
		rest := copy(r.buf, r.buf[r.pos:])
		r.gone += r.pos
		r.buf, r.pos = r.buf[:rest], 0
	}
	for len(r.buf) < n {
		if len(r.buf) == cap(r.buf) {
			r.grow(n)
		}
		if !r.fill() {
			return false
		}
	}
	return true
}

// grow doubles the window towards n bytes, never ahead of the data: a record
// that claims 200 MB costs memory only as its bytes arrive.
func (r *Reader) grow(n int) {
	size := min(2*cap(r.buf), max(n, bufferBytes))
	next := make([]byte, len(r.buf), size)
	copy(next, r.buf)
	if r.pool != nil {
		windows.Put(r.pool)
		r.pool = nil
	}
	r.buf = next
}

// fill reads once from the source into the free part of the window.
func (r *Reader) fill() bool {
	for range 100 { // a reader that returns 0, nil for ever is broken
		n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
		if n > 0 {
			fresh := r.buf[len(r.buf) : len(r.buf)+n]
			r.buf = r.buf[:len(r.buf)+n]
			if r.gone+len(r.buf) > MaxUncompressed {
				r.err = ErrTooLarge
				return false
			}
			if r.tee != nil {
				if _, err := r.tee.Write(fresh); err != nil {
					r.err = err
					return false
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			r.eof = true
			return n > 0
		case err != nil:
			r.err = fmt.Errorf("%w: %w", ErrDecompress, err)
			return false
		case n > 0:
			return true
		}
	}
	r.err = fmt.Errorf("%w: %w", ErrDecompress, io.ErrNoProgress)
	return false
}
