package controller

import (
	"testing"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Nodes that fetch a snapshot at the same time read one and the same, however the
// image moves on; only one that the tail no longer leads on from is made anew.
func TestSnapshotsInTheMakingAreShared(t *testing.T) {
	n, err := New(Config{NodeID: 9, Join: []string{"127.0.0.1:1"}, TailBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	next := metadata.Index(1)
	apply := func(c *metadatapb.Command) {
		b, err := metadata.EncodeEntry(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.images.apply(next, b); err != nil {
			t.Fatal(err)
		}
		next++
	}
	apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{
		ClusterId: "AAAAAAAAAAAAAAAAAAAAAA", Generation: 1,
	}}})
	get := func(index uint64) *controllerpb.SnapshotResponse {
		r := n.server.snapshot(t.Context(), nil, &controllerpb.SnapshotRequest{Index: index})
		return r.(*controllerpb.SnapshotResponse)
	}
	first := get(0)
	apply(&metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
	if second := get(0); second.Index != first.Index {
		t.Errorf("the second node gets index %d, the first reads %d", second.Index, first.Index)
	}
	if on := get(first.Index); on.Outcome.Code != controllerpb.Code_OK {
		t.Errorf("the first node cannot go on: %s", on.Outcome.Message)
	}
	for range 500 { // beyond the tail
		apply(&metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
	}
	if last := get(0); last.Index != uint64(next-1) {
		t.Errorf("a snapshot at %d is given out at %d, though entries between are gone", last.Index, next-1)
	}
}
