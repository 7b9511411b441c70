package rpc

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"unsafe"
)

var (
	errTruncated = errors.New("truncated")
	errTags      = errors.New("too many tagged fields")
)

// Kafka's own decoding limits since 4.4.
const (
	maxArrayElements = 1_000_000
	maxTaggedFields  = 10_000
)

// headBytes is the part of a request that every version has in common: size,
// key, version, correlation id.
const headBytes = 12

// keepName bounds the names that a connection keeps.
const keepName = 255

type head struct {
	size         int // bytes after the size field; may be negative
	key, version int16
	correlation  int32
}

func parseHead(b []byte) head {
	return head{
		size: int(int32(binary.BigEndian.Uint32(b))), key: int16(binary.BigEndian.Uint16(b[4:])),
		version: int16(binary.BigEndian.Uint16(b[6:])), correlation: int32(binary.BigEndian.Uint32(b[8:])),
	}
}

// parseHeader reads client id and tags and returns the body.
func (c *Conn) parseHeader(q *call) ([]byte, error) {
	r := reader{b: q.frame}
	// The client id is never compact, not even in flexible versions (KIP-482).
	q.ClientID = c.clientID
	if id := r.string(false); string(id) != q.ClientID {
		q.ClientID = string(id)
		if len(id) <= keepName {
			c.clientID = q.ClientID
		}
	}
	if q.route.flexible(q.Version) {
		r.tags()
	}
	return r.b, r.err
}

// reader walks Kafka's primitive types. After the first error every read
// returns zero values, so that callers check once.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(errTruncated)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) int8() int8 {
	if v := r.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (r *reader) int16() int16 {
	if v := r.take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (r *reader) int32() int32 {
	if v := r.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

// uvarint reads at most 32 bits.
func (r *reader) uvarint() uint32 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint32(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.fail(errTruncated)
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// string returns nil for null. A negative length other than -1 is null too, as
// for kmsg.
func (r *reader) string(flexible bool) []byte {
	n := 0
	if flexible {
		n = int(r.uvarint()) - 1
	} else {
		n = int(r.int16())
	}
	if n < 0 || r.err != nil {
		return nil
	}
	return r.take(n)
}

// bytes returns nil for null.
func (r *reader) bytes(flexible bool) []byte {
	n := 0
	if flexible {
		n = int(r.uvarint()) - 1
	} else {
		n = int(r.int32())
	}
	if n < 0 || r.err != nil {
		return nil
	}
	return r.take(n)
}

// array reads an element count: -1 or less for null. It fails for a count that
// Kafka refuses or that cannot fit in the bytes left.
func (r *reader) array(flexible bool, minElement int) int {
	n := 0
	if flexible {
		n = int(int32(r.uvarint())) - 1
	} else {
		n = int(r.int32())
	}
	if n > maxArrayElements || n > 0 && n > len(r.b)/max(minElement, 1) {
		r.fail(errTruncated)
		return 0
	}
	return n
}

// tags skips tagged fields and returns how many there were.
func (r *reader) tags() int {
	n := int(r.uvarint())
	if n > maxTaggedFields {
		r.fail(errTags)
		return 0
	}
	for range n {
		r.uvarint()
		r.take(int(r.uvarint()))
		if r.err != nil {
			return 0
		}
	}
	return n
}

// Frames of Raw requests are recycled in size classes, four to a power of two,
// so that at most a fifth of one is waste. Above the largest class they are left
// to the garbage collector, as are all frames that kmsg decodes: decoded byte
// fields alias them.
const (
	minFrameShift = 9  // 512 B
	maxFrameShift = 24 // 16 MiB
)

// framePools hold the first byte of a frame each: the class says how long it is,
// and a pointer goes into an interface without an allocation.
var framePools [(maxFrameShift - minFrameShift + 1) * 4]sync.Pool

// frameClass returns the class that holds n bytes and its size; -1 for none.
func frameClass(n int) (class, size int) {
	if n <= 1<<minFrameShift {
		return 0, 1 << minFrameShift
	}
	if n > 1<<maxFrameShift {
		return -1, n
	}
	shift := bits.Len(uint(n-1)) - 1 // 2^shift < n <= 2^(shift+1)
	quarter := 1 << (shift - 2)
	i := (n - 1<<shift + quarter - 1) / quarter // 1..4
	return (shift-minFrameShift)*4 + i, 1<<shift + i*quarter
}

// frameCost is what a frame of n bytes takes from the budget.
func frameCost(n int) int64 {
	_, size := frameClass(n)
	return int64(size)
}

func allocFrame(n int, pooled bool) []byte {
	if !pooled {
		return make([]byte, n)
	}
	class, size := frameClass(n)
	if class < 0 {
		return make([]byte, n)
	}
	if p, ok := framePools[class].Get().(*byte); ok {
		return unsafe.Slice(p, size)[:n]
	}
	return make([]byte, n, size)
}

func freeFrame(b []byte) {
	if class, size := frameClass(cap(b)); class >= 0 && size == cap(b) {
		framePools[class].Put(unsafe.SliceData(b))
	}
}
