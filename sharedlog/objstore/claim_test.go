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
