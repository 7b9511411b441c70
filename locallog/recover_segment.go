package locallog

import (
	"errors"
	"fmt"
	"io"

	"ponor/commitlog"
)

// recovery says how to recover a segment.
type recovery struct {
	trusted  commitlog.Offset // batches below it were synced: damage is an error
	next     commitlog.Offset // base of the following segment; -1 for the last
	interval int64            // bytes between index entries
}

// recover finds the end of a segment from its last trustworthy index entry on,
// and completes the indexes on the way. Of the last segment it cuts off a torn
// end; any other damage is an error that names file and position.
func (s *segment) recover(r recovery) error {
	size, err := s.file.Size()
	if err != nil {
		return fmt.Errorf("open segment %s: %w", s.name, err)
	}
	first, err := s.rewind(r.trusted, size)
	if err != nil {
		return err
	}
	if s.w.size > 0 {
		damage, err := s.walk(r, size, first)
		if err != nil || damage == nil {
			return err
		}
		// Either the log is damaged or the index pointed to a wrong place. From
		// the first batch on there is no doubt.
		if err := s.restart(); err != nil {
			return err
		}
	}
	damage, err := s.walk(r, size, -1)
	if err != nil || damage == nil {
		return err
	}
	return s.cutTorn(s.w.size, size, r, damage)
}

// walk notes all batches from the writer's position to the end of the file.
// damage is what is wrong with the bytes; the writer stands in front of it.
// first is the last offset that the index promises for the first batch, or -1.
func (s *segment) walk(r recovery, fileSize int64, first commitlog.Offset) (damage, err error) {
	expected := s.base
	if first >= 0 {
		expected = -1 // known once the first batch is read
	}
	sc := scanner{file: s.file, name: s.name, pos: s.w.size, size: fileSize}
	for {
		at := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.checkNext(b, expected, at)
		}
		if err == nil && expected < 0 && b.LastOffset() != first {
			err = fmt.Errorf("%s at byte %d: %w: batch ends at offset %d, the index says %d", s.name, at, commitlog.ErrCorrupt, b.LastOffset(), first)
		}
		if errors.Is(err, commitlog.ErrCorrupt) {
			return err, nil
		}
		if err != nil {
			return nil, err
		}
		if err := s.note(b.Info(), int64(len(b)), r.interval); err != nil {
			return nil, err
		}
		expected = s.w.end
	}
	if r.next >= 0 && s.w.end != r.next {
		damage = fmt.Errorf("%s: %w: the segment ends at offset %d, the next one begins at %d", s.name, commitlog.ErrCorrupt, s.w.end, r.next)
	} else if r.next < 0 && s.w.end < r.trusted {
		damage = fmt.Errorf("%s: %w: the log ends at offset %d, %d was synced", s.name, commitlog.ErrCorrupt, s.w.end, r.trusted)
	}
	return damage, nil
}

// restart forgets the indexes and goes back to the first batch.
func (s *segment) restart() error {
	s.w = writer{end: s.base, maxTime: -1, lastTime: -1}
	return errors.Join(s.index.cut(0), s.times.cut(0))
}

// checkNext checks a batch met on recovery.
func (s *segment) checkNext(b commitlog.Batch, expected commitlog.Offset, at int64) error {
	err := b.CheckCRC()
	switch {
	case err != nil:
	case expected >= 0 && b.BaseOffset() != expected:
		err = fmt.Errorf("%w: batch has offset %d, expected %d", commitlog.ErrCorrupt, b.BaseOffset(), expected)
	case b.BaseOffset() < s.base || b.LastOffsetDelta() < 0:
		err = fmt.Errorf("%w: batch has offsets %d to %d", commitlog.ErrCorrupt, b.BaseOffset(), b.LastOffset())
	default:
		return nil
	}
	return fmt.Errorf("%s at byte %d: %w", s.name, at, err)
}

// rewind drops index entries at or above trusted and sets the writer to the
// last one that is left. first is the last offset of the batch there, -1 if the
// writer is at the beginning.
func (s *segment) rewind(trusted commitlog.Offset, size int64) (first commitlog.Offset, err error) {
	below := max(int64(trusted-s.base), 0)
	n, err := s.index.search(func(b []byte) bool { return int64(decodeOffsetEntry(b).relative) < below })
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return -1, s.restart()
	}
	var buf [timeEntryBytes]byte
	b, err := s.index.at(n-1, &buf)
	if err != nil {
		return 0, err
	}
	last := decodeOffsetEntry(b)
	if last.relative < 0 || last.position <= 0 || int64(last.position) >= size {
		return -1, s.restart()
	}
	s.w = writer{size: int64(last.position), end: s.base, maxTime: -1, lastTime: -1}
	if err := s.index.cut(n); err != nil {
		return 0, err
	}
	// Time entries about batches behind the place where the walk begins are
	// made again by it.
	if n, err = s.times.search(func(b []byte) bool { return decodeTimeEntry(b).relative <= last.relative }); err != nil {
		return 0, err
	}
	if n > 0 {
		if b, err = s.times.at(n-1, &buf); err != nil {
			return 0, err
		}
		t := decodeTimeEntry(b)
		s.w.maxTime, s.w.lastTime, s.w.maxTimeAt = t.timestamp, t.timestamp, s.base+commitlog.Offset(t.relative)
	}
	return s.base + commitlog.Offset(last.relative), s.times.cut(n)
}

// cutTorn cuts the segment off at damage that was never acknowledged, or
// returns the damage as an error.
func (s *segment) cutTorn(at, size int64, r recovery, damage error) error {
	if r.next >= 0 || s.w.end < r.trusted {
		return fmt.Errorf("recover: %w", damage)
	}
	ok, err := torn(s.file, at, size, s.w.end)
	if err != nil {
		return fmt.Errorf("recover %s: %w", s.name, err)
	}
	if !ok {
		return fmt.Errorf("recover: %w; this is no torn write, so it is left for you to judge: restore the file, or cut it at byte %d to give up what follows", damage, at)
	}
	if err := s.file.Truncate(at); err != nil {
		return fmt.Errorf("cut torn end of %s: %w", s.name, err)
	}
	return nil
}
