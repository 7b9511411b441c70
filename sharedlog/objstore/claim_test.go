package objstore_test

import (
	"errors"
	"testing"

	"ponor/sharedlog/objstore"
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
