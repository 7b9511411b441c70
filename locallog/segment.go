package locallog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"ponor/commitlog"
)

const (
	logSuffix    = ".log"
	indexSuffix  = ".index"
	timesSuffix  = ".timeindex"
	dirtySuffix  = ".tmp"
	deletedMark  = ".deleted"
	maxPosition  = math.MaxInt32 // positions in an index are int32
	defaultIndex = 4096
)

// segment is one .log file with its two indexes. Fields in w belong to whoever
// holds the log's io token; the ones below mu are guarded by Log.mu and describe
// only what is durable, which is all that readers see.
type segment struct {
	base  commitlog.Offset
	name  string // of the .log file
	file  File
	index *indexFile
	times *indexFile
	w     writer

	// Guarded by Log.mu:
	size    int64
	end     commitlog.Offset
	maxTime int64     // of all batches, -1 if none
	born    time.Time // when the first batch came, as far as known
	readers int
	removed bool
}

// writer is what appending to a segment needs to know.
type writer struct {
	size       int64
	end        commitlog.Offset
	sinceIndex int64 // bytes since the last index entry
	maxTime    int64
	maxTimeAt  commitlog.Offset // last offset of the first batch with maxTime
	lastTime   int64            // timestamp of the last time index entry
}

// openSegment opens or makes the files of a segment; its indexes are emptied
// unless both look like indexes. What the log holds is found by recover.
func openSegment(fsys FS, dir string, base commitlog.Offset) (*segment, error) {
	s := &segment{base: base, name: filepath.Join(dir, offsetName(base, logSuffix)), end: base, maxTime: -1}
	s.w = writer{end: base, maxTime: -1, lastTime: -1}
	var err error
	if s.file, err = fsys.Open(s.name, true); err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	var indexOK, timesOK bool
	if s.index, indexOK, err = loadIndex(fsys, filepath.Join(dir, offsetName(base, indexSuffix)), offsetEntryBytes); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.times, timesOK, err = loadIndex(fsys, filepath.Join(dir, offsetName(base, timesSuffix)), timeEntryBytes); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.w.size, err = s.file.Size(); err != nil {
		return nil, errors.Join(fmt.Errorf("open segment %s: %w", s.name, err), s.close())
	}
	// An index is a shortcut: one that is in doubt starts again from nothing,
	// and walking the log fills it.
	if !indexOK || !timesOK || !s.plausible() {
		err = errors.Join(s.index.cut(0), s.times.cut(0))
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// plausible says whether the last entries of both indexes can be true.
func (s *segment) plausible() bool {
	var buf [timeEntryBytes]byte
	last := func(x *indexFile, back int64) ([]byte, bool) {
		n := x.count.Load()
		if n < back {
			return nil, false
		}
		b, err := x.at(n-back, &buf)
		return b, err == nil
	}
	b, ok := last(s.index, 1)
	if !ok {
		return false
	}
	e := decodeOffsetEntry(b)
	if e.relative < 0 || e.position < 0 || int64(e.position)+commitlog.HeaderBytes > s.w.size {
		return false
	}
	if b, ok = last(s.index, 2); ok {
		if p := decodeOffsetEntry(b); p.relative >= e.relative || p.position >= e.position {
			return false
		}
	}
	if b, ok = last(s.times, 1); !ok {
		return false
	}
	t := decodeTimeEntry(b)
	if b, ok = last(s.times, 2); ok && decodeTimeEntry(b).timestamp >= t.timestamp {
		return false
	}
	return t.relative >= 0
}

func (s *segment) close() error {
	err := s.file.Close()
	for _, x := range []*indexFile{s.index, s.times} {
		if x != nil {
			err = errors.Join(err, x.file.Close())
		}
	}
	return err
}

func (s *segment) remove(fsys FS) error {
	return errors.Join(fsys.RemoveAll(s.name), fsys.RemoveAll(s.index.name), fsys.RemoveAll(s.times.name))
}

// fits says whether a batch may go into this segment.
func (s *segment) fits(b commitlog.Batch, set commitlog.Settings) bool {
	if s.w.size == 0 {
		return true
	}
	if s.w.size+int64(len(b)) > min(set.SegmentBytes, maxPosition) {
		return false
	}
	return int64(b.LastOffset()-s.base) <= math.MaxInt32
}

// note accounts for a batch at the end of the segment, and makes the index
// entries that Kafka would: one before a batch that more than interval bytes
// have gone by since the last.
func (s *segment) note(b commitlog.BatchInfo, size int64, interval int64) error {
	w := &s.w
	if b.MaxTimestamp > w.maxTime {
		w.maxTime, w.maxTimeAt = b.MaxTimestamp, b.LastOffset
	}
	if w.sinceIndex > interval {
		e := offsetEntry{relativeTo(s.base, b.LastOffset), int32(w.size)}
		if err := s.index.add(e.append(nil)); err != nil {
			return err
		}
		if err := s.noteTime(); err != nil {
			return err
		}
		w.sinceIndex = 0
	}
	w.size += size
	w.sinceIndex += size
	w.end = b.LastOffset + 1
	return nil
}

// noteTime makes a time index entry if the largest timestamp has grown.
func (s *segment) noteTime() error {
	if s.w.maxTime <= s.w.lastTime {
		return nil
	}
	e := timeEntry{s.w.maxTime, relativeTo(s.base, s.w.maxTimeAt)}
	if err := s.times.add(e.append(nil)); err != nil {
		return err
	}
	s.w.lastTime = s.w.maxTime
	return nil
}

// finish completes the indexes when no more batches will come for now.
func (s *segment) finish() error {
	if s.w.size > 0 {
		if err := s.noteTime(); err != nil {
			return err
		}
	}
	for _, x := range []*indexFile{s.index, s.times} {
		if err := x.file.Sync(); err != nil {
			return fmt.Errorf("sync index %s: %w", x.name, err)
		}
	}
	return nil
}

// publishLocked shows readers what is durable.
func (s *segment) publishLocked() {
	s.size, s.end, s.maxTime = s.w.size, s.w.end, s.w.maxTime
}

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

// infos passes the infos of batches from an offset on to f.
func (s *segment) infos(from commitlog.Offset, f func(commitlog.BatchInfo)) error {
	pos, err := s.index.lookupOffset(int64(from - s.base))
	if err != nil {
		return err
	}
	sc := scanner{file: s.file, name: s.name, pos: pos, size: s.w.size}
	for {
		at := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.checkNext(b, -1, at)
		}
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if b.BaseOffset() >= from {
			f(b.Info())
		}
	}
}

// bases lists the segments of a directory by the base offsets of their logs,
// and what else has no business there.
func bases(names []string) (logs []commitlog.Offset, stray []string) {
	for _, n := range names {
		if o, ok := parseOffsetName(n, logSuffix); ok {
			logs = append(logs, o)
		}
	}
	slices.Sort(logs)
	for _, n := range names {
		ext := filepath.Ext(n)
		switch ext {
		case dirtySuffix, deletedMark:
			stray = append(stray, n)
		case indexSuffix, timesSuffix:
			if o, ok := parseOffsetName(n, ext); ok && !slices.Contains(logs, o) {
				stray = append(stray, n)
			}
		}
	}
	return logs, stray
}
