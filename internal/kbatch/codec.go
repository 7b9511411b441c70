package kbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a record batch's compression.
type Codec int8

// The codecs, by their number in the attributes. XerialSnappy is on the wire
// Snappy too, in the framing that Java clients write.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
	XerialSnappy
)

// Codecs lists all of them, for tables.
func Codecs() []Codec { return []Codec{None, Gzip, Snappy, LZ4, Zstd, XerialSnappy} }

// xerialMagic opens xerial's framing: magic, version 1, compatible with 1.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

// xerialBlock is how many bytes snappy-java puts in one block.
const xerialBlock = 32 << 10

// maxDecompressed bounds what Decode unpacks: nothing that the repository's
// tests build comes near it, and a forged frame cannot take more memory.
const maxDecompressed = 64 << 20

// String is the codec's name in Kafka's configs.
func (c Codec) String() string {
	names := []string{"none", "gzip", "snappy", "lz4", "zstd", "snappy-xerial"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return names[c]
}

// id is the number in the attributes.
func (c Codec) id() Codec {
	if c == XerialSnappy {
		return Snappy
	}
	return c
}

func (c Codec) compress(p []byte) []byte {
	var buf bytes.Buffer
	switch c {
	case None:
		return p
	case Gzip:
		w := gzip.NewWriter(&buf)
		mustClose(w, p)
	case Snappy:
		return snappy.Encode(nil, p)
	case XerialSnappy:
		return xerialEncode(p)
	case LZ4:
		w := lz4.NewWriter(&buf)
		mustClose(w, p)
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(fmt.Sprintf("make zstd encoder: %v", err)) // only wrong options can do this
		}
		defer func() { _ = w.Close() }()
		return w.EncodeAll(p, nil)
	default:
		panic(fmt.Sprintf("unknown codec %d", c))
	}
	return buf.Bytes()
}

// mustClose writes all of p and ends the stream. Writing to memory cannot fail.
func mustClose(w io.WriteCloser, p []byte) {
	_, err := w.Write(p)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(fmt.Sprintf("compress to memory: %v", err))
	}
}

func xerialEncode(p []byte) []byte {
	out := bytes.Clone(xerialMagic)
	for len(p) > 0 {
		n := min(len(p), xerialBlock)
		block := snappy.Encode(nil, p[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		p = p[n:]
	}
	return out
}

// decompress unpacks what any client may have written under the codec id.
func (c Codec) decompress(p []byte) ([]byte, error) {
	switch c {
	case None:
		return p, nil
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(p))
		if err != nil {
			return nil, err
		}
		return readAll(r)
	case Snappy:
		return snappyDecode(p)
	case LZ4:
		return readAll(lz4.NewReader(bytes.NewReader(p)))
	case Zstd:
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecompressed))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.DecodeAll(p, nil)
	default:
		return nil, fmt.Errorf("unknown codec %d", c)
	}
}

func readAll(r io.Reader) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, maxDecompressed+1))
	if err == nil && len(out) > maxDecompressed {
		err = errors.New("more than 64 MiB decompressed")
	}
	return out, err
}

func snappyDecode(p []byte) ([]byte, error) {
	if !bytes.HasPrefix(p, xerialMagic[:8]) {
		return snappyBlock(nil, p)
	}
	if len(p) < len(xerialMagic) {
		return nil, io.ErrUnexpectedEOF
	}
	var out []byte
	var err error
	for p = p[len(xerialMagic):]; len(p) > 0; {
		if len(p) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(p))
		if p = p[4:]; n > int64(len(p)) {
			return nil, io.ErrUnexpectedEOF
		}
		if out, err = snappyBlock(out, p[:n]); err != nil {
			return nil, err
		}
		p = p[n:]
	}
	return out, nil
}

func snappyBlock(out, block []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	// Snappy's best ratio is about 21:1; a length beyond that is forged.
	if n > maxDecompressed-len(out) || n > 64*len(block)+64 {
		return nil, fmt.Errorf("snappy block claims %d bytes", n)
	}
	dec, err := snappy.Decode(nil, block)
	return append(out, dec...), err
}
