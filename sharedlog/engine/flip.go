package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/segment"
)

// A stream moves by one command: Flip fixes its end, says where the records
// beyond the committed end lie in our WAL, and names the new owner. No record
// is copied. What has to hold around it:
//
//	own-1  only we can send it, and after it nothing of ours can touch the stream
//	cmd-2  from the submission until an own later command has applied, we do not
//	       know whether the stream is ours, so nothing is appended to it
//	ext-1  the tail begins at the committed end: no CommitExtents of ours may be
//	       under way, which the ledger sees to
//
// Packing that was planned before a flip loses nothing: its command skips the
// stream, and slots that the flip refers to stay (obj-1).

const (
	// directTail is the most extents of a tail that go into the metadata
	// themselves. The target reads an index of a slot for each, so beyond a few
	// one index object is quicker.
	directTail = 4
	// frozenTail is the same for what is left once appends have stopped, in a move
	// of frozenStreams streams at most: what was not indexed before, what became
	// durable since, and the puts that were under way. Writing an index object
	// would make everybody wait for one more write; the target reads the slots side
	// by side.
	frozenTail    = 16
	frozenStreams = 16
	// flipBytes bounds one Flip command; a Raft entry has 256 KiB.
	flipBytes = 200 << 10
)

// errKept: the flip did not happen and the stream serves on.
var errKept = errors.New("the stream stays here")

// flip is one hand-over of many streams.
type flip struct {
	e       *Engine
	streams []*flipping
	objects []string // that may get their first reference from it
}

// flipping is one stream on its way.
type flipping struct {
	pb  *metadatapb.FlipStream
	s   *streamState
	h   *handle
	err error
}

// Flip hands streams to other incarnations: of each it takes Stream, Epoch and
// Target, and fills in the rest. It calls freeze, at most once, when nothing is
// left to prepare and the quorum answers; from then on the caller must let
// nothing more be appended. Errors are one per stream: nil if the move is made,
// otherwise the stream is still ours and takes appends again, or everything is
// lost (commitlog.ErrFenced, ErrClosed). ctx bounds what comes before the
// submission; after it Flip returns only once the outcome is known, however
// long that takes (cmd-2).
func (e *Engine) Flip(ctx context.Context, streams []*metadatapb.FlipStream, freeze func()) []error {
	f := &flip{e: e, streams: make([]*flipping, len(streams))}
	for i, pb := range streams {
		f.streams[i] = &flipping{pb: pb}
	}
	if err := e.takeLedger(ctx); err != nil {
		f.failAll(fmt.Errorf("hand over streams: packing is under way: %w", err))
		return f.errors()
	}
	defer e.leaveLedger()
	begun := time.Now()
	err := f.indexTails(ctx)
	if err == nil {
		// A quorum that is electing would leave the streams frozen until it is
		// done, so make sure that it answers before anything stops.
		if _, berr := e.cfg.Meta.Barrier(ctx); berr != nil {
			err = fmt.Errorf("the quorum does not answer: %w", berr)
		}
	}
	if err != nil {
		f.failAll(err)
		e.settle(e.life, false, f.objects...)
		return f.errors()
	}
	begun = e.cfg.Metrics.step(&e.cfg.Metrics.flipIndex, begun)
	freeze()
	for _, m := range f.streams {
		m.freeze(e)
	}
	if err = f.drain(ctx); err == nil {
		err = f.planTails(ctx)
	}
	offered := err == nil
	if offered {
		begun = e.cfg.Metrics.step(&e.cfg.Metrics.flipDrain, begun)
		f.submit()
		e.cfg.Metrics.step(&e.cfg.Metrics.flipCommit, begun)
	} else {
		f.failAll(err)
	}
	for _, m := range f.streams {
		m.finish()
	}
	// With the life of the engine, because the submission did not end with ctx.
	e.settle(e.life, offered, f.objects...)
	return f.errors()
}

// takeLedger waits for the right to submit what moves committed ends.
func (e *Engine) takeLedger(ctx context.Context) error {
	select {
	case e.ledger <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) leaveLedger() { <-e.ledger }

func (f *flip) errors() []error {
	out := make([]error, len(f.streams))
	for i, m := range f.streams {
		out[i] = m.err
	}
	return out
}

// failAll notes why nothing more happens to those that have no error yet.
func (f *flip) failAll(err error) {
	for _, m := range f.streams {
		if m.err == nil {
			m.err = err
		}
	}
}

// live are the streams that are still to be flipped.
func (f *flip) live() []*flipping {
	var out []*flipping
	for _, m := range f.streams {
		if m.err == nil {
			out = append(out, m)
		}
	}
	return out
}

// id is the stream's.
func (m *flipping) id() commitlog.StreamID { return commitlog.StreamID(m.pb.Stream) }

// freeze stops appends, if the stream is ours and open at the epoch named.
func (m *flipping) freeze(e *Engine) {
	if m.err != nil {
		return
	}
	s := e.state(m.id())
	if s == nil {
		m.err = fmt.Errorf("stream %d is not open: %w", m.pb.Stream, commitlog.ErrFenced)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h := s.open; {
	case h == nil || h.epoch != commitlog.Epoch(m.pb.Epoch):
		m.err = fmt.Errorf("stream %d is not open at epoch %d: %w", m.pb.Stream, m.pb.Epoch, commitlog.ErrFenced)
	case h.err != nil:
		m.err = h.err
	case h.frozen:
		m.err = fmt.Errorf("stream %d is being handed over already: %w", m.pb.Stream, commitlog.ErrBackpressure)
	default:
		h.frozen = true
		m.s, m.h = s, h
	}
}

// drain waits until what was appended is durable, in slot order (move-1): a flip
// that left an append behind would lose it.
func (f *flip) drain(ctx context.Context) error {
	f.e.wal.Seal()
	for _, m := range f.live() {
		m.s.mu.Lock()
		last := m.s.last
		m.s.mu.Unlock()
		if last == nil {
			continue
		}
		select {
		case <-last.Done():
			if err := last.Err(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("appends did not become durable in time: %w", ctx.Err())
		}
	}
	return nil
}

// indexTails writes long tails as they are now into an index object while
// appends still go on, so that little is left for the pause.
func (f *flip) indexTails(ctx context.Context) error {
	return f.addTails(ctx, func(chunks int) bool { return chunks > directTail }, 0)
}

// planTails adds what is left after the freeze, and fixes the ends.
func (f *flip) planTails(ctx context.Context) error {
	direct := directTail
	if len(f.streams) <= frozenStreams {
		direct = frozenTail
	}
	if err := f.addTails(ctx, func(int) bool { return true }, direct); err != nil {
		return err
	}
	for _, m := range f.live() {
		m.s.mu.Lock()
		next, confirm := m.s.next, m.s.confirm
		m.s.mu.Unlock()
		if end := commitlog.Offset(m.pb.End); next != end || confirm != end {
			m.err = fmt.Errorf("stream %d ends at %d, is durable to %d, and its WAL has it to %d: %w", m.pb.Stream, next, confirm, end, commitlog.ErrCorrupt)
		}
	}
	return nil
}

// addTails extends the tails of streams by what the WAL has beyond them, where
// wanted says so of the number of chunks: up to direct of them as direct extents,
// more by sections of one index object.
func (f *flip) addTails(ctx context.Context, wanted func(chunks int) bool, direct int) error {
	tails, err := f.collect()
	if err != nil {
		return err
	}
	var b *segment.Builder
	var object string
	var indexed []*flipping
	var sections []*segment.Section
	for _, m := range f.live() {
		sec := tails[m.id()]
		if sec == nil || len(sec.Entries) == 0 || !wanted(len(sec.Entries)) {
			continue
		}
		if len(sec.Entries) <= direct {
			for _, x := range sec.Entries {
				m.pb.Tail = append(m.pb.Tail, extentPB(x.Extent))
			}
			m.pb.End = int64(sec.End)
			continue
		}
		if b == nil {
			var name segment.Name
			name, object = f.e.newName(metadata.IndexObject)
			f.objects = append(f.objects, object)
			b = segment.NewBuilder(name)
		}
		b.AddIndex(sec)
		indexed, sections = append(indexed, m), append(sections, sec)
	}
	if b == nil {
		return nil
	}
	body, at := b.Finish()
	if err := f.e.upload(ctx, object, body); err != nil {
		return fmt.Errorf("write the index of tails: %w", err)
	}
	for i, m := range indexed {
		m.pb.Tail = append(m.pb.Tail, extentPB(indexExtent(object, sections[i], at[i])))
		m.pb.End = int64(sections[i].End)
	}
	return nil
}

// collect lists, per stream, the chunks of durable slots beyond the tail so
// far, as sections of an index with what producer state needs of them (prod-1).
func (f *flip) collect() (map[commitlog.StreamID]*segment.Section, error) {
	img := f.e.cfg.Meta.Image()
	tails := make(map[commitlog.StreamID]*segment.Section, len(f.streams))
	for _, m := range f.live() {
		p, ok := img.PartitionByStream(m.id())
		if !ok || p.Owner != f.e.cfg.Incarnation || p.Epoch != commitlog.Epoch(m.pb.Epoch) {
			m.err = fmt.Errorf("stream %d is not ours at epoch %d any more: %w", m.pb.Stream, m.pb.Epoch, commitlog.ErrFenced)
			continue
		}
		if len(m.pb.Tail) == 0 {
			m.pb.End = int64(p.End)
		}
		from := commitlog.Offset(m.pb.End)
		tails[m.id()] = &segment.Section{Stream: p.Stream, Base: from, From: from, End: from}
	}
	deltas := make(map[commitlog.StreamID][]commitlog.BatchInfo)
	f.e.mu.Lock()
	slots := append(f.e.unpacked[:0:0], f.e.unpacked...)
	f.e.mu.Unlock()
	for _, slot := range slots {
		index := slot.Index()
		for i := range index.Chunks {
			c := &index.Chunks[i]
			sec := tails[c.Stream]
			if sec == nil || c.End <= sec.End {
				continue
			}
			if c.Base != sec.End {
				return nil, fmt.Errorf("slot %d continues stream %d at %d instead of %d: %w", slot.Seq(), c.Stream, c.Base, sec.End, commitlog.ErrCorrupt)
			}
			sec.Entries = append(sec.Entries, segment.Entry{Extent: f.e.chunkExtent(f.e.cfg.Incarnation, slot.Seq(), c)})
			sec.End = c.End
			deltas[c.Stream] = append(deltas[c.Stream], c.Batches...)
		}
	}
	for id, sec := range tails {
		sec.State = segment.State{Kind: segment.StateDeltas, Deltas: commitlog.KeepRelevant(deltas[id])}
	}
	return tails, nil
}

// submit sends as few commands as their size allows.
func (f *flip) submit() {
	for rest := f.live(); len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) {
			size += proto.Size(rest[n].pb) + 8
			if n > 0 && size > flipBytes {
				break
			}
			n++
		}
		f.submitOne(rest[:n])
		rest = rest[n:]
	}
}

// submitOne sends one command. A command is all or nothing; if one of many is
// refused each goes alone, so that the refused one does not hold up the rest.
func (f *flip) submitOne(group []*flipping) {
	cmd := &metadatapb.Flip{}
	for _, m := range group {
		cmd.Streams = append(cmd.Streams, m.pb)
	}
	// Not the caller's ctx: whoever stops waiting does not make it our stream.
	err := f.e.submit(f.e.life, &metadatapb.Command{Body: &metadatapb.Command_Flip{Flip: cmd}})
	var refused *metadata.Error
	switch {
	case err == nil:
	case errors.Is(err, errUnsettled):
		// An own later command has applied (cmd-2), so the image tells.
		img := f.e.cfg.Meta.Image()
		for _, m := range group {
			if p, ok := img.PartitionByStream(m.id()); ok && p.Owner == f.e.cfg.Incarnation && p.Epoch == commitlog.Epoch(m.pb.Epoch) {
				m.err = fmt.Errorf("hand stream %d over: %w: %w", m.pb.Stream, errKept, err)
			}
		}
	case errors.As(err, &refused) && !errors.Is(err, commitlog.ErrFenced) && len(group) > 1:
		for i := range group {
			f.submitOne(group[i : i+1])
		}
	default:
		for _, m := range group {
			m.err = fmt.Errorf("hand stream %d over: %w", m.pb.Stream, err)
		}
	}
}

// finish lets appends in again (move-2), or ends the handle of a stream that moved. By now
// that may have come back and be open again, at a later epoch, which this says nothing of.
func (m *flipping) finish() {
	if m.h == nil {
		return
	}
	s := m.s
	if m.err == nil {
		target := metadata.IncarnationFrom(m.pb.Target)
		s.mu.Lock()
		s.committed = max(s.committed, commitlog.Offset(m.pb.End))
		s.mu.Unlock()
		s.failHandle(m.h, fmt.Errorf("stream %d was handed to %s at epoch %d: %w", s.id, target, m.pb.Epoch+1, commitlog.ErrFenced))
		return
	}
	s.mu.Lock()
	m.h.frozen = false
	s.mu.Unlock()
}
