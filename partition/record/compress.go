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
	out    bounded
	effort effort
	w      io.WriteCloser
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

// encoder is what a pooled compressor can do.
type encoder interface {
	io.WriteCloser
	Reset(io.Writer)
}

// Kafka's default levels (KIP-390), which an unset level means.
const (
	DefaultGzipLevel = gzip.DefaultCompression
	DefaultLZ4Level  = 9
	DefaultZstdLevel = 3
)

// effort is a codec at one of the efforts that its library has. Kafka's levels
// map to few of them, so the pools stay few.
type effort struct {
	codec Codec
	level int
}

// effortOf maps a level of Kafka's to the library's.
func effortOf(c Codec, level int) effort {
	switch c {
	case Gzip:
		return effort{c, min(max(level, gzip.HuffmanOnly), gzip.BestCompression)}
	case LZ4:
		if level == DefaultLZ4Level { // Kafka's fast compressor, whatever its number says
			return effort{c, 0}
		}
		return effort{c, min(max(level, 1), 9)}
	case Zstd:
		return effort{c, int(zstd.EncoderLevelFromZstd(level))}
	case None, Snappy:
	}
	return effort{c, 0}
}

// encoders hold idle compressors, an *sync.Pool for each effort in use; each
// is costly to make.
var encoders sync.Map

// create makes an encoder; an error is a bug in the mapping of levels.
func (e effort) create() (encoder, error) {
	switch e.codec {
	case Gzip:
		return gzip.NewWriterLevel(nil, e.level)
	case Snappy:
		return new(xerialWriter), nil
	case LZ4:
		// Frames as Kafka's own: independent 64 KiB blocks, no content checksum
		// (the batch has its CRC).
		w, level := lz4.NewWriter(nil), lz4.Fast
		if e.level > 0 {
			level = lz4.CompressionLevel(1 << (8 + e.level)) // lz4.Level1 is 1<<9
		}
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1), lz4.CompressionLevelOption(level))
		return w, err
	case Zstd:
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderLevel(zstd.EncoderLevel(e.level)))
	case None:
	}
	return nil, fmt.Errorf("%w %d", ErrCodec, int8(e.codec))
}

// take gets an idle encoder or makes one.
func (e effort) take() (encoder, error) {
	if p, ok := encoders.Load(e); ok {
		if w, ok := p.(*sync.Pool).Get().(encoder); ok {
			return w, nil
		}
	}
	return e.create()
}

// put makes an encoder idle.
func (e effort) put(w encoder) {
	p, _ := encoders.LoadOrStore(e, new(sync.Pool))
	p.(*sync.Pool).Put(w)
}

// NewCompressor starts a payload that is appended to prefix (a batch header,
// say) and may not exceed limit bytes with it. The level is Kafka's; codecs
// without levels ignore it.
func NewCompressor(c Codec, level int, prefix []byte, limit int) (*Compressor, error) {
	z := &Compressor{out: bounded{b: prefix, max: limit}, effort: effortOf(c, level)}
	if c == None {
		z.w = &z.out
		return z, nil
	}
	w, err := z.effort.take()
	if err != nil {
		return nil, fmt.Errorf("compress records with %s: %w", c, err)
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
	if w, ok := z.w.(encoder); ok {
		w.Reset(io.Discard) // drops the reference to our buffer
		z.effort.put(w)
	}
	z.w = nil
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
