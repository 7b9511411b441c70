package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a batch's compression, as in its attributes.
type Codec int8

// The codecs of message format v2.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// String is Kafka's name of the codec.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// maxWindow bounds a zstd decoder's history: 32 MiB is what levels up to 20
// use. Levels 21 and 22 (64 and 128 MiB) are refused, because the window is
// allocated for whoever merely claims it.
const maxWindow = 32 << 20

// decoder is a pooled decompressor.
type decoder interface {
	io.Reader
	// reset begins a payload.
	reset(payload []byte) error
	// release puts it back into its pool.
	release()
}

// pools hold idle decoders by codec.
var pools = [5]sync.Pool{
	Gzip:   {New: func() any { return new(gzipDecoder) }},
	Snappy: {New: func() any { return new(snappyDecoder) }},
	LZ4:    {New: func() any { d := new(lz4Decoder); d.z = lz4.NewReader(&d.in); return d }},
	Zstd:   {New: func() any { return new(zstdDecoder) }},
}

// openDecoder takes a decoder from its pool and starts it on payload.
func openDecoder(c Codec, payload []byte) (decoder, error) {
	if c <= None || int(c) >= len(pools) {
		return nil, fmt.Errorf("%w %d", ErrCodec, int8(c))
	}
	d := pools[c].Get().(decoder)
	if err := d.reset(payload); err != nil {
		d.release()
		return nil, fmt.Errorf("%w: %s: %w", ErrDecompress, c, err)
	}
	return d, nil
}

type gzipDecoder struct {
	in bytes.Reader
	z  gzip.Reader
}

func (d *gzipDecoder) reset(p []byte) error {
	d.in.Reset(p)
	return d.z.Reset(&d.in)
}
func (d *gzipDecoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *gzipDecoder) release()                   { d.in.Reset(nil); pools[Gzip].Put(d) }

type lz4Decoder struct {
	in bytes.Reader
	z  *lz4.Reader
}

func (d *lz4Decoder) reset(p []byte) error { //nolint:unparam // other decoders can fail
	d.in.Reset(p)
	d.z.Reset(&d.in)
	return nil
}
func (d *lz4Decoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *lz4Decoder) release()                   { d.in.Reset(nil); pools[LZ4].Put(d) }

type zstdDecoder struct {
	in bytes.Reader
	z  *zstd.Decoder
}

func (d *zstdDecoder) reset(p []byte) error {
	d.in.Reset(p)
	if d.z == nil {
		// Concurrency 1 decodes on the caller's goroutine and owns none.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(MaxUncompressed))
		if err != nil {
			return err
		}
		d.z = z
	}
	return d.z.Reset(&d.in)
}
func (d *zstdDecoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *zstdDecoder) release() {
	d.in.Reset(nil)
	if d.z != nil && d.z.Reset(&d.in) != nil { // drops its reference to the payload
		d.z = nil
	}
	pools[Zstd].Put(d)
}

// xerialMagic begins the framing of snappy-java, which most clients use: the
// magic, two int32 versions, then blocks of (int32 length, snappy block).
// Others send one bare snappy block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

// xerialHeader is the length of magic and versions.
const xerialHeader = 16

// maxSnappyRatio is beyond what the format can reach (64 bytes of copy cost 3),
// so a bare block's claimed size is checked before it is allocated.
const maxSnappyRatio = 32

var errSnappy = errors.New("malformed snappy data")

type snappyDecoder struct {
	rest   []byte // blocks to come
	framed bool
	out    []byte // the current block, unpacked
	pos    int
}

func (d *snappyDecoder) reset(p []byte) error {
	d.rest, d.framed, d.out, d.pos = p, false, d.out[:0], 0
	if bytes.HasPrefix(p, xerialMagic) {
		if len(p) < xerialHeader {
			return errSnappy
		}
		d.rest, d.framed = p[xerialHeader:], true
	}
	return nil
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for d.pos == len(d.out) {
		if len(d.rest) == 0 {
			return 0, io.EOF
		}
		block := d.rest
		if d.framed {
			if len(block) < 4 {
				return 0, errSnappy
			}
			n := int(binary.BigEndian.Uint32(block))
			if n > len(block)-4 {
				return 0, errSnappy
			}
			block = block[4 : 4+n]
			d.rest = d.rest[4+n:]
		} else {
			d.rest = nil
		}
		if err := d.unpack(block); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.out[d.pos:])
	d.pos += n
	return n, nil
}

func (d *snappyDecoder) unpack(block []byte) error {
	n, err := s2.DecodedLen(block)
	if err != nil || n > maxSnappyRatio*len(block)+64 || n > MaxUncompressed {
		return errSnappy
	}
	if cap(d.out) < n {
		d.out = make([]byte, n)
	}
	out, err := s2.Decode(d.out[:n], block)
	if err != nil {
		return errSnappy
	}
	d.out, d.pos = out, 0
	return nil
}

func (d *snappyDecoder) release() {
	d.rest = nil
	if cap(d.out) > 1<<20 { // a rare giant shall not live in the pool
		d.out = nil
	}
	pools[Snappy].Put(d)
}
