package engine

import (
	"context"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/stream"
	"ponor/sharedlog/wal"
)

// FindTime implements stream.Stream. Extents, sections and blocks each know
// their largest timestamp, so only the path to the answer is read.
func (h *handle) FindTime(ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
	start, confirm, err := h.readable()
	if err != nil || start >= confirm {
		return 0, false, err
	}
	t := timeSearch{r: h.s.e.reader, id: h.s.id, start: start, confirm: confirm, ts: ts}
	err = t.r.retry(ctx, t.id, func() error {
		t.found = false
		committed, unpacked := h.s.entries()
		if err := t.entries(ctx, committed, 0); err != nil || t.found {
			return err
		}
		for i := range unpacked {
			if t.hot(&unpacked[i]) {
				continue
			}
			if err := t.entries(ctx, []segment.Entry{unpacked[i].entry}, 0); err != nil || t.found {
				return err
			}
		}
		return nil
	})
	return t.base, t.found && err == nil, err
}

// FindMaxTime implements stream.Stream.
func (h *handle) FindMaxTime(ctx context.Context) (commitlog.Offset, bool, error) {
	start, confirm, err := h.readable()
	if err != nil || start >= confirm {
		return 0, false, err
	}
	t := timeSearch{r: h.s.e.reader, id: h.s.id, start: start, confirm: confirm}
	var most int64
	if err := t.r.retry(ctx, t.id, func() (err error) {
		committed, unpacked := h.s.entries()
		for i := range unpacked {
			committed = append(committed, unpacked[i].entry)
		}
		most, err = t.latest(ctx, committed, 0)
		return err
	}); err != nil {
		return 0, false, err
	}
	return h.FindTime(ctx, most)
}

// readable is the range that readers may see.
func (h *handle) readable() (start, confirm commitlog.Offset, err error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.s.startNow(), h.s.confirm, h.err
}

// unpackedChunk is a confirmed chunk of our own WAL that is not committed.
type unpackedChunk struct {
	entry segment.Entry
	slot  *wal.Slot
	spans []span
}

// entries lists what the stream consists of: extents of the image, then chunks
// of our own WAL that are not committed.
func (s *streamState) entries() (out []segment.Entry, unpacked []unpackedChunk) {
	// Before the image: pieces that packing has dropped by now are in it.
	s.mu.Lock()
	defer s.mu.Unlock()
	var end commitlog.Offset
	if p, ok := s.e.cfg.Meta.Image().PartitionByStream(s.id); ok {
		for _, x := range p.Extents {
			out = append(out, segment.Entry{Extent: x})
		}
		end = p.End
	}
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.base < end || p.base >= s.confirm {
			continue
		}
		// Confirmed, so the slot's index is complete.
		for _, c := range chunksOf(p.slot.Index(), s.id) {
			if c.Base == p.base {
				x := s.e.chunkExtent(s.e.cfg.Incarnation, p.slot.Seq(), &c)
				unpacked = append(unpacked, unpackedChunk{entry: segment.Entry{Extent: x}, slot: p.slot, spans: p.spans})
			}
		}
	}
	return out, unpacked
}

// timeSearch looks for the first batch in [start, confirm) whose largest
// timestamp is at or after ts.
type timeSearch struct {
	r              *reader
	id             commitlog.StreamID
	start, confirm commitlog.Offset
	ts             int64
	base           commitlog.Offset
	found          bool
}

func (t *timeSearch) entries(ctx context.Context, list []segment.Entry, depth int) error {
	for i := range list {
		e := &list[i]
		if e.End <= t.start || e.MaxTimestamp < t.ts || e.Base >= t.confirm {
			continue
		}
		var err error
		if e.Indirect && depth < maxDepth {
			var sec *segment.Section
			if sec, err = t.r.sectionOf(ctx, t.id, e.Extent); err == nil {
				err = t.entries(ctx, sec.Entries, depth+1)
			}
		} else {
			err = t.run(ctx, *e)
		}
		if err != nil || t.found {
			return err
		}
	}
	return nil
}

// hot searches a chunk in the WAL's memory. false: it is not there, or the
// answer needs no look.
func (t *timeSearch) hot(c *unpackedChunk) bool {
	if t.found || c.entry.End <= t.start || c.entry.MaxTimestamp < t.ts {
		return true
	}
	if !c.slot.Acquire() {
		return false
	}
	defer c.slot.Release()
	for _, sp := range c.spans {
		for rest := sp.data(); len(rest) > 0 && !t.found; {
			b, next, err := commitlog.SplitBatch(rest)
			if err != nil {
				return false
			}
			t.visit(b)
			rest = next
		}
	}
	return true
}

// visit notes the first batch that fits.
func (t *timeSearch) visit(b commitlog.Batch) {
	if !t.found && b.MaxTimestamp() >= t.ts && b.LastOffset() >= t.start && b.LastOffset() < t.confirm {
		t.base, t.found = b.BaseOffset(), true
	}
}

func (t *timeSearch) run(ctx context.Context, e segment.Entry) error {
	x, err := t.r.run(ctx, t.id, e)
	if err != nil {
		return err
	}
	for i, bl := range x.entry.Blocks {
		if bl.MaxTimestamp < t.ts || x.endOf(i) <= t.start {
			continue
		}
		err := t.r.batches(ctx, x, i, func(b commitlog.Batch) bool {
			t.visit(b)
			return !t.found
		})
		if err != nil || t.found {
			return err
		}
	}
	return nil
}

// latest is the largest timestamp of batches that are not trimmed away.
func (t *timeSearch) latest(ctx context.Context, list []segment.Entry, depth int) (int64, error) {
	most := int64(-1)
	for i := range list {
		e := &list[i]
		if e.End <= t.start || e.MaxTimestamp <= most || e.Base >= t.confirm {
			continue
		}
		v, err := e.MaxTimestamp, error(nil)
		if e.Base < t.start {
			v, err = t.straddling(ctx, *e, depth)
		}
		if err != nil {
			return 0, err
		}
		most = max(most, v)
	}
	return most, nil
}

// straddling is latest for an entry that begins below the start.
func (t *timeSearch) straddling(ctx context.Context, e segment.Entry, depth int) (int64, error) {
	if e.Indirect && depth < maxDepth {
		sec, err := t.r.sectionOf(ctx, t.id, e.Extent)
		if err != nil {
			return 0, err
		}
		return t.latest(ctx, sec.Entries, depth+1)
	}
	x, err := t.r.run(ctx, t.id, e)
	if err != nil {
		return 0, err
	}
	most := int64(-1)
	for i, bl := range x.entry.Blocks {
		if x.endOf(i) <= t.start || bl.MaxTimestamp <= most {
			continue
		}
		if bl.Base >= t.start {
			most = bl.MaxTimestamp
			continue
		}
		err := t.r.batches(ctx, x, i, func(b commitlog.Batch) bool {
			if b.LastOffset() >= t.start {
				most = max(most, b.MaxTimestamp())
			}
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	return most, nil
}

// batches calls fn for each batch of a block until it returns false.
func (r *reader) batches(ctx context.Context, x *runIndex, block int, fn func(commitlog.Batch) bool) error {
	p := x.pageOf(block)
	data, err := r.page(ctx, x, p, 0)
	if err != nil {
		return err
	}
	bl := x.entry.Blocks[block]
	rest := data[bl.Position-x.pages[p].position:][:bl.Length]
	for len(rest) > 0 {
		var b commitlog.Batch
		if b, rest, err = commitlog.SplitBatch(rest); err != nil {
			return &badObject{x.object, x.entry.Position + bl.Position, err}
		}
		if !fn(b) {
			return nil
		}
	}
	return nil
}

// Runs implements stream.Stream.
func (h *handle) Runs(ctx context.Context, load bool) ([]stream.Run, bool, error) {
	start, confirm, err := h.readable()
	if err != nil {
		return nil, false, err
	}
	l := runList{r: h.s.e.reader, id: h.s.id, load: load, fine: true}
	if err := l.r.retry(ctx, l.id, func() error {
		l.runs, l.fine = nil, true
		committed, unpacked := h.s.entries()
		for i := range unpacked {
			committed = append(committed, unpacked[i].entry)
		}
		return l.entries(ctx, committed, 0)
	}); err != nil {
		return nil, false, err
	}
	out := l.runs[:0]
	for _, r := range l.runs {
		if r.End <= start || r.Base >= confirm {
			continue
		}
		out = append(out, r)
	}
	return out, l.fine, nil
}

// runList flattens extents to runs.
type runList struct {
	r    *reader
	id   commitlog.StreamID
	load bool
	fine bool
	runs []stream.Run
}

func (l *runList) entries(ctx context.Context, list []segment.Entry, depth int) error {
	for i := range list {
		e := &list[i]
		if e.Indirect && depth < maxDepth {
			if l.load || l.r.cached(e.Extent) {
				sec, err := l.r.sectionOf(ctx, l.id, e.Extent)
				if err != nil {
					return err
				}
				if err := l.entries(ctx, sec.Entries, depth+1); err != nil {
					return err
				}
				continue
			}
			l.fine = false
		}
		l.runs = append(l.runs, stream.Run{Base: e.Base, End: e.End, Bytes: e.Bytes, MaxTimestamp: e.MaxTimestamp})
	}
	return nil
}

// cached says whether an index section is in memory.
func (r *reader) cached(x metadata.Extent) bool {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	_, ok := r.cache.entries[cacheKey{object: x.Object, position: x.Position, kind: cacheSection}]
	return ok
}
