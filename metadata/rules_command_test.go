package metadata_test

import (
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
	// Slots below a fence are swept once they were repacked, and a sealer with an
	// old image puts its fence into the gap: a race, found by metadata/model.
	if err = w.no(metadata.ErrAlreadySealed, w.as(c, sealed(a, 0))); err.Alarm {
		t.Fatal("a late sealer that finds a lower end is no alarm")
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
