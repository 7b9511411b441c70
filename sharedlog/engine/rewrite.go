package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/segment"
)

// rewrite turns the extents [first, last) of a stream into runs of segment
// objects with the same records.
type rewrite struct {
	p           metadata.Partition
	first, last int
	bytes       int64
	entries     []segment.Entry // direct ones, in order
	runs        []packRun
	deltas      []commitlog.BatchInfo
	state       segment.State // of the newest run
}

func newRewrite(p metadata.Partition, first, last int) *rewrite {
	j := &rewrite{p: p, first: first, last: last}
	for _, x := range p.Extents[first:last] {
		j.bytes += x.Bytes
	}
	return j
}

func (j *rewrite) base() commitlog.Offset { return j.p.Extents[j.first].Base }
func (j *rewrite) end() commitlog.Offset  { return j.p.Extents[j.last-1].End }

// repackStream makes runs with a checkpoint of everything behind the stream's
// newest checkpoint.
func (e *Engine) repackStream(ctx context.Context, p metadata.Partition) error {
	first := len(p.Extents)
	for ; first > 0; first-- {
		has, err := e.hasCheckpoint(ctx, p.Stream, p.Extents[first-1], 0)
		if err != nil {
			return err
		}
		if has {
			break
		}
	}
	if first == len(p.Extents) {
		return nil
	}
	return e.rewrite(ctx, []*rewrite{newRewrite(p, first, len(p.Extents))})
}

// rewrite does jobs together: the objects they come from are read once each,
// and their runs share objects.
func (e *Engine) rewrite(ctx context.Context, jobs []*rewrite) error {
	if len(jobs) == 0 {
		return nil
	}
	var errs error
	jobs = slices.DeleteFunc(jobs, func(j *rewrite) bool {
		err := e.prepare(ctx, j)
		errs = errors.Join(errs, err)
		return err != nil
	})
	up := uploads{e: e}
	offered := false
	defer func() { e.settle(ctx, offered, up.objects...) }()
	sources := sourceObjects{e: e, jobs: jobs}
	for _, j := range jobs {
		if err := e.rewriteOne(ctx, j, &sources, &up); err != nil {
			errs = errors.Join(errs, fmt.Errorf("rewrite extents of stream %d: %w", j.p.Stream, err))
			j.runs = nil
		}
	}
	up.flush(ctx)
	if err := up.wait(); err != nil {
		return errors.Join(errs, err)
	}
	offered = true
	all := replacements{e: e}
	for _, j := range jobs {
		if j.runs == nil {
			continue
		}
		list := make([]metadata.Extent, len(j.runs))
		for i := range j.runs {
			list[i] = j.runs[i].extent
		}
		all.add(ctx, j.p, j.base(), j.end(), list)
	}
	return errors.Join(errs, all.wait())
}

// prepare lists a job's direct extents and finds the state at its end.
func (e *Engine) prepare(ctx context.Context, j *rewrite) error {
	return e.reader.retry(ctx, j.p.Stream, func() error {
		j.entries = nil
		if err := e.flatten(ctx, j.p.Stream, j.p.Extents[j.first:j.last], 0, &j.entries); err != nil {
			return err
		}
		in := stateWalk{e: e, stream: j.p.Stream}
		if err := in.extents(ctx, j.p.Extents[j.first:j.last], 0); err != nil {
			return err
		}
		slices.Reverse(in.deltas)
		j.deltas = slices.Concat(in.deltas...)
		if in.found && len(j.deltas) == 0 {
			j.state = segment.State{Kind: segment.StateCheckpoint, Checkpoint: in.checkpoint}
			return nil
		}
		j.state = segment.State{Kind: segment.StateDeltas}
		var fold commitlog.Checkpointer
		if s := e.state(j.p.Stream); s != nil {
			s.mu.Lock()
			fold = s.opts.fold
			s.mu.Unlock()
		}
		if fold == nil {
			if in.found {
				return fmt.Errorf("stream %d has checkpoints but nobody to fold them", j.p.Stream)
			}
			return nil
		}
		part := j.p
		part.Extents = j.p.Extents[:j.last]
		rec, err := e.committedState(ctx, part)
		if err != nil {
			return err
		}
		check, err := fold.Fold(rec.Checkpoint, commitlog.KeepRelevant(rec.Batches))
		if err != nil {
			return fmt.Errorf("fold checkpoint of stream %d: %w", j.p.Stream, err)
		}
		j.state = segment.State{Kind: segment.StateCheckpoint, Checkpoint: check}
		return nil
	})
}

// flatten lists the direct extents behind a list.
func (e *Engine) flatten(ctx context.Context, id commitlog.StreamID, list []metadata.Extent, depth int, out *[]segment.Entry) error {
	if depth > maxDepth {
		return fmt.Errorf("index of stream %d is nested deeper than %d: %w", id, maxDepth, commitlog.ErrCorrupt)
	}
	for _, x := range list {
		if !x.Indirect {
			*out = append(*out, segment.Entry{Extent: x})
			continue
		}
		sec, err := e.reader.sectionOf(ctx, id, x)
		if err != nil {
			return err
		}
		inner := make([]metadata.Extent, len(sec.Entries))
		for i := range sec.Entries {
			inner[i] = sec.Entries[i].Extent
		}
		if err := e.flatten(ctx, id, inner, depth+1, out); err != nil {
			return err
		}
	}
	return nil
}

// rewriteOne reads a job's records and adds them to objects. Several extents
// become one run as far as epochs and the size of an object allow.
func (e *Engine) rewriteOne(ctx context.Context, j *rewrite, src *sourceObjects, up *uploads) error {
	var run packRun
	var size int64
	emit := func(last bool) error {
		if len(run.parts) == 0 {
			return nil
		}
		if up.bytes() >= e.cfg.ObjectBytes {
			up.flush(ctx)
		}
		sec, err := up.run(j.p.Stream, &run)
		if err != nil {
			return err
		}
		sec.State = segment.State{Kind: segment.StateDeltas, Deltas: within(j.deltas, run.base, run.end)}
		if last && j.state.Kind == segment.StateCheckpoint {
			sec.State = j.state
		}
		j.runs = append(j.runs, run)
		run, size = packRun{}, 0
		return nil
	}
	for i := range j.entries {
		x := &j.entries[i]
		body, err := src.body(ctx, x)
		if err != nil {
			return err
		}
		if len(run.parts) > 0 && (run.epoch != x.Epoch || size+x.Length > e.cfg.ObjectBytes) {
			if err := emit(false); err != nil {
				return err
			}
		}
		if len(run.parts) == 0 {
			run.epoch, run.base = x.Epoch, x.Base
		}
		run.end = x.End
		run.parts = append(run.parts, body)
		size += x.Length
	}
	return emit(true)
}

// within are the deltas of [base, end).
func within(deltas []commitlog.BatchInfo, base, end commitlog.Offset) []commitlog.BatchInfo {
	var out []commitlog.BatchInfo
	for _, d := range deltas {
		if d.BaseOffset >= base && d.BaseOffset < end {
			out = append(out, d)
		}
	}
	return commitlog.KeepRelevant(out)
}

// sourceObjects reads record bytes for rewriting. What several extents want of
// an object is read at once, so that the number of requests does not grow with
// the number of partitions.
type sourceObjects struct {
	e      *Engine
	jobs   []*rewrite
	loaded bool
	mu     sync.Mutex // of chunks, while load runs
	chunks map[cacheKey][]byte
}

// Neighbours in an object are read together if no more than readGap bytes lie
// between them that nobody wants, up to readPiece bytes at a time; readSide such
// pieces are read side by side.
const (
	readGap   = 256 << 10
	readPiece = 16 << 20
	readSide  = 4
)

// body returns the verified, patched bytes of a direct extent.
func (s *sourceObjects) body(ctx context.Context, x *segment.Entry) ([]byte, error) {
	if !s.loaded {
		s.load(ctx)
		s.loaded = true
	}
	k := cacheKey{object: x.Object, position: x.Position}
	if b, ok := s.chunks[k]; ok {
		delete(s.chunks, k)
		return b, nil
	}
	body := make([]byte, x.Length)
	if err := s.e.reader.readWhole(ctx, x.Extent, body); err != nil {
		return nil, err
	}
	return body, nil
}

// load reads what has neighbours or is small, a piece of an object at a time. It
// ignores errors: body tries again what is not there, so that a damaged object
// stops only those who need it.
func (s *sourceObjects) load(ctx context.Context) {
	lists := make(map[string][]*segment.Entry)
	var order []string
	var total int64
	for _, j := range s.jobs {
		total += j.bytes
		for i := range j.entries {
			x := &j.entries[i]
			if lists[x.Object] == nil {
				order = append(order, x.Object)
			}
			lists[x.Object] = append(lists[x.Object], x)
		}
	}
	s.chunks = make(map[cacheKey][]byte)
	if total > 2*s.e.cfg.ObjectBytes {
		return // a job of its own, larger than memory allows: chunk by chunk
	}
	var pieces [][]*segment.Entry
	for _, object := range order {
		list := lists[object]
		slices.SortFunc(list, func(a, b *segment.Entry) int { return cmp.Compare(a.Position, b.Position) })
		for len(list) > 0 {
			n := 1
			for n < len(list) && list[n].Position-end(list[n-1]) <= readGap && end(list[n])-list[0].Position <= readPiece {
				n++
			}
			if n > 1 || list[0].Length <= readGap { // body reads what is large and alone when its turn comes
				pieces = append(pieces, list[:n])
			}
			list = list[n:]
		}
	}
	var wg sync.WaitGroup
	for side := range readSide {
		wg.Go(func() {
			for i := side; i < len(pieces); i += readSide {
				_ = s.piece(ctx, pieces[i])
			}
		})
	}
	wg.Wait()
}

// end is the position in its object behind a direct extent.
func end(x *segment.Entry) int64 { return x.Position + x.Length }

// piece reads some extents of one object, in order of position, with one request.
func (s *sourceObjects) piece(ctx context.Context, list []*segment.Entry) error {
	object, from := list[0].Object, list[0].Position
	buf := make([]byte, end(list[len(list)-1])-from)
	n, err := s.e.reader.get(ctx, object, from, buf)
	if err != nil {
		return err
	}
	for _, x := range list {
		if end(x)-from > int64(n) {
			return &badObject{object, x.Position, fmt.Errorf("object ends early: %w", commitlog.ErrCorrupt)}
		}
		body := slices.Clone(buf[x.Position-from : end(x)-from])
		if _, err := segment.ScanRun(x.Extent, body); err != nil {
			return &badObject{object, x.Position, err}
		}
		s.mu.Lock()
		s.chunks[cacheKey{object: object, position: x.Position}] = body
		s.mu.Unlock()
	}
	return nil
}

// readWhole fills body with the bytes of a direct extent and checks every batch.
func (r *reader) readWhole(ctx context.Context, x metadata.Extent, body []byte) error {
	n, err := r.get(ctx, x.Object, x.Position, body)
	if err != nil {
		return err
	}
	if n < len(body) {
		return &badObject{x.Object, x.Position, fmt.Errorf("object ends %d bytes early: %w", len(body)-n, commitlog.ErrCorrupt)}
	}
	if _, err := segment.ScanRun(x, body); err != nil {
		return &badObject{x.Object, x.Position, err}
	}
	return nil
}
