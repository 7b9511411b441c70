package counted_test

import (
	"context"
	"errors"
	"testing"

	"ponor/internal/metrics"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

func TestCounts(t *testing.T) {
	f := fault.New(mem.New(), 1)
	b := counted.New(f)
	body := objstore.BytesBody([]byte("12345"))
	wal := objstore.For(b, objstore.ReasonWAL)
	for _, key := range []string{"c/1/wal/3-1/0/0", "c/1/wal/3-1/0/0"} {
		if err := wal.PutNew(t.Context(), key, body); err != nil && !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
	}
	if err := b.PutNew(t.Context(), "probe/x", body); err != nil {
		t.Fatal(err)
	}
	f.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Before: errors.New("down"), Times: 1})
	dst := make([]byte, 3)
	for range 2 {
		objstore.For(b, objstore.ReasonRead).GetRange(t.Context(), "c/1/wal/3-1/0/0", 1, dst)
	}
	for _, c := range []struct {
		op     counted.Op
		reason objstore.Reason
		want   counted.Count
	}{
		{counted.PutNew, objstore.ReasonWAL, counted.Count{Requests: 2, Bytes: 10}},
		{counted.PutNew, objstore.ReasonProbe, counted.Count{Requests: 1, Bytes: 5}},
		{counted.PutNew, objstore.ReasonPack, counted.Count{}},
		{counted.GetRange, objstore.ReasonRead, counted.Count{Requests: 2, Errors: 1, Bytes: 3}},
	} {
		if got := b.Count(c.op, c.reason); got != c.want {
			t.Errorf("%s for %s: %+v, want %+v", c.op, c.reason, got, c.want)
		}
	}
	if sum := b.Total(counted.PutNew); sum.Requests != 3 || sum.Bytes != 15 {
		t.Errorf("total %+v", sum)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	b := counted.New(nothing{})
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		w := objstore.For(b, objstore.ReasonWAL)
		w.PutNew(ctx, "k", objstore.Body{})
		w.GetRange(ctx, "k", 0, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCountersMayDecorateOneAnother(t *testing.T) {
	inner := counted.New(mem.New())
	outer := counted.New(inner)
	objstore.For(outer, objstore.ReasonSweep).Head(t.Context(), "k")
	for _, b := range []*counted.Bucket{inner, outer} {
		if n := b.Count(counted.Head, objstore.ReasonSweep).Requests; n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	}
	outer.Show(new(metrics.Page)) // every label is there
}

// nothing is a store whose calls cost nothing.
type nothing struct{ objstore.Bucket }

func (nothing) PutNew(context.Context, string, objstore.Body) error { return nil }

func (nothing) GetRange(context.Context, string, int64, []byte) (int, error) { return 0, nil }
