package locallog

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"ponor/commitlog"
)

// enqueue hands a log to the flusher, which runs only while there is work.
func (s *Store) enqueue(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.queue = append(s.mu.queue, l)
	if !s.mu.flushing {
		s.mu.flushing = true
		s.wg.Go(s.flush)
	}
}

// flush is the group commit: everything that was appended while the last round
// synced is written in the next. The files of one round are synced side by
// side, so that the file system can join their journal commits.
func (s *Store) flush() {
	slots := make(chan struct{}, s.cfg.Syncs)
	for {
		s.mu.Lock()
		round := s.mu.queue
		s.mu.queue = nil
		if len(round) == 0 {
			s.mu.flushing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		var wg sync.WaitGroup
		for _, l := range round {
			slots <- struct{}{}
			wg.Go(func() {
				l.flush()
				<-slots
			})
		}
		wg.Wait()
	}
}

// flush writes and syncs what is appended, and resolves it.
func (l *Log) flush() {
	l.io <- struct{}{}
	defer l.give()
	l.mu.Lock()
	l.mu.queued = false
	g := l.mu.open
	if l.mu.lost != nil || g == nil {
		l.mu.Unlock()
		return
	}
	l.mu.open = nil
	l.mu.inflight = g.slot
	l.mu.Unlock()

	err := l.write(g)
	l.store.unsynced.Add(-int64(len(g.buf)))
	if err != nil {
		l.broken = true
		l.store.cfg.Logger.Error("local log lost: write failed", "topic", l.tp.topic, "partition", l.tp.partition, "epoch", l.epoch, "err", err)
		l.lose(fmt.Errorf("%w: %w", commitlog.ErrFenced, err), true)
		return
	}
	l.mu.Lock()
	owned := l.mu.lost == nil
	if owned { // else lose has resolved it
		if l.opts.OnStable != nil {
			l.opts.OnStable()
		}
		g.slot.Resolve(nil)
		l.mu.inflight = nil
	}
	l.mu.Unlock()
	g.buf, g.batches, g.slot = g.buf[:0], g.batches[:0], nil
	l.store.groups.Put(g) // nobody reads from it: readers read the file
}

// write puts a group into segments, one sync for each that it touches.
func (l *Log) write(g *group) error {
	set := l.settings()
	for rest := g.batches; len(rest) > 0; {
		active := l.active()
		first := commitlog.Batch(g.buf[rest[0].from:rest[0].to])
		if !active.fits(first, set) || l.tooOld(active, set) {
			if err := l.roll(active); err != nil {
				return err
			}
			active = l.active()
		}
		n, err := active.append(g, rest, set)
		if err != nil {
			return err
		}
		if err := active.file.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", active.name, err)
		}
		if err := l.publish(active, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if l.opts.Checkpoints != nil && l.sinceCheck >= l.store.cfg.CheckpointBytes {
		return l.saveCheckpoint()
	}
	return nil
}

func (l *Log) tooOld(active *segment, set commitlog.Settings) bool {
	return active.w.size > 0 && time.Since(active.born) >= set.SegmentAge
}

// append writes as many of the batches as fit in one write. It returns how many
// that are, at least one.
func (s *segment) append(g *group, batches []placed, set commitlog.Settings) (int, error) {
	at, from := s.w.size, batches[0].from
	n := 0
	for _, p := range batches {
		b := commitlog.Batch(g.buf[p.from:p.to])
		if n > 0 && !s.fits(b, set) {
			break
		}
		if err := s.note(p.info, int64(len(b)), set.IndexBytes); err != nil {
			return 0, err
		}
		n++
	}
	if _, err := s.file.WriteAt(g.buf[from:batches[n-1].to], at); err != nil {
		return 0, fmt.Errorf("write %s at byte %d: %w", s.name, at, err)
	}
	return n, nil
}

// publish shows synced batches to readers and notes how far the log is durable.
func (l *Log) publish(s *segment, batches []placed) error {
	if _, err := l.durable.WriteAt(encodeDurable(s.w.end), 0); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(l.dir, durableName), err)
	}
	if l.opts.Checkpoints != nil { // else nobody asks for them again
		for _, p := range batches {
			l.deltas.Add(p.info)
			l.sinceCheck += int64(p.to - p.from)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.born.IsZero() {
		s.born = time.Now()
	}
	s.publishLocked()
	l.mu.stable = s.end
	return nil
}

// roll ends the active segment, all of which is durable, and begins the next.
func (l *Log) roll(active *segment) error {
	if err := active.finish(); err != nil {
		return err
	}
	if err := l.saveCheckpoint(); err != nil {
		return err
	}
	next, err := openSegment(l.store.cfg.FS, l.dir, active.w.end)
	if err != nil {
		return fmt.Errorf("roll: %w", err)
	}
	if err := l.store.cfg.FS.SyncDir(l.dir); err != nil {
		return fmt.Errorf("roll: sync %s: %w", l.dir, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.segments = append(l.mu.segments[:len(l.mu.segments):len(l.mu.segments)], next)
	return nil
}

// saveCheckpoint folds what is durable into a new checkpoint. A fold that fails
// is the partition's bug and loses nothing: the batches stay in the log.
func (l *Log) saveCheckpoint() error {
	if l.opts.Checkpoints == nil || l.deltas.Len() == 0 {
		return nil
	}
	data, err := l.opts.Checkpoints.Fold(l.checkpoint.data, l.deltas.Infos())
	if err != nil {
		l.store.cfg.Logger.Error("fold checkpoint failed", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		return nil
	}
	l.mu.Lock()
	next := checkpoint{end: l.mu.stable, data: data}
	l.mu.Unlock()
	if err := writeCheckpoint(l.store.cfg.FS, l.dir, next, l.checkpoint.end); err != nil {
		return err
	}
	l.checkpoint, l.sinceCheck = next, 0
	l.deltas.Reset()
	return nil
}
