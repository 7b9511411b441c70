package locallog

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"time"

	"ponor/commitlog"
)

// recover opens the directory's files and finds out what the log holds. Nobody
// else knows the Log yet.
func (l *Log) recover(ctx context.Context, topicID [16]byte, epochs []epochStart) error {
	fsys := l.store.cfg.FS
	if err := l.makeDir(ctx, topicID); err != nil {
		return err
	}
	names, err := fsys.ReadDir(l.dir)
	if err != nil {
		return err
	}
	known, stray := bases(names)
	for _, n := range stray {
		if err := fsys.RemoveAll(filepath.Join(l.dir, n)); err != nil {
			return err
		}
	}
	if l.checkpoint, err = readCheckpoint(fsys, l.dir, names); err != nil {
		return err
	}
	start := l.store.starts.get(l.tp)
	trusted, err := l.openDurable()
	if err != nil {
		return err
	}
	if known, err = l.dropBelow(known, start); err != nil {
		return err
	}
	if len(known) == 0 {
		if trusted > 0 || start > 0 {
			return fmt.Errorf("%s: %w: no segment is there, but the log reached offset %d", l.dir, commitlog.ErrCorrupt, max(trusted, start))
		}
		known = append(known, 0)
	}
	if known[0] > start {
		return fmt.Errorf("%s: %w: the first segment begins at offset %d, the log at %d", l.dir, commitlog.ErrCorrupt, known[0], start)
	}
	if err := l.openSegments(ctx, known, trusted); err != nil {
		return err
	}
	if err := l.replay(max(l.checkpoint.end, known[0])); err != nil {
		return err
	}
	l.mu.start = start
	return l.begin(epochs)
}

// makeDir makes sure that the directory is there and is this topic's.
func (l *Log) makeDir(ctx context.Context, topicID [16]byte) error {
	fsys := l.store.cfg.FS
	if err := fsys.MkdirAll(l.dir); err != nil {
		return err
	}
	name := filepath.Join(l.dir, metadataName)
	want := base64.RawURLEncoding.EncodeToString(topicID[:])
	got, known, err := readTopicID(fsys, name)
	switch {
	case err != nil:
		return err
	case known && got != want:
		return fmt.Errorf("%s: the directory belongs to topic id %s, not %s; remove the old topic's log first", name, got, want)
	case known:
		return nil
	}
	if err := fsys.SyncDir(l.store.cfg.Dir); err != nil {
		return err
	}
	// A new log. Offsets under its name are what an interrupted removal of an
	// older one left behind.
	if err := l.store.starts.set(ctx, l.tp, -1); err != nil {
		return err
	}
	if err := l.store.recovery.set(ctx, l.tp, -1); err != nil {
		return err
	}
	if err := replaceFile(fsys, name, encodeTopicID(want)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// openDurable opens the file that tells how far the log was synced.
func (l *Log) openDurable() (commitlog.Offset, error) {
	var err error
	name := filepath.Join(l.dir, durableName)
	if l.durable, err = l.store.cfg.FS.Open(name, true); err != nil {
		return 0, err
	}
	b := make([]byte, durableBytes)
	n, _ := l.durable.ReadAt(b, 0) // short is as good as not there
	durable := decodeDurable(b[:n])
	// After an orderly close Kafka's own file says the same.
	point := l.store.recovery.get(l.tp)
	return max(durable, point), nil
}

// dropBelow ends a trim that was interrupted: segments wholly below start go.
func (l *Log) dropBelow(known []commitlog.Offset, start commitlog.Offset) ([]commitlog.Offset, error) {
	for len(known) > 1 && known[1] <= start {
		for _, suffix := range []string{logSuffix, indexSuffix, timesSuffix} {
			if err := l.store.cfg.FS.RemoveAll(filepath.Join(l.dir, offsetName(known[0], suffix))); err != nil {
				return nil, err
			}
		}
		known = known[1:]
	}
	return known, nil
}

// openSegments recovers every segment, and syncs the last one: what a reader
// finds in the page cache need not be on the disk.
func (l *Log) openSegments(ctx context.Context, known []commitlog.Offset, trusted commitlog.Offset) error {
	interval := l.settings().IndexBytes
	for i, base := range known {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := openSegment(l.store.cfg.FS, l.dir, base)
		if err != nil {
			return err
		}
		l.mu.segments = append(l.mu.segments, s)
		r := recovery{trusted: trusted, next: -1, interval: interval}
		if i+1 < len(known) {
			// A segment is rolled only when all of it is synced.
			r.next, r.trusted = known[i+1], known[i+1]
		}
		if err := s.recover(r); err != nil {
			return err
		}
		if r.next >= 0 {
			if err := s.noteTime(); err != nil {
				return err
			}
		}
		s.publishLocked()
		if s.size > 0 {
			s.born = time.UnixMilli(s.maxTime) // the best that is known; rolls rather early
			if now := time.Now(); s.born.After(now) {
				s.born = now
			}
		}
	}
	last := l.mu.segments[len(l.mu.segments)-1]
	if err := last.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", last.name, err)
	}
	if err := l.store.cfg.FS.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync %s: %w", l.dir, err)
	}
	l.mu.stable, l.mu.end = last.end, last.end
	if _, err := l.durable.WriteAt(encodeDurable(last.end), 0); err != nil {
		return fmt.Errorf("write %s: %w", durableName, err)
	}
	return nil
}

// replay collects the batches that no checkpoint covers.
func (l *Log) replay(from commitlog.Offset) error {
	if l.checkpoint.end > l.mu.stable {
		return fmt.Errorf("%s: %w: the checkpoint covers offsets below %d, the log ends at %d", l.dir, commitlog.ErrCorrupt, l.checkpoint.end, l.mu.stable)
	}
	for _, s := range l.mu.segments {
		if s.end <= from {
			continue
		}
		if err := s.infos(max(from, s.base), l.deltas.Add); err != nil {
			return err
		}
	}
	l.recovered = commitlog.Recovery{Checkpoint: l.checkpoint.data, CheckpointEnd: l.checkpoint.end, Batches: l.deltas.Infos()}
	return nil
}

// begin makes this owner's epoch durable: from here on older ones are fenced.
func (l *Log) begin(epochs []epochStart) error {
	l.epochs = beginEpoch(epochs, l.epoch, l.mu.end)
	if err := replaceFile(l.store.cfg.FS, filepath.Join(l.dir, epochsName), encodeEpochs(l.epochs)); err != nil {
		return fmt.Errorf("write %s: %w", epochsName, err)
	}
	return nil
}
