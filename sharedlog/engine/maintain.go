package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/segment"
)

// Maintenance keeps the extents of our streams few and plain:
//
//	repack  what was inherited in dead WALs becomes runs, so that the slots can
//	        go and a small partition does not pin an 8 MiB slot
//	merge   many small runs become one
//	fold    the older of many extents move into an index object
//
// Each exchanges whole extents by compare and swap (ReplaceExtents), so it may
// race with anything and be interrupted anywhere; what lost is garbage.

func (e *Engine) maintainLoop(ctx context.Context) {
	for {
		if !waitFor(ctx, e.tidy, 0) {
			return
		}
		// What many streams need is done together, so let it gather.
		if !sleep(ctx, e.cfg.MaintainEvery) {
			return
		}
		if err := e.maintain(ctx); err != nil && ctx.Err() == nil {
			if e.said.Allow("maintain") {
				e.cfg.Logger.Warn("maintenance is delayed", "broker", e.cfg.Incarnation.String(), "err", err)
			}
			poke(e.tidy)
		}
	}
}

// maintain does what there is to do, once.
func (e *Engine) maintain(ctx context.Context) error {
	return errors.Join(e.rewriteAll(ctx), e.foldAll(ctx))
}

// rewriteAll repacks and merges, in rounds of bounded size.
func (e *Engine) rewriteAll(ctx context.Context) error {
	var jobs []*rewrite
	var errs error
	var bytes int64
	var work bool
	flush := func() {
		errs = errors.Join(errs, e.rewrite(ctx, jobs))
		jobs, bytes = nil, 0
	}
	for p := range e.cfg.Meta.Image().Owned(e.cfg.Incarnation) {
		if ctx.Err() != nil {
			break
		}
		if !p.Openable() || p.Deleting || e.state(p.Stream) == nil {
			continue
		}
		job, err := e.rewriteFor(ctx, p)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if job == nil {
			continue
		}
		if bytes > 0 && bytes+job.bytes > e.cfg.ObjectBytes {
			flush()
		}
		jobs, work = append(jobs, job), true
		bytes += job.bytes
	}
	flush()
	if work {
		poke(e.tidy) // one job a stream and round: there may be more
	}
	return errs
}

// mergeBelow is the size in bytes below which a run counts as small, and
// mergeMany how many neighbours of one tier make a merge worth while.
const (
	mergeBelow = 8 << 20
	mergeMany  = 4
)

// rewriteFor finds a range of extents that should become one run, nil if none.
func (e *Engine) rewriteFor(ctx context.Context, p metadata.Partition) (*rewrite, error) {
	for i := len(p.Extents) - 1; i >= 0; i-- {
		is, err := e.inherited(ctx, p, i)
		if err != nil {
			return nil, err
		}
		if is {
			return newRewrite(p, i, i+1), nil
		}
	}
	if len(p.Extents) <= e.cfg.MaxExtents {
		return nil, nil
	}
	for last := len(p.Extents); last > 0; last-- {
		first := last
		for first > 0 && mergeable(p.Extents[first-1], p.Extents[last-1]) {
			first--
		}
		if last-first >= mergeMany {
			return newRewrite(p, first, last), nil
		}
	}
	return nil, nil
}

// inherited says whether an extent lies in WAL slots, as those do that came with a
// takeover or a move (also of our own, if the stream went away and came back). A
// rewrite makes runs of them. What packing left in slots has a sparse index, and
// stays.
func (e *Engine) inherited(ctx context.Context, p metadata.Partition, i int) (bool, error) {
	x := p.Extents[i]
	if isSlot(x.Object) || !x.Indirect {
		return isSlot(x.Object), nil
	}
	sec, err := e.reader.sectionOf(ctx, p.Stream, x)
	if err != nil {
		return false, err
	}
	return len(sec.Entries) > 0 && isSlot(sec.Entries[0].Object) && len(sec.Entries[0].Blocks) == 0, nil
}

// mergeable says whether x is a small run of the same epoch and size tier as its
// later neighbour y. Tiers are powers of eight, so a byte is rewritten a few
// times in all.
func mergeable(x, y metadata.Extent) bool {
	return !x.Indirect && !isSlot(x.Object) && !y.Indirect && !isSlot(y.Object) &&
		x.Epoch == y.Epoch && x.Bytes < mergeBelow && tier(x.Bytes) == tier(y.Bytes)
}

func tier(n int64) int {
	t := 0
	for n >>= 16; n > 0; n >>= 3 {
		t++
	}
	return t
}

// foldAll moves the older extents of every stream that has too many into index
// sections, all in one object.
func (e *Engine) foldAll(ctx context.Context) error {
	var folds []*fold
	var errs error
	for p := range e.cfg.Meta.Image().Owned(e.cfg.Incarnation) {
		if len(p.Extents) <= e.cfg.MaxExtents || !p.Openable() || p.Deleting {
			continue
		}
		f, err := e.foldFor(ctx, p)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("fold extents of stream %d: %w", p.Stream, err))
			continue
		}
		if f != nil {
			folds = append(folds, f)
		}
	}
	if len(folds) == 0 {
		return errs
	}
	name, object := e.newName(metadata.IndexObject)
	offered := false
	defer func() { e.settle(ctx, offered, object) }()
	b := segment.NewBuilder(name)
	for _, f := range folds {
		f.add(b, object)
	}
	body, at := b.Finish()
	if err := e.upload(ctx, object, body); err != nil {
		return errors.Join(errs, err)
	}
	offered = true
	all := replacements{e: e}
	for _, f := range folds {
		all.add(ctx, f.p, f.root.Base, f.root.End, []metadata.Extent{indexExtent(object, f.root, at[f.index])})
	}
	return errors.Join(errs, all.wait())
}

// leafEntries is how many extents an index section lists itself before they
// move down into a leaf, so that folding again and again rewrites little.
const leafEntries = 256

// fold is the folding of one stream.
type fold struct {
	p     metadata.Partition
	root  *segment.Section
	index int // of the root among the object's sections
}

// foldFor decides what the new root lists: what an old root listed, and all
// direct extents but the newest half. What is inherited waits for its rewrite, in
// which it is replaced as a whole; that may never come if a slot is damaged, so
// what lies between is folded by itself. nil: there is nothing to fold.
func (e *Engine) foldFor(ctx context.Context, p metadata.Partition) (*fold, error) {
	first, n := 0, 0
	for ; n < len(p.Extents)-e.cfg.MaxExtents/2; n++ {
		is, err := e.inherited(ctx, p, n)
		if err != nil {
			return nil, err
		}
		if is && n-first >= 2 {
			break
		}
		if is {
			first = n + 1
		}
	}
	if n-first < 2 {
		return nil, nil
	}
	f := &fold{p: p, root: &segment.Section{Stream: p.Stream, Base: p.Extents[first].Base, End: p.Extents[n-1].End}}
	for _, x := range p.Extents[first:n] {
		if !x.Indirect {
			f.root.Entries = append(f.root.Entries, segment.Entry{Extent: x})
			continue
		}
		sec, err := e.reader.sectionOf(ctx, p.Stream, x)
		if err != nil {
			return nil, err
		}
		if sec.State.Kind != segment.StateNone {
			// A recovery index: its state must stay findable.
			f.root.Entries = append(f.root.Entries, segment.Entry{Extent: x})
			continue
		}
		f.root.Entries = append(f.root.Entries, sec.Entries...)
	}
	// Trimmed history is not listed again, unless the newest checkpoint may be
	// there (ext-4): packing gives one to the newest run, if it could make it.
	drop := 0
	for drop < len(f.root.Entries)-1 && f.root.Entries[drop].End <= p.Start {
		drop++
	}
	if drop > 0 {
		has, err := e.hasCheckpoint(ctx, p.Stream, p.Extents[len(p.Extents)-1], maxDepth)
		if err != nil {
			return nil, err
		}
		if has {
			f.root.Entries = f.root.Entries[drop:]
		}
	}
	f.root.From = f.root.Entries[0].Base
	return f, nil
}

// add puts the root into an index object, after a leaf for direct entries if
// there are too many of them.
func (f *fold) add(b *segment.Builder, object string) {
	entries := f.root.Entries
	i := len(entries)
	for i > 0 && !entries[i-1].Indirect {
		i--
	}
	if len(entries)-i >= leafEntries {
		leaf := &segment.Section{Stream: f.p.Stream, Base: entries[i].Base, End: f.root.End, Entries: slices.Clone(entries[i:])}
		at := b.Place(leaf)
		f.root.Entries = append(slices.Clone(entries[:i]), segment.Entry{Extent: indexExtent(object, leaf, at)})
	}
	f.index = b.Len()
	b.Place(f.root)
}

// replacements submits the exchanges of one round side by side: what waits for
// the quorum at the same time shares an entry of its log, so that ten thousand
// partitions do not make ten thousand entries.
type replacements struct {
	e   *Engine
	sem chan struct{}
	wg  sync.WaitGroup
	mu  sync.Mutex
	err error
}

// maxReplacements is how many exchanges wait at a time; with their extents they
// are less than an entry may hold.
const maxReplacements = 512

// add submits one; each is of another stream, so their order does not matter.
func (r *replacements) add(ctx context.Context, p metadata.Partition, base, end commitlog.Offset, list []metadata.Extent) {
	if r.sem == nil {
		r.sem = make(chan struct{}, maxReplacements)
	}
	r.sem <- struct{}{}
	r.wg.Go(func() {
		err := r.e.replace(ctx, p, base, end, list)
		r.mu.Lock()
		r.err = errors.Join(r.err, err)
		r.mu.Unlock()
		<-r.sem
	})
}

// wait returns when all have their outcome, with their errors.
func (r *replacements) wait() error {
	r.wg.Wait()
	return r.err
}

// replace submits a ReplaceExtents. That somebody else changed the extents
// first, or owns the stream now, is no error.
func (e *Engine) replace(ctx context.Context, p metadata.Partition, base, end commitlog.Offset, list []metadata.Extent) error {
	cmd := &metadatapb.ReplaceExtents{Stream: uint64(p.Stream), Epoch: int32(p.Epoch), Base: int64(base), End: int64(end)}
	for _, x := range list {
		cmd.Extents = append(cmd.Extents, extentPB(x))
	}
	err := e.submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_ReplaceExtents{ReplaceExtents: cmd}})
	var rejected *metadata.Error
	if errors.Is(err, errUnsettled) || errors.As(err, &rejected) && !rejected.Alarm && !errors.Is(err, metadata.ErrFencedIncarnation) {
		return nil
	}
	return err
}
