package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
)

// ErrFormat is wrapped by every decoding error; callers that name the object
// add commitlog.ErrCorrupt.
var ErrFormat = errors.New("not a valid segment object")

// Block is one entry of a run's sparse index: whole batches that are read and
// verified together.
type Block struct {
	// Base is the offset of the block's first record.
	Base commitlog.Offset
	// Position is where it starts, relative to the run.
	Position int64
	// Length is its size in bytes.
	Length int64
	// MaxTimestamp is the largest of its batches, in milliseconds.
	MaxTimestamp int64
	// CRC is the CRC32C of its bytes.
	CRC uint32
}

// Entry is one extent that a section describes. Object is empty when the bytes
// lie in the section's own object. Blocks are empty when there is no sparse
// index (WAL data); a reader then scans the batches.
type Entry struct {
	metadata.Extent
	Blocks []Block
}

// StateKind says how a section carries what recovery needs.
type StateKind uint8

// The kinds of State. The numbers are in the format.
const (
	// StateNone: the section says nothing; look into what it lists.
	StateNone StateKind = 0
	// StateCheckpoint: Checkpoint covers every batch below the section's End.
	StateCheckpoint StateKind = 1
	// StateDeltas: Deltas are all that matters of the section's range.
	StateDeltas StateKind = 2
)

// State is what recovery learns from a section without reading bodies (prod-1).
type State struct {
	Kind       StateKind
	Checkpoint []byte
	Deltas     []commitlog.BatchInfo
}

// Section describes a gap-free range of one stream: a run (one Entry in the own
// object) or an index (any number, anywhere).
type Section struct {
	Stream commitlog.StreamID
	Base   commitlog.Offset
	End    commitlog.Offset
	// From is the first offset that Entries cover; [Base, From) was trimmed away
	// before the section was written. At most Base means Base.
	From    commitlog.Offset
	Entries []Entry
	State   State
}

// MaxTimestamp is the largest over all entries, -1 if there are none.
func (s *Section) MaxTimestamp() int64 {
	most := int64(-1)
	for i := range s.Entries {
		most = max(most, s.Entries[i].MaxTimestamp)
	}
	return most
}

// RecordBytes is the sum over all entries.
func (s *Section) RecordBytes() int64 {
	var n int64
	for i := range s.Entries {
		n += s.Entries[i].Bytes
	}
	return n
}

// sectionVersion is the first byte of every section.
const sectionVersion = 1

const entryIndirect = 1 // flag bits of an entry

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendSection appends s and its CRC. Names of objects are stored as the
// length shared with the name before plus the rest: the thousands of WAL slots
// in a recovery index differ in a digit or two.
func AppendSection(dst []byte, s *Section) []byte {
	start := len(dst)
	dst = append(dst, sectionVersion)
	dst = binary.AppendUvarint(dst, uint64(s.Stream))
	dst = binary.AppendUvarint(dst, uint64(s.Base))
	dst = binary.AppendUvarint(dst, uint64(s.End-s.Base))
	dst = binary.AppendUvarint(dst, uint64(max(s.From, s.Base)-s.Base))
	dst = binary.AppendUvarint(dst, uint64(len(s.Entries)))
	prevName, prevTime, prevEpoch := "", int64(0), commitlog.Epoch(0)
	for i := range s.Entries {
		e := &s.Entries[i]
		flags := byte(0)
		if e.Indirect {
			flags |= entryIndirect
		}
		dst = append(dst, flags)
		shared := sharedPrefix(prevName, e.Object)
		dst = binary.AppendUvarint(dst, uint64(shared))
		dst = binary.AppendUvarint(dst, uint64(len(e.Object)-shared))
		dst = append(dst, e.Object[shared:]...)
		dst = binary.AppendUvarint(dst, uint64(e.Position))
		dst = binary.AppendUvarint(dst, uint64(e.Length))
		dst = binary.AppendUvarint(dst, uint64(e.Bytes))
		dst = binary.AppendUvarint(dst, uint64(e.End-e.Base))
		dst = binary.AppendVarint(dst, int64(e.Epoch-prevEpoch))
		dst = binary.AppendVarint(dst, e.MaxTimestamp-prevTime)
		dst = appendBlocks(dst, e)
		prevName, prevTime, prevEpoch = e.Object, e.MaxTimestamp, e.Epoch
	}
	dst = appendState(dst, s)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func appendBlocks(dst []byte, e *Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(e.Blocks)))
	base, ts := e.Base, int64(0)
	for _, b := range e.Blocks {
		dst = binary.AppendUvarint(dst, uint64(b.Base-base))
		dst = binary.AppendUvarint(dst, uint64(b.Length))
		dst = binary.AppendVarint(dst, b.MaxTimestamp-ts)
		dst = binary.BigEndian.AppendUint32(dst, b.CRC)
		base, ts = b.Base, b.MaxTimestamp
	}
	return dst
}

func appendState(dst []byte, s *Section) []byte {
	dst = append(dst, byte(s.State.Kind))
	switch s.State.Kind {
	case StateCheckpoint:
		dst = binary.AppendUvarint(dst, uint64(len(s.State.Checkpoint)))
		dst = append(dst, s.State.Checkpoint...)
	case StateDeltas:
		dst = binary.AppendUvarint(dst, uint64(len(s.State.Deltas)))
		prev := commitlog.BatchInfo{BaseOffset: s.Base}
		for _, d := range s.State.Deltas {
			dst = appendDelta(dst, &prev, &d)
			prev = d
		}
	case StateNone:
	}
	return dst
}

// appendDelta writes d relative to the one before it.
func appendDelta(dst []byte, prev, d *commitlog.BatchInfo) []byte {
	dst = binary.AppendVarint(dst, int64(d.BaseOffset-prev.BaseOffset))
	dst = binary.AppendUvarint(dst, uint64(d.LastOffset-d.BaseOffset))
	dst = binary.AppendVarint(dst, int64(d.LeaderEpoch)-int64(prev.LeaderEpoch))
	dst = binary.AppendVarint(dst, d.MaxTimestamp-prev.MaxTimestamp)
	dst = binary.AppendVarint(dst, d.ProducerID-prev.ProducerID)
	dst = binary.AppendVarint(dst, int64(d.ProducerEpoch))
	dst = binary.AppendVarint(dst, int64(d.BaseSequence))
	dst = binary.AppendVarint(dst, int64(d.LastSequence)-int64(d.BaseSequence))
	dst = binary.AppendUvarint(dst, uint64(uint16(d.Attributes)))
	dst = binary.AppendVarint(dst, int64(d.Marker))
	return binary.AppendVarint(dst, int64(d.CoordinatorEpoch))
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// DecodeSection reads a section that fills b exactly.
func DecodeSection(b []byte) (*Section, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: section of %d bytes", ErrFormat, len(b))
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("%w: section CRC is %08x, its bytes have %08x", ErrFormat, sum, got)
	}
	if body[0] != sectionVersion {
		return nil, fmt.Errorf("%w: section version %d, known is %d", ErrFormat, body[0], sectionVersion)
	}
	d := decoder{b: body[1:]}
	s := &Section{Stream: commitlog.StreamID(d.uvarint()), Base: d.offset(0)}
	s.End = d.offset(s.Base)
	s.From = d.offset(s.Base)
	n := d.count(9)
	s.Entries = make([]Entry, 0, n)
	prev := metadata.Extent{End: s.From}
	for range n {
		e := d.entry(&prev)
		if d.err != nil {
			return nil, d.err
		}
		s.Entries = append(s.Entries, e)
		prev = e.Extent
	}
	d.state(s)
	if d.err == nil && len(d.b) != 0 {
		d.fail("section has %d bytes too many", len(d.b))
	}
	if d.err == nil && n > 0 && prev.End != s.End {
		d.fail("section ends at %d, its entries at %d", s.End, prev.End)
	}
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

func (d *decoder) entry(prev *metadata.Extent) Entry {
	var e Entry
	flags := d.byte()
	if flags&^entryIndirect != 0 {
		d.fail("unknown entry flags %02x", flags)
	}
	e.Indirect = flags&entryIndirect != 0
	shared := d.uvarint()
	if shared > uint64(len(prev.Object)) {
		d.fail("object name shares %d bytes of %d", shared, len(prev.Object))
		return e
	}
	rest := d.bytes(d.uvarint())
	if len(rest) == 0 && shared == uint64(len(prev.Object)) {
		e.Object = prev.Object // one string for many entries of one object
	} else {
		e.Object = prev.Object[:shared] + string(rest)
	}
	if len(e.Object) > maxName {
		d.fail("object name of %d bytes", len(e.Object))
	}
	e.Position, e.Length, e.Bytes = d.int63(), d.int63(), d.int63()
	e.Base = prev.End
	e.End = d.offset(e.Base)
	e.Epoch = commitlog.Epoch(int64(prev.Epoch) + d.varint())
	e.MaxTimestamp = prev.MaxTimestamp + d.varint()
	n := d.count(7)
	if n > 0 {
		e.Blocks = make([]Block, 0, n)
	}
	base, pos, ts := e.Base, int64(0), int64(0)
	for range n {
		b := Block{Base: d.offset(base), Position: pos, Length: d.int63()}
		b.MaxTimestamp = ts + d.varint()
		b.CRC = d.uint32()
		base, pos, ts = b.Base, pos+b.Length, b.MaxTimestamp
		if d.err != nil || pos < 0 || pos > e.Length {
			d.fail("blocks of %d bytes in a run of %d", pos, e.Length)
			return e
		}
		e.Blocks = append(e.Blocks, b)
	}
	if n > 0 && pos != e.Length {
		d.fail("blocks cover %d bytes of a run of %d", pos, e.Length)
	}
	return e
}

func (d *decoder) state(s *Section) {
	s.State.Kind = StateKind(d.byte())
	switch s.State.Kind {
	case StateNone:
	case StateCheckpoint:
		s.State.Checkpoint = append([]byte{}, d.bytes(d.uvarint())...)
	case StateDeltas:
		n := d.count(11)
		s.State.Deltas = make([]commitlog.BatchInfo, 0, n)
		prev := commitlog.BatchInfo{BaseOffset: s.Base}
		for range n {
			prev = d.delta(&prev)
			if d.err != nil {
				return
			}
			s.State.Deltas = append(s.State.Deltas, prev)
		}
	default:
		d.fail("unknown kind of state %d", s.State.Kind)
	}
}

func (d *decoder) delta(prev *commitlog.BatchInfo) commitlog.BatchInfo {
	var i commitlog.BatchInfo
	i.BaseOffset = prev.BaseOffset + commitlog.Offset(d.varint())
	i.LastOffset = i.BaseOffset + commitlog.Offset(d.uvarint())
	i.LeaderEpoch = commitlog.Epoch(int64(prev.LeaderEpoch) + d.varint())
	i.MaxTimestamp = prev.MaxTimestamp + d.varint()
	i.ProducerID = prev.ProducerID + d.varint()
	i.ProducerEpoch = int16(d.varint())
	i.BaseSequence = int32(d.varint())
	i.LastSequence = int32(int64(i.BaseSequence) + d.varint())
	i.Attributes = int16(uint16(d.uvarint()))
	i.Marker = int16(d.varint())
	i.CoordinatorEpoch = int32(d.varint())
	return i
}
