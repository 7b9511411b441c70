package engine

import (
	"fmt"
	"sort"
	"sync"
	"time"
	"unsafe"

	"ponor/commitlog"
	"ponor/sharedlog/wal"
)

// streamState is what the engine knows of one stream in memory. It outlives the
// handle while the WAL holds data of the stream that is not packed.
//
// Invariant: start <= confirm <= next; pieces are gap-free and end at next;
// what they do not cover is below committed.
type streamState struct {
	e  *Engine
	id commitlog.StreamID

	mu        sync.Mutex
	open      *handle          // nil while closed
	start     commitlog.Offset // use startNow
	trimming  commitlog.Offset // highest start submitted; it may apply at any time
	confirm   commitlog.Offset
	next      commitlog.Offset
	committed commitlog.Offset // end of what metadata has, as far as known
	last      *commitlog.Slot  // of the newest append
	pieces    []piece
	opts      settings
	check     *checkpoint
	cold      *coldReader // nil before the first
}

// coldReader is where the next cold read begins if one reader goes on, and how
// many bytes are read at a time; see nextWindow.
type coldReader struct {
	next   commitlog.Offset
	window int
}

// settings are the parts of OpenOptions that packing uses, kept after Close.
type settings struct {
	fold commitlog.Checkpointer
	age  func() time.Duration
}

// checkpoint is the newest folded checkpoint, kept while small so that packing
// needs no read. It covers what is below end; nil is that of an empty stream.
type checkpoint struct {
	bytes []byte
	end   commitlog.Offset
}

// maxKeptCheckpoint is the largest checkpoint kept per stream, in bytes: ten
// thousand idle partitions shall not cost more than a few MiB.
const maxKeptCheckpoint = 512

// piece is the part of a stream in one WAL slot.
type piece struct {
	slot      *wal.Slot
	epoch     commitlog.Epoch
	base, end commitlog.Offset
	bytes     int64
	maxTime   int64
	spans     []span
	// commit is what the appends of the piece wait for: the WAL slot's outcome
	// for this stream, or the loss of its handle before that. nil once resolved.
	commit *commitlog.Slot
}

// span is a range of slab memory with whole batches, one after another. Adjacent
// batches share a span until it is big enough to be a step of the search: a
// stream that writes alone costs 16 bytes per 32 KiB, one among many 16 bytes
// per batch.
//
// The memory is the slot's: touch it only between Acquire and Release.
type span struct {
	p     *byte
	bytes uint32
	rel   uint32 // base offset relative to the piece
}

// spanBytes is the size up to which adjacent batches are joined.
const spanBytes = 32 << 10

func (s span) data() []byte { return unsafe.Slice(s.p, s.bytes) }

// add records a batch of n offsets that was just appended and is stored at ptr.
// It does not look there: if the WAL ended meanwhile, the memory is gone.
func (p *piece) add(b commitlog.Batch, ptr *byte, n commitlog.Offset) {
	base := p.end
	p.end += n
	p.bytes += int64(len(b))
	p.maxTime = max(p.maxTime, b.MaxTimestamp())
	if n := len(p.spans); n > 0 {
		l := &p.spans[n-1]
		if l.bytes < spanBytes && follows(l.p, int(l.bytes), ptr) {
			l.bytes += uint32(len(b))
			return
		}
	}
	p.spans = append(p.spans, span{p: ptr, bytes: uint32(len(b)), rel: uint32(base - p.base)})
}

// follows says whether q is n bytes after p, without making a pointer that may
// lie outside of either's memory.
func follows(p *byte, n int, q *byte) bool {
	return uintptr(unsafe.Pointer(p))+uintptr(n) == uintptr(unsafe.Pointer(q))
}

// spanAt is the index of the span that contains offset o.
func (p *piece) spanAt(o commitlog.Offset) int {
	i := sort.Search(len(p.spans), func(i int) bool { return p.base+commitlog.Offset(p.spans[i].rel) > o })
	return max(i-1, 0)
}

// appendOne takes one batch (T3). The caller holds s.mu.
func (s *streamState) appendOne(epoch commitlog.Epoch, b commitlog.Batch) (commitlog.Commit, error) {
	n := commitlog.Offset(b.LastOffsetDelta()) + 1
	if n <= 0 {
		return commitlog.Commit{}, fmt.Errorf("%w: batch spans %d offsets", commitlog.ErrCorrupt, n)
	}
	base := s.next
	ref, slot, err := s.e.wal.Append(s.id, epoch, base, b)
	if err != nil {
		return commitlog.Commit{}, err
	}
	last := len(s.pieces) - 1
	if last < 0 || s.pieces[last].slot != ref.Slot || s.pieces[last].epoch != epoch || base-s.pieces[last].base > 1<<31 {
		s.pieces = append(s.pieces, piece{slot: ref.Slot, epoch: epoch, base: base, end: base, maxTime: -1, commit: commitlog.NewSlot()})
		last++
	}
	s.pieces[last].add(b, unsafe.SliceData(ref.Bytes), n)
	s.next = base + n
	s.last = slot
	return commitlog.NewCommit(base, base+n-1, s.pieces[last].commit), nil
}

// pieceAt is the index of the piece that contains o, -1 if none does.
func (s *streamState) pieceAt(o commitlog.Offset) int {
	i := sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].end > o })
	if i == len(s.pieces) || s.pieces[i].base > o {
		return -1
	}
	return i
}

// confirmTo moves the confirm offset (T2); slots resolve in order, so end is
// the end of a contiguous durable prefix. Offset first, then Commits (C7): who
// was told that a record is durable can read it.
func (s *streamState) confirmTo(end commitlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end <= s.confirm {
		return
	}
	old := s.confirm
	s.confirm = end
	if s.open != nil && s.open.err == nil && s.open.confirmed != nil {
		s.open.confirmed()
	}
	s.resolve(old, end, nil)
}

// resolve ends the Commits of pieces within [from, to), in order (C3). The
// caller holds s.mu.
func (s *streamState) resolve(from, to commitlog.Offset, err error) {
	i := len(s.pieces)
	for i > 0 && s.pieces[i-1].base >= from {
		i--
	}
	for ; i < len(s.pieces) && s.pieces[i].end <= to; i++ {
		if c := s.pieces[i].commit; c != nil {
			c.Resolve(err)
			s.pieces[i].commit = nil
		}
	}
}

// fail ends the open handle: its log answers err from now on, what it waits for
// is unknown (C4), and waiters are woken.
func (s *streamState) fail(err error) { s.failHandle(nil, err) }

// failHandle is fail, of one handle only if h is not nil.
func (s *streamState) failHandle(h *handle, err error) {
	s.mu.Lock()
	if h != nil && s.open != h {
		s.mu.Unlock()
		return
	}
	var wake func()
	if s.open != nil && s.open.err == nil {
		s.open.err = err
		wake = s.open.confirmed
	}
	s.resolve(s.confirm, s.next, err)
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// forget drops pieces that lie in slots up to and including seq: they are
// committed and their memory is gone.
func (s *streamState) forget(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	for i < len(s.pieces) && s.pieces[i].slot.Seq() <= seq && s.pieces[i].end <= s.committed {
		i++
	}
	if i == 0 {
		return
	}
	n := copy(s.pieces, s.pieces[i:])
	clear(s.pieces[n:])
	s.pieces = s.pieces[:n]
	if n == 0 {
		s.pieces = nil
	}
}
