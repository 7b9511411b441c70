package sharedlog_test

import (
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/sharedlogtest"
)

// After a restore nothing is deleted until the audit, and never what an
// incarnation of today left under its name in an older generation: that is of
// one which lived after the backup.
func TestSweepWaitsForTheAuditOfARestoredCluster(t *testing.T) {
	f := newFixture(t)
	const cluster = "AAAAAAAAAAAAAAAAAAAAAA"
	f.c.Register(9) // has a WAL in generation 1
	f.c.Must(&metadatapb.Command{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: 2}}})
	a := f.start(1, nil)
	garbage := metadata.ObjectName{Kind: metadata.SegmentObject, Creator: a.Incarnation, Number: 999}.String()
	namesake := f.put(garbage) // in generation 1
	own := cluster + "/2/" + garbage
	if err := f.raw.PutNew(f.ctx(), own, objstore.BytesBody([]byte("nothing"))); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Sweep(f.ctx()); err != nil || n != 0 || !f.exists(own) {
		t.Errorf("swept %d before the audit, %v", n, err)
	}
	if err := objstore.MarkAudited(f.ctx(), f.raw, cluster, 2); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Sweep(f.ctx()); err != nil || n != 1 || f.exists(own) {
		t.Errorf("swept %d after the audit, %v; want its own one", n, err)
	}
	if !f.exists(namesake) {
		t.Error("swept what an incarnation of the older generation left")
	}
}

// A stream that came back to a broker after the backup has records in its WAL that
// do not continue what the backup knows: they must not keep the WAL from being
// sealed, and with it all that the broker had.
func TestAStreamThatMovedAfterTheBackupDoesNotHoldUpARestore(t *testing.T) {
	f := newFixture(t)
	b, a := f.start(2, nil), f.start(1, nil)
	moved, kept := f.topic(1, b)[0], f.topic(1, a)[0]
	f.fill(f.open(b, moved), 3, 100)
	l := f.open(a, kept)
	f.fill(l, 3, 100)
	want := l.Bounds().Stable
	b.Crash()
	if err := f.c.Takeover(f.ctx(), b.Incarnation, a); err != nil {
		t.Fatal(err)
	}
	now, _ := f.c.Image().PartitionByStream(moved.Stream)
	f.fill(f.open(a, now), 2, 100)
	a.Crash()

	// The backup is from a time when the stream was a's, and empty.
	restored := sharedlogtest.New()
	restored.Register(2)
	if inc := restored.Register(1); inc != a.Incarnation {
		t.Fatalf("incarnation %s, want %s", inc, a.Incarnation)
	}
	restored.AddStream("moved", moved.Stream, moved.Epoch, a.Incarnation)
	restored.AddStream("kept", kept.Stream, kept.Epoch, a.Incarnation)
	restored.Must(&metadatapb.Command{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: 2}}})
	heir := sharedlogtest.Start(t, restored, f.raw, 3, nil)
	if err := restored.Seal(f.ctx(), a.Incarnation, heir); err != nil {
		t.Fatal(err)
	}
	if p, _ := restored.Image().PartitionByStream(kept.Stream); p.End != want || len(p.Unsealed) > 0 {
		t.Errorf("of %d records %d are restored; unsealed is %v", want, p.End, p.Unsealed)
	}
	if p, _ := restored.Image().PartitionByStream(moved.Stream); p.End != 0 || len(p.Unsealed) > 0 {
		t.Errorf("the stream that moved ends at %d; unsealed is %v", p.End, p.Unsealed)
	}
}
