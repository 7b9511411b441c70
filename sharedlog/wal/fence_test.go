package wal_test

import (
	"testing"

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
