package partition

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
)

// hosted is one partition that the image gives or gave to this incarnation.
// What is wanted comes from the image, what is comes from work; one worker at
// a time (busy) closes the difference, so open and close of one partition never
// overlap. Guarded by Set.hosting.mu.
type hosted struct {
	id       commitlog.ID
	epoch    commitlog.Epoch // wanted
	wanted   bool
	openable bool          // slot-4
	busy     bool          // in the queue or in a worker's hands
	listed   bool          // by the image, while a reconcile looks
	part     *Partition    // open, at part.epoch
	away     *absence      // from when it is wanted until it is open; nil else
	change   chan struct{} // closed when something changed; nil if nobody waits
}

// absence is what matters of a partition only while it is not open.
type absence struct {
	since   time.Time // when it became ours at this epoch
	sealed  time.Time // when it became openable
	err     error     // of the last attempt to open
	backoff time.Duration
	retryAt time.Time
}

// trouble is why the last attempt to open failed.
func (h *hosted) trouble() error {
	if h.away == nil {
		return nil
	}
	return h.away.err
}

// Backoff of a log that does not open.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// work is what a partition needs next.
type work uint8

const (
	nothing work = iota
	opening
	closing
	leaving // not wanted and not open: drop the entry
)

// fail notes an attempt that failed and puts the next one off.
func (a *absence) fail(err error) {
	a.err = err
	a.backoff = min(max(2*a.backoff, minBackoff), maxBackoff)
	a.retryAt = time.Now().Add(a.backoff)
}

// next decides. It is asked again after every step.
func (h *hosted) next(now time.Time) work {
	switch {
	case h.part != nil && (!h.wanted || h.part.epoch != h.epoch):
		return closing
	case h.part == nil && !h.wanted:
		return leaving
	case h.part == nil && h.openable && (h.away == nil || !now.Before(h.away.retryAt)):
		return opening
	}
	return nothing
}

// tell wakes who waits for the partition.
func (h *hosted) tell() {
	if h.change != nil {
		close(h.change)
		h.change = nil
	}
}

// reconcile takes a new image: what it lists is wanted, the rest is not.
func (s *Set) reconcile(ctx context.Context, img *metadata.Image) {
	now := time.Now()
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	for part := range img.Owned(s.cfg.Incarnation) {
		if part.Deleting {
			s.doom(part)
			continue // not wanted any more
		}
		k := key{part.Topic, part.Number}
		h := s.hosting.m[k]
		if h == nil {
			h = &hosted{id: part.ID()}
			s.hosting.m[k] = h
		}
		if !h.wanted || h.epoch != part.Epoch || h.openable != part.Openable() {
			away := &absence{since: now, sealed: now}
			if h.away != nil && h.wanted && h.epoch == part.Epoch {
				away.since = h.away.since
			}
			h.away = away
			h.wanted, h.epoch, h.openable = true, part.Epoch, part.Openable()
			h.tell()
		}
		h.listed = true
	}
	for _, h := range s.hosting.m {
		h.wanted = h.wanted && h.listed
		h.listed = false
		s.enqueue(h, now)
	}
	close(s.hosting.passed)
	s.hosting.passed = make(chan struct{})
	s.dispatch(ctx)
	if len(s.hosting.doomed) > 0 {
		poke(s.reap)
	}
}

// enqueue gives a partition to the workers if there is something to do.
// hosting.mu is held.
func (s *Set) enqueue(h *hosted, now time.Time) {
	if h.busy {
		return
	}
	switch h.next(now) {
	case nothing:
	case leaving:
		h.tell()
		delete(s.hosting.m, key{h.id.TopicID, h.id.Partition})
	case opening, closing:
		h.busy = true
		s.hosting.queue = append(s.hosting.queue, h)
	}
}

// dispatch starts workers for what is queued. A worker ends when the queue is
// empty. hosting.mu is held.
func (s *Set) dispatch(ctx context.Context) {
	for s.hosting.workers < min(s.cfg.Parallel, len(s.hosting.queue)) {
		s.hosting.workers++
		s.wg.Go(func() { s.work(ctx) })
	}
}

// retry queues what is due again, and says when the next one will be.
func (s *Set) retry(ctx context.Context) time.Duration {
	now, wait := time.Now(), time.Hour
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	if s.hosting.failing == 0 {
		return wait
	}
	s.hosting.failing = 0
	for _, h := range s.hosting.m {
		if h.part != nil || !h.wanted || !h.openable || h.trouble() == nil {
			continue
		}
		s.enqueue(h, now)
		if !h.busy {
			s.hosting.failing++
			wait = min(wait, h.away.retryAt.Sub(now))
		}
	}
	s.dispatch(ctx)
	return max(wait, 0)
}

// work is one worker.
func (s *Set) work(ctx context.Context) {
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	for len(s.hosting.queue) > 0 {
		h := s.hosting.queue[0]
		s.hosting.queue = s.hosting.queue[1:]
		switch h.next(time.Now()) {
		case opening:
			s.open(ctx, h)
		case closing:
			s.shut(ctx, h)
		case nothing, leaving:
		}
		h.busy = false
		s.enqueue(h, time.Now())
	}
	s.hosting.queue = nil
	s.hosting.workers--
	if s.hosting.workers == 0 && s.hosting.opened >= manyOpened {
		s.hosting.opened = 0
		s.wg.Go(func() { s.giveBack(ctx) })
	}
	if len(s.hosting.doomed) > 0 {
		poke(s.reap)
	}
}

// open opens a partition at the epoch wanted. hosting.mu is held, and let go
// of while the store works.
func (s *Set) open(ctx context.Context, h *hosted) {
	epoch, id := h.epoch, h.id
	cfg := Config{ID: id, Epoch: epoch, Host: &s.host, Settings: s.settings(id.Topic)}
	s.hosting.mu.Unlock()
	local := cfg.Settings().Local
	cfg.Store = s.cfg.Shared
	if local {
		cfg.Store = s.cfg.Local
	}
	var p *Partition
	var err error
	if cfg.Store != nil {
		p, err = Open(ctx, cfg)
	} else {
		err = fmt.Errorf("open partition %s: this broker keeps no logs of storage.mode %s", id, storageMode(local))
	}
	s.hosting.mu.Lock()
	h.part = p
	s.hosting.opened++
	if err != nil {
		s.cfg.Metrics.openErrors.Inc()
		h.away.fail(err)
		s.hosting.failing++
		poke(s.kick)
		if ctx.Err() == nil {
			s.host.logger().Warn("partition does not open, it will be tried again", "topic", id.Topic, "partition", id.Partition, "epoch", epoch, "err", err)
		}
		return
	}
	if h.epoch == epoch {
		s.cfg.Metrics.open.Observe(time.Since(h.away.sealed))
		s.cfg.Metrics.absent.Observe(time.Since(h.away.since))
		h.away = nil
	}
	if h.next(time.Now()) == nothing { // still wanted like this
		if s.cfg.Opened != nil {
			s.cfg.Opened(p)
		}
		s.serving.mu.Lock()
		s.serving.m[key{id.TopicID, id.Partition}] = p
		s.serving.mu.Unlock()
	}
	h.tell()
}

// settings is how a topic's settings are asked for. Partitions of one topic open
// one after another and share the function, which saves memory. hosting.mu is
// held.
func (s *Set) settings(topic string) func() metadata.TopicSettings {
	if s.hosting.latest == nil || s.hosting.topic != topic {
		s.hosting.topic = topic
		s.hosting.latest = func() metadata.TopicSettings { return s.cfg.Meta.Image().TopicSettings(topic) }
	}
	return s.hosting.latest
}

// Opening very many partitions makes as much garbage as they take themselves, and
// an idle node would keep it: nothing makes the collector run.
const (
	manyOpened = 10_000
	quietAfter = 10 * time.Second
)

// giveBack gives memory back to the system once, some time after many partitions
// were opened, unless more are being opened.
func (s *Set) giveBack(ctx context.Context) {
	rest(ctx, quietAfter)
	s.hosting.mu.Lock()
	quiet := s.hosting.workers == 0 && !s.hosting.stopped
	s.hosting.mu.Unlock()
	if quiet {
		debug.FreeOSMemory()
	}
}

func storageMode(local bool) string {
	if local {
		return "local"
	}
	return "shared"
}

// shut closes a partition. hosting.mu is held, and let go of while the log
// closes.
func (s *Set) shut(ctx context.Context, h *hosted) {
	p, stopAt := h.part, s.hosting.stopAt
	s.hosting.mu.Unlock()
	s.serving.mu.Lock()
	if k := (key{p.id.TopicID, p.id.Partition}); s.serving.m[k] == p {
		delete(s.serving.m, k)
	}
	s.serving.mu.Unlock()
	// The log gets its time to resolve appends also when we are told to stop, but
	// then all of them together: one after another would take for ever.
	until := time.Now().Add(s.cfg.CloseTimeout)
	if !stopAt.IsZero() {
		until = stopAt
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	if err := p.Close(ctx); err != nil && !errors.Is(err, commitlog.ErrFenced) {
		s.host.logger().Warn("partition closed with an error", "topic", p.id.Topic, "partition", p.id.Partition, "epoch", p.epoch, "err", err)
	}
	s.hosting.mu.Lock()
	h.part = nil
}

// stop closes everything; Run then waits for the workers.
func (s *Set) stop(ctx context.Context) {
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	s.hosting.stopped, s.hosting.stopAt = true, time.Now().Add(s.cfg.CloseTimeout)
	for _, h := range s.hosting.m {
		h.wanted = false
		h.tell()
		s.enqueue(h, time.Now())
	}
	close(s.hosting.passed)
	s.dispatch(ctx)
}
