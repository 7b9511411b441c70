package wal

import (
	"sync/atomic"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
)

// Slot is one WAL object on its way to the store and, after that, a piece of
// the recent-data cache. Methods are safe for concurrent use.
type Slot struct {
	seq    uint64
	commit *commitlog.Slot
	opened time.Time // of the first append

	// refs: one of the writer, who holds it until the slot is evicted, one per
	// Acquire. At 0 the slabs are given back and the slot is empty for ever.
	refs  atomic.Int64
	slabs []*slab // guarded by the Writer's mu while the slot is open

	// Set when the slot is encoded, constant afterwards.
	index  Index
	spans  []span
	chunks []int32 // position in spans of each chunk of the index

	// What is being put. The put's goroutine owns them until done.
	draft   *draft
	writeID WriteID
	key     string
	body    objstore.Body
	started time.Time   // when its first put began
	proof   time.Time   // see Writer.Proven; set before done
	done    atomic.Bool // durable; lower slots may not be
	bytes   int64       // of batches
}

// span is a run of whole batches in one slab.
type span struct {
	slab   uint32
	off, n uint32
}

// Seq is the slot's number in the WAL.
func (s *Slot) Seq() uint64 { return s.seq }

// Opened is when the slot's first batch was appended: no put of it began before.
func (s *Slot) Opened() time.Time { return s.opened }

// Commit resolves with the slot.
func (s *Slot) Commit() *commitlog.Slot { return s.commit }

// Index says what the slot holds. It is complete when OnDurable is called and
// must not be called before. The result is shared and must not be changed.
func (s *Slot) Index() *Index { return &s.index }

// Acquire takes a reference on the slot's memory. False means that the memory
// is gone (evicted); read the object instead.
func (s *Slot) Acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives one reference back. The slot's memory must not be touched
// afterwards.
func (s *Slot) Release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		for _, b := range s.slabs {
			b.release()
		}
	case n < 0:
		panic("wal: slot released too often")
	}
}

// Cached says whether the slot's memory is still there. Once false, it stays so.
func (s *Slot) Cached() bool { return s.refs.Load() > 0 }

// evict gives the writer's reference back unless a reader has one, too.
func (s *Slot) evict() bool {
	if !s.refs.CompareAndSwap(1, 0) {
		return false
	}
	for _, b := range s.slabs {
		b.release()
	}
	return true
}

// Ranges appends the memory of the index's chunk i to dst, in order; each range
// holds whole batches. The caller holds a reference; see Index for when.
func (s *Slot) Ranges(dst [][]byte, i int) [][]byte {
	end := len(s.spans)
	if i+1 < len(s.chunks) {
		end = int(s.chunks[i+1])
	}
	for _, p := range s.spans[s.chunks[i]:end] {
		dst = append(dst, s.memory(p))
	}
	return dst
}

func (s *Slot) memory(p span) []byte {
	return s.slabs[p.slab].mem[p.off : p.off+p.n : p.off+p.n]
}
