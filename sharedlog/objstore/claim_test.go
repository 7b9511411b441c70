package objstore_test

import (
	"errors"
	"testing"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

func TestStoreBelongsToTheFirstClusterThatClaimsIt(t *testing.T) {
	b := mem.New()
	for range 2 {
		if err := objstore.Claim(t.Context(), b, "cluster-a"); err != nil {
			t.Fatalf("the owner's claim: %v", err)
		}
	}
	if err := objstore.Claim(t.Context(), b, "cluster-b"); !errors.Is(err, objstore.ErrOtherCluster) {
		t.Errorf("another cluster's claim gives %v, want ErrOtherCluster", err)
	}
}

func TestClaimWaitsOutTrouble(t *testing.T) {
	for _, rule := range []fault.Rule{
		{Before: errors.New("503"), Times: 3},
		{Ops: []fault.Op{fault.PutNew}, After: errors.New("reset"), Times: 1}, // and then meets its own marker
		{Ops: []fault.Op{fault.GetRange}, Before: errors.New("503"), Times: 2},
	} {
		b := fault.New(mem.New(), 1)
		b.Add(rule)
		for _, id := range []string{"cluster-a", "cluster-a"} {
			if err := objstore.Claim(t.Context(), b, id); err != nil {
				t.Errorf("claim under %+v: %v", rule, err)
			}
		}
		if err := objstore.Claim(t.Context(), b, "cluster-b"); !errors.Is(err, objstore.ErrOtherCluster) {
			t.Errorf("another cluster's claim: %v", err)
		}
	}
}
