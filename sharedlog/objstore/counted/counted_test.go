package counted_test

import (
	"errors"
	"testing"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

func TestCounts(t *testing.T) {
	f := fault.New(mem.New(), 1)
	b := counted.New(f, nil)
	body := objstore.BytesBody([]byte("12345"))
	for _, key := range []string{"c/1/wal/3-1/0/0", "c/1/wal/3-1/0/0", "c/1/seg/3-1/0", "c/1/idx/3-1/0", "probe/x"} {
		if err := b.PutNew(t.Context(), key, body); err != nil && !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
	}
	f.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Before: errors.New("down"), Times: 1})
	dst := make([]byte, 3)
	for range 2 {
		b.GetRange(t.Context(), "c/1/wal/3-1/0/0", 1, dst)
	}
	got := b.Counts()
	for k, want := range map[counted.Key]counted.Count{
		{Op: "putnew", Class: "wal"}:   {Requests: 2, Bytes: 10},
		{Op: "putnew", Class: "seg"}:   {Requests: 1, Bytes: 5},
		{Op: "putnew", Class: "idx"}:   {Requests: 1, Bytes: 5},
		{Op: "putnew", Class: "other"}: {Requests: 1, Bytes: 5},
		{Op: "getrange", Class: "wal"}: {Requests: 2, Errors: 1, Bytes: 3},
	} {
		if got[k] != want {
			t.Errorf("%+v: %+v, want %+v", k, got[k], want)
		}
	}
	if sum := b.Total("putnew"); sum.Requests != 5 || sum.Bytes != 25 {
		t.Errorf("total %+v", sum)
	}
}
