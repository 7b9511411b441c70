package commitlog

import (
	"context"
	"sync/atomic"
)

// Slot is one unit of durability: every batch that was written in it resolves
// with it. There is one per write to the medium, not one per batch, so waiting
// costs nothing per request.
type Slot struct {
	done chan struct{}
	err  atomic.Pointer[error]
}

// NewSlot returns an unresolved Slot.
func NewSlot() *Slot { return &Slot{done: make(chan struct{})} }

// Resolve ends the wait of everyone: nil means durable, an error means unknown
// (C4). Only the medium calls it, once.
func (s *Slot) Resolve(err error) {
	if err != nil {
		s.err.Store(&err)
	}
	close(s.done)
}

// Done is closed when the Slot has resolved.
func (s *Slot) Done() <-chan struct{} { return s.done }

// Err is the outcome of a resolved Slot and nil before.
func (s *Slot) Err() error {
	if p := s.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Commit is an appended batch's claim on durability, by value. Base and Last
// are the offsets of its first and last record. The zero value is resolved.
type Commit struct {
	Base, Last Offset
	slot       *Slot
}

// NewCommit ties offsets to the Slot that will make them durable; a nil slot
// is durable already.
func NewCommit(base, last Offset, slot *Slot) Commit {
	return Commit{Base: base, Last: last, slot: slot}
}

// closed is what Done returns for a Commit that never had to wait.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done is closed when the outcome is known.
func (c Commit) Done() <-chan struct{} {
	if c.slot == nil {
		return closed
	}
	return c.slot.Done()
}

// Resolved says whether the outcome is known, without waiting.
func (c Commit) Resolved() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Err is the outcome of a resolved Commit and nil before.
func (c Commit) Err() error {
	if c.slot == nil {
		return nil
	}
	return c.slot.Err()
}

// Wait returns the outcome, or ctx's error if that ends first; the Commit lives
// on then.
func (c Commit) Wait(ctx context.Context) error {
	select {
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
