package controller

import (
	"context"
	"testing"
	"testing/synctest"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// A partition that is reassigned anew while the leader waits to complete the
// reassignment before is not put back, and not forgotten.
func TestAReassignmentIsNotUndoneByTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		img, inc := clusterImage(t)
		images := newImages(1 << 20)
		apply := func(c *metadatapb.Command) {
			t.Helper()
			next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(c))
			if results[0].Err != nil {
				t.Fatal(results[0].Err)
			}
			img = next
			if err := images.install(img); err != nil {
				t.Fatal(err)
			}
		}
		second := &metadatapb.RegisterBroker{Broker: 2, Nonce: append(make([]byte, metadata.NonceBytes-1), 2)}
		apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: second}})
		id := metadata.TopicID{1}
		apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{
			TopicId: id[:], Name: "t", Partitions: []*metadatapb.PartitionSpec{{Owner: inc.Proto(), Replicas: []int32{1}}}}}})
		k := partitionKey{id, 0}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := &leadership{ctx: ctx, images: images, moves: newMoves(), gate: make(chan struct{}, 1)}
		apply(assignCommand(k, []metadata.BrokerID{1, 2}, []metadata.BrokerID{2}, nil)) // its owner is in the new list
		l.moves.reassign(k)
		done := make(chan struct{})
		go func() { defer close(done); l.finishMoves() }()
		synctest.Wait() // at the gate, which another operation holds
		apply(assignCommand(k, []metadata.BrokerID{1, 2}, []metadata.BrokerID{2}, []metadata.BrokerID{1}))
		l.moves.reassign(k)
		l.gate <- struct{}{}
		<-done // it proposed nothing: there is no committer to take it
		if _, ok := l.moves.mu.reassigns[k]; !ok {
			t.Error("the new reassignment is forgotten")
		}
	})
}
