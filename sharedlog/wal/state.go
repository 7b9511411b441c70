package wal

import (
	"time"

	"ponor/commitlog"
)

// Durable is the number of slots known durable: all below it are.
func (w *Writer) Durable() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.durable
}

// Unresolved is how many bytes of batches are not durable yet.
func (w *Writer) Unresolved() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.unresolved
}

// CachedBytes is the slab memory in use, in bytes.
func (w *Writer) CachedBytes() int64 { return w.pool.live.Load() }

// OldestUnresolved is the age of the oldest batch that is not durable, 0 if
// there is none.
func (w *Writer) OldestUnresolved() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.mu.open
	if len(w.mu.queue) > 0 {
		oldest = w.mu.queue[0]
	}
	if oldest == nil {
		return 0
	}
	return time.Since(oldest.opened)
}

// Trouble is why the store does not take writes now, and since when; nil if it
// does.
func (w *Writer) Trouble() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.trouble.since, w.mu.trouble.err
}

// Proven is the newest moment at which this incarnation is known to have owned
// its WAL: a put that began then created a slot, and all lower slots are ours,
// so no fence was there (Own-proof, ans-2). Zero before the first.
func (w *Writer) Proven() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.proven
}

// Prove returns a slot whose success moves Proven to a moment after the call: the
// open one, sent off at once, or an empty one. It costs a put, so callers share
// one. An error says that there will be no proof: commitlog.ErrFenced,
// ErrClosed.
func (w *Writer) Prove() (*commitlog.Slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.fenced != nil:
		return nil, w.mu.fenced
	case w.mu.closing:
		return nil, errWriterClosed
	}
	s := w.mu.open
	if s == nil {
		s = w.openLocked()
	}
	w.mu.sealAsked = true
	w.wake()
	return s.commit, nil
}
