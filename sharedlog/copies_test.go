package sharedlog_test

import (
	"testing"
	"unsafe"

	"ponor/commitlog"
)

// Reads of recent records give out the WAL's own memory: two readers at once see
// the same bytes at the same address.
func TestReadsOfRecentRecordsCopyNothing(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	l := f.open(n, f.topic(1, n)[0])
	f.fill(l, 10, 16<<10)
	var at [2]*byte
	for i := range at {
		r, err := l.Read(t.Context(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20})
		if err != nil || r.Bytes == 0 {
			t.Fatal(r.Bytes, err)
		}
		defer r.Release() // both are held, so that a reused buffer would be another one
		at[i] = unsafe.SliceData(r.Bufs[0])
	}
	if at[0] != at[1] {
		t.Error("two reads of the same records are at different addresses")
	}
}
