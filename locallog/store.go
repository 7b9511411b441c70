package locallog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"ponor/commitlog"
)

// Config says where and how a Store keeps logs. Dir is required.
type Config struct {
	// Dir is the data directory (one of Kafka's log.dirs). It is made if
	// missing, and belongs to one process at a time.
	Dir string
	// FS is the file system; nil is the operating system's.
	FS FS
	// Budget is the most bytes appended and not synced, over all logs; beyond
	// it Append answers ErrBackpressure. 0 is 64 MiB. Too small starves the
	// group commit, too large costs that much memory when the disk stalls.
	Budget int64
	// Syncs is how many files are synced at the same time. 0 is 8. One log
	// never has more than one sync in flight.
	Syncs int
	// CheckpointBytes is how much of a log may follow its last checkpoint, and
	// so the most that opening it after a crash has to read. 0 is 64 MiB.
	CheckpointBytes int64
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = OS{}
	}
	if c.Budget <= 0 {
		c.Budget = 64 << 20
	}
	if c.Syncs <= 0 {
		c.Syncs = 8
	}
	if c.CheckpointBytes <= 0 {
		c.CheckpointBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Store is a data directory. It implements commitlog.Store. One goroutine
// flushes all logs while any of them has something to flush; Close waits for
// it. State is guarded by mu, which is never held across I/O.
type Store struct {
	cfg      Config
	lock     io.Closer
	recovery *offsetFile
	starts   *offsetFile
	unsynced atomic.Int64 // bytes appended and not settled
	groups   sync.Pool    // of *group: buffers of settled appends
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		logs     map[topicPartition]*place
		queue    []*Log // logs with something to flush
		flushing bool
		closed   bool
	}
}

// place is where a log can be: at most one owner has its files open.
type place struct {
	opening chan struct{} // token: held while the log is opened or removed
	owner   *Log          // guarded by opening
}

const deleteSuffix = "-delete"

// New locks and opens a data directory. Logs are recovered when they are
// opened.
func New(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, errors.New("open local store: no directory is configured")
	}
	cfg = cfg.withDefaults()
	s := &Store{cfg: cfg, groups: sync.Pool{New: func() any { return new(group) }}}
	s.mu.logs = map[topicPartition]*place{}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open local store %s: %w", cfg.Dir, err)
	}
	if err := cfg.FS.SyncDir(filepath.Dir(filepath.Clean(cfg.Dir))); err != nil {
		return nil, fmt.Errorf("open local store %s: sync its parent: %w", cfg.Dir, err)
	}
	var err error
	if s.lock, err = cfg.FS.Lock(filepath.Join(cfg.Dir, ".lock")); err != nil {
		return nil, fmt.Errorf("open local store %s: %w", cfg.Dir, err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open local store %s: %w", cfg.Dir, err), s.lock.Close())
	}
	return s, nil
}

// load reads the directory's own files and ends removals that were begun.
func (s *Store) load() error {
	var err error
	if s.recovery, err = loadOffsets(s.cfg.FS, filepath.Join(s.cfg.Dir, "recovery-point-offset-checkpoint")); err != nil {
		return err
	}
	if s.starts, err = loadOffsets(s.cfg.FS, filepath.Join(s.cfg.Dir, "log-start-offset-checkpoint")); err != nil {
		return err
	}
	names, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, deleteSuffix) {
			if err := s.cfg.FS.RemoveAll(filepath.Join(s.cfg.Dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// key checks that an ID can name a directory.
func key(id commitlog.ID) (topicPartition, error) {
	if id.Topic == "" || id.Topic == "." || id.Topic == ".." || len(id.Topic) > 249 || strings.ContainsAny(id.Topic, "/\\\x00 \n") || id.Partition < 0 {
		return topicPartition{}, fmt.Errorf("%q is no name for a log directory", id.String())
	}
	return topicPartition{id.Topic, id.Partition}, nil
}

func (s *Store) dir(tp topicPartition) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%s-%d", tp.topic, tp.partition))
}

// at takes the token of a log's place; the caller gives it back by calling
// leave.
func (s *Store) at(ctx context.Context, tp topicPartition) (p *place, leave func(), err error) {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil, nil, fmt.Errorf("%w: the store", commitlog.ErrClosed)
	}
	p = s.mu.logs[tp]
	if p == nil {
		p = &place{opening: make(chan struct{}, 1)}
		s.mu.logs[tp] = p
	}
	s.mu.Unlock()
	select {
	case p.opening <- struct{}{}:
		return p, func() { <-p.opening }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Open implements commitlog.Store. It reads what a checkpoint does not cover,
// which after an orderly Close is nothing.
func (s *Store) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	l, err := s.open(ctx, id, epoch, opts)
	if err != nil {
		return nil, fmt.Errorf("open local log %s at epoch %d: %w", id, epoch, err)
	}
	return l, nil
}

func (s *Store) open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (*Log, error) {
	tp, err := key(id)
	if err != nil {
		return nil, err
	}
	p, leave, err := s.at(ctx, tp)
	if err != nil {
		return nil, err
	}
	defer leave()
	dir := s.dir(tp)
	epochs, err := readEpochs(s.cfg.FS, filepath.Join(dir, epochsName))
	if err != nil {
		return nil, err
	}
	if n := len(epochs); n > 0 && epochs[n-1].epoch > epoch {
		return nil, fmt.Errorf("%w: epoch %d has it", commitlog.ErrFenced, epochs[n-1].epoch)
	}
	if old := p.owner; old != nil {
		old.lose(fmt.Errorf("%w: local log %s was opened at epoch %d", commitlog.ErrFenced, id, epoch), true)
		if err := old.release(ctx); err != nil {
			return nil, fmt.Errorf("take over from epoch %d: %w", old.epoch, err)
		}
		p.owner = nil
	}
	l := newLog(s, tp, dir, epoch, opts)
	if err := l.recover(ctx, id.TopicID, epochs); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	p.owner = l
	return l, nil
}

// Remove implements commitlog.Store.
func (s *Store) Remove(ctx context.Context, id commitlog.ID) error {
	if err := s.remove(ctx, id); err != nil {
		return fmt.Errorf("remove local log %s: %w", id, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, id commitlog.ID) error {
	tp, err := key(id)
	if err != nil {
		return err
	}
	p, leave, err := s.at(ctx, tp)
	if err != nil {
		return err
	}
	defer leave()
	if old := p.owner; old != nil {
		old.lose(fmt.Errorf("%w: local log %s was removed", commitlog.ErrClosed, id), true)
		if err := old.release(ctx); err != nil {
			return err
		}
		p.owner = nil
	}
	// A name that no log can have: from the rename on the log is gone, however
	// long deleting takes.
	gone := filepath.Join(s.cfg.Dir, fmt.Sprintf("%.150s-%d.%s%s", tp.topic, tp.partition, rand.Text(), deleteSuffix))
	if names, err := s.cfg.FS.ReadDir(s.dir(tp)); err == nil && names != nil {
		if err := s.cfg.FS.Rename(s.dir(tp), gone); err != nil {
			return err
		}
		if err := s.cfg.FS.SyncDir(s.cfg.Dir); err != nil {
			return err
		}
	}
	if err := s.cfg.FS.RemoveAll(gone); err != nil {
		return err
	}
	if err := s.starts.set(ctx, tp, -1); err != nil {
		return err
	}
	return s.recovery.set(ctx, tp, -1)
}

// Close closes every log and gives the directory back. Appends that are not
// durable when ctx ends fail.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.mu.closed = true
	var places []*place
	for _, p := range s.mu.logs {
		places = append(places, p)
	}
	s.mu.Unlock()
	var errs []error
	for _, p := range places {
		p.opening <- struct{}{} // whoever opens it ends, as its context says
		if p.owner != nil {
			errs = append(errs, p.owner.Close(ctx))
		}
		<-p.opening
	}
	unlocked := make(chan error, 1)
	go func() { // also when nobody waits any more: the directory is free then
		s.wg.Wait()
		unlocked <- s.lock.Close()
	}()
	select {
	case err := <-unlocked:
		errs = append(errs, err)
	case <-ctx.Done():
		// A sync hangs in the kernel. The lock stays until it has ended or the
		// process is gone, because the write may still land.
		errs = append(errs, fmt.Errorf("close local store %s: a sync does not end: %w", s.cfg.Dir, ctx.Err()))
	}
	return errors.Join(errs...)
}
