package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressor packs records with one codec into a buffer behind a prefix, and
// refuses to grow beyond a limit. It belongs to one goroutine.
type Compressor struct {
	out   bounded
	codec Codec
	w     io.WriteCloser
}

// bounded is an append buffer that fails with ErrTooLarge at its limit.
type bounded struct {
	b   []byte
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.b)+len(p) > b.max {
		return 0, ErrTooLarge
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

// Close implements io.Closer for the codec that does nothing.
func (b *bounded) Close() error { return nil }

// encoders hold idle compressors by codec; each is costly to make.
var encoders = [5]sync.Pool{
	Gzip:   {New: func() any { return gzip.NewWriter(nil) }},
	Snappy: {New: func() any { return new(xerialWriter) }},
	LZ4:    {New: func() any { return newLZ4Writer() }},
	Zstd:   {New: func() any { return newZstdWriter() }},
}

// NewCompressor starts a payload that is appended to prefix (a batch header,
// say) and may not exceed limit bytes with it.
func NewCompressor(c Codec, prefix []byte, limit int) (*Compressor, error) {
	z := &Compressor{out: bounded{b: prefix, max: limit}, codec: c}
	if c < None || int(c) >= len(encoders) {
		return nil, fmt.Errorf("%w %d", ErrCodec, int8(c))
	}
	if c == None {
		z.w = &z.out
		return z, nil
	}
	w, ok := encoders[c].Get().(interface {
		io.WriteCloser
		Reset(io.Writer)
	})
	if !ok {
		return nil, fmt.Errorf("compress records with %s: no encoder", c)
	}
	w.Reset(&z.out)
	z.w = w
	return z, nil
}

// Write implements io.Writer. ErrTooLarge says that the limit was reached.
func (z *Compressor) Write(p []byte) (int, error) { return z.w.Write(p) }

// Finish ends the payload and returns prefix and payload. The Compressor is
// used up.
func (z *Compressor) Finish() ([]byte, error) {
	if z.w == nil {
		return nil, io.ErrClosedPipe
	}
	err := z.w.Close()
	z.Discard()
	return z.out.b, err
}

// Discard gives the encoder back without finishing; it is safe after Finish.
func (z *Compressor) Discard() {
	if w, ok := z.w.(interface{ Reset(io.Writer) }); ok {
		w.Reset(io.Discard) // drops the reference to our buffer
		encoders[z.codec].Put(w)
	}
	z.w = nil
}

// newLZ4Writer makes frames as Kafka's own: independent 64 KiB blocks, no
// content checksum (the batch has its CRC).
func newLZ4Writer() any {
	w := lz4.NewWriter(nil)
	// The options are constants that the library knows.
	_ = w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
	return w
}

func newZstdWriter() any {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil // constants: cannot happen; NewCompressor reports it
	}
	return w
}

// xerialBlock is snappy-java's block size.
const xerialBlock = 32 << 10

// xerialWriter frames snappy blocks as snappy-java does.
type xerialWriter struct {
	w       io.Writer
	in      []byte
	out     []byte
	started bool
}

// Reset begins a payload.
func (x *xerialWriter) Reset(w io.Writer) { x.w, x.in, x.started = w, x.in[:0], false }

// Write implements io.Writer.
func (x *xerialWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), xerialBlock-len(x.in))
		x.in = append(x.in, p[:n]...)
		p = p[n:]
		if len(x.in) == xerialBlock {
			if err := x.flush(); err != nil {
				return total - len(p), err
			}
		}
	}
	return total, nil
}

// Close writes what is left.
func (x *xerialWriter) Close() error {
	if len(x.in) == 0 && x.started {
		return nil
	}
	return x.flush()
}

func (x *xerialWriter) flush() error {
	if !x.started {
		x.started = true
		head := append([]byte(nil), xerialMagic...)
		head = binary.BigEndian.AppendUint32(head, 1)
		head = binary.BigEndian.AppendUint32(head, 1)
		if _, err := x.w.Write(head); err != nil {
			return err
		}
	}
	if need := s2.MaxEncodedLen(len(x.in)); cap(x.out) < need+4 {
		x.out = make([]byte, need+4)
	}
	block := s2.EncodeSnappy(x.out[4:cap(x.out)], x.in)
	binary.BigEndian.PutUint32(x.out[:4], uint32(len(block)))
	x.in = x.in[:0]
	_, err := x.w.Write(x.out[:4+len(block)])
	return err
}
