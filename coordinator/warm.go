package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ponor/commitlog"
)

// A partition is lost to calls while its next owner loads it. Who is told that it is to
// become that owner replays the log before, from what it can read without being the
// owner, and has only the rest to load when the partition opens. That is a shadow: a
// load that has begun early, no more. It is right whatever happens in between, as long
// as it has every record from some start of the log up to where it goes on: a log that
// was written anew and cut meanwhile begins before that, or the shadow is thrown away.

const (
	// maxShadows bounds the shadows of a node, and shadowBytes the bytes of logs that
	// were replayed into them: more is loaded when the partitions are here.
	maxShadows  = 16
	shadowBytes = 1 << 30
	// shadowFor is how long a partition may take to come; a move takes milliseconds.
	shadowFor = 10 * time.Second
)

// shadow is a load of a partition that is not here.
type shadow[M Machine] struct {
	ctx    context.Context // ends when it is of no use any more
	cancel context.CancelFunc
	done   chan struct{} // closed when the rest is set and nothing replays any more
	load   *loading[M]
	err    error
}

// Warm replays a log that this node is to own soon, as far as log has it now, and
// returns nil when that is done. What was replayed, also by half, is kept for the
// partition to open here, for some seconds and until ctx ends: no longer than log is
// the same as what will open. Errors: ErrUnavailable if there are too many already, or the
// partition is here.
func (s *Shards[M]) Warm(ctx context.Context, id commitlog.ID, log Source) error {
	k := shardKey{id.TopicID, id.Partition}
	w := &shadow[M]{done: make(chan struct{})}
	s.mu.Lock()
	before := s.shadows[k]
	if s.closed || s.open[k] != nil || before == nil && len(s.shadows) >= maxShadows {
		s.mu.Unlock()
		return fmt.Errorf("%w: partition %s is here, or too many are awaited", ErrUnavailable, id)
	}
	w.ctx, w.cancel = context.WithTimeout(ctx, shadowFor)
	s.shadows[k] = w
	s.wg.Go(func() { s.awaits(k, w, before.take(), id, log) })
	s.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaits is the goroutine of a shadow; load is what an earlier one has of the partition.
func (s *Shards[M]) awaits(k shardKey, w *shadow[M], load *loading[M], id commitlog.ID, log Source) {
	defer context.AfterFunc(s.ctx, w.cancel)()
	if load == nil {
		load = newLoading(&s.cfg, id, log)
	} else {
		load.follow(log)
	}
	load.bind(&s.budget)
	w.load = load
	if w.err = load.run(w.ctx); w.err == nil {
		w.err = load.measure(load.bytes)
	}
	close(w.done)
	<-w.ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shadows[k] == w { // nobody has taken it
		delete(s.shadows, k)
		load.bind(nil)
	}
}

// take ends a shadow that is no longer among the others, and returns what it has; nil
// for nothing.
func (w *shadow[M]) take() *loading[M] {
	if w == nil {
		return nil
	}
	over := w.ctx.Err() != nil
	w.cancel()
	<-w.done
	w.load.bind(nil)
	if over || w.err != nil && !errors.Is(w.err, context.Canceled) {
		return nil
	}
	return w.load
}

// shadow takes the shadow of a partition that has opened.
func (s *Shards[M]) shadow(k shardKey) *loading[M] {
	s.mu.Lock()
	w := s.shadows[k]
	delete(s.shadows, k)
	s.mu.Unlock()
	return w.take()
}
