package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ponor/commitlog"
)

// runState belongs to the goroutine of Run.
type runState struct {
	tokens tokens
	recent [repeatEvery][]byte // encoded chunks of the last slots
	cache  []*Slot             // durable slots in memory, oldest first
	freed  bool                // a put has ended since the open slot got its first batch
	result error               // what Close answers
}

func newRunState(cfg *Config) runState {
	return runState{tokens: tokens{rate: cfg.PutsPerSecond, burst: float64(max(cfg.PutBurst, 1))}}
}

// tokens is a token bucket of puts, the knob between latency and cost: with
// tokens left a slot goes as soon as it can, without it lingers.
type tokens struct {
	rate, burst float64 // per second; rate 0 is unlimited
	have        float64
	at          time.Time // when have was right; zero before the first use
}

func (t *tokens) refill(now time.Time) {
	if t.at.IsZero() {
		t.have = t.burst
	} else {
		t.have = min(t.burst, t.have+now.Sub(t.at).Seconds()*t.rate)
	}
	t.at = now
}

// any says whether a put may start for free.
func (t *tokens) any(now time.Time) bool {
	if t.rate == 0 {
		return true
	}
	t.refill(now)
	return t.have >= 1
}

// take uses up a token if there is one. A slot that is full, has lingered or
// was asked for goes without: tokens bound cost, never throughput or safety.
func (t *tokens) take(now time.Time) {
	if t.any(now) {
		t.have--
	}
}

// next is how long until there is a token.
func (t *tokens) next() time.Duration {
	return time.Duration((1-t.have)/t.rate*float64(time.Second)) + time.Microsecond
}

// Run writes slots until Close, until the WAL is fenced (the error wraps
// commitlog.ErrFenced) or until ctx ends, which fails everything outstanding
// with commitlog.ErrClosed. It is called once.
func (w *Writer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	bad := w.mu.stop != nil || w.mu.closing
	if !bad {
		w.mu.stop = cancel
	}
	w.mu.Unlock()
	if bad {
		return fmt.Errorf("run WAL: %w", commitlog.ErrClosed)
	}
	err := w.loop(ctx)
	// Commits fail first, hung puts are waited for afterwards.
	cancel()
	w.failAll(err)
	if errors.Is(err, commitlog.ErrFenced) {
		w.cfg.Logger.Error("WAL is fenced", "broker", w.cfg.Incarnation.String(), "err", err)
		if w.cfg.OnFenced != nil {
			w.cfg.OnFenced(err)
		}
	}
	w.puts.Wait()
	w.run.result = err
	close(w.over)
	return err
}

// loop does what there is to do and waits for more. nil: closed, all resolved.
func (w *Writer) loop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.resolve()
		if err := w.state(ctx); err != nil {
			return err
		}
		wait := w.startPuts(ctx, time.Now())
		if w.finished() {
			return nil
		}
		timer.Stop()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case <-w.kick:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// state is why the loop must end.
func (w *Writer) state(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.fenced != nil {
		return w.mu.fenced
	}
	if ctx.Err() != nil {
		return fmt.Errorf("run WAL: %w: %w", commitlog.ErrClosed, context.Cause(ctx))
	}
	return nil
}

func (w *Writer) finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.closing && w.mu.open == nil && len(w.mu.queue) == 0
}

// resolve acknowledges what is durable, strictly in slot order (slot-2): a slot
// that is done waits for those below it.
func (w *Writer) resolve() {
	for {
		w.mu.Lock()
		if w.mu.inflight == 0 || !w.mu.queue[0].done.Load() || w.mu.fenced != nil {
			w.mu.Unlock()
			break
		}
		s := w.mu.queue[0]
		w.mu.queue[0] = nil
		w.mu.queue = w.mu.queue[1:]
		w.mu.inflight--
		w.mu.durable++
		w.mu.unresolved -= s.bytes
		if s.proof.After(w.mu.proven) {
			w.mu.proven = s.proof
		}
		w.mu.Unlock()
		w.cfg.Metrics.commits.Observe(time.Since(s.opened))
		w.run.freed = true
		w.run.cache = append(w.run.cache, s)
		if w.cfg.OnDurable != nil {
			w.cfg.OnDurable(s.seq, s)
		}
		s.commit.Resolve(nil)
	}
	w.evict()
}

// maxCached bounds the slots in the cache: small ones are more book-keeping
// than data.
const maxCached = 1 << 14

// evict gives up the oldest slots that nobody reads until the memory is within
// bounds.
func (w *Writer) evict() {
	kept := w.run.cache[:0]
	for i, s := range w.run.cache {
		if w.pool.live.Load() <= w.cfg.CacheBytes && len(w.run.cache)-i+len(kept) <= maxCached {
			kept = append(kept, w.run.cache[i:]...)
			break
		}
		if !s.evict() {
			kept = append(kept, s)
		}
	}
	clear(w.run.cache[len(kept):])
	w.run.cache = kept
}

// startPuts starts every put that may start now and returns how long to wait
// for the next reason, -1 for none but being woken.
func (w *Writer) startPuts(ctx context.Context, now time.Time) time.Duration {
	for {
		s, wait := w.nextSlot(now)
		if s == nil {
			return wait
		}
		w.run.tokens.take(now)
		w.prepare(s)
		s.started = now
		w.puts.Go(func() { w.put(ctx, s) })
	}
}

// nextSlot takes the next slot to put, if one may go now. Window: slot n waits
// until all slots up to n-MaxInflight are durable, also if higher ones are (a
// sealer concludes from it which slots can exist, slot-5).
func (w *Writer) nextSlot(now time.Time) (*Slot, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.inflight >= w.cfg.MaxInflight {
		return nil, w.hungLocked(now)
	}
	if w.mu.inflight == len(w.mu.queue) {
		if w.mu.open == nil {
			w.run.freed = false
			return nil, w.hungLocked(now)
		}
		if wait := w.dueLocked(now); wait > 0 {
			return nil, earlier(wait, w.hungLocked(now))
		}
		w.closeSlotLocked(w.flushReasonLocked(now.Sub(w.mu.open.opened)))
		w.run.freed = false
	}
	s := w.mu.queue[w.mu.inflight]
	w.mu.inflight++
	return s, 0
}

// dueLocked is how long the open slot stays open: 0 or less means it goes now.
func (w *Writer) dueLocked(now time.Time) time.Duration {
	age := now.Sub(w.mu.open.opened)
	if w.mu.sealAsked || w.mu.closing {
		return 0
	}
	wait := w.cfg.Linger - age
	alone := w.mu.inflight == 0
	if alone || w.run.freed {
		early := time.Duration(0)
		if alone {
			early = w.cfg.Gather - age
		}
		if !w.run.tokens.any(now) {
			early = max(early, w.run.tokens.next())
		}
		wait = min(wait, early)
	}
	return wait
}

// hungAfter is how long a put may take before its silence is trouble.
const hungAfter = 10 * time.Second

var errSilent = fmt.Errorf("store does not answer for %v", hungAfter)

// hungLocked notes trouble if the lowest put has not answered for long, and
// returns when to look again.
func (w *Writer) hungLocked(now time.Time) time.Duration {
	if w.mu.inflight == 0 {
		return -1
	}
	s := w.mu.queue[0]
	if s.done.Load() {
		return 0 // about to be resolved: look again
	}
	if left := hungAfter - now.Sub(s.started); left > 0 {
		return left
	}
	if w.mu.trouble.err == nil {
		w.mu.trouble = trouble{err: errSilent, seq: s.seq, since: s.started}
	}
	return hungAfter
}

// earlier is the sooner of two waits, where negative means never.
func earlier(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// prepare encodes a slot.
func (w *Writer) prepare(s *Slot) {
	if _, err := io.ReadFull(w.cfg.Rand, s.writeID[:]); err != nil {
		panic("wal: no randomness for a write id: " + err.Error())
	}
	s.key = SlotKey(w.cfg.Prefix, w.cfg.Incarnation, s.seq)
	s.encode(Header{
		Window: uint8(w.cfg.MaxInflight), ClusterID: w.cfg.ClusterID, Generation: w.cfg.Generation,
		Incarnation: w.cfg.Incarnation, Author: w.cfg.Incarnation, DurableBelow: w.Durable(),
	}, &w.run.recent)
}

// failAll fails everything outstanding, in order, and takes nothing more (put-2). It
// says how many slots that were.
func (w *Writer) failAll(err error) int {
	w.mu.Lock()
	if err == nil {
		err = errWriterClosed
	}
	if w.mu.fenced == nil {
		w.mu.fenced = err // also for appends from now on
	}
	slots := w.mu.queue
	if w.mu.open != nil {
		slots = append(slots, w.mu.open)
	}
	inflight := w.mu.inflight
	w.mu.queue, w.mu.open, w.mu.inflight, w.mu.unresolved = nil, nil, 0, 0
	w.mu.trouble = trouble{}
	if w.mu.slab != nil {
		w.mu.slab.release()
		w.mu.slab = nil
	}
	w.mu.Unlock()
	for i, s := range slots {
		s.commit.Resolve(err)
		if i >= inflight {
			s.Release() // those in flight are read by their puts yet
		}
	}
	w.run.cache = append(w.run.cache, slots[:min(inflight, len(slots))]...)
	return len(slots)
}

// dropCache gives all memory back that readers do not hold.
func (w *Writer) dropCache() {
	for _, s := range w.run.cache {
		s.Release()
	}
	w.run.cache = nil
	w.pool.close()
}
