package sharedlog_test

import (
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
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
