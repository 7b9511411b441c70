package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/wal"
)

// fences checks that every sealed WAL has its fence (slot-3). Sealed is for
// ever, so one look is enough.
func (c *checker) fences(ctx context.Context) error {
	var sealed []metadata.ObjectName
	for w := range c.img.WALs() {
		if w.State == metadata.Sealed {
			sealed = append(sealed, metadata.ObjectName{Kind: metadata.WALSlot, Creator: w.Incarnation, Number: w.SealedEnd})
		}
	}
	return c.inParallel(ctx, len(sealed), func(ctx context.Context, w *worker, i int) error {
		n := sealed[i]
		h, _, err := w.readSlot(ctx, n)
		switch {
		case err != nil && errors.Is(err, objstore.ErrNotFound):
			c.problem(&n, Problem{Kind: NoFence, Key: c.key(n), Position: -1, Detail: fmt.Sprintf("the WAL of %s is sealed at slot %d, which is not there", n.Creator, n.Number)})
		case err != nil && isBad(err):
			c.problem(&n, Problem{Kind: NoFence, Key: c.key(n), Detail: fmt.Sprintf("the fence of the WAL of %s is damaged: %v", n.Creator, err)})
		case err != nil:
			return err
		case h.Kind != wal.Fence:
			c.problem(&n, Problem{Kind: NoFence, Key: c.key(n), Detail: fmt.Sprintf("the WAL of %s is sealed at slot %d, which holds data", n.Creator, n.Number)})
		}
		c.advance(1)
		return nil
	})
}

// liveWALs checks every WAL that is not sealed.
func (c *checker) liveWALs(ctx context.Context) error {
	for w := range c.img.WALs() {
		if w.State == metadata.Sealed {
			continue
		}
		vanished, err := c.bodies(ctx, w)
		if err != nil {
			return fmt.Errorf("WAL of %s: %w", w.Incarnation, err)
		}
		sealed, err := c.chain(ctx, w.Incarnation)
		if err != nil {
			return fmt.Errorf("WAL of %s: %w", w.Incarnation, err)
		}
		if !vanished && !sealed {
			continue
		}
		// What was in its slots is in extents now, which the first image has not.
		for p := range c.img.Owned(w.Incarnation) {
			c.redo = append(c.redo, p)
		}
		for p := range c.img.Waiting(w.Incarnation) {
			c.redo = append(c.redo, p)
		}
	}
	return nil
}

// slots lists the slots of a WAL from one on, in order.
func (c *checker) slots(ctx context.Context, inc metadata.Incarnation, from uint64) ([]uint64, error) {
	prefix := wal.SlotPrefix(c.prefix(inc), inc)
	after := ""
	if from > 0 {
		after = wal.SlotKey(c.prefix(inc), inc, from-1)
	}
	var out []uint64
	err := c.ask(ctx, func() error {
		out = out[:0]
		return c.cfg.Bucket.List(ctx, prefix, after, func(i objstore.Info) error {
			name := strings.TrimPrefix(i.Key, prefix)
			if n, err := strconv.ParseUint(name, 10, 64); err == nil && n >= from && wal.SlotKey(c.prefix(inc), inc, n) == i.Key {
				out = append(out, n) // others are reported by listing
			}
			return nil
		})
	})
	return out, err
}

// bodies reads all slots of a WAL that is not sealed. vanished says that some
// were packed meanwhile.
func (c *checker) bodies(ctx context.Context, w metadata.WAL) (vanished bool, err error) {
	slots, err := c.slots(ctx, w.Incarnation, w.Trim)
	if err != nil {
		return false, err
	}
	var mu sync.Mutex
	err = c.inParallel(ctx, len(slots), func(ctx context.Context, r *worker, i int) error {
		n := metadata.ObjectName{Kind: metadata.WALSlot, Creator: w.Incarnation, Number: slots[i]}
		gone, err := r.liveSlot(ctx, n)
		mu.Lock()
		defer mu.Unlock()
		vanished = vanished || gone
		c.advance(1)
		return err
	})
	return vanished, err
}

// liveSlot reads a slot twice if it seems bad, and reports it if it is still
// needed then.
func (w *worker) liveSlot(ctx context.Context, n metadata.ObjectName) (vanished bool, err error) {
	var wrong []badChunk
	var index wal.Index
	for range 2 {
		if wrong, index, err = w.wholeSlot(ctx, n); err != nil || len(wrong) == 0 {
			if errors.Is(err, objstore.ErrNotFound) {
				return true, nil
			}
			return false, err
		}
	}
	img, err := w.c.cfg.Image(ctx)
	if err != nil {
		return false, fmt.Errorf("get metadata: %w", err)
	}
	if l, ok := img.WAL(n.Creator); !ok || n.Number < l.Trim || l.State == metadata.Sealed {
		return true, nil
	}
	for _, b := range wrong {
		p := Problem{Kind: b.kind, Key: w.c.key(n), Position: b.position, Detail: b.err.Error()}
		if b.chunk >= 0 {
			ch := &index.Chunks[b.chunk]
			p.Stream, p.Streams, p.Base, p.End = ch.Stream, 1, ch.Base, ch.End
			if part, ok := img.PartitionByStream(ch.Stream); ok {
				p.Partition = part.String()
			}
		}
		w.c.problem(&n, p)
	}
	return false, nil
}

// wholeSlot checks everything in a slot. objstore.ErrNotFound: it is not there.
func (w *worker) wholeSlot(ctx context.Context, n metadata.ObjectName) ([]badChunk, wal.Index, error) {
	h, index, err := w.readSlot(ctx, n)
	switch {
	case err != nil && isBad(err) && !errors.Is(err, objstore.ErrNotFound):
		return []badChunk{{-1, badBytes{Damaged, 0, err}}}, index, nil
	case err != nil || h.Kind == wal.Fence:
		return nil, index, err
	}
	all := make([]*wal.Chunk, len(index.Chunks))
	for i := range all {
		all[i] = &index.Chunks[i]
	}
	wrong, err := w.chunks(ctx, n, &h, all)
	if len(wrong) > 0 && wrong[0].kind == Missing {
		return nil, index, objstore.ErrNotFound
	}
	return wrong, index, err
}

// suspicion is what looks wrong with a WAL, as long as the image that it was
// judged by is the newest.
type suspicion struct {
	seq    uint64
	stream commitlog.StreamID // 0: the slot itself
	chunk  *wal.Chunk
	kind   Kind
	err    error
}

// chain walks a WAL's indexes as a sealer does, until an image stands still long
// enough to judge by it. sealed says that the WAL was sealed meanwhile.
func (c *checker) chain(ctx context.Context, inc metadata.Incarnation) (sealed bool, err error) {
	img, err := c.cfg.Image(ctx)
	if err != nil {
		return false, fmt.Errorf("get metadata: %w", err)
	}
	for range maxRounds {
		w, ok := img.WAL(inc)
		if !ok || w.State == metadata.Sealed {
			return true, nil
		}
		found, err := c.chainIn(ctx, img, w)
		if err != nil || found == nil {
			return false, err
		}
		now, err := c.cfg.Image(ctx)
		if err != nil {
			return false, fmt.Errorf("get metadata: %w", err)
		}
		if later, _ := now.WAL(inc); later.State == w.State && later.Trim == w.Trim && sameStream(img, now, found.stream) {
			c.reportChain(now, inc, found)
			return false, nil
		}
		img = now
	}
	c.unsteady(1)
	return false, nil
}

// sameStream says whether two images say the same of what a stream's records in
// a WAL must be.
func sameStream(a, b *metadata.Image, id commitlog.StreamID) bool {
	p, was := a.PartitionByStream(id)
	q, is := b.PartitionByStream(id)
	return was == is && p.End == q.End && p.Epoch == q.Epoch && p.Owner == q.Owner && slices.Equal(p.Unsealed, q.Unsealed)
}

func (c *checker) reportChain(img *metadata.Image, inc metadata.Incarnation, s *suspicion) {
	n := metadata.ObjectName{Kind: metadata.WALSlot, Creator: inc, Number: s.seq}
	p := Problem{Kind: s.kind, Key: c.key(n), Detail: s.err.Error()}
	if s.chunk != nil {
		p.Stream, p.Streams, p.Position, p.Base, p.End = s.stream, 1, s.chunk.Pos, s.chunk.Base, s.chunk.End
		if part, ok := img.PartitionByStream(s.stream); ok {
			p.Partition = part.String()
		}
	}
	c.problem(&n, p)
}

// readIndexes is how many indexes of a WAL are read before they are looked at.
const readIndexes = 64

// slotIndex is what a slot said; not found if err is nil and ok false.
type slotIndex struct {
	ok    bool
	h     wal.Header
	index wal.Index
	err   error // it is damaged, which bodies reports
}

func (c *checker) indexes(ctx context.Context, inc metadata.Incarnation, slots []uint64) ([]slotIndex, error) {
	out := make([]slotIndex, len(slots))
	err := c.inParallel(ctx, len(slots), func(ctx context.Context, w *worker, i int) error {
		h, index, err := w.readSlot(ctx, metadata.ObjectName{Kind: metadata.WALSlot, Creator: inc, Number: slots[i]})
		switch {
		case err == nil:
			out[i] = slotIndex{ok: true, h: h, index: index}
		case errors.Is(err, objstore.ErrNotFound):
		case isBad(err):
			out[i].err = err
		default:
			return err
		}
		return nil
	})
	return out, err
}

// chainIn walks the WAL w by an image.
func (c *checker) chainIn(ctx context.Context, img *metadata.Image, w metadata.WAL) (*suspicion, error) {
	listed, err := c.slots(ctx, w.Incarnation, w.Trim)
	if err != nil {
		return nil, err
	}
	ends := make(map[commitlog.StreamID]commitlog.Offset)
	for seq := w.Trim; ; {
		slots := make([]uint64, readIndexes)
		for i := range slots {
			slots[i] = seq + uint64(i)
		}
		read, err := c.indexes(ctx, w.Incarnation, slots)
		if err != nil {
			return nil, err
		}
		for i := range read {
			r := &read[i]
			switch {
			case r.err != nil:
				return nil, nil //nolint:nilerr // it is reported; what comes after it cannot be judged
			case !r.ok:
				if n := len(listed); n > 0 && listed[n-1] > seq {
					c.holes[w.Incarnation] = hole{seq, listed[n-1]}
				}
				return c.gap(ctx, w, seq, listed)
			case r.h.Kind == wal.Fence:
				c.holes[w.Incarnation] = hole{seq, ^uint64(0)}
				if w.State == metadata.Active {
					return &suspicion{seq: seq, kind: EarlyFence, err: fmt.Errorf("%s put a fence there, and the metadata says that %s lives", r.h.Author, w.Incarnation)}, nil
				}
				return nil, nil
			}
			if s := continues(img, w, &r.index, ends); s != nil {
				return s, nil
			}
			seq++
		}
	}
}

// continues checks that a slot's chunks go on where the records before end.
func continues(img *metadata.Image, w metadata.WAL, index *wal.Index, ends map[commitlog.StreamID]commitlog.Offset) *suspicion {
	for i := range index.Chunks {
		c := &index.Chunks[i]
		p, ok := img.PartitionByStream(c.Stream)
		if !ok || c.End <= p.End {
			continue
		}
		// As a sealer would decide that it is to be recovered from here.
		if w.State == metadata.Active && (p.Owner != w.Incarnation || !p.Openable()) ||
			w.State == metadata.Fenced && !slices.Contains(p.Unsealed, w.Incarnation) {
			continue
		}
		end, seen := ends[c.Stream]
		if !seen {
			end = p.End
		}
		if c.Base != end || c.Epoch > p.Epoch {
			if w.Generation < img.Generation() {
				continue // a sealer ends the stream there, as after any restore
			}
			return &suspicion{index.Seq, c.Stream, c, Discontinuous, fmt.Errorf("chunk begins at offset %d at epoch %d; the records before it end at %d, the leader's epoch is %d", c.Base, c.Epoch, end, p.Epoch)}
		}
		ends[c.Stream] = c.End
	}
	return nil
}

// gap judges a slot that was not there: later ones may say that it was durable
// once (slot-5). A writer may have written it, and those, since it was read.
func (c *checker) gap(ctx context.Context, w metadata.WAL, seq uint64, listed []uint64) (*suspicion, error) {
	at, _ := slices.BinarySearch(listed, seq+1)
	later, err := c.indexes(ctx, w.Incarnation, listed[at:])
	if err != nil {
		return nil, err
	}
	for i := range later {
		h := &later[i].h
		if !later[i].ok || h.Kind == wal.Fence || h.DurableBelow <= seq && h.Seq < seq+uint64(max(h.Window, 1)) {
			continue
		}
		now, err := c.indexes(ctx, w.Incarnation, []uint64{seq})
		if err != nil {
			return nil, err
		}
		s := &suspicion{seq: seq, kind: Gap, err: fmt.Errorf("slot %d is not there; slot %d says that all below %d were durable (window %d)", seq, h.Seq, h.DurableBelow, h.Window)}
		if now[0].ok || now[0].err != nil {
			s = nil // it has come since
		}
		return s, nil
	}
	return nil, nil
}
