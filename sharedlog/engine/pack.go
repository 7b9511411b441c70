package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

// Packing turns WAL data into runs of segment objects and tells the metadata,
// which moves the WAL's trim in the same command (ext-4). Every round plans
// from the image and the durable slots alone, so a crash, a lost reply or a
// rejection anywhere only makes the next round do what is left.

// adoptShare is how much of a slot, in percent, must be large chunks of one retention
// class for them not to be written again: an index object then points into the slot,
// which stays (obj-1). Under load that halves what is written. Else objects would
// become too small and too mixed.
const adoptShare = 80

// largeRun is the size in bytes from which a stream's run gets an object of its
// own, so that it can be deleted on its own.
const largeRun = 8 << 20

// streamsPerCommand bounds a CommitExtents to about 1 MiB. A command has an entry
// of the log of its own when it is large, so a smaller bound costs the quorum
// entries in proportion to the partitions.
const streamsPerCommand = 10_000

func (e *Engine) packLoop(ctx context.Context) {
	wait := e.cfg.RetryMin
	for {
		due, after := e.packDue()
		if !due {
			if !waitFor(ctx, e.kick, after) {
				return
			}
			continue
		}
		err := e.pack(ctx)
		e.endRound()
		if err == nil {
			wait = e.cfg.RetryMin
			poke(e.tidy)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errUnsettled) && e.said.Allow("pack") {
			e.cfg.Logger.Warn("packing is delayed", "broker", e.cfg.Incarnation.String(), "err", err)
		}
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, e.cfg.RetryMax)
	}
}

// waitFor waits for a poke or, if after is not 0, that long; false means that
// ctx ended.
func waitFor(ctx context.Context, c <-chan struct{}, after time.Duration) bool {
	var timer <-chan time.Time
	if after > 0 {
		t := time.NewTimer(after)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c:
		return true
	case <-timer:
		return true
	case <-ctx.Done():
		return false
	}
}

// packDue says whether to pack now, or else how long until age makes it due; 0
// is never, so an idle broker has no timer.
func (e *Engine) packDue() (bool, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.unpacked) == 0 {
		e.force = false
		return false, 0
	}
	if e.dueLocked() {
		return true, 0
	}
	left := e.cfg.PackAge - time.Since(e.since)
	return left <= 0, max(left, 1)
}

// endRound wakes who waits for a pack to have happened.
func (e *Engine) endRound() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.round)
	e.round = make(chan struct{})
}

// requestPack makes packing due and returns a channel closed after the next
// round.
func (e *Engine) requestPack() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.force = true
	poke(e.kick)
	return e.round
}

// packStream is one stream's part of a round.
type packStream struct {
	id     commitlog.StreamID
	p      metadata.Partition
	class  int
	bytes  int64
	runs   []packRun
	deltas []commitlog.BatchInfo
	check  []byte
	folded bool
}

// packRun is a run to be: chunks of one epoch. Either their bytes are parts, or they
// stay where they are and adopted lists them.
type packRun struct {
	epoch     commitlog.Epoch
	base, end commitlog.Offset
	parts     [][]byte
	adopted   []segment.Entry
	deltas    []commitlog.BatchInfo
	extent    metadata.Extent
}

// pack does one round over the oldest slots.
func (e *Engine) pack(ctx context.Context) error {
	e.mu.Lock()
	var n int
	var bytes int64
	for n < len(e.unpacked) && (n == 0 || bytes < 2*e.cfg.PackBytes) {
		for i := range e.unpacked[n].Index().Chunks {
			bytes += e.unpacked[n].Index().Chunks[i].Len
		}
		n++
	}
	slots := slices.Clone(e.unpacked[:n])
	if n == len(e.unpacked) {
		e.force = false
	}
	e.mu.Unlock()

	bodies := slotBodies{e: e}
	defer bodies.release()
	streams, err := e.planPack(ctx, slots, &bodies)
	if err != nil {
		return err
	}
	for _, ps := range streams {
		if err := e.foldPack(ctx, ps); err != nil {
			return err
		}
	}
	objects, err := e.writeRuns(ctx, streams)
	offered := false
	defer func() { e.settle(ctx, offered, objects...) }()
	if err != nil {
		return err
	}
	if err := e.takeLedger(ctx); err != nil {
		return err
	}
	offered = true
	e.keepAdopted(streams)
	err = e.commitPack(ctx, streams, slots[n-1].Seq()+1)
	e.leaveLedger()
	if err != nil {
		return err
	}
	e.finishPack(ctx, streams, n)
	return nil
}

// planPack sorts the slots' chunks by stream, leaving out what is committed
// already or no longer ours.
func (e *Engine) planPack(ctx context.Context, slots []*wal.Slot, bodies *slotBodies) ([]*packStream, error) {
	img := e.cfg.Meta.Image()
	byID := make(map[commitlog.StreamID]*packStream)
	var order []*packStream
	wanted := func(c *wal.Chunk) *packStream {
		ps, ok := byID[c.Stream]
		if !ok {
			if p, found := img.PartitionByStream(c.Stream); found && p.Owner == e.cfg.Incarnation {
				ps = &packStream{id: c.Stream, p: p, class: e.classOf(c.Stream)}
				order = append(order, ps)
			}
			byID[c.Stream] = ps
		}
		if ps == nil || c.End <= ps.p.End {
			return nil
		}
		return ps
	}
	e.mu.Lock()
	room := e.cfg.MaxAdopted - len(e.adopted)
	e.mu.Unlock()
	for _, slot := range slots {
		index := slot.Index()
		class, adopts := e.adoptable(index, wanted)
		if adopts = adopts && room > 0; adopts {
			room--
		}
		for i := range index.Chunks {
			ps := wanted(&index.Chunks[i])
			if ps == nil {
				continue
			}
			if err := ps.add(ctx, slot, i, bodies, adopts && ps.class == class && e.large(&index.Chunks[i])); err != nil {
				return nil, err
			}
		}
	}
	order = slices.DeleteFunc(order, func(ps *packStream) bool { return len(ps.runs) == 0 })
	slices.SortFunc(order, func(a, b *packStream) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.id, b.id))
	})
	return order, nil
}

// classOf is the retention class of a stream, 0 if it is not known.
func (e *Engine) classOf(id commitlog.StreamID) int {
	s := e.state(id)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	age := s.opts.age
	s.mu.Unlock()
	if age == nil {
		return 0
	}
	return ageClass(age())
}

// adoptable says whether the large chunks of a slot stay in it, and of which class.
func (e *Engine) adoptable(index *wal.Index, wanted func(*wal.Chunk) *packStream) (class int, ok bool) {
	var all, most int64
	large := make(map[int]int64)
	for i := range index.Chunks {
		c := &index.Chunks[i]
		all += c.Len
		if !e.large(c) {
			continue
		}
		if ps := wanted(c); ps != nil {
			large[ps.class] += c.Len
			if large[ps.class] > most {
				class, most = ps.class, large[ps.class]
			}
		}
	}
	return class, most > 0 && most >= all*adoptShare/100
}

// large says whether a chunk is worth an object of the store.
func (e *Engine) large(c *wal.Chunk) bool {
	return e.cfg.AdoptBytes > 0 && c.Len >= e.cfg.AdoptBytes
}

func (ps *packStream) add(ctx context.Context, slot *wal.Slot, i int, bodies *slotBodies, adopt bool) error {
	c := &slot.Index().Chunks[i]
	end := ps.p.End
	if n := len(ps.runs); n > 0 {
		end = ps.runs[n-1].end
	}
	if c.Base != end { // ext-1
		return fmt.Errorf("slot %d continues stream %d at %d instead of %d: %w", slot.Seq(), c.Stream, c.Base, end, commitlog.ErrCorrupt)
	}
	parts, err := bodies.chunk(ctx, slot, i)
	if err != nil {
		return err
	}
	if n := len(ps.runs); n == 0 || ps.runs[n-1].epoch != c.Epoch || adopt != (len(ps.runs[n-1].adopted) > 0) {
		ps.runs = append(ps.runs, packRun{epoch: c.Epoch, base: c.Base})
	}
	r := &ps.runs[len(ps.runs)-1]
	r.end = c.End
	r.deltas = append(r.deltas, c.Batches...)
	ps.deltas = append(ps.deltas, c.Batches...)
	if !adopt {
		r.parts = append(r.parts, parts...)
		ps.bytes += c.Len
		return nil
	}
	x, err := segment.IndexRun(bodies.e.chunkExtent(bodies.e.cfg.Incarnation, slot.Seq(), c), parts)
	if err != nil {
		return fmt.Errorf("index stream %d in slot %d: %w", c.Stream, slot.Seq(), err)
	}
	r.adopted = append(r.adopted, x)
	return nil
}

// foldPack makes the checkpoint that goes with the stream's newest run: the
// previous one and everything since (prod-1).
func (e *Engine) foldPack(ctx context.Context, ps *packStream) error {
	var fold commitlog.Checkpointer
	var kept checkpoint
	if s := e.state(ps.id); s != nil {
		s.mu.Lock()
		fold = s.opts.fold
		if s.check != nil {
			kept = *s.check
		}
		s.mu.Unlock()
	}
	if fold == nil {
		return nil
	}
	// A commit to a stream that was trimmed to its end drops the extents it had,
	// and with them the newest checkpoint, unless this run has a newer one (ext-4).
	last := len(ps.p.Extents) > 0 && ps.p.Start >= ps.p.End
	check, deltas := kept.bytes, ps.deltas
	if kept.end != ps.p.End {
		rec, err := e.committedState(ctx, ps.p)
		if err != nil && isBad(err) && !last {
			// One damaged checkpoint must not keep everybody's WAL from being
			// packed. Without a checkpoint of this run recovery will look for the
			// damaged one, and say so.
			e.cfg.Logger.Error("checkpoint cannot be read", "stream", uint64(ps.id), "err", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read checkpoint of stream %d: %w", ps.id, err)
		}
		check, deltas = rec.Checkpoint, append(rec.Batches, ps.deltas...)
	}
	out, err := fold.Fold(check, commitlog.KeepRelevant(deltas))
	if err != nil && last {
		return fmt.Errorf("fold checkpoint of stream %d: %w", ps.id, err)
	}
	if err != nil {
		// Deltas say the same, only at greater length.
		e.cfg.Logger.Error("checkpoint cannot be folded", "stream", uint64(ps.id), "err", err)
		return nil
	}
	ps.check, ps.folded = out, true
	return nil
}

// writeRuns uploads the runs: streams of one retention class share objects, a
// large run has one of its own, and those that stay in their slots share an index
// object. It returns the names of all it began.
func (e *Engine) writeRuns(ctx context.Context, streams []*packStream) ([]string, error) {
	up := uploads{e: e}
	class := -1
	for _, ps := range streams {
		own := ps.bytes >= largeRun
		if own || ps.class != class || up.bytes() >= e.cfg.ObjectBytes {
			up.flush(ctx)
		}
		class = ps.class
		for i := range ps.runs {
			r := &ps.runs[i]
			var sec *segment.Section
			if len(r.adopted) > 0 {
				sec = up.index(ps.id, r)
			} else {
				var err error
				if sec, err = up.run(ps.id, r); err != nil {
					up.flush(ctx)
					return up.objects, errors.Join(err, up.wait())
				}
			}
			sec.State = segment.State{Kind: segment.StateDeltas, Deltas: commitlog.KeepRelevant(r.deltas)}
			if ps.folded && i == len(ps.runs)-1 {
				sec.State = segment.State{Kind: segment.StateCheckpoint, Checkpoint: ps.check}
			}
		}
		if own {
			up.flush(ctx)
		}
	}
	up.flush(ctx)
	up.flushIndex(ctx)
	return up.objects, up.wait()
}

// keepAdopted notes the slots that index objects of this round point into, before
// the metadata may: whatever becomes of the command, only the sweep, which reads
// those objects, deletes them (obj-1).
func (e *Engine) keepAdopted(streams []*packStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ps := range streams {
		for i := range ps.runs {
			for j := range ps.runs[i].adopted {
				e.adopted[ps.runs[i].adopted[j].Object] = struct{}{}
			}
		}
	}
}

// commitPack submits the extents; the last command moves the trim.
func (e *Engine) commitPack(ctx context.Context, streams []*packStream, trim uint64) error {
	for first := true; first || len(streams) > 0; first = false {
		n := min(len(streams), streamsPerCommand)
		cmd := &metadatapb.CommitExtents{}
		for _, ps := range streams[:n] {
			se := &metadatapb.StreamExtents{Stream: uint64(ps.id), Epoch: int32(ps.p.Epoch)}
			for i := range ps.runs {
				se.Extents = append(se.Extents, extentPB(ps.runs[i].extent))
			}
			cmd.Streams = append(cmd.Streams, se)
		}
		if streams = streams[n:]; len(streams) == 0 {
			cmd.Trim = trim
		}
		if err := e.submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_CommitExtents{CommitExtents: cmd}}); err != nil {
			return fmt.Errorf("commit packed extents: %w", err)
		}
	}
	return nil
}
