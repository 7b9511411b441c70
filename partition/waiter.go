package partition

import (
	"slices"
	"sync"
)

// Waiter is one fetch request, or a fetch session, that waits for news of many
// partitions: stable data, a new start, an error, the loss of the partition. A
// watched partition costs a list entry, and no timer or goroutine.
//
// Watch first, then read: news that comes before Watch is not told.
type Waiter struct {
	c chan struct{}

	mu     sync.Mutex
	first  *watch // all of this waiter's, linked by wnext
	ready  []*watch
	closed bool
}

// watch is one partition watched by one Waiter, in a list of each.
type watch struct {
	w            *Waiter
	p            *Partition
	pprev, pnext *watch // the partition's list, under its lock
	wprev, wnext *watch // the waiter's list, under the waiter's lock
	linked       bool   // in the partition's list, under its lock
	queued       bool   // in ready, under the waiter's lock
}

// NewWaiter returns a Waiter that watches nothing.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C receives once there is something to Take. One receive may stand for many
// partitions.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Take appends to dst the partitions that had news since the last Take, each
// once, in the order of their news.
func (w *Waiter) Take(dst []*Partition) []*Partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.ready {
		x.queued = false
		dst = append(dst, x.p)
	}
	clear(w.ready)
	w.ready = w.ready[:0]
	return dst
}

// Close stops watching everything. The Waiter is used up.
func (w *Waiter) Close() {
	w.mu.Lock()
	x := w.first
	w.first, w.ready, w.closed = nil, nil, true
	w.mu.Unlock()
	for ; x != nil; x = x.wnext {
		x.p.watches.unlink(x)
	}
}

// notify tells the Waiter of news. The partition's list is locked.
func (w *Waiter) notify(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || x.queued {
		return
	}
	x.queued = true
	w.ready = append(w.ready, x)
	select {
	case w.c <- struct{}{}:
	default: // not yet received: it will Take this one too
	}
}

// watchList is a partition's side. The zero value is empty.
type watchList struct {
	mu    sync.Mutex
	first *watch
}

// Watch makes w hear of news. Watching twice is watching once. A partition
// that is closed tells so at once.
func (p *Partition) Watch(w *Waiter) {
	l := &p.watches
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of(w)
	if x == nil {
		x = &watch{w: w, p: p, pnext: l.first, linked: true}
		if !w.adopt(x) {
			return // closed
		}
		if l.first != nil {
			l.first.pprev = x
		}
		l.first = x
	}
	if p.closed.Load() {
		w.notify(x)
	}
}

// Unwatch stops what Watch began.
func (p *Partition) Unwatch(w *Waiter) {
	l := &p.watches
	l.mu.Lock()
	x := l.of(w)
	if x != nil {
		l.unlinkLocked(x)
	}
	l.mu.Unlock()
	if x != nil {
		w.drop(x)
	}
}

// of finds a waiter's entry; a partition has few.
func (l *watchList) of(w *Waiter) *watch {
	for x := l.first; x != nil; x = x.pnext {
		if x.w == w {
			return x
		}
	}
	return nil
}

// wake tells every watcher.
func (l *watchList) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := l.first; x != nil; x = x.pnext {
		x.w.notify(x)
	}
}

func (l *watchList) unlink(x *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(x)
}

func (l *watchList) unlinkLocked(x *watch) {
	if !x.linked {
		return
	}
	x.linked = false
	if x.pprev != nil {
		x.pprev.pnext = x.pnext
	} else {
		l.first = x.pnext
	}
	if x.pnext != nil {
		x.pnext.pprev = x.pprev
	}
}

// adopt puts an entry into the waiter's list, unless it is closed.
func (w *Waiter) adopt(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	x.wnext = w.first
	if w.first != nil {
		w.first.wprev = x
	}
	w.first = x
	return true
}

// drop takes an entry out of the waiter's list.
func (w *Waiter) drop(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // Close walks the list
	}
	if x.queued {
		w.ready = slices.DeleteFunc(w.ready, func(r *watch) bool { return r == x })
	}
	if x.wprev != nil {
		x.wprev.wnext = x.wnext
	} else {
		w.first = x.wnext
	}
	if x.wnext != nil {
		x.wnext.wprev = x.wprev
	}
}
