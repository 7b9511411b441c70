package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

// reader serves what is no longer in the WAL's memory. Everything it gives out
// was verified by CRC when it came in from the store, and patched to the
// extent's base offset and epoch, which are authoritative.
//
// Its own concurrency (sem) and memory (cache) keep a backfill from taking
// anything from the tail.
type reader struct {
	e     *Engine
	cache *cache
	sem   chan struct{}
	ahead chan func(context.Context) // read-ahead jobs, dropped when full

	mu   sync.Mutex
	told map[place]time.Time // when damage was reported last
}

// place is a position in an object, of a stream.
type place struct {
	stream   commitlog.StreamID
	object   string
	position int64
}

// Damage is reported again after tellAgain: consumers that meet it try again and
// again. Of maxTold places it is known when that was.
const (
	tellAgain = time.Minute
	maxTold   = 1000
)

// news says whether damage was not reported lately, and notes that it is now.
func (r *reader) news(at place, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since, ok := r.told[at]; ok && now.Sub(since) < tellAgain {
		return false
	}
	if len(r.told) >= maxTold {
		clear(r.told)
	}
	r.told[at] = now
	return true
}

// tell reports damage, unless it did so just now.
func (r *reader) tell(id commitlog.StreamID, bad *badObject) {
	if !r.news(place{id, bad.object, bad.position}, time.Now()) {
		return
	}
	r.e.cfg.Logger.Error("corrupt or missing data", "stream", uint64(id), "object", r.e.key(bad.object), "position", bad.position, "err", bad.err)
}

// Limits of the reader, in bytes.
const (
	pageBytes    = 256 << 10 // cache unit of record bytes: whole blocks
	rawPageBytes = 1 << 20   // cache unit around sections
	tailBytes    = 64 << 10  // first read of an object's end
)

func newReader(e *Engine) *reader {
	return &reader{
		e: e, cache: newCache(e.cfg.ReadCacheBytes, e.cfg.Metrics),
		sem:   make(chan struct{}, e.cfg.ColdReads),
		ahead: make(chan func(context.Context), 64),
		told:  make(map[place]time.Time),
	}
}

// badObject is an object that is absent or damaged where an extent points at it.
type badObject struct {
	object   string
	position int64
	err      error
}

func (b *badObject) Error() string {
	return fmt.Sprintf("object %s at position %d: %v", b.object, b.position, b.err)
}

func (b *badObject) Unwrap() error { return b.err }

// storeError keeps the errors that say something of the object and makes all
// others ErrUnavailable.
func storeError(err error) error {
	switch {
	case err == nil, errors.Is(err, objstore.ErrNotFound), errors.Is(err, commitlog.ErrCorrupt), errors.Is(err, segment.ErrFormat),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, commitlog.ErrUnavailable),
		errors.Is(err, commitlog.ErrOffsetOutOfRange):
		return err
	default:
		return fmt.Errorf("%w: %w", commitlog.ErrUnavailable, err)
	}
}

// isBad says whether err means that the object is not what the extent says.
func isBad(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, commitlog.ErrCorrupt) || errors.Is(err, segment.ErrFormat)
}

// retry runs read under ans-3: an object that is gone or damaged may have been
// replaced meanwhile, so refresh the image through a barrier and try again. The
// same place being bad again in a fresh image is corruption: an alarm, never an
// empty answer.
func (r *reader) retry(ctx context.Context, id commitlog.StreamID, read func() error) error {
	var before badObject
	for {
		err := read()
		if err == nil || !isBad(err) {
			return storeError(err)
		}
		var bad *badObject
		if !errors.As(err, &bad) {
			bad = &badObject{object: "?", err: err}
		}
		r.cache.drop(bad.object)
		if bad.object == before.object && bad.position == before.position {
			r.tell(id, bad)
			return fmt.Errorf("stream %d: object %s at position %d: %w: %w", id, r.e.key(bad.object), bad.position, commitlog.ErrCorrupt, bad.err)
		}
		before = *bad
		if _, err := r.e.cfg.Meta.Barrier(ctx); err != nil {
			return fmt.Errorf("refresh extents of stream %d: %w: %w", id, commitlog.ErrUnavailable, err)
		}
	}
}

// fetch reads from extents; see handle.Fetch for what was checked already.
// Several small runs are read side by side and given out in order.
func (r *reader) fetch(ctx context.Context, h *handle, from, limit commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	g := gather{from: from, limit: limit, room: opts.MaxBytes, minOne: opts.MinOne}
	window, sequential := h.s.nextWindow(from, opts.MaxBytes, r.e.cfg.ReadAhead)
	var list []segment.Entry // what comes next
	next := func() error {
		g.from = max(g.from, g.next) // what was gathered before an error stays
		if len(list) == 0 {
			var err error
			if list, err = r.entriesFrom(ctx, h.s, g.from, maxRunsPerFetch, int64(g.room)); err != nil {
				return err
			}
			if len(list) > 1 {
				r.preload(ctx, h.s.id, list, g.from)
			}
		}
		x := list[0]
		list = list[1:]
		err := r.readRun(ctx, h.s.id, x, &g, window)
		if err != nil {
			list = nil // a fresh image may say something else
		}
		return err
	}
	for range maxRunsPerFetch {
		err := r.retry(ctx, h.s.id, next)
		if err != nil && len(g.bufs) == 0 {
			return commitlog.Records{}, err
		}
		if err != nil || g.done || g.next <= g.from || g.next >= limit || g.bytes >= opts.MaxBytes/2 {
			break
		}
		g.from = g.next
	}
	h.s.readUpTo(g.next)
	if sequential && g.next < limit {
		r.warmLater(h.s, g.next, window)
	}
	if err := h.lost(); err != nil {
		return commitlog.Records{}, err
	}
	return commitlog.NewRecords(g.bufs, nil), nil
}

// maxRunsPerFetch bounds how many small runs one fetch puts together, and
// maxRunsAhead how many are read ahead of a sequential reader: it shall never
// wait for one read after the other where a slot has a record.
const (
	maxRunsPerFetch = 64
	maxRunsAhead    = 2 * maxRunsPerFetch
)

// preload reads the runs of a list that begin at from or later and that nobody
// has, several at a time: half of the cold reads, so that one backlog of small
// slots does not keep others waiting. It ignores errors: whoever reads for real
// meets them again.
func (r *reader) preload(ctx context.Context, id commitlog.StreamID, list []segment.Entry, from commitlog.Offset) {
	var todo atomic.Int64
	load := func() {
		for ctx.Err() == nil {
			i := int(todo.Add(1)) - 1
			if i >= len(list) {
				return
			}
			e := &list[i]
			if e.Base < from || !r.cache.lacks(e.Object, e.Position) {
				continue
			}
			if x, err := r.run(ctx, id, *e); err == nil && len(x.pages) > 0 {
				_, _ = r.page(ctx, x, 0, int(e.Length))
			}
		}
	}
	var wg sync.WaitGroup
	for range min(len(list), max(cap(r.sem)/2, 1)) {
		wg.Go(load)
	}
	wg.Wait()
}

// lost is why the handle does not serve any more, nil if it does.
func (h *handle) lost() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.err
}

// nextWindow is how much one read from the store should fetch: what was asked,
// doubling while reads follow one another.
func (s *streamState) nextWindow(from commitlog.Offset, asked, most int) (window int, sequential bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cold == nil {
		s.cold = &coldReader{}
	}
	c := s.cold
	if sequential = from == c.next && c.window > 0; sequential {
		c.window = min(c.window*2, most)
	} else {
		c.window = min(max(asked, pageBytes), most)
	}
	return c.window, sequential
}

func (s *streamState) readUpTo(next commitlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cold.next = next
}

// warmLater has the bytes from offset next on fetched ahead of a sequential
// reader, if a read-ahead worker is free soon; it is only a guess.
func (r *reader) warmLater(s *streamState, next commitlog.Offset, window int) {
	select {
	case r.ahead <- func(ctx context.Context) { r.warm(ctx, s, next, window) }:
	default:
	}
}

// warm ignores errors: whoever reads for real meets them again.
func (r *reader) warm(ctx context.Context, s *streamState, next commitlog.Offset, window int) {
	list, err := r.entriesFrom(ctx, s, next, maxRunsAhead, int64(window))
	if err != nil {
		return
	}
	x, err := r.run(ctx, s.id, list[0])
	if err != nil || len(x.entry.Blocks) == 0 {
		return
	}
	if _, err := r.page(ctx, x, x.pageOf(x.blockAt(next)), window); err == nil {
		r.preload(ctx, s.id, list[1:], next)
	}
}

// warmLoop is a read-ahead worker.
func (r *reader) warmLoop(ctx context.Context) {
	for {
		select {
		case job := <-r.ahead:
			job(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// entriesFrom lists direct extents in order, from the one that contains offset o
// on: in the image, or, for what is not committed yet, in our WAL. It is one at
// least, and more as long as they are no more than most with room bytes in all,
// and a look at another index is not needed.
func (r *reader) entriesFrom(ctx context.Context, s *streamState, o commitlog.Offset, most int, room int64) ([]segment.Entry, error) {
	p, ok := r.e.cfg.Meta.Image().PartitionByStream(s.id)
	if !ok {
		return nil, fmt.Errorf("stream %d is gone from the metadata: %w", s.id, commitlog.ErrFenced)
	}
	if o < p.Start {
		// Trimmed while it was read.
		return nil, fmt.Errorf("read stream %d at %d, it starts at %d: %w", s.id, o, p.Start, commitlog.ErrOffsetOutOfRange)
	}
	if o >= p.End {
		return r.unpackedFrom(s, o, most, room)
	}
	list := make([]segment.Entry, len(p.Extents))
	for i, x := range p.Extents {
		list[i].Extent = x
	}
	for range maxDepth {
		i := sort.Search(len(list), func(i int) bool { return list[i].End > o })
		if i == len(list) || list[i].Base > o {
			return nil, fmt.Errorf("no extent of stream %d has offset %d below the committed end %d: %w", s.id, o, p.End, commitlog.ErrCorrupt)
		}
		if !list[i].Indirect {
			n := 1
			for room -= list[i].Length; i+n < len(list) && n < most && !list[i+n].Indirect; n++ {
				if room -= list[i+n].Length; room < 0 {
					break
				}
			}
			return list[i : i+n], nil
		}
		sec, err := r.sectionOf(ctx, s.id, list[i].Extent)
		if err != nil {
			return nil, err
		}
		list = sec.Entries
	}
	return nil, fmt.Errorf("index of stream %d is nested deeper than %d: %w", s.id, maxDepth, commitlog.ErrCorrupt)
}

// unpackedFrom is entriesFrom for chunks of our own WAL; it ends where slots are
// in memory.
func (r *reader) unpackedFrom(s *streamState, o commitlog.Offset, most int, room int64) ([]segment.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.pieceAt(o)
	if i < 0 || o >= s.confirm {
		return nil, fmt.Errorf("stream %d has nothing at offset %d in its WAL: %w", s.id, o, commitlog.ErrCorrupt)
	}
	var list []segment.Entry
	for ; i < len(s.pieces) && len(list) < most; i++ {
		p := &s.pieces[i]
		if p.base >= s.confirm || len(list) > 0 && (room < p.bytes || p.slot.Cached()) {
			break
		}
		for _, c := range chunksOf(p.slot.Index(), s.id) {
			if c.Base <= o && o < c.End {
				list = append(list, segment.Entry{Extent: r.e.chunkExtent(r.e.cfg.Incarnation, p.slot.Seq(), &c)})
				room -= c.Len
				o = c.End
			}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("slot %d has no chunk of stream %d at %d: %w", p.slot.Seq(), s.id, o, commitlog.ErrCorrupt)
		}
	}
	return list, nil
}
