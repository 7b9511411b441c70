package locallog

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"ponor/commitlog"
)

// Sizes of Kafka's index entries.
const (
	offsetEntryBytes = 8  // relative offset int32, position int32
	timeEntryBytes   = 12 // timestamp int64, relative offset int32
)

// offsetEntry says that the batch at Position ends with offset base+Relative.
type offsetEntry struct{ relative, position int32 }

// timeEntry says that no batch up to offset base+Relative, and none before the
// entry was made, has a larger timestamp.
type timeEntry struct {
	timestamp int64
	relative  int32
}

func decodeOffsetEntry(b []byte) offsetEntry {
	return offsetEntry{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))}
}

func (e offsetEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.relative))
	return binary.BigEndian.AppendUint32(b, uint32(e.position))
}

func decodeTimeEntry(b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
}

func (e timeEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(e.relative))
}

// indexFile is a file of entries of one size, sorted. One goroutine adds,
// any number look up; count publishes what was added. Nothing is kept in
// memory: a lookup is some 18 reads that the page cache answers.
type indexFile struct {
	file  File
	name  string
	entry int64
	count atomic.Int64
}

// add writes one entry. It is not synced: what is lost is found again by
// walking the log.
func (x *indexFile) add(b []byte) error {
	n := x.count.Load()
	if _, err := x.file.WriteAt(b, n*x.entry); err != nil {
		return fmt.Errorf("write index %s: %w", x.name, err)
	}
	x.count.Store(n + 1)
	return nil
}

// cut keeps the first n entries.
func (x *indexFile) cut(n int64) error {
	if err := x.file.Truncate(n * x.entry); err != nil {
		return fmt.Errorf("truncate index %s: %w", x.name, err)
	}
	x.count.Store(n)
	return nil
}

// at reads entry i into a buffer on the caller's stack.
func (x *indexFile) at(i int64, buf *[timeEntryBytes]byte) ([]byte, error) {
	b := buf[:x.entry]
	if _, err := x.file.ReadAt(b, i*x.entry); err != nil {
		return nil, fmt.Errorf("read index %s: %w", x.name, err)
	}
	return b, nil
}

// search returns how many entries, from the first on, satisfy fits.
func (x *indexFile) search(fits func(entry []byte) bool) (int64, error) {
	var buf [timeEntryBytes]byte
	lo, hi := int64(0), x.count.Load()
	for lo < hi {
		mid := (lo + hi) / 2
		b, err := x.at(mid, &buf)
		if err != nil {
			return 0, err
		}
		if fits(b) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// lookupOffset returns the position from which a walk meets the batch that
// holds a relative offset.
func (x *indexFile) lookupOffset(relative int64) (int64, error) {
	n, err := x.search(func(b []byte) bool { return int64(decodeOffsetEntry(b).relative) <= relative })
	if err != nil || n == 0 {
		return 0, err
	}
	var buf [timeEntryBytes]byte
	b, err := x.at(n-1, &buf)
	if err != nil {
		return 0, err
	}
	return int64(decodeOffsetEntry(b).position), nil
}

// lookupTime returns a relative offset below which every batch is older than
// ts.
func (x *indexFile) lookupTime(ts int64) (int32, error) {
	n, err := x.search(func(b []byte) bool { return decodeTimeEntry(b).timestamp <= ts })
	if err != nil || n == 0 {
		return 0, err
	}
	var buf [timeEntryBytes]byte
	b, err := x.at(n-1, &buf)
	if err != nil {
		return 0, err
	}
	return decodeTimeEntry(b).relative, nil
}

// loadIndex opens an index file and counts its entries. ok is false if the file
// is new or cannot be one.
func loadIndex(fsys FS, name string, entry int64) (x *indexFile, ok bool, err error) {
	f, err := fsys.Open(name, true)
	if err != nil {
		return nil, false, fmt.Errorf("open index: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close()
		return nil, false, fmt.Errorf("open index %s: %w", name, err)
	}
	x = &indexFile{file: f, name: name, entry: entry}
	x.count.Store(size / entry)
	return x, size > 0 && size%entry == 0, nil
}

// relativeTo is the distance from a segment's base; the caller has made sure
// that it fits (segments roll before it does not).
func relativeTo(base, offset commitlog.Offset) int32 { return int32(offset - base) }
