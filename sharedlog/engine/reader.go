package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"

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
			r.e.cfg.Logger.Error("corrupt or missing data", "stream", uint64(id), "object", r.e.key(bad.object), "position", bad.position, "err", bad.err)
			return fmt.Errorf("stream %d: object %s at position %d: %w: %w", id, r.e.key(bad.object), bad.position, commitlog.ErrCorrupt, bad.err)
		}
		before = *bad
		if _, err := r.e.cfg.Meta.Barrier(ctx); err != nil {
			return fmt.Errorf("refresh extents of stream %d: %w: %w", id, commitlog.ErrUnavailable, err)
		}
	}
}

// fetch reads from extents; see handle.Fetch for what was checked already.
func (r *reader) fetch(ctx context.Context, h *handle, from, limit commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	g := gather{from: from, limit: limit, room: opts.MaxBytes, minOne: opts.MinOne}
	window, sequential := h.s.nextWindow(from, opts.MaxBytes, r.e.cfg.ReadAhead)
	for range maxRunsPerFetch {
		err := r.retry(ctx, h.s.id, func() error {
			g.from = max(g.from, g.next) // what was gathered before an error stays
			x, err := r.locate(ctx, h.s, g.from)
			if err != nil {
				return err
			}
			return r.readRun(ctx, h.s.id, x, &g, window)
		})
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

// maxRunsPerFetch bounds how many small runs one fetch puts together.
const maxRunsPerFetch = 16

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
	if sequential = from == s.coldNext && s.window > 0; sequential {
		s.window = min(s.window*2, most)
	} else {
		s.window = min(max(asked, pageBytes), most)
	}
	return s.window, sequential
}

func (s *streamState) readUpTo(next commitlog.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coldNext = next
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
	e, err := r.locate(ctx, s, next)
	if err != nil {
		return
	}
	x, err := r.run(ctx, s.id, e)
	if err != nil || len(x.entry.Blocks) == 0 {
		return
	}
	_, _ = r.page(ctx, x, x.pageOf(x.blockAt(next)), window)
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

// locate finds the direct extent that contains offset o: in the image, or, for
// what is not committed yet, in our WAL.
func (r *reader) locate(ctx context.Context, s *streamState, o commitlog.Offset) (segment.Entry, error) {
	p, ok := r.e.cfg.Meta.Image().PartitionByStream(s.id)
	if !ok {
		return segment.Entry{}, fmt.Errorf("stream %d is gone from the metadata: %w", s.id, commitlog.ErrFenced)
	}
	if o < p.Start {
		// Trimmed while it was read.
		return segment.Entry{}, fmt.Errorf("read stream %d at %d, it starts at %d: %w", s.id, o, p.Start, commitlog.ErrOffsetOutOfRange)
	}
	if o >= p.End {
		return r.unpackedEntry(s, o)
	}
	list := make([]segment.Entry, len(p.Extents))
	for i, x := range p.Extents {
		list[i].Extent = x
	}
	for range maxDepth {
		i := sort.Search(len(list), func(i int) bool { return list[i].End > o })
		if i == len(list) || list[i].Base > o {
			return segment.Entry{}, fmt.Errorf("no extent of stream %d has offset %d below the committed end %d: %w", s.id, o, p.End, commitlog.ErrCorrupt)
		}
		if !list[i].Indirect {
			return list[i], nil
		}
		sec, err := r.sectionOf(ctx, s.id, list[i].Extent)
		if err != nil {
			return segment.Entry{}, err
		}
		list = sec.Entries
	}
	return segment.Entry{}, fmt.Errorf("index of stream %d is nested deeper than %d: %w", s.id, maxDepth, commitlog.ErrCorrupt)
}

// unpackedEntry describes the chunk of our own WAL that has offset o.
func (r *reader) unpackedEntry(s *streamState, o commitlog.Offset) (segment.Entry, error) {
	s.mu.Lock()
	i := s.pieceAt(o)
	if i < 0 || o >= s.confirm {
		s.mu.Unlock()
		return segment.Entry{}, fmt.Errorf("stream %d has nothing at offset %d in its WAL: %w", s.id, o, commitlog.ErrCorrupt)
	}
	slot := s.pieces[i].slot
	s.mu.Unlock()
	for _, c := range chunksOf(slot.Index(), s.id) {
		if c.Base <= o && o < c.End {
			return segment.Entry{Extent: r.e.chunkExtent(r.e.cfg.Incarnation, slot.Seq(), &c)}, nil
		}
	}
	return segment.Entry{}, fmt.Errorf("slot %d has no chunk of stream %d at %d: %w", slot.Seq(), s.id, o, commitlog.ErrCorrupt)
}
