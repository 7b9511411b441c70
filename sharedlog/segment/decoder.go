package segment

import (
	"encoding/binary"
	"fmt"
	"math"

	"ponor/commitlog"
)

// maxName bounds an object name, which front coding could otherwise blow up.
const maxName = 1024

// decoder consumes bytes; the first mistake sticks and everything after it
// reads as zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
	}
	d.b = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("cut off or overlong number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("cut off or overlong number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int63 is a size or position.
func (d *decoder) int63() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.fail("number %d does not fit", v)
		return 0
	}
	return int64(v)
}

// offset is from plus what is stored.
func (d *decoder) offset(from commitlog.Offset) commitlog.Offset {
	v := d.int63()
	if v > math.MaxInt64-int64(from) {
		d.fail("offset %d + %d does not fit", from, v)
		return from
	}
	return from + commitlog.Offset(v)
}

// count reads a number of things that take at least size bytes each, so that a
// lie cannot make the caller allocate.
func (d *decoder) count(size int) int {
	v := d.uvarint()
	if v > uint64(len(d.b)/size) {
		d.fail("%d entries in %d bytes", v, len(d.b))
		return 0
	}
	return int(v)
}

func (d *decoder) byte() byte {
	if len(d.b) < 1 {
		d.fail("cut off")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint32() uint32 {
	if len(d.b) < 4 {
		d.fail("cut off")
		return 0
	}
	v := binary.BigEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("%d bytes wanted of %d", n, len(d.b))
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}
