package wal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// Fenced is a WAL that FenceAll found and ended.
type Fenced struct {
	Generation  uint64
	Incarnation metadata.Incarnation
	// End is the slot of the fence: all data that was ever acknowledged is below, or
	// in Behind.
	End uint64
	// Behind are slots with data above End. Either End was being written when the
	// broker ended, and nothing in them was acknowledged; or it was packed and deleted,
	// and all of it was. The store does not say which: an image of its time would.
	Behind []uint64
	// Slots are the numbers of the slots that were listed, or written until the fence,
	// in order; fences too.
	Slots []uint64
}

// From is what f says to an image with that trim: slots below it were packed, so one
// that is missing there is not the end.
func (f Fenced) From(trim uint64) Fenced {
	if n := len(f.Behind); trim <= f.End || n == 0 || trim > f.Behind[n-1]+1 {
		return f
	}
	i, _ := slices.BinarySearch(f.Behind, trim)
	for f.End = trim; i < len(f.Behind) && f.Behind[i] == f.End; i++ {
		f.End++
	}
	f.Behind = f.Behind[i:]
	return f
}

// Has says whether all slots from trim to the end are there, so that the WAL can
// be recovered from an image with that trim. One that ends below it has nothing that
// could be: what large chunks left behind was the newest that there was.
func (f Fenced) Has(trim uint64) bool {
	if f.End < trim {
		return false
	}
	i, _ := slices.BinarySearch(f.Slots, trim)
	for seq := trim; seq < f.End; seq++ {
		if i >= len(f.Slots) || f.Slots[i] != seq {
			return false
		}
		i++
	}
	return true
}

// FenceAll ends every WAL that a cluster has in the store in generations below
// the one given, whether metadata knows its incarnation or not: who still writes
// one of them belongs to what was before a restore. It needs no image, because
// the newest data slot says below which slot all were durable, and so where the
// first gap can be. WALs without data need no fence: nothing is known that could
// be extended.
func FenceAll(ctx context.Context, cfg SealConfig, below uint64) ([]Fenced, error) {
	var out []Fenced
	for gen := uint64(1); gen < below; gen++ {
		slots, err := listAll(ctx, cfg.Bucket, objstore.GenerationPrefix(cfg.ClusterID, gen))
		if err != nil {
			return nil, fmt.Errorf("list WALs of generation %d: %w", gen, err)
		}
		for _, inc := range sortedIncarnations(slots) {
			c := cfg
			c.Prefix, c.Generation, c.Incarnation = objstore.GenerationPrefix(cfg.ClusterID, gen), gen, inc
			f, found, err := fenceOne(ctx, c, slots[inc])
			if err != nil {
				return nil, err
			}
			if found {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// fenceOne seals from where the newest data slot says that gaps can begin.
func fenceOne(ctx context.Context, cfg SealConfig, slots []uint64) (f Fenced, found bool, err error) {
	s := newSealer(cfg)
	for _, seq := range slices.Backward(slots) {
		r := s.read(ctx, seq)
		if r.err != nil {
			return f, false, fmt.Errorf("read slot %d of %s: %w", seq, cfg.Incarnation, r.err)
		}
		if !r.found || r.h.Kind != Data {
			continue
		}
		f = Fenced{Generation: cfg.Generation, Incarnation: cfg.Incarnation, Slots: slots}
		gap, err := f.fill(ctx, s, r.h)
		if err != nil {
			return f, false, fmt.Errorf("fence WAL of %s: %w", cfg.Incarnation, err)
		}
		// A writer that has the gap behind it ends only at a fence that follows its data.
		cfg.Trim = r.h.DurableBelow
		if gap {
			cfg.Trim = seq
		}
		sealed, err := Seal(ctx, cfg)
		if err != nil {
			return f, false, err
		}
		if !gap {
			f.End = sealed.End
		}
		f.grew(r.h, sealed.End)
		return f, true, nil
	}
	return f, false, nil
}

// grew notes what was not listed because the broker still wrote: below the end, from
// where gaps could begin, and up to the last fence.
func (f *Fenced) grew(newest Header, last uint64) {
	if len(f.Behind) > 0 {
		for seq := newest.Seq + 1; seq < last; seq++ {
			f.Behind = append(f.Behind, seq)
		}
	}
	f.Slots = slices.Concat(f.Slots, f.Behind)
	for seq := newest.DurableBelow; seq < f.End; seq++ {
		f.Slots = append(f.Slots, seq)
	}
	slices.Sort(f.Slots)
	f.Slots = slices.Compact(f.Slots)
}

// fill fences what is missing below the newest data slot, from where gaps can begin.
// The first fence there is the end.
func (f *Fenced) fill(ctx context.Context, s *sealer, newest Header) (gap bool, err error) {
	for seq := newest.DurableBelow; seq < newest.Seq; seq++ {
		fenced, err := s.fence(ctx, seq)
		switch {
		case err != nil:
			return false, err
		case fenced && !gap:
			gap, f.End = true, seq
		case !fenced && gap:
			f.Behind = append(f.Behind, seq)
		}
	}
	if !gap {
		return false, nil
	}
	f.Behind = append(f.Behind, newest.Seq)
	r := s.read(ctx, f.End)
	if r.err == nil && r.found && !r.h.Author.IsZero() {
		f.Behind = nil // a broker sealed the WAL there, by an image of its time
	}
	return true, r.err
}

// listAll are the slots in the store by incarnation, in order.
func listAll(ctx context.Context, b objstore.Bucket, prefix string) (map[metadata.Incarnation][]uint64, error) {
	out := map[metadata.Incarnation][]uint64{}
	err := b.List(ctx, prefix+"/wal/", "", func(i objstore.Info) error {
		n, err := metadata.ParseObjectName(strings.TrimPrefix(i.Key, prefix+"/"))
		if err != nil || n.Kind != metadata.WALSlot {
			return fmt.Errorf("%w: %s is no slot", commitlog.ErrCorrupt, i.Key)
		}
		out[n.Creator] = append(out[n.Creator], n.Number)
		return nil
	})
	for inc := range out {
		slices.Sort(out[inc])
	}
	return out, err
}

func sortedIncarnations(m map[metadata.Incarnation][]uint64) []metadata.Incarnation {
	out := make([]metadata.Incarnation, 0, len(m))
	for inc := range m {
		out = append(out, inc)
	}
	slices.SortFunc(out, func(a, b metadata.Incarnation) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	return out
}
