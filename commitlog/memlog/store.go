package memlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ponor/commitlog"
)

// Config shapes a Store. The zero value is a medium without latency.
type Config struct {
	// Latency is how long a write takes to become durable; 0 is as soon as the
	// log's goroutine runs.
	Latency time.Duration
	// Budget is the most bytes a log may have appended that are not durable
	// yet; beyond it Append answers ErrBackpressure. 0 is 128 MiB.
	Budget int64
	// LandFailed makes writes that Fail fails land all the same, which is the
	// other half of "unknown" (C4).
	LandFailed bool
}

const defaultBudget = 128 << 20

// Store is a medium in memory. State is guarded by mu.
type Store struct {
	cfg Config
	mu  struct {
		sync.Mutex
		logs    map[commitlog.ID]*medium
		held    chan struct{} // non-nil while held; closed by Release
		failure error
	}
}

// New makes an empty medium.
func New(cfg Config) *Store {
	if cfg.Budget <= 0 {
		cfg.Budget = defaultBudget
	}
	s := &Store{cfg: cfg}
	s.mu.logs = make(map[commitlog.ID]*medium)
	return s
}

// medium is what is durable of one log. Guarded by Store.mu.
type medium struct {
	id       commitlog.ID
	epoch    commitlog.Epoch
	owner    *Log // nil when nobody has it open
	start    commitlog.Offset
	stable   commitlog.Offset
	bytes    int64
	batches  []commitlog.Batch // stored bytes never change
	segments []segment         // at least one, the last is active

	checkpoint    []byte
	checkpointEnd commitlog.Offset
	infos         []commitlog.BatchInfo // at or above checkpointEnd
}

// segment adds to the description when its first batch came.
type segment struct {
	commitlog.Segment
	born time.Time
}

// Open implements commitlog.Store.
func (s *Store) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mu.logs[id]
	if m == nil {
		m = &medium{id: id, segments: []segment{{Segment: commitlog.Segment{MaxTimestamp: -1, Active: true}}}}
		s.mu.logs[id] = m
	}
	if epoch < m.epoch {
		return nil, fmt.Errorf("open log %s at epoch %d: %w: epoch %d has it", id, epoch, commitlog.ErrFenced, m.epoch)
	}
	if m.owner != nil {
		m.owner.loseLocked(fmt.Errorf("%w: log %s was opened at epoch %d", commitlog.ErrFenced, id, epoch), true)
	}
	l := &Log{store: s, m: m, epoch: epoch, opts: opts, gone: make(chan struct{}), slot: commitlog.NewSlot(), end: m.stable}
	l.recovery = commitlog.Recovery{
		Checkpoint: slices.Clone(m.checkpoint), CheckpointEnd: m.checkpointEnd, Batches: slices.Clone(m.infos),
	}
	m.epoch, m.owner = epoch, l
	return l, nil
}

// Remove implements commitlog.Store.
func (s *Store) Remove(_ context.Context, id commitlog.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mu.logs[id]; m != nil {
		if m.owner != nil {
			m.owner.loseLocked(fmt.Errorf("%w: log %s was removed", commitlog.ErrClosed, id), true)
		}
		delete(s.mu.logs, id)
	}
	return nil
}

// Hold keeps appends from becoming durable until Release.
func (s *Store) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held == nil {
		s.mu.held = make(chan struct{})
	}
}

// Release ends a Hold.
func (s *Store) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held != nil {
		close(s.mu.held)
		s.mu.held = nil
	}
}

// Fail makes every write fail with err from now on; nil ends it.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failure = err
}

// Crash takes every log from its owner, with what was not durable.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mu.logs {
		if m.owner != nil {
			m.owner.loseLocked(fmt.Errorf("%w: the owner of log %s crashed", commitlog.ErrFenced, m.id), true)
		}
	}
}

// Corrupt flips a bit in the stored batch that holds offset. It returns the
// name by which a read will complain.
func (s *Store) Corrupt(id commitlog.ID, offset commitlog.Offset) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mu.logs[id]
	if m == nil {
		return "", fmt.Errorf("corrupt log %s: there is none", id)
	}
	at := m.find(offset)
	if at == len(m.batches) {
		return "", fmt.Errorf("corrupt log %s: nothing at offset %d", id, offset)
	}
	// Readers may hold the old bytes, so the damage goes into a copy.
	b := slices.Clone(m.batches[at])
	b[len(b)-1] ^= 1
	m.batches[at] = b
	return id.String(), nil
}

// find returns the index of the batch that holds offset, or of the first one
// above it.
func (m *medium) find(offset commitlog.Offset) int {
	at, _ := slices.BinarySearchFunc(m.batches, offset, func(b commitlog.Batch, o commitlog.Offset) int {
		if b.LastOffset() < o {
			return -1
		}
		return 1
	})
	return at
}

// add makes one batch durable.
func (m *medium) add(b commitlog.Batch, set commitlog.Settings, folds commitlog.Checkpointer) {
	now := time.Now()
	last := &m.segments[len(m.segments)-1]
	tooBig := last.Bytes > 0 && last.Bytes+int64(len(b)) > set.SegmentBytes
	tooOld := last.Bytes > 0 && now.Sub(last.born) >= set.SegmentAge
	if tooBig || tooOld {
		m.fold(folds)
		last.Active = false
		m.segments = append(m.segments, segment{Segment: commitlog.Segment{Base: m.stable, End: m.stable, MaxTimestamp: -1, Active: true}})
		last = &m.segments[len(m.segments)-1]
	}
	if last.Bytes == 0 {
		last.born = now
	}
	m.batches = append(m.batches, b)
	m.infos = append(m.infos, b.Info())
	m.stable = b.LastOffset() + 1
	m.bytes += int64(len(b))
	last.End = m.stable
	last.Bytes += int64(len(b))
	last.MaxTimestamp = max(last.MaxTimestamp, b.MaxTimestamp())
}

// fold moves the infos into the checkpoint. One that cannot be made is no harm:
// the infos stay.
func (m *medium) fold(folds commitlog.Checkpointer) {
	if folds == nil || len(m.infos) == 0 {
		return
	}
	if next, err := folds.Fold(m.checkpoint, m.infos); err == nil {
		m.checkpoint, m.checkpointEnd, m.infos = next, m.stable, nil
	}
}

// trim moves start and drops what lies wholly below it.
func (m *medium) trim(to commitlog.Offset) {
	m.start = to
	n := m.find(to)
	for _, b := range m.batches[:n] {
		m.bytes -= int64(len(b))
	}
	m.batches = slices.Clone(m.batches[n:])
	m.segments = slices.DeleteFunc(m.segments, func(s segment) bool { return s.End <= to && !s.Active })
}
