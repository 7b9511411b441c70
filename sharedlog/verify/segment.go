package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"ponor/metadata"
	"ponor/sharedlog/segment"
)

// tailBytes is how much of an object's end is read first.
const tailBytes = 64 << 10

// segmentObject is a segment or index object that is being checked.
type segmentObject struct {
	w     *worker
	name  metadata.ObjectName
	key   string
	wants []want
	index func(want, *segment.Section)

	size     int64
	tail     []byte // its last bytes
	trailer  segment.Trailer
	sections map[segment.Located]bool
	runs     map[sectionOf]segment.Located
	found    []finding
}

// sectionOf finds the section of a run.
type sectionOf struct {
	stream uint64
	base   int64
}

// segment checks the extents that lie in a segment or index object.
func (w *worker) segment(ctx context.Context, n metadata.ObjectName, wants []want, index func(want, *segment.Section)) ([]finding, error) {
	o := &segmentObject{w: w, name: n, key: w.c.key(n), wants: wants, index: index}
	err := o.open(ctx)
	if err == nil {
		err = o.check(ctx)
	}
	var damage *badBytes
	switch {
	case err == nil:
		return o.found, nil
	case asBad(err, &damage):
		return []finding{{n, wants, *damage}}, nil
	case isBad(err):
		return []finding{{n, wants, badBytes{kindOf(err), 0, err}}}, nil
	default:
		return nil, fmt.Errorf("read %s: %w", o.key, err)
	}
}

func asBad(err error, to **badBytes) bool {
	b, ok := err.(*badBytes) //nolint:errorlint // ours, never wrapped
	if ok {
		*to = b
	}
	return ok
}

// open reads trailer and directory.
func (o *segmentObject) open(ctx context.Context) error {
	buf := make([]byte, tailBytes)
	var n int
	err := o.w.c.ask(ctx, func() (err error) {
		n, o.size, err = o.w.c.cfg.Bucket.GetTail(ctx, o.key, buf)
		return err
	})
	if err != nil {
		return err
	}
	o.w.c.sound(0, int64(n))
	o.tail = buf[:n]
	if o.trailer, err = segment.DecodeTrailer(o.tail[max(0, n-segment.TrailerBytes):], o.size); err != nil {
		return bad(Damaged, max(0, o.size-segment.TrailerBytes), "trailer: %w", err)
	}
	t := o.trailer
	var dir []byte
	if err := o.spans(ctx, whole(t.Directory, t.DirLength, &dir)); err != nil {
		return err
	}
	list, err := segment.DecodeDirectory(dir, t)
	if err != nil {
		return bad(Damaged, t.Directory, "directory: %w", err)
	}
	o.sections, o.runs = make(map[segment.Located]bool, len(list)), make(map[sectionOf]segment.Located, len(list))
	for _, l := range list {
		o.sections[l] = true
		o.runs[sectionOf{uint64(l.Stream), int64(l.Base)}] = l
	}
	return nil
}

// spans reads spans, from the tail in memory where it has them.
func (o *segmentObject) spans(ctx context.Context, spans ...span) error {
	from := o.size - int64(len(o.tail))
	var far []span
	for _, s := range spans {
		if s.pos >= from && s.pos+s.n <= o.size {
			s.feed(o.tail[s.pos-from:][:s.n])
		} else {
			far = append(far, s)
		}
	}
	return o.w.scan(ctx, o.key, far)
}

// check reads the header and the sections that the extents need, and then the
// bodies.
func (o *segmentObject) check(ctx context.Context) error {
	var head []byte
	spans := []span{whole(0, segment.HeaderBytes, &head)}
	var runs []*run
	slices.SortStableFunc(o.wants, func(a, b want) int { return cmp.Compare(o.at(a).Position, o.at(b).Position) })
	for i := range o.wants {
		r := &run{want: o.wants[i], at: o.at(o.wants[i])}
		if !o.sections[r.at] {
			o.fault(r.want, bad(Mismatch, r.want.x.Position, "object has no section of stream %d from offset %d for this extent", r.want.p.Stream, r.want.x.Base))
			continue
		}
		runs = append(runs, r)
		spans = append(spans, span{r.at.Position, r.at.Length, func(b []byte) {
			if r.raw = append(r.raw, b...); int64(len(r.raw)) == r.at.Length {
				o.section(r)
				r.raw = nil
			}
		}})
	}
	if err := o.spans(ctx, spans...); err != nil {
		return err
	}
	want, _ := segment.NewBuilder(segment.Name{Creator: o.name.Creator, Counter: o.name.Number}).Finish()
	if !bytes.Equal(head, want.Parts[0]) {
		return bad(Damaged, 0, "header is not that of an object of this name: magic, version, name or CRC is wrong")
	}
	return o.bodies(ctx, runs)
}

// bodies reads the batches of runs.
func (o *segmentObject) bodies(ctx context.Context, runs []*run) error {
	var spans []span
	for _, r := range runs {
		if r.batches != nil {
			spans = append(spans, r.batches.span())
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.pos, b.pos) })
	if err := o.w.scan(ctx, o.key, spans); err != nil {
		return err
	}
	for _, r := range runs {
		if r.batches == nil {
			if !r.checked {
				o.fault(r.want, bad(Damaged, r.at.Position, "object ends within a section"))
			}
			continue
		}
		if err := r.batches.finish(); err != nil {
			o.fault(r.want, err)
			continue
		}
		o.w.c.sound(int64(r.want.x.End-r.want.x.Base), 0)
	}
	return nil
}

// run is an extent and the section that describes it.
type run struct {
	want    want
	at      segment.Located
	raw     []byte
	batches *batches // what its bytes must be, once the section was read
	checked bool     // the section was looked at
}

// at is where the section of an extent must be.
func (o *segmentObject) at(w want) segment.Located {
	if w.x.Indirect {
		return segment.Located{Stream: w.p.Stream, Base: w.x.Base, Position: w.x.Position, Length: w.x.Length}
	}
	return o.runs[sectionOf{uint64(w.p.Stream), int64(w.x.Base)}]
}

func (o *segmentObject) fault(w want, b *badBytes) {
	o.found = append(o.found, finding{o.name, []want{w}, *b})
}

// section compares a section with its extent.
func (o *segmentObject) section(r *run) {
	r.checked = true
	s, err := segment.DecodeSection(r.raw)
	if err != nil {
		o.fault(r.want, bad(Damaged, r.at.Position, "section: %w", err))
		return
	}
	x := &r.want.x
	if s.Stream != r.want.p.Stream || s.Base != x.Base || s.End != x.End {
		o.fault(r.want, bad(Mismatch, r.at.Position, "section is of stream %d, offsets %d to %d", s.Stream, s.Base, s.End))
		return
	}
	if s.State.Kind == segment.StateCheckpoint && o.w.c.cfg.Checkpoint != nil {
		if err := o.w.c.cfg.Checkpoint(s.State.Checkpoint); err != nil {
			o.fault(r.want, bad(Damaged, r.at.Position, "checkpoint: %w", err))
			return
		}
	}
	var wrong *badBytes
	if x.Indirect {
		wrong = o.indexSection(r, s)
	} else {
		wrong = o.runSection(r, s)
	}
	if wrong != nil {
		o.fault(r.want, wrong)
	}
}

// indexSection checks what an index section lists.
func (o *segmentObject) indexSection(r *run, s *segment.Section) *badBytes {
	x, p := &r.want.x, r.want.p
	at := r.at.Position
	switch {
	case r.want.depth >= maxDepth:
		return bad(Mismatch, at, "index is nested deeper than %d", maxDepth)
	case len(s.Entries) == 0:
		return bad(Mismatch, at, "index section lists nothing")
	case s.From > max(p.Start, s.Base):
		return bad(Mismatch, at, "index section lists records from offset %d on, the log starts at %d", s.From, p.Start)
	case s.MaxTimestamp() != x.MaxTimestamp || s.RecordBytes() != x.Bytes:
		return bad(Mismatch, at, "index section has %d bytes of records, the latest of %d, the extent says %d and %d", s.RecordBytes(), s.MaxTimestamp(), x.Bytes, x.MaxTimestamp)
	}
	var epoch = s.Entries[0].Epoch
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Indirect {
			continue
		}
		if e.Epoch < epoch || e.Epoch > p.Epoch {
			return bad(Mismatch, at, "index section lists epoch %d at offset %d after epoch %d; the leader's is %d", e.Epoch, e.Base, epoch, p.Epoch)
		}
		epoch = e.Epoch
	}
	if o.index != nil {
		o.index(r.want, s)
	}
	return nil
}

// runSection checks a run's section and prepares the check of its bytes.
func (o *segmentObject) runSection(r *run, s *segment.Section) *badBytes {
	if len(s.Entries) != 1 {
		return bad(Mismatch, r.at.Position, "section of a run has %d entries", len(s.Entries))
	}
	e, x := s.Entries[0], r.want.x
	own := e.Extent
	own.Object = x.Object
	switch {
	case own != x:
		return bad(Mismatch, r.at.Position, "section describes %+v, the extent is %+v", own, x)
	case s.State.Kind == segment.StateNone:
		return bad(Mismatch, r.at.Position, "run has neither checkpoint nor deltas: its producers' state cannot be recovered")
	case x.Position < segment.HeaderBytes || x.Position > o.trailer.Sections-x.Length:
		return bad(Mismatch, x.Position, "%d bytes of records lie outside the bodies, which end at %d", x.Length, o.trailer.Sections)
	case e.Blocks == nil:
		return bad(Mismatch, r.at.Position, "run has no blocks")
	}
	r.batches = newBatches(x, e.Blocks)
	return nil
}
