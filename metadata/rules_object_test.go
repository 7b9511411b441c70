package metadata_test

import (
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// As in rules_command_test.go, each test is named for the rule it fails without.

func TestObj1SealedBelowAReferencedSlotIsRefused(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(0, run(s[0], 0, slot(a, 3, 0, 10, 0)))))
	w.ok(fence(a, b))
	for end := range uint64(4) {
		if err := w.no(metadata.ErrConflict, w.as(b, sealed(a, end))); !err.Alarm {
			t.Fatal("lost slots are an alarm")
		}
	}
	w.ok(w.as(b, sealed(a, 4)))
}

func TestObj2FirstReferenceIsTheCreators(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, b)
	for _, x := range []*metadatapb.Extent{
		seg(b, 0, 0, 10, 0), slot(b, 0, 0, 10, 0), idx(b, 0, 0, 10), seg(inc{Broker: 9, Epoch: 9}, 0, 0, 10, 0),
	} {
		if err := w.no(metadata.ErrForeignObject, w.as(a, commit(0, run(s[0], 0, x)))); !err.Alarm {
			t.Fatal("not an alarm")
		}
	}
	// Index objects are for indirect extents, names are canonical.
	wrong := idx(a, 0, 0, 10)
	wrong.Indirect = false
	w.no(metadata.ErrInvalid, w.as(a, commit(0, run(s[0], 0, wrong))))
	for _, object := range []string{"", "seg/1-1/7", "seg/1-1/00000000000000000007/x", "wal/1-1/1/00000000000000000000", "seg/01-1/00000000000000000007"} {
		w.no(metadata.ErrInvalid, w.as(a, commit(0, run(s[0], 0, ext(object, 0, 10, 0)))))
	}
	// A segment object of b that b referenced stays usable by the next owner.
	w.ok(w.as(b, flip(s[1], 0, 20, a, seg(b, 7, 0, 10, 0), slot(b, 1, 10, 20, 0))))
	w.no(metadata.ErrForeignObject, w.as(a, replace(s[1], 1, 10, 20, seg(b, 8, 10, 20, 0))))
	w.ok(w.as(a, replace(s[1], 1, 0, 20, seg(b, 7, 0, 10, 0), seg(a, 0, 10, 20, 0))))
	if n := w.img.References(name(metadata.WALSlot, b, 1)); n != 0 {
		t.Fatalf("replaced slot still has %d references", n)
	}
	w.no(metadata.ErrForeignObject, w.as(a, replace(s[1], 1, 10, 20, slot(b, 1, 10, 20, 0))))
}

func TestObj2WhatAnIndexListsMayBecomeDirect(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(w.as(b, sealed(a, 3, sealedStream(s[0], 0, 10, idx(b, 0, 0, 10)))))
	w.no(metadata.ErrForeignObject, w.as(b, replace(s[0], 1, 0, 10, slot(a, 3, 0, 10, 0)))) // the fence
	w.ok(w.as(b, replace(s[0], 1, 0, 10, slot(a, 2, 0, 10, 0))))
	w.no(metadata.ErrForeignObject, w.as(b, replace(s[0], 1, 0, 10, slot(a, 1, 0, 10, 0)))) // no index among them now
}

func TestObj2SealedMayPointIntoTheWALBelowItsFence(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(2)))
	w.ok(fence(a, b, assign(1, 0, b)))
	w.no(metadata.ErrForeignObject, w.as(b, sealed(a, 4, sealedStream(s[0], 0, 10, slot(a, 4, 0, 10, 0)))))
	w.no(metadata.ErrForeignObject, w.as(b, sealed(a, 4, sealedStream(s[0], 0, 10, slot(a, 1, 0, 10, 0)))))
	w.no(metadata.ErrForeignObject, sealed(a, 4, sealedStream(s[0], 0, 10, idx(b, 0, 0, 10)))) // nobody's command
	w.no(metadata.ErrStaleEpoch, w.as(b, sealed(a, 4, sealedStream(s[0], 0, 10, slot(a, 3, 0, 10, 2)))))
	w.ok(w.as(b, sealed(a, 4, sealedStream(s[0], 0, 10, slot(a, 3, 0, 10, 0)))))
	// obj-1: verdicts follow.
	for _, c := range []struct {
		object string
		want   metadata.Verdict
	}{
		{name(metadata.WALSlot, a, 2), metadata.Unreferenced},
		{name(metadata.WALSlot, a, 3), metadata.Referenced},
		{name(metadata.WALSlot, a, 4), metadata.Fence},
		{name(metadata.WALSlot, a, 5), metadata.Unreferenced},
		{name(metadata.WALSlot, b, 0), metadata.Pending},
		{name(metadata.SegmentObject, a, 0), metadata.Unreferenced},
		{name(metadata.SegmentObject, b, 0), metadata.Pending},
		{name(metadata.SegmentObject, inc{Broker: 1, Epoch: 77}, 0), metadata.Unknown},
		{"something/else", metadata.Unknown},
	} {
		if got := w.img.Judge(c.object); got != c.want {
			t.Errorf("%s is %s, want %s", c.object, got, c.want)
		}
	}
}

func TestObj1TrimmedSlotsAreUnreferenced(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(2, run(s[0], 0, slot(a, 0, 0, 10, 0), seg(a, 0, 10, 20, 0)))))
	for n, want := range []metadata.Verdict{metadata.Referenced, metadata.Unreferenced, metadata.Pending} {
		if got := w.img.Judge(name(metadata.WALSlot, a, uint64(n))); got != want {
			t.Errorf("slot %d is %s, want %s", n, got, want)
		}
	}
}

// Between the Fence and Sealed a WAL's slots from the trim on are what recovery
// reads: they are no garbage, although nothing points at them.
func TestObj1SlotsOfAFencedWALWaitForRecovery(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(2, run(s[0], 0, seg(a, 0, 0, 10, 0)))))
	w.ok(fence(a, b))
	for n, want := range []metadata.Verdict{metadata.Unreferenced, metadata.Unreferenced, metadata.Pending, metadata.Pending} {
		if got := w.img.Judge(name(metadata.WALSlot, a, uint64(n))); got != want {
			t.Errorf("slot %d is %s, want %s", n, got, want)
		}
	}
	w.ok(w.as(b, sealed(a, 3)))
	for n, want := range []metadata.Verdict{2: metadata.Unreferenced, 3: metadata.Fence, 4: metadata.Unreferenced} {
		if got := w.img.Judge(name(metadata.WALSlot, a, uint64(n))); n >= 2 && got != want {
			t.Errorf("slot %d is %s, want %s once sealed", n, got, want)
		}
	}
}
