package objstore_test

import (
	"errors"
	"testing"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/mem"
)

func TestStoreBelongsToTheFirstClusterThatClaimsIt(t *testing.T) {
	b := mem.New()
	first, err := objstore.Claim(t.Context(), b, "cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	again, err := objstore.Claim(t.Context(), b, "cluster-a")
	if err != nil || again != first {
		t.Errorf("the owner's second claim gives %v, %v; want %v", again, err, first)
	}
	if _, err := objstore.Claim(t.Context(), b, "cluster-b"); !errors.Is(err, objstore.ErrOtherCluster) {
		t.Errorf("another cluster's claim gives %v, want ErrOtherCluster", err)
	}
}

func TestOnlyTheClustersOwnStoreIsVerified(t *testing.T) {
	b, other, empty := mem.New(), mem.New(), mem.New()
	mine, err := objstore.Claim(t.Context(), b, "cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Claim(t.Context(), other, "cluster-a"); err != nil {
		t.Fatal(err)
	}
	if err := objstore.Verify(t.Context(), b, mine); err != nil {
		t.Errorf("the cluster's store: %v", err)
	}
	for name, b := range map[string]objstore.Bucket{"a second store of the cluster": other, "an empty store": empty} {
		if err := objstore.Verify(t.Context(), b, mine); !errors.Is(err, objstore.ErrOtherStore) {
			t.Errorf("%s gives %v, want ErrOtherStore", name, err)
		}
	}
	mine.Cluster = "cluster-b"
	if err := objstore.Verify(t.Context(), b, mine); !errors.Is(err, objstore.ErrOtherCluster) {
		t.Errorf("another cluster's store gives %v, want ErrOtherCluster", err)
	}
}

func TestGenerationsAreClaimedOnce(t *testing.T) {
	b := mem.New()
	const cluster = "cluster-a"
	if err := objstore.CheckGeneration(t.Context(), b, cluster, 1); err != nil {
		t.Fatal(err)
	}
	for want := uint64(2); want <= 3; want++ { // two restores of one backup
		if g, err := objstore.ClaimGeneration(t.Context(), b, cluster, 1); err != nil || g != want {
			t.Errorf("claimed %d, %v; want %d", g, err, want)
		}
	}
	for g, ok := range map[uint64]bool{1: false, 2: false, 3: true} {
		if err := objstore.CheckGeneration(t.Context(), b, cluster, g); errors.Is(err, objstore.ErrRestored) == ok {
			t.Errorf("generation %d: %v", g, err)
		}
	}
	if ok, err := objstore.Audited(t.Context(), b, cluster, 3); err != nil || ok {
		t.Errorf("audited before: %v, %v", ok, err)
	}
	for range 2 {
		if err := objstore.MarkAudited(t.Context(), b, cluster, 3); err != nil {
			t.Fatal(err)
		}
	}
	for g, want := range map[uint64]bool{1: true, 2: false, 3: true} {
		if ok, err := objstore.Audited(t.Context(), b, cluster, g); err != nil || ok != want {
			t.Errorf("generation %d audited: %v, %v", g, ok, err)
		}
	}
}
