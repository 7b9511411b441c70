package engine

import (
	"context"
	"fmt"
	"hash/crc32"
	"sort"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

// runIndex is the sparse index of a run, cut in pages: the units in which
// record bytes are read and cached.
type runIndex struct {
	entry  segment.Entry // with Blocks
	pages  []page
	object string
}

// page is the blocks [first, last) of a run.
type page struct {
	first, last int
	position    int64 // relative to the run
	bytes       int64
}

func newRunIndex(e segment.Entry) *runIndex {
	x := &runIndex{entry: e, object: e.Object}
	var p page
	for i, b := range e.Blocks {
		if p.bytes >= pageBytes {
			x.pages = append(x.pages, p)
			p = page{first: i, position: b.Position}
		}
		p.last = i + 1
		p.bytes += b.Length
	}
	if p.bytes > 0 {
		x.pages = append(x.pages, p)
	}
	return x
}

// blockAt is the block that contains offset o.
func (x *runIndex) blockAt(o commitlog.Offset) int {
	return max(0, sort.Search(len(x.entry.Blocks), func(i int) bool { return x.entry.Blocks[i].Base > o })-1)
}

func (x *runIndex) pageOf(block int) int {
	return sort.Search(len(x.pages), func(i int) bool { return x.pages[i].last > block })
}

// endOf is the offset after the last record of a block.
func (x *runIndex) endOf(block int) commitlog.Offset {
	if block+1 < len(x.entry.Blocks) {
		return x.entry.Blocks[block+1].Base
	}
	return x.entry.End
}

func (x *runIndex) key(p int) cacheKey {
	return cacheKey{object: x.object, position: x.entry.Position + x.pages[p].position, kind: cachePage}
}

// run returns the sparse index of a direct extent.
func (r *reader) run(ctx context.Context, id commitlog.StreamID, e segment.Entry) (*runIndex, error) {
	k := cacheKey{object: e.Object, position: e.Position, kind: cacheRun}
	v, err := r.cache.get(ctx, k, func(ctx context.Context) (any, int64, error) {
		x, err := r.loadRun(ctx, id, e)
		if err != nil {
			return nil, 0, err
		}
		return x, int64(len(x.entry.Blocks)*48 + len(x.pages)*40), nil
	})
	if err != nil {
		return nil, err
	}
	x := v.(*runIndex)
	if x.entry.Base != e.Base || x.entry.End != e.End || x.entry.Length != e.Length {
		return nil, &badObject{e.Object, e.Position, fmt.Errorf("run is [%d, %d) in %d bytes, the extent says [%d, %d) in %d: %w",
			x.entry.Base, x.entry.End, x.entry.Length, e.Base, e.End, e.Length, commitlog.ErrCorrupt)}
	}
	return x, nil
}

func (r *reader) loadRun(ctx context.Context, id commitlog.StreamID, e segment.Entry) (*runIndex, error) {
	if len(e.Blocks) > 0 {
		return newRunIndex(e), nil
	}
	if n, err := metadata.ParseObjectName(e.Object); err == nil && n.Kind == metadata.WALSlot {
		return r.scanRun(ctx, e)
	}
	sec, err := r.sectionOf(ctx, id, e.Extent)
	if err != nil {
		return nil, err
	}
	if len(sec.Entries) != 1 || sec.Entries[0].Position != e.Position {
		return nil, &badObject{e.Object, e.Position, fmt.Errorf("section of stream %d is not of this run: %w", id, commitlog.ErrCorrupt)}
	}
	en := sec.Entries[0]
	en.Epoch = e.Epoch
	return newRunIndex(en), nil
}

// scanRun reads WAL data whole, because there is no sparse index to read a part
// by, and keeps the pages.
func (r *reader) scanRun(ctx context.Context, e segment.Entry) (*runIndex, error) {
	body, err := r.load(ctx, objstore.ReasonRead, e.Object, e.Position, e.Length)
	if err != nil {
		return nil, err
	}
	if n := int64(len(body)); n < e.Length {
		return nil, &badObject{e.Object, e.Position, fmt.Errorf("object ends %d bytes early: %w", e.Length-n, commitlog.ErrCorrupt)}
	}
	scanned, err := segment.ScanRun(e.Extent, body)
	if err != nil {
		return nil, &badObject{e.Object, e.Position, err}
	}
	x := newRunIndex(scanned)
	for i, p := range x.pages {
		b := body[p.position : p.position+p.bytes : p.position+p.bytes]
		r.cache.put(x.key(i), b, p.bytes)
	}
	return x, nil
}

// readRun gathers from one run, fetching up to window bytes at once.
func (r *reader) readRun(ctx context.Context, id commitlog.StreamID, e segment.Entry, g *gather, window int) error {
	x, err := r.run(ctx, id, e)
	if err != nil {
		return err
	}
	if len(x.entry.Blocks) == 0 {
		return &badObject{e.Object, e.Position, fmt.Errorf("run without batches: %w", commitlog.ErrCorrupt)}
	}
	b := x.blockAt(g.from)
	for p := x.pageOf(b); p < len(x.pages) && !g.done; p++ {
		data, err := r.page(ctx, x, p, window)
		if err != nil {
			return err
		}
		for b = max(b, x.pages[p].first); b < x.pages[p].last && !g.done; b++ {
			bl := x.entry.Blocks[b]
			if bl.Base >= g.limit {
				return nil
			}
			at := bl.Position - x.pages[p].position
			g.add(data[at:at+bl.Length], bl.Base, x.endOf(b))
		}
	}
	return nil
}

// page returns the verified bytes of page p, and has following pages fetched
// with it by one request as far as window goes and nobody has them.
func (r *reader) page(ctx context.Context, x *runIndex, p, window int) ([]byte, error) {
	for {
		v, wait := r.cache.claim(x.key(p))
		if v != nil {
			return v.([]byte), nil
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	last, total := p+1, x.pages[p].bytes
	for last < len(x.pages) && total+x.pages[last].bytes <= int64(window) && r.cache.tryClaim(x.key(last)) {
		total += x.pages[last].bytes
		last++
	}
	buf, err := r.load(ctx, objstore.ReasonRead, x.object, x.entry.Position+x.pages[p].position, total)
	if n := int64(len(buf)); err == nil && n < total {
		err = &badObject{x.object, x.entry.Position, fmt.Errorf("object ends %d bytes early: %w", total-n, commitlog.ErrCorrupt)}
	}
	var first []byte
	for i := p; i < last; i++ {
		var b []byte
		if err == nil {
			at := x.pages[i].position - x.pages[p].position
			b = buf[at : at+x.pages[i].bytes : at+x.pages[i].bytes]
			err = x.verify(x.pages[i], b)
		}
		if i == p {
			first = b
		}
		r.cache.finish(x.key(i), b, int64(len(b)), err)
	}
	if err != nil && first == nil {
		return nil, err
	}
	if err != nil { // a later page is bad; whoever wants that one will hear of it
		if verr := x.checked(p, first); verr != nil {
			return nil, verr
		}
	}
	return first, nil
}

// checked verifies page p again; only used to tell which page of several was bad.
func (x *runIndex) checked(p int, b []byte) error { return x.verify(x.pages[p], b) }

// verify checks every block's CRC and then patches base offsets and epochs from
// the extent where they differ: headers do not count.
func (x *runIndex) verify(p page, b []byte) error {
	for i := p.first; i < p.last; i++ {
		bl := x.entry.Blocks[i]
		data := b[bl.Position-p.position:][:bl.Length]
		if got := crc32.Checksum(data, commitlog.Castagnoli); got != bl.CRC {
			return &badObject{x.object, x.entry.Position + bl.Position, fmt.Errorf("block at offset %d has CRC %08x, its bytes %08x: %w", bl.Base, bl.CRC, got, commitlog.ErrCorrupt)}
		}
	}
	for i := p.first; i < p.last; i++ {
		bl := x.entry.Blocks[i]
		if err := segment.Patch(b[bl.Position-p.position:][:bl.Length], bl.Base, x.endOf(i), x.entry.Epoch); err != nil {
			return &badObject{x.object, x.entry.Position + bl.Position, err}
		}
	}
	return nil
}
