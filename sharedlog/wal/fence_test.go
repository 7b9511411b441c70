package wal_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/wal"
)

// FenceAll ends a WAL where Seal would, from the store alone, and finds out
// whether an image with an old trim can still recover it.
func TestFenceAllEndsWALsWithoutAnImage(t *testing.T) {
	for _, swept := range [][]uint64{nil, {0, 1, 2, 3}, {1, 2, 3}, {0, 2}} {
		r, _ := written(t, 8, nil)
		var keys []string
		for _, seq := range swept {
			keys = append(keys, wal.SlotKey(prefix, inc, seq))
		}
		if err := r.mem.Delete(t.Context(), keys...); len(keys) > 0 && err != nil {
			t.Fatal(err)
		}
		cfg := sealConfig(r.mem)
		if f, err := wal.FenceAll(t.Context(), cfg, 1); err != nil || len(f) != 0 {
			t.Fatalf("of this generation: %v, %v", f, err)
		}
		for range 2 { // again is the same
			f, err := wal.FenceAll(t.Context(), cfg, 2)
			if err != nil || len(f) != 1 || f[0].End != 8 || f[0].Incarnation != inc || f[0].Generation != 1 {
				t.Fatalf("swept %v: %+v, %v", swept, f, err)
			}
			if got, want := f[0].Has(0), len(swept) == 0; got != want {
				t.Errorf("swept %v: has all from 0: %v", swept, got)
			}
			if !f[0].Has(4) || !f[0].Has(8) {
				t.Errorf("swept %v: has not all from 4", swept)
			}
		}
		fenceAt(t, r.mem, 8)
		cfg.Trim = 4
		if s, err := wal.Seal(t.Context(), cfg); err != nil || s.End != 8 || len(s.Slots) != 4 {
			t.Errorf("swept %v: sealed then at %d with %d slots, %v", swept, s.End, len(s.Slots), err)
		}
	}
}

// A slot that is missing just below the newest one was being written when the broker
// ended, or packed and deleted: FenceAll says what is behind it, and a writer which
// has it behind itself ends too.
func TestFenceAllTellsWhatIsBehindAGap(t *testing.T) {
	for name, tc := range map[string]struct {
		gap    uint64
		sealed bool
		behind []uint64
	}{
		"one that may have been in flight": {gap: 6, behind: []uint64{7, 8}},
		"one that was sealed by a broker":  {gap: 6, sealed: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			for seq := range uint64(9) {
				if seq == tc.gap {
					continue
				}
				h := wal.Header{Kind: wal.Data, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: seq, DurableBelow: max(seq, 3) - 3, Window: 4}
				if err := b.PutNew(t.Context(), wal.SlotKey(prefix, inc, seq), objstore.BytesBody(wal.EncodeEmptySlot(h))); err != nil {
					t.Fatal(err)
				}
			}
			cfg := sealConfig(b)
			if tc.sealed {
				cfg.Trim = tc.gap
				if s, err := wal.Seal(t.Context(), cfg); err != nil || s.End != tc.gap {
					t.Fatalf("sealed at %d, %v", s.End, err)
				}
				cfg.Trim = 0
			}
			cfg.By = metadata.Incarnation{} // nobody of this cluster
			for range 2 {                   // again is the same
				f, err := wal.FenceAll(t.Context(), cfg, 2)
				if err != nil || len(f) != 1 || f[0].End != tc.gap || !slices.Equal(f[0].Behind, tc.behind) {
					t.Fatalf("%+v, %v; want the end at %d, behind it %v", f, err, tc.gap, tc.behind)
				}
			}
			for _, seq := range []uint64{tc.gap, 9} {
				if h, _, err := wal.ReadIndex(t.Context(), b, prefix, inc, seq); err != nil || h.Kind != wal.Fence {
					t.Errorf("slot %d: %+v, %v, want a fence", seq, h, err)
				}
			}
		})
	}
}

// A slot below the trim of an image was packed: to that image the WAL goes on behind it.
func TestFencedFromATrim(t *testing.T) {
	f := wal.Fenced{End: 6, Behind: []uint64{7, 8, 10}, Slots: []uint64{7, 8, 10}}
	for trim, want := range map[uint64]wal.Fenced{
		5:  {End: 6, Behind: []uint64{7, 8, 10}},
		6:  {End: 6, Behind: []uint64{7, 8, 10}},
		7:  {End: 9, Behind: []uint64{10}},
		8:  {End: 9, Behind: []uint64{10}},
		9:  {End: 9, Behind: []uint64{10}},
		10: {End: 11},
		11: {End: 11},
		12: {End: 6, Behind: []uint64{7, 8, 10}},
	} {
		got := f.From(trim)
		if got.End != want.End || !slices.Equal(got.Behind, want.Behind) {
			t.Errorf("from %d: the end is %d, behind it %v; want %d, %v", trim, got.End, got.Behind, want.End, want.Behind)
		}
		if has := trim != 5 && trim != 12; got.Has(trim) != has {
			t.Errorf("from %d: all slots are there: %v", trim, !has)
		}
	}
}

// grows is a store in which a writer goes on after a listing.
type grows struct {
	objstore.Bucket
	write func()
}

func (g *grows) List(ctx context.Context, prefix, after string, each func(objstore.Info) error) error {
	err := g.Bucket.List(ctx, prefix, after, each)
	g.write()
	return err
}

// A broker may still write when its WAL is listed: what it wrote until the fence is
// there, too, before a gap and behind it.
func TestFenceAllCountsWhatComesWhileItLists(t *testing.T) {
	for name, tc := range map[string]struct {
		before, late []uint64
		end          uint64
		behind       []uint64
	}{
		"no gap": {before: []uint64{0, 1, 3}, late: []uint64{2, 4}, end: 5},
		"a gap":  {before: []uint64{0, 3}, late: []uint64{1, 4}, end: 2, behind: []uint64{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			write := func(slots []uint64) {
				for _, seq := range slots {
					h := wal.Header{Kind: wal.Data, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: seq, DurableBelow: max(seq, 3) - 3, Window: 4}
					if err := b.PutNew(t.Context(), wal.SlotKey(prefix, inc, seq), objstore.BytesBody(wal.EncodeEmptySlot(h))); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(tc.before)
			cfg := sealConfig(b)
			cfg.By = metadata.Incarnation{}
			cfg.Bucket = &grows{b, sync.OnceFunc(func() { write(tc.late) })}
			f, err := wal.FenceAll(t.Context(), cfg, 2)
			if err != nil || len(f) != 1 || f[0].End != tc.end || !slices.Equal(f[0].Behind, tc.behind) {
				t.Fatalf("%+v, %v, want the end at %d, behind it %v", f, err, tc.end, tc.behind)
			}
			if !f[0].Has(0) {
				t.Errorf("slots %v are there below %d, want all", f[0].Slots, f[0].End)
			}
		})
	}
}
