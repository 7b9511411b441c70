package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/internal/crc32c"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// Sizes of the fixed parts, in bytes.
const (
	HeaderBytes  = 32
	TrailerBytes = 32
)

// BlockBytes is the size at which a block of a run's sparse index is full. A
// block is at least one batch, so it can be larger.
const BlockBytes = 16 << 10

const objectVersion = 1

var (
	headMagic = [4]byte{'P', 'N', 'R', 'S'}
	tailMagic = [4]byte{'S', 'R', 'N', 'P'}
)

// Name identifies an object: its creator and the creator's counter (obj-2).
type Name struct {
	Creator metadata.Incarnation
	Counter uint64
}

// Key is the object's key below the generation's prefix: folder/3-17/000…42.
func (n Name) Key(folder string) string {
	return fmt.Sprintf("%s/%s/%020d", folder, n.Creator, n.Counter)
}

// Located is a section's place in its object.
type Located struct {
	Stream   commitlog.StreamID
	Base     commitlog.Offset
	Position int64
	Length   int64
}

// Builder lays out one object. Bodies are referenced, not copied. It is used by
// one goroutine.
type Builder struct {
	name     Name
	parts    [][]byte
	size     int64
	sum      uint32 // CRC32C of parts, made of those of blocks
	sections []*Section
	encoded  [][]byte // of sections that Place has fixed
}

// NewBuilder starts an object.
func NewBuilder(name Name) *Builder {
	b := &Builder{name: name}
	h := make([]byte, 0, HeaderBytes)
	h = append(h, headMagic[:]...)
	h = append(h, objectVersion, 0, 0, 0)
	h = binary.BigEndian.AppendUint32(h, uint32(name.Creator.Broker))
	h = binary.BigEndian.AppendUint64(h, name.Creator.Epoch)
	h = binary.BigEndian.AppendUint64(h, name.Counter)
	h = binary.BigEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
	b.parts, b.size, b.sum = [][]byte{h}, HeaderBytes, crc32.Checksum(h, castagnoli)
	return b
}

// Bytes is the size so far, without sections.
func (b *Builder) Bytes() int64 { return b.size }

// Len is the number of sections so far.
func (b *Builder) Len() int { return len(b.sections) }

// AddRun adds the body of a run, which is parts laid end to end: whole batches
// of one stream at one epoch from base on, already patched. It returns the
// section so that the caller can set its State before Finish. The parts must
// stay unchanged until the object is written.
func (b *Builder) AddRun(stream commitlog.StreamID, epoch commitlog.Epoch, base commitlog.Offset, parts [][]byte) (*Section, error) {
	e := Entry{Extent: metadata.Extent{Position: b.size, Base: base, Epoch: epoch, MaxTimestamp: -1}}
	end, err := index(&e, parts)
	if err != nil {
		return nil, fmt.Errorf("index run of stream %d: %w", stream, err)
	}
	e.End = end
	b.parts = append(b.parts, parts...)
	b.size += e.Length
	for _, bl := range e.Blocks {
		b.sum = crc32c.Combine(b.sum, bl.CRC, bl.Length)
	}
	s := &Section{Stream: stream, Base: base, End: end, From: base, Entries: []Entry{e}}
	b.sections = append(b.sections, s)
	return s, nil
}

// AddIndex adds a section that lists extents elsewhere.
func (b *Builder) AddIndex(s *Section) { b.sections = append(b.sections, s) }

// IndexRun is the sparse index of a run that lies elsewhere, as x says; parts are its
// bytes.
func IndexRun(x metadata.Extent, parts [][]byte) (Entry, error) {
	e := Entry{Extent: metadata.Extent{Base: x.Base, Epoch: x.Epoch, MaxTimestamp: -1}}
	end, err := index(&e, parts)
	if err == nil && (end != x.End || e.Length != x.Length) {
		err = fmt.Errorf("%w: %d bytes up to offset %d, their extent has %d up to %d", commitlog.ErrCorrupt, e.Length, end, x.Length, x.End)
	}
	e.Extent = x
	return e, err
}

// index builds the sparse index of a run and checks that its batches are dense
// from e.Base on. A batch never spans parts.
func index(e *Entry, parts [][]byte) (commitlog.Offset, error) {
	next := e.Base
	var cur Block
	flush := func() {
		if cur.Length > 0 {
			e.Blocks = append(e.Blocks, cur)
		}
	}
	for _, p := range parts {
		for len(p) > 0 {
			batch, rest, err := commitlog.SplitBatch(p)
			if err != nil {
				return 0, err
			}
			if batch.BaseOffset() != next || batch.LeaderEpoch() != e.Epoch {
				return 0, fmt.Errorf("batch at %d epoch %d where %d epoch %d belongs: %w",
					batch.BaseOffset(), batch.LeaderEpoch(), next, e.Epoch, commitlog.ErrCorrupt)
			}
			if cur.Length == 0 || cur.Length >= BlockBytes {
				flush()
				cur = Block{Base: next, Position: e.Length, MaxTimestamp: -1}
			}
			cur.CRC = crc32c.AddBatch(cur.CRC, batch)
			cur.Length += int64(len(batch))
			cur.MaxTimestamp = max(cur.MaxTimestamp, batch.MaxTimestamp())
			e.MaxTimestamp = max(e.MaxTimestamp, batch.MaxTimestamp())
			e.Length += int64(len(batch))
			next = batch.LastOffset() + 1
			p = rest
		}
	}
	flush()
	e.Bytes = e.Length
	return next, nil
}

// Place adds a section to an index object and returns where it will lie, so that
// later sections can point at it. It must not be mixed with AddRun or AddIndex,
// and the section must not change any more.
func (b *Builder) Place(s *Section) Located {
	at := Located{Stream: s.Stream, Base: s.Base, Position: b.size}
	for _, p := range b.encoded {
		at.Position += int64(len(p))
	}
	p := AppendSection(nil, s)
	at.Length = int64(len(p))
	b.sections = append(b.sections, s)
	b.encoded = append(b.encoded, p)
	return at
}

// Finish lays out sections, directory and trailer. It returns the whole object
// and, in the order they were added, where each section lies. Entries without
// an object keep the empty name, which means "this object".
func (b *Builder) Finish() (objstore.Body, []Located) {
	var tail []byte
	located := make([]Located, len(b.sections))
	for i, s := range b.sections {
		at := len(tail)
		if i < len(b.encoded) {
			tail = append(tail, b.encoded[i]...)
		} else {
			tail = AppendSection(tail, s)
		}
		located[i] = Located{Stream: s.Stream, Base: s.Base, Position: b.size + int64(at), Length: int64(len(tail) - at)}
	}
	dir := b.size + int64(len(tail))
	at := len(tail)
	tail = binary.AppendUvarint(tail, uint64(len(located)))
	pos := b.size
	for _, l := range located {
		tail = binary.AppendUvarint(tail, uint64(l.Stream))
		tail = binary.AppendUvarint(tail, uint64(l.Base))
		tail = binary.AppendUvarint(tail, uint64(l.Length))
		pos += l.Length
	}
	tail = binary.BigEndian.AppendUint32(tail, crc32.Checksum(tail[at:], castagnoli))
	dirLen := len(tail) - at
	tr := len(tail)
	tail = binary.BigEndian.AppendUint64(tail, uint64(b.size))
	tail = binary.BigEndian.AppendUint64(tail, uint64(dir))
	tail = binary.BigEndian.AppendUint32(tail, uint32(dirLen))
	tail = append(tail, objectVersion, 0, 0, 0)
	tail = binary.BigEndian.AppendUint32(tail, crc32.Checksum(tail[tr:], castagnoli))
	tail = append(tail, tailMagic[:]...)

	return objstore.Body{Parts: append(b.parts, tail), CRC32C: crc32.Update(b.sum, castagnoli, tail)}, located
}

// Trailer says where an object's directory and sections are.
type Trailer struct {
	Sections  int64 // position of the first section; bodies end there
	Directory int64 // position of the directory; sections end there
	DirLength int64
}

// DecodeTrailer reads the last TrailerBytes of an object of the given size.
func DecodeTrailer(b []byte, size int64) (Trailer, error) {
	var t Trailer
	if len(b) != TrailerBytes || size < HeaderBytes+TrailerBytes {
		return t, fmt.Errorf("%w: object of %d bytes", ErrFormat, size)
	}
	if [4]byte(b[28:]) != tailMagic {
		return t, fmt.Errorf("%w: trailer does not end in %q", ErrFormat, tailMagic[:])
	}
	if sum, got := binary.BigEndian.Uint32(b[24:]), crc32.Checksum(b[:24], castagnoli); sum != got {
		return t, fmt.Errorf("%w: trailer CRC is %08x, its bytes have %08x", ErrFormat, sum, got)
	}
	if b[20] != objectVersion {
		return t, fmt.Errorf("%w: object version %d, known is %d", ErrFormat, b[20], objectVersion)
	}
	t.Sections = int64(binary.BigEndian.Uint64(b))
	t.Directory = int64(binary.BigEndian.Uint64(b[8:]))
	t.DirLength = int64(binary.BigEndian.Uint32(b[16:]))
	if t.Sections < HeaderBytes || t.Directory < t.Sections || t.Directory > size || t.Directory+t.DirLength != size-TrailerBytes {
		return t, fmt.Errorf("%w: trailer places sections at %d, directory at %d+%d in %d bytes", ErrFormat, t.Sections, t.Directory, t.DirLength, size)
	}
	return t, nil
}

// DecodeDirectory reads the directory that t points to.
func DecodeDirectory(b []byte, t Trailer) ([]Located, error) {
	if int64(len(b)) != t.DirLength || len(b) < 5 {
		return nil, fmt.Errorf("%w: directory of %d bytes", ErrFormat, len(b))
	}
	body := b[:len(b)-4]
	if sum, got := binary.BigEndian.Uint32(b[len(b)-4:]), crc32.Checksum(body, castagnoli); sum != got {
		return nil, fmt.Errorf("%w: directory CRC is %08x, its bytes have %08x", ErrFormat, sum, got)
	}
	d := decoder{b: body}
	n := d.count(3)
	out := make([]Located, 0, n)
	pos := t.Sections
	for range n {
		l := Located{Stream: commitlog.StreamID(d.uvarint()), Base: d.offset(0), Position: pos, Length: d.int63()}
		pos += l.Length
		if d.err != nil || pos < 0 || pos > t.Directory {
			d.fail("directory runs past the sections")
			return nil, d.err
		}
		out = append(out, l)
	}
	if len(d.b) != 0 || pos != t.Directory {
		d.fail("directory and sections do not meet")
		return nil, d.err
	}
	return out, nil
}
