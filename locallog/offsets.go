package locallog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ponor/commitlog"
)

// topicPartition names a log in Kafka's checkpoint files.
type topicPartition struct {
	topic     string
	partition int32
}

// offsetFile is one of Kafka's offset checkpoint files of a data directory: a
// version line ("0"), a count, and a line "topic partition offset" each.
//
// Writers that wait at the same time share one write: set returns once a write
// that began after it has ended.
type offsetFile struct {
	fsys FS
	name string
	io   chan struct{} // token: held while writing the file
	mu   struct {
		sync.Mutex
		offsets map[topicPartition]commitlog.Offset
		changed uint64 // counts changes
		written uint64 // changes that are on disk
	}
}

// loadOffsets reads a checkpoint file; a missing one is empty.
func loadOffsets(fsys FS, name string) (*offsetFile, error) {
	f := &offsetFile{fsys: fsys, name: name, io: make(chan struct{}, 1)}
	f.mu.offsets = map[topicPartition]commitlog.Offset{}
	b, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.mu.offsets, err = decodeOffsets(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return f, nil
}

// get is the offset of a partition, 0 if the file does not list it.
func (f *offsetFile) get(tp topicPartition) commitlog.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.offsets[tp]
}

// set changes one offset durably; a negative one removes the line.
func (f *offsetFile) set(ctx context.Context, tp topicPartition, to commitlog.Offset) error {
	f.mu.Lock()
	if old, ok := f.mu.offsets[tp]; ok == (to >= 0) && (!ok || old == to) && f.mu.written == f.mu.changed {
		f.mu.Unlock()
		return nil
	}
	if to < 0 {
		delete(f.mu.offsets, tp)
	} else {
		f.mu.offsets[tp] = to
	}
	f.mu.changed++
	mine := f.mu.changed
	f.mu.Unlock()

	select {
	case f.io <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("write %s: %w", f.name, ctx.Err())
	}
	defer func() { <-f.io }()
	f.mu.Lock()
	if f.mu.written >= mine {
		f.mu.Unlock()
		return nil
	}
	content, changed := encodeOffsets(f.mu.offsets), f.mu.changed
	f.mu.Unlock()
	if err := replaceFile(f.fsys, f.name, content); err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	f.mu.Lock()
	f.mu.written = changed
	f.mu.Unlock()
	return nil
}

func encodeOffsets(offsets map[topicPartition]commitlog.Offset) []byte {
	keys := slices.SortedFunc(maps.Keys(offsets), func(a, b topicPartition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	b := fmt.Appendf(nil, "0\n%d\n", len(keys))
	for _, k := range keys {
		b = fmt.Appendf(b, "%s %d %d\n", k.topic, k.partition, offsets[k])
	}
	return b
}

func decodeOffsets(b []byte) (map[topicPartition]commitlog.Offset, error) {
	lines, err := checkpointLines(b, 3)
	if err != nil {
		return nil, err
	}
	out := make(map[topicPartition]commitlog.Offset, len(lines))
	for _, l := range lines {
		p, perr := strconv.ParseInt(l[1], 10, 32)
		o, oerr := strconv.ParseInt(l[2], 10, 64)
		if perr != nil || oerr != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("%w: line %q", commitlog.ErrCorrupt, strings.Join(l, " "))
		}
		out[topicPartition{l[0], int32(p)}] = commitlog.Offset(o)
	}
	return out, nil
}

// checkpointLines takes apart the form that Kafka's checkpoint files share:
// version 0, a count, and so many lines of fields.
func checkpointLines(b []byte, fields int) ([][]string, error) {
	head, rest, _ := strings.Cut(string(b), "\n")
	if head != "0" {
		return nil, fmt.Errorf("%w: version %.10q, only 0 is known", commitlog.ErrCorrupt, head)
	}
	count, rest, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > len(rest) {
		return nil, fmt.Errorf("%w: count %.10q", commitlog.ErrCorrupt, count)
	}
	lines := make([][]string, n)
	for i := range lines {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if lines[i] = strings.Fields(line); len(lines[i]) != fields {
			return nil, fmt.Errorf("%w: line %d of %d is %.40q", commitlog.ErrCorrupt, i+1, n, line)
		}
	}
	if strings.TrimSpace(rest) != "" {
		return nil, fmt.Errorf("%w: more than the %d lines announced", commitlog.ErrCorrupt, n)
	}
	return lines, nil
}
