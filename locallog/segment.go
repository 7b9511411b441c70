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
