package controller

import (
	"context"
	"errors"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// The fence of a registration and the one of another process that follows it may come
// with different images.
func TestASupersededProcessSeesTheFenceFirst(t *testing.T) {
	n, err := New(Config{NodeID: 1, Join: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	img, inc := clusterImage(t)
	n.mu.member = &membership{inc: inc, fenced: make(chan struct{})}
	apply := func(c *metadatapb.Command) {
		t.Helper()
		next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(c))
		if err := results[0].Rejected(); err != nil {
			t.Fatal(err)
		}
		img = next
		n.checkMembership(img)
	}
	apply(&metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: &metadatapb.Fence{Incarnation: inc.Proto()}}})
	if err := context.Cause(n.ctx); err != nil || !isClosed(n.Fenced()) {
		t.Fatalf("after the fence: %v", err)
	}
	apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: registration(1)}})
	if err := context.Cause(n.ctx); !errors.Is(err, ErrSuperseded) {
		t.Errorf("after the registration of another process: %v", err)
	}
}
