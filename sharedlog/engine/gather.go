package engine

import (
	"unsafe"

	"ponor/commitlog"
)

// gather collects whole batches for one read (C8): from the batch that contains
// from, up to room bytes, none that starts at or above limit.
type gather struct {
	from, limit commitlog.Offset
	room        int // bytes left
	minOne      bool
	join        bool // neighbours in memory are one allocation, kept by a pin
	bufs        [][]byte
	bytes       int
	next        commitlog.Offset // after what was taken
	done        bool
}

// add offers a range of whole batches with offsets [base, end).
func (g *gather) add(p []byte, base, end commitlog.Offset) {
	if g.done || end <= g.from {
		return
	}
	if base >= g.from && end <= g.limit && len(p) <= g.room {
		g.take(p, end)
		return
	}
	first, n := 0, 0
	for n < len(p) {
		b, _, err := commitlog.SplitBatch(p[n:])
		if err != nil { // ranges are verified before they come here
			g.done = true
			break
		}
		switch {
		case b.LastOffset() < g.from:
			first = n + len(b)
		case b.BaseOffset() >= g.limit, n+len(b)-first > g.room && !(g.minOne && g.bytes == 0 && n == first):
			g.done = true
		}
		if g.done {
			break
		}
		n += len(b)
		end = b.LastOffset() + 1
	}
	if n > first {
		g.take(p[first:n], end)
	}
}

// take appends a range, joining it with the one before if they are neighbours
// in memory, which saves the socket a piece.
func (g *gather) take(p []byte, end commitlog.Offset) {
	g.next = end
	g.bytes += len(p)
	g.room -= len(p)
	if g.room <= 0 {
		g.done = true
	}
	if n := len(g.bufs); n > 0 {
		l := g.bufs[n-1]
		// Without join only the spare capacity proves that both are one allocation:
		// two that merely touch must each keep a pointer of its own.
		if (g.join || cap(l)-len(l) >= len(p)) && follows(unsafe.SliceData(l), len(l), unsafe.SliceData(p)) {
			if g.join {
				g.bufs[n-1] = unsafe.Slice(unsafe.SliceData(l), len(l)+len(p))
			} else {
				g.bufs[n-1] = l[:len(l)+len(p)]
			}
			return
		}
	}
	g.bufs = append(g.bufs, p)
}
