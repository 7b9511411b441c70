package locallog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"ponor/commitlog"
)

// scanChunk is how much a scanner reads at a time.
const scanChunk = 1 << 20

// scanner walks the batches of a log file from a position on, whole batches in
// big reads: for recovery and replay.
type scanner struct {
	file File
	name string
	pos  int64 // of the next batch
	size int64 // where the file ends
	buf  []byte
	off  int64 // file position of buf[0]
}

// next returns the batch at pos and moves past it; io.EOF at the end. Another
// error wraps commitlog.ErrCorrupt and leaves pos at the damage, or is the
// file system's.
func (s *scanner) next() (commitlog.Batch, error) {
	left := s.size - s.pos
	if left == 0 {
		return nil, io.EOF
	}
	p, err := s.ensure(min(commitlog.HeaderBytes, left))
	if err != nil {
		return nil, err
	}
	if len(p) >= 12 {
		if n := int64(int32(binary.BigEndian.Uint32(p[8:]))) + 12; n >= commitlog.HeaderBytes && n <= left {
			if p, err = s.ensure(n); err != nil {
				return nil, err
			}
		}
	}
	b, _, err := commitlog.SplitBatch(p)
	if err != nil {
		return nil, s.corrupt(err)
	}
	s.pos += int64(len(b))
	return b, nil
}

// ensure returns at least n bytes at pos, or what the file has.
func (s *scanner) ensure(n int64) ([]byte, error) {
	if at := s.pos - s.off; at >= 0 && at+n <= int64(len(s.buf)) {
		return s.buf[at:], nil
	}
	n = min(max(n, scanChunk), s.size-s.pos)
	s.buf = slices.Grow(s.buf[:0], int(n))[:n]
	s.off = s.pos
	if _, err := s.file.ReadAt(s.buf, s.pos); err != nil {
		s.buf = s.buf[:0]
		return nil, fmt.Errorf("read %s at byte %d: %w", s.name, s.pos, err)
	}
	return s.buf, nil
}

// corrupt names the place.
func (s *scanner) corrupt(err error) error {
	return fmt.Errorf("%s at byte %d: %w", s.name, s.pos, err)
}

// sector is the unit that a disk writes whole or not at all.
const sector = 512

// tornWindow is how far behind a damaged place later batches are looked for.
const tornWindow = 64 << 20

// torn judges damage at position pos of the last segment, above what is known
// to have been synced. It is the torn end of a write that was never
// acknowledged, and may be cut off, if it shows the marks of one: the file ends
// inside the batch, or a sector was never written and reads as zeros. Anything
// else, such as a whole batch with a flipped bit, was written in full and may
// have been acknowledged: that is never cut off (C14).
func torn(file File, pos, size int64, expected commitlog.Offset) (bool, error) {
	rest := make([]byte, min(size-pos, tornWindow))
	if _, err := file.ReadAt(rest, pos); err != nil {
		return false, err
	}
	if len(rest) < commitlog.HeaderBytes {
		return true, nil
	}
	claimed := int64(int32(binary.BigEndian.Uint32(rest[8:]))) + 12
	if claimed >= commitlog.HeaderBytes && claimed <= int64(len(rest)) {
		return hasUnwrittenSector(rest, claimed, pos, expected), nil
	}
	if hasUnwrittenSector(rest, int64(len(rest)), pos, expected) {
		return true, nil
	}
	if claimed < commitlog.HeaderBytes {
		return false, nil
	}
	// The batch seems to go on behind the end of the file. If the length is
	// what is damaged, the checksum fits the bytes that are there, or further
	// batches follow.
	whole := commitlog.Batch(bytes.Clone(rest))
	if whole.CheckCRC() == nil || laterBatch(rest[1:], expected) {
		return false, nil
	}
	return true, nil
}

// hasUnwrittenSector says whether some sector that the batch in the first n
// bytes of rest touches holds nothing but zeros, up to its end or the file's,
// where a batch with the expected offset would not. The rest of a sector in which
// a batch begins may be zeros by right, as offsets begin with them; so may the
// last byte of a batch, which counts headers.
func hasUnwrittenSector(rest []byte, n, pos int64, expected commitlog.Offset) bool {
	enough := 1 + bits.LeadingZeros64(uint64(expected))/8
	if expected == 0 {
		enough = 12 // past the length, too
	}
	for at := int64(0); at < n; {
		end := min(at+sector-(pos+at)%sector, int64(len(rest)))
		if own := min(end, n) - at; own >= int64(enough) && len(bytes.Trim(rest[at:end], "\x00")) == 0 {
			return true
		}
		at, enough = end, 2
	}
	return false
}

// laterBatch says whether a valid batch at or above an offset starts anywhere.
func laterBatch(p []byte, expected commitlog.Offset) bool {
	for ; len(p) >= commitlog.HeaderBytes; p = p[1:] {
		if p[16] != 2 {
			continue
		}
		b, _, err := commitlog.SplitBatch(p)
		// The offset rules out almost every accident before the costly CRC.
		if err == nil && b.BaseOffset() >= expected && b.BaseOffset() < expected+math.MaxInt32 && b.CheckCRC() == nil {
			return true
		}
	}
	return false
}
