package wal

import (
	"ponor/commitlog"
)

// Slot is one WAL object on its way to the store and, after that, a piece of
// the recent-data cache. Methods are safe for concurrent use.
type Slot struct {
	seq    uint64
	commit *commitlog.Slot
	index  Index
}

// Seq is the slot's number in the WAL.
func (s *Slot) Seq() uint64 { return s.seq }

// Commit resolves with the slot.
func (s *Slot) Commit() *commitlog.Slot { return s.commit }

// Index says what the slot holds. It is complete when OnDurable is called and
// must not be called before. The result is shared and must not be changed.
func (s *Slot) Index() *Index { return &s.index }

// Acquire takes a reference on the slot's memory. False means that the memory
// is gone (evicted); read the object instead.
func (s *Slot) Acquire() bool { return false }

// Release gives one reference back. The slot's memory must not be touched
// afterwards.
func (s *Slot) Release() {}

// Ranges appends the memory of the index's chunk i to dst, in order; each range
// holds whole batches. The caller holds a reference; see Index for when.
func (s *Slot) Ranges(dst [][]byte, i int) [][]byte { return dst }
