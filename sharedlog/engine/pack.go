package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
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

// largeRun is the size in bytes from which a stream's run gets an object of its
// own, so that it can be deleted on its own.
const largeRun = 8 << 20

// streamsPerCommand bounds a CommitExtents to about 100 KiB.
const streamsPerCommand = 1000

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
		if !errors.Is(err, errUnsettled) {
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

// packRun is a run to be: chunks of one epoch.
type packRun struct {
	epoch     commitlog.Epoch
	base, end commitlog.Offset
	parts     [][]byte
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
	defer func() { e.settle(ctx, objects...) }()
	if err != nil {
		return err
	}
	if err := e.commitPack(ctx, streams, slots[n-1].Seq()+1); err != nil {
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
	for _, slot := range slots {
		index := slot.Index()
		for i := range index.Chunks {
			c := &index.Chunks[i]
			ps, ok := byID[c.Stream]
			if !ok {
				if p, found := img.PartitionByStream(c.Stream); found && p.Owner == e.cfg.Incarnation {
					ps = &packStream{id: c.Stream, p: p}
					order = append(order, ps)
				}
				byID[c.Stream] = ps
			}
			if ps == nil || c.End <= ps.p.End {
				continue
			}
			if err := ps.add(ctx, slot, i, bodies); err != nil {
				return nil, err
			}
		}
	}
	order = slices.DeleteFunc(order, func(ps *packStream) bool { return len(ps.runs) == 0 })
	for _, ps := range order {
		if s := e.state(ps.id); s != nil {
			s.mu.Lock()
			class := s.opts.ageClass
			s.mu.Unlock()
			if class != nil {
				ps.class = class()
			}
		}
	}
	slices.SortFunc(order, func(a, b *packStream) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.id, b.id))
	})
	return order, nil
}

func (ps *packStream) add(ctx context.Context, slot *wal.Slot, i int, bodies *slotBodies) error {
	c := &slot.Index().Chunks[i]
	end := ps.p.End
	if n := len(ps.runs); n > 0 {
		end = ps.runs[n-1].end
	}
	if c.Base != end {
		return fmt.Errorf("slot %d continues stream %d at %d instead of %d: %w", slot.Seq(), c.Stream, c.Base, end, commitlog.ErrCorrupt)
	}
	parts, err := bodies.chunk(ctx, slot, i)
	if err != nil {
		return err
	}
	if n := len(ps.runs); n == 0 || ps.runs[n-1].epoch != c.Epoch {
		ps.runs = append(ps.runs, packRun{epoch: c.Epoch, base: c.Base})
	}
	r := &ps.runs[len(ps.runs)-1]
	r.end = c.End
	r.parts = append(r.parts, parts...)
	r.deltas = append(r.deltas, c.Batches...)
	ps.deltas = append(ps.deltas, c.Batches...)
	ps.bytes += c.Len
	return nil
}

// foldPack makes the checkpoint that goes with the stream's newest run: the
// previous one and everything since.
func (e *Engine) foldPack(ctx context.Context, ps *packStream) error {
	var fold commitlog.Checkpointer
	var kept checkpoint
	if s := e.state(ps.id); s != nil {
		s.mu.Lock()
		fold, kept = s.opts.fold, s.check
		s.mu.Unlock()
	}
	if fold == nil {
		return nil
	}
	check, deltas := kept.bytes, ps.deltas
	if !kept.valid || kept.end != ps.p.End {
		rec, err := e.committedState(ctx, ps.p)
		if err != nil && isBad(err) {
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
	if err != nil {
		// Deltas say the same, only at greater length.
		e.cfg.Logger.Error("checkpoint cannot be folded", "stream", uint64(ps.id), "err", err)
		return nil
	}
	ps.check, ps.folded = out, true
	return nil
}

// writeRuns uploads the runs: streams of one retention class share objects, a
// large run has one of its own. It returns the names of all it began.
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
			sec, err := up.run(ps.id, r)
			if err != nil {
				up.flush(ctx)
				return up.objects, errors.Join(err, up.wait())
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
	return up.objects, up.wait()
}

// uploads builds segment objects and writes a few of them at a time.
type uploads struct {
	e       *Engine
	b       *segment.Builder
	object  string
	objects []string
	sem     chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// maxUploads is how many objects are written at once.
const maxUploads = 4

func (u *uploads) bytes() int64 {
	if u.b == nil {
		return 0
	}
	return u.b.Bytes()
}

// run adds a run to the object being built and fills in its extent.
func (u *uploads) run(id commitlog.StreamID, r *packRun) (*segment.Section, error) {
	if u.b == nil {
		name, object := u.e.newName(metadata.SegmentObject)
		u.b, u.object = segment.NewBuilder(name), object
		u.objects = append(u.objects, object)
	}
	sec, err := u.b.AddRun(id, r.epoch, r.base, r.parts)
	if err == nil && sec.End != r.end {
		err = fmt.Errorf("run of stream %d ends at %d instead of %d: %w", id, sec.End, r.end, commitlog.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	r.extent = sec.Entries[0].Extent
	r.extent.Object = u.object
	return sec, nil
}

// flush starts writing the object being built, if any.
func (u *uploads) flush(ctx context.Context) {
	if u.b == nil {
		return
	}
	body, _ := u.b.Finish()
	object := u.object
	u.b = nil
	if u.sem == nil {
		u.sem = make(chan struct{}, maxUploads)
	}
	u.sem <- struct{}{}
	u.wg.Go(func() {
		err := u.e.upload(ctx, object, body)
		u.mu.Lock()
		u.err = errors.Join(u.err, err)
		u.mu.Unlock()
		<-u.sem
	})
}

func (u *uploads) wait() error {
	u.wg.Wait()
	return u.err
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

// finishPack forgets n slots, whose data is committed, and deletes their
// objects: they are below the trim, and only we could have made a first
// reference to them (obj-1, obj-2).
func (e *Engine) finishPack(ctx context.Context, streams []*packStream, n int) {
	img := e.cfg.Meta.Image()
	e.mu.Lock()
	done := e.unpacked[:n:n]
	e.unpacked = slices.Clone(e.unpacked[n:])
	var keys []string
	for _, slot := range done {
		for i := range slot.Index().Chunks {
			e.bytes -= slot.Index().Chunks[i].Len
		}
		object := metadata.ObjectName{Kind: metadata.WALSlot, Creator: e.cfg.Incarnation, Number: slot.Seq()}.String()
		if img.References(object) == 0 && e.neverMoved(img, slot) {
			keys = append(keys, e.prefix+"/"+object)
		}
	}
	e.trim = done[n-1].Seq() + 1
	e.packed = append(e.packed, done...)
	e.since = time.Now()
	e.full.Store(len(e.unpacked) >= e.cfg.MaxSlots || e.bytes >= e.cfg.MaxUnpacked)
	e.mu.Unlock()

	// Also those that an earlier round committed, whose reply was lost.
	for _, slot := range done {
		for i := range slot.Index().Chunks {
			id := slot.Index().Chunks[i].Stream
			if s := e.state(id); s != nil {
				s.mu.Lock()
				if p, ok := img.PartitionByStream(id); ok && p.Owner == e.cfg.Incarnation {
					s.committed = max(s.committed, p.End)
				} else {
					s.committed = s.next // no longer our business
				}
				s.mu.Unlock()
			}
		}
	}
	for _, ps := range streams {
		s := e.state(ps.id)
		if s == nil {
			continue
		}
		s.mu.Lock()
		s.check = checkpoint{}
		if ps.folded && len(ps.check) <= maxKeptCheckpoint {
			s.check = checkpoint{valid: true, bytes: ps.check, end: s.committed}
		}
		s.mu.Unlock()
		s.detach(nil)
	}
	e.forgetEvicted()
	if err := e.cfg.Bucket.Delete(ctx, keys...); err != nil && ctx.Err() == nil {
		e.cfg.Logger.Info("trimmed slots are left to the sweep", "object", keys[0], "err", err)
	}
}

// neverMoved says that no stream in the slot was given to another broker since:
// a hand-over may refer to the slot from within an index object, which only the
// sweep reads.
func (e *Engine) neverMoved(img *metadata.Image, slot *wal.Slot) bool {
	for i := range slot.Index().Chunks {
		c := &slot.Index().Chunks[i]
		if p, ok := img.PartitionByStream(c.Stream); ok && (p.Owner != e.cfg.Incarnation || p.Epoch != c.Epoch) {
			return false
		}
	}
	return true
}

// maxPackedSlots bounds how many committed slots are kept as cache, because
// each costs some memory beside its slabs.
const maxPackedSlots = 8192

// forgetEvicted drops the pieces of committed slots whose memory is gone. The
// WAL evicts oldest first.
func (e *Engine) forgetEvicted() {
	for {
		e.mu.Lock()
		if len(e.packed) == 0 {
			e.mu.Unlock()
			return
		}
		slot := e.packed[0]
		if len(e.packed) <= maxPackedSlots && slot.Acquire() {
			slot.Release()
			e.mu.Unlock()
			return
		}
		e.packed = e.packed[1:]
		e.mu.Unlock()
		for _, c := range slot.Index().Chunks {
			if s := e.state(c.Stream); s != nil {
				s.forget(slot.Seq())
			}
		}
	}
}

// slotBodies gives the bytes of slots' chunks: from memory where they are,
// pinned, else from the store, whole slots.
type slotBodies struct {
	e      *Engine
	pinned []*wal.Slot
	last   *wal.Slot // the slot that pinned or body is about
	held   bool
	body   []byte
}

func (b *slotBodies) chunk(ctx context.Context, slot *wal.Slot, i int) ([][]byte, error) {
	index := slot.Index()
	c := &index.Chunks[i]
	if b.last != slot {
		b.last, b.body = slot, nil
		if b.held = slot.Acquire(); b.held {
			b.pinned = append(b.pinned, slot)
		} else {
			end := index.Chunks[len(index.Chunks)-1]
			b.body = make([]byte, end.Pos+end.Len)
			key := wal.SlotKey(b.e.prefix, b.e.cfg.Incarnation, slot.Seq())
			n, err := b.e.cfg.Bucket.GetRange(ctx, key, 0, b.body)
			if err != nil {
				b.last = nil
				return nil, fmt.Errorf("read back slot %d: %w", slot.Seq(), storeError(err))
			}
			b.body = b.body[:n]
		}
	}
	if b.held {
		return slot.Ranges(nil, i), nil
	}
	if int64(len(b.body)) < c.Pos+c.Len {
		return nil, fmt.Errorf("slot %d ends before %d: %w", slot.Seq(), c.Pos+c.Len, commitlog.ErrCorrupt)
	}
	p := b.body[c.Pos : c.Pos+c.Len : c.Pos+c.Len]
	if got := crc32.Checksum(p, commitlog.Castagnoli); got != c.CRC32C {
		return nil, fmt.Errorf("chunk of stream %d in slot %d has CRC %08x, its bytes %08x: %w", c.Stream, slot.Seq(), c.CRC32C, got, commitlog.ErrCorrupt)
	}
	return [][]byte{p}, nil
}

func (b *slotBodies) release() {
	for _, s := range b.pinned {
		s.Release()
	}
}
