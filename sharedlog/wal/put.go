package wal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/sharedlog/objstore"
)

// put writes a slot, for as long as it takes: storage trouble is never fatal
// (put-5), the budget pushes back meanwhile. It ends with the slot done, with the WAL
// fenced, or with ctx.
//
// Place for hedging: a second PutNew of the same bytes on another connection,
// once the p95 of the size class has passed, would cut the tail of a store that
// has one (S3). Its outcomes need nothing new: the loser answers "exists" with
// our own write id. It is not done: directories have no second connection.
func (w *Writer) put(ctx context.Context, s *Slot) {
	var pace *backoff
	var first time.Time
	vanished := 0
	if plant.On(plant.AckEarly) {
		s.done.CompareAndSwap(false, true)
		w.wake()
		time.Sleep(200 * time.Millisecond)
	}
	if plant.On(plant.TornPut) && s.seq%64 == 63 {
		s.body.Parts = s.body.Parts[:len(s.body.Parts)-1]
	}
	for {
		err := w.attempt(ctx, s, &vanished)
		switch {
		case err == nil:
			w.cfg.Metrics.puts.Observe(time.Since(s.started))
			w.putDone(s)
			return
		case errors.Is(err, commitlog.ErrFenced):
			w.fence(err)
			return
		case ctx.Err() != nil:
			return
		}
		if pace == nil {
			pace, first = newBackoff(w.cfg.Rand), time.Now()
		}
		w.cfg.Metrics.retries.Inc()
		w.noteTrouble(s, err, first)
		pace.wait(ctx)
	}
}

func (w *Writer) putDone(s *Slot) {
	d := s.draft
	s.draft, s.body.Parts = nil, nil
	d.reset()
	w.mu.Lock()
	over := w.mu.trouble.err != nil && w.mu.trouble.seq == s.seq
	if over {
		w.mu.trouble = trouble{}
	}
	if len(w.mu.drafts) < 2*w.cfg.MaxInflight {
		w.mu.drafts = append(w.mu.drafts, d)
	}
	// Under the lock, so that nobody notes trouble of this slot after it was
	// cleared: nothing would ever clear that.
	s.done.Store(true)
	w.mu.Unlock()
	if over {
		w.cfg.Logger.Info("store takes writes again", "object", s.key)
	}
	w.wake()
}

// noteTrouble remembers the failure of the lowest slot that fails.
func (w *Writer) noteTrouble(s *Slot, err error, since time.Time) {
	w.mu.Lock()
	t := &w.mu.trouble
	isNew := t.err == nil
	if isNew || s.seq <= t.seq {
		*t = trouble{err: err, seq: s.seq, since: since}
	}
	w.mu.Unlock()
	if isNew {
		w.cfg.Logger.Warn("store does not take writes", "object", s.key, "err", err)
	}
}

// maxVanished is how often a slot may exist and then not be found before its
// state counts as unknowable (put-3).
const maxVanished = 10

// attempt puts once. nil: the slot is durable. ErrFenced: it never will be, or
// nobody can know. Anything else leaves the outcome open, and the same bytes
// are put again: whichever attempt lands first, the content is the same
// (slot-1).
func (w *Writer) attempt(ctx context.Context, s *Slot, vanished *int) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.AttemptTimeout)
	defer cancel()
	// ans-2: whichever attempt creates the slot, it proves ownership only as of the
	// first: an earlier one may have landed, been sealed below a fence, repacked
	// and swept, and this one then creates the slot a second time.
	s.proof = s.started
	err := w.cfg.Bucket.PutNew(ctx, s.key, s.body)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrUndurable):
		// put-6: what is visible may vanish, nothing of it can be acknowledged.
		return fmt.Errorf("%w: %w", commitlog.ErrFenced, err)
	case !errors.Is(err, objstore.ErrExists):
		return err
	}
	h, err := w.readBack(ctx, s)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		if *vanished++; *vanished >= maxVanished {
			return fmt.Errorf("%w: slot exists and is not found: %w", commitlog.ErrFenced, err)
		}
		return err
	case errors.Is(err, commitlog.ErrCorrupt), errors.Is(err, ErrUnsupported):
		return w.foreign(s, err)
	case err != nil:
		return err
	case plant.On(plant.SkipFence):
		return nil
	case h.Kind == Fence: // put-2
		return fmt.Errorf("WAL of %s: %w by %s at slot %d", w.cfg.Incarnation, commitlog.ErrFenced, h.Author, h.Seq)
	case plant.On(plant.OwnIsForeign):
	case h.WriteID == s.writeID:
		return nil // put-1: an earlier attempt of ours
	}
	return w.foreign(s, fmt.Errorf("%w: slot was written by %s with another write id", commitlog.ErrCorrupt, h.Author))
}

// foreign reports a slot that is taken by neither us nor a fence (put-4):
// somebody else writes under our name, or the store lies.
func (w *Writer) foreign(s *Slot, err error) error {
	w.cfg.Logger.Error("WAL slot has foreign content", "object", s.key, "err", err)
	return fmt.Errorf("slot %s: %w: %w", s.key, commitlog.ErrFenced, err)
}

// readBack reads a slot's header. Damage counts only if it is read twice: once
// it may have happened on the way.
func (w *Writer) readBack(ctx context.Context, s *Slot) (h Header, err error) {
	for range 2 {
		if h, err = w.readHeader(ctx, s); !errors.Is(err, commitlog.ErrCorrupt) {
			return h, err
		}
	}
	return h, err
}

func (w *Writer) readHeader(ctx context.Context, s *Slot) (Header, error) {
	buf := make([]byte, HeaderBytes)
	n, err := w.cfg.Bucket.GetRange(ctx, s.key, 0, buf)
	if err != nil {
		return Header{}, fmt.Errorf("read back: %w", err)
	}
	h, err := DecodeHeader(buf[:n])
	if err == nil {
		err = identity{w.cfg.ClusterID, w.cfg.Generation, w.cfg.Incarnation}.check(&h, s.seq)
	}
	return h, err
}
