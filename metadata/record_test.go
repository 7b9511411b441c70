package metadata_test

import (
	"runtime"
	"testing"

	"ponor/metadata"
)

// TestImageHoldsLittleOfEachPartition: every node has the image of all
// partitions, so that of a hundred thousand must fit in 20 MB, and what they
// went through must not stay.
func TestImageHoldsLittleOfEachPartition(t *testing.T) {
	const topics, partitions, bound = 20, 1000, 200
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first may have left what was being swept
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	img, brokers := cluster(t, topics, partitions)
	check := func(when string) {
		t.Helper()
		if got := (heap() - before) / (topics * partitions); got > bound {
			t.Errorf("%s: %d bytes a partition, more than %d", when, got, bound)
		} else {
			t.Logf("%s: %d bytes a partition", when, got)
		}
		if err := metadata.Check(img); err != nil {
			t.Fatal(err)
		}
	}
	check("created")
	for i := range brokers { // all start anew, as after a power cut
		for _, c := range []*pb{register(int32(i), 100+i), sealed(brokers[i], 0)} {
			next, r := metadata.Apply(img, img.Index()+1, metadata.NewEntry(c))
			if r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			img = next
		}
	}
	check("after a restart of all")
	pb := metadata.Snapshot(img)
	img, before = nil, 0
	before = heap()
	var err error
	if img, err = metadata.FromSnapshot(pb); err != nil {
		t.Fatal(err)
	}
	check("from a snapshot")
	runtime.KeepAlive(pb)
}
