package metadata_test

import (
	"math"
	"slices"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// As in rules_command_test.go, each test is named for the rule it fails without.

func TestExt1CommitsStartAtTheCommittedEnd(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	for what, c := range map[string]*pb{
		"a gap":       commit(0, run(s[0], 0, slot(a, 1, 11, 20, 0))),
		"an overlap":  commit(0, run(s[0], 0, slot(a, 1, 9, 20, 0))),
		"again":       commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0))),
		"gap between": commit(0, run(s[0], 0, slot(a, 1, 10, 15, 0), slot(a, 2, 16, 20, 0))),
		"flip gap":    flip(s[0], 0, 20, a, slot(a, 1, 11, 20, 0)),
	} {
		if what == "flip gap" {
			b := w.register(2, 2)
			c.GetFlip().Streams[0].Target = b.Proto()
		}
		w.no(metadata.ErrOutOfOrder, w.as(a, c))
	}
	w.no(metadata.ErrInvalid, w.as(a, commit(0, run(s[0], 0, slot(a, 1, 10, 10, 0)))))
	w.no(metadata.ErrInvalid, w.as(a, commit(0, run(s[0], 0, slot(a, 1, 10, 11, 0)), run(s[0], 0, slot(a, 1, 11, 12, 0)))))
	bad := slot(a, 1, 10, 11, 0)
	bad.Position, bad.Length = math.MaxInt64, 1
	w.no(metadata.ErrInvalid, w.as(a, commit(0, run(s[0], 0, bad))))
	w.no(metadata.ErrStaleEpoch, w.as(a, commit(0, run(s[0], 0, slot(a, 1, 10, 11, 1)))))
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 1, 10, 11, 0)))))
}

func TestExt2StartNeverMovesBackNorPastTheEnd(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0), slot(a, 1, 10, 20, 0)))))
	w.ok(w.as(a, trim(s[0], 0, 15)))
	w.want(s[0], "1-1@0 [15,20) unsealed[]")
	if r := w.ok(w.as(a, trim(s[0], 0, 12))); r.Skipped != 1 {
		t.Fatalf("a start below the start: %+v", r)
	}
	w.want(s[0], "1-1@0 [15,20) unsealed[]")
	w.no(metadata.ErrOffsetOutOfRange, w.as(a, trim(s[0], 0, 21)))
	w.ok(w.as(a, trim(s[0], 0, 20)))
	// The newest extent stays: it carries the checkpoint.
	if xs := w.partition(s[0]).Extents; len(xs) != 1 || xs[0].Base != 10 {
		t.Fatalf("extents %v", xs)
	}
	if n := w.img.References(name(metadata.WALSlot, a, 0)); n != 0 {
		t.Fatalf("a trimmed extent still counts %d references", n)
	}
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 2, 20, 21, 0)))))
	if xs := w.partition(s[0]).Extents; len(xs) != 1 || xs[0].Base != 20 {
		t.Fatalf("extents %v", xs)
	}
}

func TestTheCheckpointsExtentOutlivesATakeover(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, seg(a, 0, 0, 10, 0)))))
	w.ok(w.as(a, trim(s[0], 0, 10)))
	extents := func(want ...int) {
		t.Helper()
		var got []int
		for _, x := range w.partition(s[0]).Extents {
			got = append(got, int(x.Base))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("extents start at %v, want %v", got, want)
		}
	}
	// Neither a flip's tail nor a recovery index need have a checkpoint.
	w.ok(w.as(a, flip(s[0], 0, 12, b, slot(a, 0, 10, 12, 0))))
	extents(0, 10)
	w.ok(w.as(b, trim(s[0], 1, 11)))
	extents(10)
	w.ok(w.as(b, trim(s[0], 1, 12)))
	w.ok(fence(b, a, assign(1, 0, a)))
	w.ok(w.as(a, sealed(b, 1, sealedStream(s[0], 12, 20, idx(a, 1, 12, 20)))))
	extents(10, 12)
	w.ok(w.as(a, commit(0, run(s[0], 2, seg(a, 2, 20, 21, 2)))))
	extents(12, 20)
}

func TestExt4TrimMovesWithAllEntriesOrNone(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, a, b)
	w.ok(w.as(a, flip(s[1], 0, 0, b)))
	// A stream that moved on is skipped and does not hold the trim.
	r := w.ok(w.as(a, commit(1, run(s[0], 0, slot(a, 0, 0, 10, 0)), run(s[1], 0, slot(a, 0, 0, 4, 0)))))
	if r.Skipped != 1 {
		t.Fatalf("skipped %d", r.Skipped)
	}
	w.want(s[0], "1-1@0 [0,10) unsealed[]")
	w.want(s[1], "2-2@1 [0,0) unsealed[]")
	trimOf := func(want uint64) {
		t.Helper()
		if wal, _ := w.img.WAL(a); wal.Trim != want {
			t.Fatalf("trim %d, want %d", wal.Trim, want)
		}
	}
	trimOf(1)
	// Any other mismatch rejects everything and alarms.
	good := run(s[0], 0, slot(a, 1, 10, 20, 0))
	for _, bad := range []struct {
		code metadata.Code
		run  *metadatapb.StreamExtents
	}{
		{metadata.ErrNotOwner, run(s[2], 0, slot(a, 1, 0, 4, 0))},
		{metadata.ErrStaleEpoch, run(s[2], 1, slot(a, 1, 0, 4, 1))},
		{metadata.ErrUnknownStream, run(99, 0, slot(a, 1, 0, 4, 0))},
		{metadata.ErrUnknownStream, run(0, 0)},
	} {
		if err := w.no(bad.code, w.as(a, commit(2, good, bad.run))); !err.Alarm {
			t.Fatalf("%v is no alarm", err)
		}
		trimOf(1)
	}
	// Slot 0 is below the trim and may have been swept.
	w.no(metadata.ErrBelowTrim, w.as(a, commit(2, run(s[0], 0, slot(a, 0, 10, 20, 0)))))
	w.no(metadata.ErrBelowTrim, w.as(a, flip(s[0], 0, 20, b, slot(a, 0, 10, 20, 0))))
	w.ok(w.as(a, commit(2, good)))
	trimOf(2)
	w.ok(w.as(a, commit(0)))
	trimOf(2)
	w.no(metadata.ErrBelowTrim, w.as(a, commit(1)))
}

func TestSlot4ChainOfDyingOwners(t *testing.T) {
	w := newWorld(t)
	a, b, c, d := w.register(1, 1), w.register(2, 2), w.register(3, 3), w.register(4, 4)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.ok(fence(a, d, assign(1, 0, b)))
	// b never opened it: the only WAL that can hold records is still a's.
	w.ok(fence(b, d, assign(1, 0, c)))
	w.want(s[0], "3-3@2 [0,10) unsealed[1-1]")
	w.ok(w.as(d, sealed(b, 0)))
	w.want(s[0], "3-3@2 [0,10) unsealed[1-1]")
	b2 := w.register(3, 33) // c restarts before a is sealed
	w.want(s[0], "3-5@3 [0,10) unsealed[1-1]")
	w.ok(w.as(d, sealed(a, 3, sealedStream(s[0], 10, 12, idx(d, 0, 10, 12)))))
	w.want(s[0], "3-5@3 [0,12) unsealed[]")
	if h := w.partition(s[0]).History; !slices.Equal(h, []metadata.EpochStart{{Epoch: 0}, {Epoch: 3, Start: 12}}) {
		t.Fatalf("history %v: epochs that could not write are not in it", h)
	}
	// From here on it could have opened it.
	w.ok(fence(b2, d, assign(1, 0, d)))
	w.want(s[0], "4-4@4 [0,12) unsealed[3-5]")
	w.ok(w.as(d, sealed(b2, 0)))
	w.want(s[0], "4-4@4 [0,12) unsealed[]")
}

func TestSlot4ADeadOwnerThatNeverOpenedHoldsNothing(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a)
	w.ok(fence(a, c, assign(1, 0, b)))
	w.ok(fence(b, c)) // and nobody was named
	w.ok(w.as(c, sealed(a, 1, sealedStream(s[0], 0, 10, idx(c, 0, 0, 10)))))
	w.want(s[0], "2-2@1 [0,10) unsealed[]")
	w.ok(fence(b, c, assign(1, 0, c)))
	w.want(s[0], "3-3@2 [0,10) unsealed[]")
	if h := w.partition(s[0]).History; !slices.Equal(h, []metadata.EpochStart{{}, {Epoch: 2, Start: 10}}) {
		t.Fatalf("history %v", h)
	}
}

func TestSlot4SealedBeforeAnybodyWasNamed(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(fence(a, b))
	w.ok(w.as(b, sealed(a, 1, sealedStream(s[0], 0, 10, idx(b, 0, 0, 10)))))
	w.want(s[0], "1-1@0 [0,10) unsealed[]") // dead, but nothing to wait for
	w.ok(fence(a, b, assign(1, 0, b)))
	w.want(s[0], "2-2@1 [0,10) unsealed[]")
	if h := w.partition(s[0]).History; !slices.Equal(h, []metadata.EpochStart{{}, {Epoch: 1, Start: 10}}) {
		t.Fatalf("history %v", h)
	}
}

func TestFlipFixesTheEndAndTheNextEpochStartsThere(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.no(metadata.ErrOutOfOrder, w.as(a, flip(s[0], 0, 20, b)))                        // a tail is missing
	w.no(metadata.ErrOutOfOrder, w.as(a, flip(s[0], 0, 9, b)))                         // below the committed end
	w.no(metadata.ErrOutOfOrder, w.as(a, flip(s[0], 0, 20, b, slot(a, 1, 10, 19, 0)))) // ends early
	w.no(metadata.ErrStaleEpoch, w.as(a, flip(s[0], 0, 20, b, slot(a, 1, 10, 20, 1)))) // of another epoch
	w.no(metadata.ErrInvalid, w.as(a, flip(s[0], 0, 10, a)))                           // to itself
	w.no(metadata.ErrStaleEpoch, w.as(a, flip(s[1], 1, 0, b)))                         // of the future
	two := flip(s[0], 0, 10, b)
	two.GetFlip().Streams = append(two.GetFlip().Streams, flip(s[1], 0, 5, b).GetFlip().Streams...)
	w.no(metadata.ErrOutOfOrder, w.as(a, two)) // all or none
	w.ok(w.as(a, flip(s[0], 0, 20, b, slot(a, 1, 10, 15, 0), slot(a, 2, 15, 20, 0))))
	w.want(s[0], "2-2@1 [0,20) unsealed[]")
	if h := w.partition(s[0]).History; !slices.Equal(h, []metadata.EpochStart{{}, {Epoch: 1, Start: 20}}) {
		t.Fatalf("history %v", h)
	}
	// Sealing the source later has nothing to say about it.
	w.ok(fence(a, b))
	w.want(s[0], "2-2@1 [0,20) unsealed[]")
}

func TestHistoryKeepsTheNewestEpochs(t *testing.T) {
	w := newWorld(t)
	owners := []inc{w.register(1, 1), w.register(2, 2)}
	s := w.topic("t", 1, owners[0])
	for e := range int32(20) {
		w.ok(w.as(owners[e%2], flip(s[0], e, 0, owners[(e+1)%2])))
	}
	h := w.partition(s[0]).History
	if len(h) != metadata.MaxHistory || h[0].Epoch != 13 || h[7].Epoch != 20 {
		t.Fatalf("history %v", h)
	}
}

func TestReplaceExtentsComparesBoundaries(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(3, run(s[0], 0, slot(a, 0, 0, 10, 0), slot(a, 1, 10, 20, 0), slot(a, 2, 20, 30, 0)))))
	for _, r := range [][2]int64{{1, 20}, {0, 19}, {10, 35}, {20, 10}, {10, 10}, {30, 40}} {
		w.no(metadata.ErrConflict, w.as(a, replace(s[0], 0, r[0], r[1], seg(a, 1, r[0], r[1], 0))))
	}
	w.no(metadata.ErrOutOfOrder, w.as(a, replace(s[0], 0, 0, 20, seg(a, 1, 0, 19, 0))))
	w.no(metadata.ErrOutOfOrder, w.as(a, replace(s[0], 0, 0, 20)))
	w.no(metadata.ErrStaleEpoch, w.as(a, replace(s[0], 0, 0, 20, seg(a, 1, 0, 20, 1))))
	w.ok(w.as(a, replace(s[0], 0, 0, 20, seg(a, 1, 0, 20, 0))))
	w.no(metadata.ErrConflict, w.as(a, replace(s[0], 0, 0, 10, seg(a, 2, 0, 10, 0)))) // the boundary is gone
	// What is referenced may be again, below the trim too.
	w.ok(w.as(a, replace(s[0], 0, 20, 30, slot(a, 2, 20, 25, 0), seg(a, 3, 25, 30, 0))))
	w.ok(w.as(a, replace(s[0], 0, 0, 30, idx(a, 4, 0, 30))))
	w.want(s[0], "1-1@0 [0,30) unsealed[]")
	n := 0
	for range w.img.Objects() {
		n++
	}
	if n != 1 || w.img.References(name(metadata.IndexObject, a, 4)) != 1 {
		t.Fatalf("%d objects are referenced", n)
	}
}

// Whoever is named owner has no say over the stream before the WAL of the last
// one is sealed: it does not know yet where the stream ends.
func TestSlot4AnOwnerThatMayNotOpenMayNotCommit(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.ok(fence(a, c, assign(1, 0, b)))
	for _, cmd := range []*pb{
		commit(0, run(s[0], 1, seg(b, 0, 10, 20, 1))),
		replace(s[0], 1, 0, 10, seg(b, 0, 0, 10, 0)),
		trim(s[0], 1, 5),
		flip(s[0], 1, 10, c),
	} {
		if err := w.no(metadata.ErrNotOpen, w.as(b, cmd)); !err.Alarm {
			t.Errorf("%T: not an alarm", cmd.GetBody())
		}
	}
	w.ok(w.as(c, sealed(a, 1)))
	w.ok(w.as(b, commit(0, run(s[0], 1, seg(b, 0, 10, 20, 1)))))
}
