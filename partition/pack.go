package partition

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/partition/record"
)

// packer recompresses a batch while it is being checked, so that it is
// decompressed only once. Where the codec stays it does nothing at all.
type packer struct {
	batch commitlog.Batch
	codec record.Codec
	limit int // of the result, bytes
	z     *record.Compressor
}

// newPacker decides about compression.type.
func newPacker(b commitlog.Batch, set metadata.TopicSettings) (packer, error) {
	p := packer{batch: b}
	have := record.Codec(b.Attributes() & commitlog.AttrCodec)
	want, ok := wantedCodec(set.CompressionType, have)
	if !ok {
		return p, fmt.Errorf("%w: compression.type %q", ErrUnsupportedCompression, set.CompressionType)
	}
	if want == have || b.Control() {
		return p, nil
	}
	p.codec, p.limit = want, set.MaxMessageBytes
	if set.SegmentBytes > 0 {
		p.limit = int(min(int64(p.limit), set.SegmentBytes))
	}
	// The header goes first; its fields are corrected in finish.
	prefix := make([]byte, commitlog.HeaderBytes, len(b)+len(b)/8)
	copy(prefix, b[:commitlog.HeaderBytes])
	var err error
	p.z, err = record.NewCompressor(want, level(want, set), prefix, p.limit)
	return p, err
}

// level is the topic's level for a codec (KIP-390).
func level(c record.Codec, set metadata.TopicSettings) int {
	switch c {
	case record.Gzip:
		return cmp.Or(set.GzipLevel, record.DefaultGzipLevel)
	case record.LZ4:
		return cmp.Or(set.LZ4Level, record.DefaultLZ4Level)
	case record.Zstd:
		return cmp.Or(set.ZstdLevel, record.DefaultZstdLevel)
	case record.None, record.Snappy:
	}
	return 0
}

// wantedCodec is the codec that compression.type asks for.
func wantedCodec(name string, have record.Codec) (record.Codec, bool) {
	switch name {
	case metadata.CompressionProducer, "":
		return have, true
	case "uncompressed", "none":
		return record.None, true
	case "gzip":
		return record.Gzip, true
	case "snappy":
		return record.Snappy, true
	case "lz4":
		return record.LZ4, true
	case "zstd":
		return record.Zstd, true
	}
	return 0, false
}

// tee is where the uncompressed records go, nil if they stay as they are.
func (p *packer) tee() io.Writer {
	if p.z == nil {
		return nil
	}
	return p.z
}

// finish is the batch to store.
func (p *packer) finish() (commitlog.Batch, error) {
	if p.z == nil {
		return p.batch, nil
	}
	out, err := p.z.Finish()
	if errors.Is(err, record.ErrTooLarge) {
		return nil, fmt.Errorf("%w: recompressed with %s the record batch exceeds %d bytes", ErrMessageTooLarge, p.codec, p.limit)
	}
	if err != nil {
		return nil, fmt.Errorf("recompress record batch with %s: %w", p.codec, err)
	}
	b := commitlog.Batch(out)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint16(b[21:], uint16(b.Attributes()&^commitlog.AttrCodec|int16(p.codec)))
	b.SetCRC()
	return b, nil
}

// discard gives pooled memory back, also after an error.
func (p *packer) discard() {
	if p.z != nil {
		p.z.Discard()
	}
}
