package metadata_test

import (
	"math"
	"slices"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Each test here is named for a rule that Apply keeps and fails when the check
// for it is taken out.

func TestCmd1CommandsNeedAKnownIncarnation(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	for _, stranger := range []inc{{Broker: 1, Epoch: 9}, {Broker: 2, Epoch: a.Epoch}, {Broker: 1}} {
		c := noop()
		c.From, c.CmdSeq = &metadatapb.Incarnation{Broker: int32(stranger.Broker), Epoch: stranger.Epoch}, 1
		w.no(metadata.ErrUnknownIncarnation, c)
	}
	// A head that is there but empty is not the controller's.
	w.no(metadata.ErrUnknownIncarnation, &pb{From: &metadatapb.Incarnation{}, CmdSeq: 1, Body: noop().Body})
}

func TestCmd1NumbersAreUsedOnce(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	first := w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0))))
	w.ok(first)
	w.no(metadata.ErrStaleCommand, first)
	w.seq[a] = 5 // gaps are fine
	w.ok(w.as(a, noop()))
	late := noop()
	late.From, late.CmdSeq = a.Proto(), 4
	w.no(metadata.ErrStaleCommand, late)
	zero := noop()
	zero.From = a.Proto()
	w.no(metadata.ErrStaleCommand, zero)
}

func TestCmd1RejectedCommandsUseUpTheirNumber(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	// A flip with an end that is not committed yet is rejected; the same
	// command, delivered again once it would fit, must not be accepted.
	f := w.as(a, flip(s[0], 0, 10, b))
	w.no(metadata.ErrOutOfOrder, f)
	if wal, _ := w.img.WAL(a); wal.CmdSeq != f.CmdSeq {
		t.Fatalf("cmd_seq is %d after a rejection, want %d", wal.CmdSeq, f.CmdSeq)
	}
	w.seq[a]++
	c := commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0)))
	c.From, c.CmdSeq = a.Proto(), w.seq[a]
	w.ok(c)
	w.no(metadata.ErrStaleCommand, f)
	w.want(s[0], "1-1@0 [0,10) unsealed[]")
}

func TestCmd3FencedIncarnationsAreRefused(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, b)
	w.ok(fence(a, b))
	for _, c := range []*pb{
		noop(), commit(1), commit(0, run(s[0], 0, slot(a, 0, 0, 10, 0))), flip(s[0], 0, 0, b),
		trim(s[0], 0, 0), topicsGone(1), deleteTopic(1), sealed(a, 0),
	} {
		w.no(metadata.ErrFencedIncarnation, w.as(a, c))
	}
	if wal, _ := w.img.WAL(a); wal.CmdSeq != 0 || wal.Trim != 0 {
		t.Fatalf("the record of a fenced incarnation moved: %+v", wal)
	}
}

func TestCmd3NothingIsAssignedToTheDead(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a, a, c)
	w.ok(fence(b, c))
	w.no(metadata.ErrTargetFenced, w.as(a, flip(s[0], 0, 0, b)))
	w.no(metadata.ErrTargetFenced, createTopic("u", 2, b))
	w.no(metadata.ErrTargetFenced, createTopic("u", 2, inc{Broker: 3, Epoch: 99}))
	// Per partition: the rest of a Fence applies.
	r := w.ok(fence(a, c, assign(1, 0, b), assign(1, 1, c), assign(1, 7, c), assign(9, 0, c)))
	if r.Skipped != 3 {
		t.Fatalf("skipped %d assignments, want 3", r.Skipped)
	}
	w.want(s[0], "1-1@0 [0,0) unsealed[1-1]")
	w.want(s[1], "3-3@1 [0,0) unsealed[1-1]")
}

func TestCmd4FenceFreezesTrimStreamsAndEnds(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(1, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.ok(fence(a, b, assign(1, 0, b)))
	w.want(s[0], "2-2@1 [0,10) unsealed[1-1]")
	wal, _ := w.img.WAL(a)
	if wal.State != metadata.Fenced || wal.Trim != 1 || wal.Sealer != b {
		t.Fatalf("%+v", wal)
	}
	// Neither the old owner nor the one named, which cannot know the end yet.
	w.no(metadata.ErrFencedIncarnation, w.as(a, commit(2, run(s[0], 0, slot(a, 1, 10, 20, 0)))))
	w.no(metadata.ErrNotOpen, w.as(b, commit(0, run(s[0], 1, slot(b, 0, 10, 20, 1)))))
	w.no(metadata.ErrNotOpen, w.as(b, trim(s[0], 1, 5)))
	w.no(metadata.ErrNotOpen, w.as(b, replace(s[0], 1, 0, 10, seg(b, 0, 0, 10, 0))))
	c := w.register(3, 3)
	w.no(metadata.ErrNotOpen, w.as(b, flip(s[0], 1, 10, c)))
}

func TestCmd4RenamingBumpsTheEpochAgain(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	w.want(s[0], "2-2@1 [0,0) unsealed[1-1]")
	w.want(s[1], "1-1@0 [0,0) unsealed[1-1]") // nobody was named
	// Sent again, it names what has a dead owner and leaves the living alone.
	w.ok(fence(a, c, assign(1, 0, c), assign(1, 1, c)))
	w.want(s[0], "2-2@1 [0,0) unsealed[1-1]")
	w.want(s[1], "3-3@1 [0,0) unsealed[1-1]")
	if wal, _ := w.img.WAL(a); wal.Sealer != c {
		t.Fatalf("sealer %s, want the newly named %s", wal.Sealer, c)
	}
	w.ok(fence(b, c, assign(1, 0, c)))
	w.want(s[0], "3-3@2 [0,0) unsealed[1-1]")
}

func TestCmd4SealerIsNeverDead(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	w.ok(fence(a, a)) // the dying one cannot seal itself
	if wal, _ := w.img.WAL(a); !wal.Sealer.IsZero() {
		t.Fatalf("sealer %s", wal.Sealer)
	}
	w.ok(fence(a, b))
	w.ok(fence(b, c))
	w.ok(fence(a, b)) // b is dead: the name stays until a living one comes
	w.ok(fence(a, c))
	if wal, _ := w.img.WAL(a); wal.Sealer != c {
		t.Fatalf("sealer %s, want %s", wal.Sealer, c)
	}
}

func TestCmd4OnlyFencedWALsAreSealed(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	c := sealed(a, 1, sealedStream(s[0], 0, 10, idx(b, 0, 0, 10)))
	w.no(metadata.ErrNotFenced, w.as(b, c))
	w.no(metadata.ErrUnknownIncarnation, w.as(b, sealed(inc{Broker: 7, Epoch: 7}, 1)))
}

func TestCmd4SealedBelowTheTrimIsRefused(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	w.topic("t", 1, a)
	w.ok(w.as(a, commit(5)))
	w.ok(fence(a, b))
	if err := w.no(metadata.ErrBelowTrim, w.as(b, sealed(a, 4))); !err.Alarm {
		t.Fatal("a sealer that read past deleted slots is an alarm")
	}
	w.ok(w.as(b, sealed(a, 5)))
}

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

func TestCmd4SealedStartsAtTheCommittedEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, commit(1, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.ok(fence(a, b, assign(1, 0, b)))
	w.no(metadata.ErrOutOfOrder, w.as(b, sealed(a, 3, sealedStream(s[0], 11, 20, idx(b, 0, 11, 20)))))
	w.no(metadata.ErrOutOfOrder, w.as(b, sealed(a, 3, sealedStream(s[0], 0, 20, idx(b, 0, 0, 20)))))
	w.no(metadata.ErrOutOfOrder, w.as(b, sealed(a, 3, sealedStream(s[0], 10, 20, idx(b, 0, 10, 19)))))
	w.no(metadata.ErrInvalid, w.as(b, sealed(a, 3,
		sealedStream(s[0], 10, 20, idx(b, 0, 10, 20)), sealedStream(s[0], 10, 20, idx(b, 0, 10, 20)))))
	w.ok(w.as(b, sealed(a, 3, sealedStream(s[0], 10, 20, idx(b, 0, 10, 20)))))
}

func TestCmd4FirstSealedWins(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(w.as(b, sealed(a, 2, sealedStream(s[0], 0, 10, idx(b, 0, 0, 10)))))
	err := w.no(metadata.ErrAlreadySealed, w.as(c, sealed(a, 2, sealedStream(s[0], 0, 10, idx(c, 0, 0, 10)))))
	if err.Alarm {
		t.Fatal("a second sealer with the same end is no alarm")
	}
	if err = w.no(metadata.ErrAlreadySealed, w.as(c, sealed(a, 3))); !err.Alarm {
		t.Fatal("another end of a sealed WAL is an alarm")
	}
	if wal, _ := w.img.WAL(a); wal.SealedEnd != 2 || wal.State != metadata.Sealed {
		t.Fatalf("%+v", wal)
	}
}

func TestCmd5SealedAdvancesTheCommittedEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, a)
	w.ok(w.as(a, commit(1, run(s[0], 0, slot(a, 0, 0, 10, 0)))))
	w.ok(fence(a, b, assign(1, 0, b), assign(1, 1, b)))
	w.ok(w.as(b, sealed(a, 3, sealedStream(s[0], 10, 25, idx(b, 0, 10, 25)))))
	w.want(s[0], "2-2@1 [0,25) unsealed[]")
	w.want(s[1], "2-2@1 [0,0) unsealed[]") // not listed: nothing beyond its end
	want := []metadata.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 25}}
	if h := w.partition(s[0]).History; !slices.Equal(h, want) {
		t.Fatalf("history %v, want %v: the next epoch starts at the new end", h, want)
	}
	w.ok(w.as(b, commit(0, run(s[0], 1, slot(b, 0, 25, 30, 1)))))
}

func TestCmd5SealedOfAStreamThatDoesNotWaitIsAnAlarm(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, b)
	w.ok(w.as(a, flip(s[0], 0, 5, b, slot(a, 0, 0, 5, 0))))
	w.ok(fence(a, b))
	for _, st := range s {
		end := int64(w.partition(st).End)
		w.no(metadata.ErrNotOwner, w.as(b, sealed(a, 1, sealedStream(st, end, end+1, idx(b, 0, end, end+1)))))
	}
	w.no(metadata.ErrUnknownStream, w.as(b, sealed(a, 1, sealedStream(99, 0, 1, idx(b, 0, 0, 1)))))
}

func TestCmd6IdempotentForTheEqualNonceOnly(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	if again := w.register(1, 1); again != a {
		t.Fatalf("the same process got %s, then %s", a, again)
	}
	b := w.register(1, 2)
	if b == a || b.Broker != 1 || b.Epoch <= a.Epoch {
		t.Fatalf("another process got %s after %s", b, a)
	}
	// Atomically: fenced, named at the next epoch, waiting for the old WAL.
	w.want(s[0], "1-2@1 [0,0) unsealed[1-1]")
	wal, _ := w.img.WAL(a)
	if wal.State != metadata.Fenced || wal.Sealer != b {
		t.Fatalf("the previous incarnation is %s with sealer %s", wal.State, wal.Sealer)
	}
	// The superseded process's nonce, once more, is a third process.
	if c := w.register(1, 1); c == a || c == b {
		t.Fatalf("an old nonce came back to life as %s", c)
	}
}

func TestCmd6AFencedProcessGetsANewIncarnation(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	c := w.register(1, 1) // same nonce, but its incarnation has ended
	if c == a {
		t.Fatal("a fenced incarnation was handed out again")
	}
	w.want(s[0], "2-2@1 [0,0) unsealed[1-1]")
	w.want(s[1], "1-3@1 [0,0) unsealed[1-1]") // nobody else had been named
	if wal, _ := w.img.WAL(a); wal.Sealer != b {
		t.Fatalf("the sealer changed to %s although %s lives", wal.Sealer, b)
	}
}

func TestOwn1OnlyTheOwnerGivesAStreamAway(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.register(1, 1), w.register(2, 2), w.register(3, 3)
	s := w.topic("t", 1, a, b)
	w.no(metadata.ErrNotOwner, w.as(b, flip(s[0], 0, 0, c)))
	w.no(metadata.ErrInvalid, flip(s[0], 0, 0, c)) // the controller cannot either
	// A Fence of b cannot take what a, who lives, owns.
	w.ok(fence(b, c, assign(1, 0, c), assign(1, 1, c)))
	w.want(s[0], "1-1@0 [0,0) unsealed[]")
	w.want(s[1], "3-3@1 [0,0) unsealed[2-2]")
}

func TestEpoch1EveryOwnerHasAnEpochOfItsOwn(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(w.as(a, flip(s[0], 0, 0, b)))
	w.ok(w.as(b, flip(s[0], 1, 0, a)))
	w.want(s[0], "1-1@2 [0,0) unsealed[]")
	// The same owner at an older epoch is not the owner any more.
	w.no(metadata.ErrNotOwner, w.as(a, flip(s[0], 0, 0, b)))
	w.no(metadata.ErrNotOwner, w.as(a, replace(s[0], 0, 0, 1, seg(a, 0, 0, 1, 0))))
	if err := w.no(metadata.ErrStaleEpoch, w.as(a, flip(s[0], 3, 0, b))); !err.Alarm {
		t.Fatal("an epoch from the future is an alarm")
	}
}

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

func TestDel1TheNameIsFreeWhenEveryOwnerStopped(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("a.b", 1, a, b)
	w.ok(w.as(a, commit(0, run(s[0], 0, seg(a, 0, 0, 10, 0)))))
	w.ok(deleteTopic(1))
	w.no(metadata.ErrTopicDeleting, deleteTopic(1))
	w.no(metadata.ErrTopicDeleting, createTopic("a.b", 2, a))
	w.no(metadata.ErrTopicDeleting, createTopic("a_b", 2, a))
	w.no(metadata.ErrInvalid, topicsGone(1)) // nobody's word
	w.ok(w.as(a, topicsGone(1, 9)))
	w.no(metadata.ErrTopicDeleting, createTopic("a.b", 2, a))
	if tp, ok := w.img.Topic("a.b"); !ok || !tp.Deleting {
		t.Fatal("the topic went before its last owner had stopped")
	}
	w.no(metadata.ErrTopicDeleting, w.as(b, flip(s[1], 0, 0, a)))
	// A stream of a deleting topic still counts for its owner's trim.
	w.ok(w.as(b, commit(1, run(s[1], 0, slot(b, 0, 0, 5, 0)))))
	w.ok(w.as(b, topicsGone(1)))
	if _, ok := w.img.Topic("a.b"); ok {
		t.Fatal("the topic is still there")
	}
	if n := w.img.References(name(metadata.SegmentObject, a, 0)); n != 0 {
		t.Fatalf("%d references of a deleted topic", n)
	}
	// A late commit of a stream that is gone is skipped.
	if r := w.ok(w.as(b, commit(2, run(s[1], 0, slot(b, 1, 5, 6, 0))))); r.Skipped != 1 {
		t.Fatalf("%+v", r)
	}
	w.ok(createTopic("a_b", 2, a))
}

func TestDel1ADeadOwnerCountsOnceSealed(t *testing.T) {
	for _, fenceFirst := range []bool{true, false} {
		w := newWorld(t)
		a, b := w.register(1, 1), w.register(2, 2)
		s := w.topic("t", 1, a, b)
		if fenceFirst {
			w.ok(fence(a, b)) // owned by nobody alive
			w.ok(deleteTopic(1))
		} else {
			w.ok(deleteTopic(1))
			w.ok(fence(a, b, assign(1, 0, b))) // a deleted partition is named to nobody
		}
		w.ok(w.as(b, topicsGone(1)))
		w.want(s[0], "1-1@0 [0,0) unsealed[1-1]")
		w.no(metadata.ErrTopicDeleting, createTopic("t", 2, b)) // a may be cut off and still writing
		w.ok(w.as(b, sealed(a, 1, sealedStream(s[0], 0, 3, idx(b, 0, 0, 3)))))
		if _, ok := w.img.TopicByID(topicID(1)); ok {
			t.Fatal("the topic is still there")
		}
		if w.img.PartitionCount() != 0 {
			t.Fatal("streams are left behind")
		}
	}
}

func TestDel1OwnedByNobodyAliveAndSealed(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	w.topic("t", 1, a)
	w.ok(fence(a, b))
	w.ok(w.as(b, sealed(a, 0)))
	w.ok(deleteTopic(1))
	if _, ok := w.img.Topic("t"); ok {
		t.Fatal("nobody is left to wait for")
	}
}

func TestDel1AnIncomingOwnerAndItsPredecessorBothCount(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(deleteTopic(1))
	w.ok(w.as(b, topicsGone(1)))
	w.want(s[0], "2-2@1 [0,0) unsealed[1-1]")
	w.ok(w.as(b, sealed(a, 0)))
	if _, ok := w.img.Topic("t"); ok {
		t.Fatal("the topic is still there")
	}
	// The other order, and the owner dies after it said so.
	s = w.topic("u", 2, b, b)
	c := w.register(3, 3)
	w.ok(w.as(b, flip(s[1], 0, 0, c)))
	w.ok(deleteTopic(2))
	w.ok(w.as(b, topicsGone(2)))
	w.ok(fence(b, c))
	w.want(s[0], "2-2@0 [0,0) unsealed[]") // it had closed it for good
	w.ok(w.as(c, topicsGone(2)))
	if _, ok := w.img.Topic("u"); ok {
		t.Fatal("the topic is still there")
	}
	// Its WAL may still hold records of the stream; they are nobody's.
	if r := w.ok(w.as(c, sealed(b, 2, sealedStream(s[0], 0, 3, idx(c, 0, 0, 3))))); r.Skipped != 1 {
		t.Fatalf("%+v", r)
	}
}
