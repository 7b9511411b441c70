package wal

import (
	"context"
	"errors"
	"time"

	"ponor/internal/metrics"
	"ponor/sharedlog/objstore"
)

// flushReason is why a slot was sent off.
type flushReason uint8

const (
	flushFull   flushReason = iota // the next batch does not fit
	flushIdle                      // nothing was in flight, and a token was left
	flushFreed                     // a put had ended meanwhile, and a token was left
	flushLinger                    // it was open for the longest time
	flushAsked                     // a hand-over, a proof or the end waits for it
	flushReasons
)

// String is the reason as a label.
func (r flushReason) String() string {
	return [...]string{"full", "idle", "freed", "linger", "asked"}[r]
}

// Metrics are what Writers count, one after another. The zero value is ready.
type Metrics struct {
	puts    metrics.Durations // of a slot, all attempts
	commits metrics.Durations // from a slot's first batch until it is acknowledged
	sizes   metrics.Sizes     // of slots' batches
	flushes [flushReasons]metrics.Counter
	retries metrics.Counter
	budget  metrics.Counter // appends refused
	trouble metrics.Counter
}

// Show writes the counts to a page.
func (m *Metrics) Show(p *metrics.Page) {
	p.Durations(metrics.SlotPutSeconds, &m.puts)
	p.Durations(metrics.SlotCommitSeconds, &m.commits)
	p.Sizes(metrics.SlotBytes, &m.sizes)
	for r := range flushReasons {
		p.Count(metrics.SlotFlushes, &m.flushes[r], r.String())
	}
	p.Count(metrics.SlotPutRetries, &m.retries)
	p.Count(metrics.AppendsRefused, &m.budget, "budget")
	p.Count(metrics.AppendsRefused, &m.trouble, "store")
}

// Show writes what is so now to a page: the bounds and how far they are used.
func (w *Writer) Show(p *metrics.Page) {
	w.mu.Lock()
	inflight, queued, unresolved, trouble := w.mu.inflight, len(w.mu.queue)-w.mu.inflight, w.mu.unresolved, w.mu.trouble
	w.mu.Unlock()
	p.Set(metrics.SlotsInFlight, float64(inflight))
	p.Set(metrics.SlotsQueued, float64(queued))
	p.Set(metrics.OldestUnresolved, w.OldestUnresolved().Seconds())
	p.Flag(metrics.StoreTrouble, trouble.err != nil)
	for _, reason := range [...]string{troubleFull, troubleRefused, troubleSilent, troubleOther} {
		lasts := 0.0
		if trouble.err != nil && trouble.reason() == reason {
			lasts = time.Since(trouble.since).Seconds()
		}
		p.Set(metrics.StoreTroubleTime, lasts, reason)
	}
	p.Set(metrics.BudgetUsed, float64(unresolved), "append")
	p.Set(metrics.BudgetLimit, float64(w.cfg.Budget), "append")
	p.Set(metrics.BudgetUsed, float64(w.CachedBytes()), "recent")
	p.Set(metrics.BudgetLimit, float64(w.cfg.CacheBytes), "recent")
}

// Kinds of trouble, as labels.
const (
	troubleFull    = "full"
	troubleRefused = "refused"
	troubleSilent  = "silent"
	troubleOther   = "error"
)

// reason is the kind of trouble.
func (t trouble) reason() string {
	switch {
	case errors.Is(t.err, objstore.ErrFull):
		return troubleFull
	case errors.Is(t.err, objstore.ErrRefused):
		return troubleRefused
	case errors.Is(t.err, errSilent), errors.Is(t.err, context.DeadlineExceeded):
		return troubleSilent
	}
	return troubleOther
}

// flushReasonLocked is why the open slot goes now.
func (w *Writer) flushReasonLocked(age time.Duration) flushReason {
	switch {
	case w.mu.sealAsked || w.mu.closing:
		return flushAsked
	case age >= w.cfg.Linger:
		return flushLinger
	case w.mu.inflight == 0:
		return flushIdle
	}
	return flushFreed
}
