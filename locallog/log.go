package locallog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"ponor/commitlog"
)

// Log is one partition's log, owned at one epoch.
//
// Two things guard it. mu guards what readers see and what waits to be written;
// it is never held across I/O. The io token is held by whoever changes files:
// the flusher, Trim, and the end of the ownership. Fields marked (io) belong to
// its holder.
type Log struct {
	store *Store
	tp    topicPartition
	dir   string
	epoch commitlog.Epoch
	opts  commitlog.Options
	io    chan struct{}
	gone  chan struct{} // closed when the log is lost or closed

	deltas     commitlog.Deltas // (io) durable batches since the checkpoint
	sinceCheck int64            // (io) their bytes
	checkpoint checkpoint       // (io) newest on disk
	epochs     []epochStart     // (io)
	durable    File             // (io)
	broken     bool             // (io) a write or sync failed; files may hold more than is known
	released   bool             // (io) files are closed
	recovered  commitlog.Recovery

	mu struct {
		sync.Mutex
		lost     error // why appends and reads are refused; nil while owned
		closing  bool
		queued   bool // waits for the flusher
		start    commitlog.Offset
		stable   commitlog.Offset
		end      commitlog.Offset
		segments []*segment      // at least one; the last is active
		open     *group          // appended, not taken by the flusher; may be nil
		inflight *commitlog.Slot // of what the flusher has taken; may be nil
	}
	notified sync.WaitGroup // the OnStable call of lose
}

// group is what shares one sync: batches in one buffer, and their slot.
type group struct {
	slot    *commitlog.Slot
	buf     []byte
	batches []placed
}

// placed is a batch in a group's buffer.
type placed struct {
	info     commitlog.BatchInfo
	from, to int
}

func newLog(s *Store, tp topicPartition, dir string, epoch commitlog.Epoch, opts commitlog.Options) *Log {
	return &Log{store: s, tp: tp, dir: dir, epoch: epoch, opts: opts, io: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (l *Log) name() string { return fmt.Sprintf("%s-%d", l.tp.topic, l.tp.partition) }

// settings fills in Kafka's defaults.
func (l *Log) settings() commitlog.Settings {
	var set commitlog.Settings
	if l.opts.Settings != nil {
		set = l.opts.Settings()
	}
	if set.SegmentBytes <= 0 {
		set.SegmentBytes = 1 << 30
	}
	if set.SegmentAge <= 0 {
		set.SegmentAge = 7 * 24 * time.Hour
	}
	if set.IndexBytes <= 0 {
		set.IndexBytes = defaultIndex
	}
	return set
}

// Append implements commitlog.Log. It copies into memory and wakes the flusher.
func (l *Log) Append(batch commitlog.Batch) (commitlog.Commit, error) {
	if err := batch.Check(); err != nil {
		return commitlog.Commit{}, fmt.Errorf("append to local log %s: %w", l.name(), err)
	}
	size := int64(len(batch))
	if used := l.store.unsynced.Add(size); used > l.store.cfg.Budget && used > size {
		l.store.unsynced.Add(-size)
		return commitlog.Commit{}, fmt.Errorf("%w: %d bytes wait for %s to be synced", commitlog.ErrBackpressure, used-size, l.store.cfg.Dir)
	}
	l.mu.Lock()
	if l.mu.lost != nil || l.mu.closing {
		err := l.mu.lost
		if err == nil {
			err = fmt.Errorf("%w: local log %s is closing", commitlog.ErrClosed, l.name())
		}
		l.mu.Unlock()
		l.store.unsynced.Add(-size)
		return commitlog.Commit{}, err
	}
	if l.mu.open == nil {
		l.mu.open = l.store.groups.Get().(*group)
		l.mu.open.slot = commitlog.NewSlot()
	}
	g := l.mu.open
	from := len(g.buf)
	g.buf = append(g.buf, batch...)
	b := commitlog.Batch(g.buf[from:])
	b.SetBase(l.mu.end, l.epoch)
	info := b.Info()
	g.batches = append(g.batches, placed{info, from, len(g.buf)})
	l.mu.end = info.LastOffset + 1
	// Made before the lock is given up: then the flusher may recycle the group.
	commit := commitlog.NewCommit(info.BaseOffset, info.LastOffset, g.slot)
	wake := !l.mu.queued
	l.mu.queued = true
	l.mu.Unlock()
	if wake {
		l.store.enqueue(l)
	}
	return commit, nil
}

// Bounds implements commitlog.Log.
func (l *Log) Bounds() commitlog.Bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return commitlog.Bounds{Start: l.mu.start, Stable: l.mu.stable, End: l.mu.end}
}

// Segments implements commitlog.Log.
func (l *Log) Segments() []commitlog.Segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]commitlog.Segment, len(l.mu.segments))
	for i, s := range l.mu.segments {
		out[i] = commitlog.Segment{Base: s.base, End: s.end, Bytes: s.size, MaxTimestamp: s.maxTime, Active: i == len(out)-1}
	}
	return out
}

// Bytes implements commitlog.Log. Segments count whole.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, s := range l.mu.segments {
		n += s.size
	}
	if l.mu.open != nil {
		n += int64(len(l.mu.open.buf))
	}
	return n
}

// Recovered implements commitlog.Log.
func (l *Log) Recovered(context.Context) (commitlog.Recovery, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recovered
	l.recovered = commitlog.Recovery{}
	return r, l.mu.lost
}

// Seal implements commitlog.Log. The flusher never lingers.
func (l *Log) Seal() {}

// take gets the io token.
func (l *Log) take(ctx context.Context) error {
	select {
	case l.io <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give returns the io token.
func (l *Log) give() { <-l.io }

// Trim implements commitlog.Log. Start is durable before a file is deleted.
func (l *Log) Trim(ctx context.Context, to commitlog.Offset) error {
	if move, err := l.mayTrim(to); err != nil || !move {
		return err
	}
	if err := l.take(ctx); err != nil {
		return fmt.Errorf("trim local log %s: %w", l.name(), err)
	}
	defer l.give()
	// Asked again: another Trim, or the end, may have come first.
	if move, err := l.mayTrim(to); err != nil || !move {
		return err
	}
	if err := l.store.starts.set(ctx, l.tp, to); err != nil {
		return fmt.Errorf("trim local log %s to %d: %w", l.name(), to, err)
	}
	l.mu.Lock()
	l.mu.start = to
	n := 0
	for n < len(l.mu.segments)-1 && l.mu.segments[n].end <= to {
		n++
	}
	below := l.mu.segments[:n]
	l.mu.segments = slices.Clone(l.mu.segments[n:])
	var idle []*segment
	for _, s := range below {
		s.removed = true
		if s.readers == 0 {
			idle = append(idle, s)
		}
	}
	l.mu.Unlock()
	l.discard(below, idle)
	return nil
}

// discard deletes trimmed segments, and closes those that nobody reads. What
// fails is found again when the log is next opened.
func (l *Log) discard(below, idle []*segment) {
	var err error
	for _, s := range below {
		err = errors.Join(err, s.remove(l.store.cfg.FS))
	}
	for _, s := range idle {
		err = errors.Join(err, s.close())
	}
	if kept := trimEpochs(l.epochs, l.Bounds().Start); len(kept) < len(l.epochs) {
		l.epochs = kept
		err = errors.Join(err, replaceFile(l.store.cfg.FS, filepath.Join(l.dir, epochsName), encodeEpochs(kept)))
	}
	if err != nil {
		l.store.cfg.Logger.Warn("deleting trimmed segments failed", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
	}
}

// mayTrim says whether a trim moves anything.
func (l *Log) mayTrim(to commitlog.Offset) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.lost != nil:
		return false, l.mu.lost
	case to > l.mu.stable:
		return false, fmt.Errorf("trim local log %s to %d: %w: %d is stable", l.name(), to, commitlog.ErrOffsetOutOfRange, l.mu.stable)
	}
	return to > l.mu.start, nil
}

// lose ends the ownership: what is not durable fails, oldest first (C3).
func (l *Log) lose(why error, notify bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.lost != nil {
		return
	}
	l.mu.lost = why
	close(l.gone)
	if l.mu.inflight != nil {
		l.mu.inflight.Resolve(why)
		l.mu.inflight = nil
	}
	if g := l.mu.open; g != nil {
		g.slot.Resolve(why)
		l.store.unsynced.Add(-int64(len(g.buf)))
		l.mu.open = nil
	}
	if notify && l.opts.OnStable != nil {
		l.notified.Go(l.opts.OnStable)
	}
}

// Close implements commitlog.Log.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.mu.closing = true
	var waits []*commitlog.Slot
	if l.mu.inflight != nil {
		waits = append(waits, l.mu.inflight)
	}
	if l.mu.open != nil {
		waits = append(waits, l.mu.open.slot)
	}
	l.mu.Unlock()
	var err error
	for _, s := range waits {
		select {
		case <-s.Done():
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.lose(fmt.Errorf("%w: local log %s", commitlog.ErrClosed, l.name()), false)
	if err == nil {
		err = l.release(ctx)
	}
	l.notified.Wait()
	if err != nil {
		return fmt.Errorf("close local log %s: %w", l.name(), err)
	}
	return nil
}

// release brings a lost log's files to rest: a checkpoint that covers all, full
// indexes, nothing unknown behind the end. It is done once; who comes later
// only waits for it.
func (l *Log) release(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.give()
	return l.releaseHeld(ctx)
}

// releaseHeld is release for the holder of the io token.
func (l *Log) releaseHeld(ctx context.Context) error {
	if l.released {
		return nil
	}
	l.released = true
	var err error
	active := l.active()
	if l.broken {
		// After a failed sync nobody knows which pages are on disk, although
		// reads would show them: back to what is known (L4).
		l.mu.Lock()
		size := active.size
		l.mu.Unlock()
		if err = active.file.Truncate(size); err == nil {
			err = active.file.Sync()
		}
	} else {
		err = errors.Join(active.finish(), l.saveCheckpoint())
	}
	l.mu.Lock()
	stable := l.mu.stable
	l.mu.Unlock()
	if err == nil {
		err = l.store.recovery.set(ctx, l.tp, stable)
	}
	return errors.Join(err, l.closeFiles())
}

// active is the segment that takes appends; for the holder of the io token.
func (l *Log) active() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.segments[len(l.mu.segments)-1]
}

// closeFiles closes what is open. A segment that is being read is closed by its
// last reader.
func (l *Log) closeFiles() error {
	l.mu.Lock()
	var idle []*segment
	for _, s := range l.mu.segments {
		s.removed = true
		if s.readers == 0 {
			idle = append(idle, s)
		}
	}
	l.mu.Unlock()
	var err error
	for _, s := range idle {
		err = errors.Join(err, s.close())
	}
	if l.durable != nil {
		err = errors.Join(err, l.durable.Close())
	}
	return err
}
