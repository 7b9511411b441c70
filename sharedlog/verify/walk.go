package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/segment"
)

// want is an extent that must be readable.
type want struct {
	p *metadata.Partition
	// root is the extent of the image by which it was found: itself, or an
	// indirect one. While an image has it, everything behind it must be there.
	root  *metadata.Extent
	x     metadata.Extent
	depth int8 // index sections above it
}

// finding is something wrong with an object, before it is known whether it is
// still needed.
type finding struct {
	object metadata.ObjectName
	wants  []want // that it harms
	badBytes
}

const (
	// directBatch and indirectBatch are how many extents are gathered before
	// their objects are read, an object once for all of them.
	directBatch   = 1 << 16
	indirectBatch = 256
	// maxDepth bounds how deep index sections may point at index sections.
	maxDepth = 16
	// maxRounds bounds how often what was replaced meanwhile is looked for.
	maxRounds = 20
)

// extents reads everything that the first image refers to, and then, as long as
// there is any, what has replaced something that was gone before it was read.
func (c *checker) extents(ctx context.Context) error {
	w := &walk{c: c}
	for t := range c.img.Topics() {
		for p := range c.img.Partitions(t.ID) {
			if err := w.partition(ctx, p, nil); err != nil {
				return err
			}
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	for range maxRounds {
		if len(c.redo) == 0 {
			return nil
		}
		if err := c.again(ctx); err != nil {
			return err
		}
	}
	c.unsteady(len(c.redo))
	return nil
}

func (c *checker) unsteady(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.report.Unsteady += n
}

// again reads what is new of the streams that changed.
func (c *checker) again(ctx context.Context) error {
	img, err := c.cfg.Image(ctx)
	if err != nil {
		return fmt.Errorf("get metadata: %w", err)
	}
	known := make(map[commitlog.StreamID][]metadata.Extent)
	for _, p := range c.redo {
		known[p.Stream] = append(known[p.Stream], p.Extents...)
	}
	c.redo = nil
	w := &walk{c: c}
	for id, old := range known {
		if p, ok := img.PartitionByStream(id); ok {
			if err := w.partition(ctx, p, old); err != nil {
				return err
			}
		}
	}
	return w.flush(ctx)
}

// walk gathers extents of many streams.
type walk struct {
	c                *checker
	direct, indirect []want
}

// partition adds the extents of a stream but those that were read already.
func (w *walk) partition(ctx context.Context, p metadata.Partition, known []metadata.Extent) error {
	for i := range p.Extents {
		x := &p.Extents[i]
		if !slices.Contains(known, *x) {
			w.add(want{p: &p, root: x, x: *x})
		}
	}
	if len(w.indirect) >= indirectBatch {
		if err := w.expand(ctx); err != nil {
			return err
		}
	}
	if len(w.direct) >= directBatch {
		return w.read(ctx)
	}
	return nil
}

func (w *walk) add(x want) {
	if x.x.Indirect {
		w.indirect = append(w.indirect, x)
	} else {
		w.direct = append(w.direct, x)
	}
}

func (w *walk) flush(ctx context.Context) error {
	for len(w.indirect) > 0 {
		if err := w.expand(ctx); err != nil {
			return err
		}
		if len(w.direct) >= directBatch {
			if err := w.read(ctx); err != nil {
				return err
			}
		}
	}
	return w.read(ctx)
}

// expand reads the index sections gathered last and gathers what they list.
func (w *walk) expand(ctx context.Context) error {
	from := max(0, len(w.indirect)-indirectBatch)
	batch := slices.Clone(w.indirect[from:])
	w.indirect = w.indirect[:from]
	var mu sync.Mutex
	return w.c.check(ctx, batch, func(x want, s *segment.Section) {
		mu.Lock()
		defer mu.Unlock()
		for i := range s.Entries {
			e := s.Entries[i].Extent
			e.Object = cmp.Or(e.Object, x.x.Object)
			w.c.listed(e.Object)
			w.add(want{p: x.p, root: x.root, x: e, depth: x.depth + 1})
		}
	})
}

func (w *walk) read(ctx context.Context) error {
	batch := w.direct
	w.direct = nil
	return w.c.check(ctx, batch, nil)
}

// listed notes that an index section lists an object.
func (c *checker) listed(object string) {
	if n, err := metadata.ParseObjectName(object); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.indexed.add(n)
	}
}

// check reads extents, an object at a time, and reports what is wrong and stays
// wrong (V1). index gets each index section that was read.
func (c *checker) check(ctx context.Context, wants []want, index func(want, *segment.Section)) error {
	found, err := c.read(ctx, wants, index)
	if err != nil || len(found) == 0 {
		return err
	}
	// Once more what is still referred to: bytes may be damaged on their way.
	if found, err = c.stillWanted(ctx, found); err != nil || len(found) == 0 {
		return err
	}
	var again []want
	for _, f := range found {
		again = append(again, f.wants...)
	}
	if found, err = c.read(ctx, again, index); err != nil || len(found) == 0 {
		return err
	}
	if found, err = c.stillWanted(ctx, found); err != nil {
		return err
	}
	for i := range found {
		c.report(&found[i])
	}
	return nil
}

// report makes a finding a problem.
func (c *checker) report(f *finding) {
	p := Problem{Kind: f.kind, Key: c.key(f.object), Position: f.position, Detail: f.err.Error()}
	streams := make(map[commitlog.StreamID]bool)
	for _, w := range f.wants {
		streams[w.p.Stream] = true
	}
	if p.Streams = len(streams); p.Streams > 0 {
		first := &f.wants[0]
		p.Stream, p.Partition, p.Base, p.End = first.p.Stream, first.p.String(), first.x.Base, first.x.End
		for _, w := range f.wants[1:] {
			if w.p.Stream == p.Stream {
				p.Base, p.End = min(p.Base, w.x.Base), max(p.End, w.x.End)
			}
		}
	}
	c.problem(&f.object, p)
}

// stillWanted fetches a fresh image and drops what it does not refer to any
// more; those streams are looked at again later.
func (c *checker) stillWanted(ctx context.Context, found []finding) ([]finding, error) {
	img, err := c.cfg.Image(ctx)
	if err != nil {
		return nil, fmt.Errorf("get metadata: %w", err)
	}
	changed := make(map[commitlog.StreamID]metadata.Partition)
	var still []finding
	for _, f := range found {
		f.wants = slices.DeleteFunc(slices.Clone(f.wants), func(w want) bool {
			p, ok := img.PartitionByStream(w.p.Stream)
			gone := !ok || !slices.Contains(p.Extents, *w.root)
			if gone {
				changed[w.p.Stream] = *w.p
			}
			return gone
		})
		if len(f.wants) > 0 {
			still = append(still, f)
		}
	}
	for _, p := range changed {
		c.redo = append(c.redo, p)
	}
	return still, nil
}

// read checks extents grouped by object.
func (c *checker) read(ctx context.Context, wants []want, index func(want, *segment.Section)) ([]finding, error) {
	slices.SortStableFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.x.Object, b.x.Object), cmp.Compare(a.x.Position, b.x.Position))
	})
	var groups [][]want
	for i := 0; i < len(wants); {
		j := i + 1
		for j < len(wants) && wants[j].x.Object == wants[i].x.Object {
			j++
		}
		groups = append(groups, wants[i:j:j])
		i = j
	}
	var mu sync.Mutex
	var found []finding
	err := c.inParallel(ctx, len(groups), func(ctx context.Context, w *worker, i int) error {
		list, err := w.object(ctx, groups[i], index)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, list...)
		return err
	})
	c.advance(int64(len(groups)))
	return found, err
}

// object checks the extents of one object.
func (w *worker) object(ctx context.Context, wants []want, index func(want, *segment.Section)) ([]finding, error) {
	n, err := metadata.ParseObjectName(wants[0].x.Object)
	if err == nil && n.Kind == metadata.WALSlot {
		return w.slot(ctx, n, wants)
	}
	if err == nil {
		return w.segment(ctx, n, wants, index)
	}
	// Only an index section can have a name that is none.
	return []finding{{wants: wants, badBytes: badBytes{Mismatch, 0, err}}}, nil
}
