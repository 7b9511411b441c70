package wal

import (
	"sync"
	"sync/atomic"
)

// slabBytes is the size of a slab. It is larger than Kafka's default limit of a
// message set (1 MiB and a little), so that an ordinary batch always fits in one
// and bump allocation wastes little at the end.
const slabBytes = 2 << 20

// slab is a piece of memory outside the Go heap that batches are copied into,
// one after another. The slots whose batches it has hold one reference each, and
// so does the writer while it fills it.
type slab struct {
	mem  []byte
	refs atomic.Int32
	pool *slabPool
}

func (s *slab) release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		s.pool.put(s)
	case n < 0:
		panic("wal: slab released too often")
	}
}

// slabPool makes slabs and recycles those of the ordinary size. A batch that
// does not fit into one gets a slab of its own, which goes back to the system.
type slabPool struct {
	mu struct {
		sync.Mutex
		free   []*slab
		closed bool
	}
	live atomic.Int64 // bytes of slabs in use
	keep int          // how many free slabs to keep
}

// get returns a slab with one reference.
func (p *slabPool) get(size int) (*slab, error) {
	size = max(size, slabBytes)
	var s *slab
	if size == slabBytes {
		p.mu.Lock()
		if n := len(p.mu.free); n > 0 {
			s = p.mu.free[n-1]
			p.mu.free = p.mu.free[:n-1]
		}
		p.mu.Unlock()
	}
	if s == nil {
		mem, err := allocSlab(size)
		if err != nil {
			return nil, err
		}
		s = &slab{mem: mem, pool: p}
	}
	s.refs.Store(1)
	p.live.Add(int64(size))
	return s, nil
}

func (p *slabPool) put(s *slab) {
	p.live.Add(-int64(len(s.mem)))
	p.mu.Lock()
	keep := len(s.mem) == slabBytes && !p.mu.closed && len(p.mu.free) < p.keep
	if keep {
		p.mu.free = append(p.mu.free, s)
	}
	p.mu.Unlock()
	if !keep {
		freeSlab(s.mem)
		s.mem = nil
	}
}

// close gives free slabs back to the system; those in use follow when they are
// released.
func (p *slabPool) close() {
	p.mu.Lock()
	free := p.mu.free
	p.mu.free, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, s := range free {
		freeSlab(s.mem)
	}
}
