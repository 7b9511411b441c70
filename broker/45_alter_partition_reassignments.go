package broker

// AlterPartitionReassignments v0-1: gives partitions other replica lists
// (KIP-455), or takes that back.
//
// Version notes:
//   v1 allow replication factor change (KIP-860)
//
// Nothing is copied: a list that has the present leader in it is taken at once,
// and otherwise the leader moves to the first live broker of the list and that
// is the end of it. The list is kept verbatim. Throttles (KIP-73) are accepted
// as configs and have nothing to slow down.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) alterPartitionReassignments(ctx context.Context, _ call, req *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	resp := answer[*kmsg.AlterPartitionAssignmentsResponse](req)
	img := b.image()
	type place struct{ topic, partition int }
	var changes []controller.PartitionChange
	var at []place
	seen := make(map[metadata.TopicID]map[int32]bool)
	for i, rt := range req.Topics {
		at0 := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		at0.Topic = rt.Topic
		t, err := topicNamed(img, rt.Topic)
		if err == nil && seen[t.ID] == nil {
			seen[t.ID] = make(map[int32]bool)
		}
		for j, rp := range rt.Partitions {
			ap := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			ap.Partition = rp.Partition
			failure := err
			if failure == nil {
				failure = checkReassignment(img, t, req, rp)
			}
			if failure == nil && seen[t.ID][rp.Partition] {
				failure = fail(kerr.InvalidRequest, "partition %d of topic %q is named twice in the request", rp.Partition, rt.Topic)
			}
			if failure == nil {
				seen[t.ID][rp.Partition] = true
				changes = append(changes, controller.PartitionChange{Topic: t.ID, Partition: rp.Partition, Replicas: brokerIDs(rp.Replicas)})
				at = append(at, place{i, j})
			}
			ap.ErrorCode, ap.ErrorMessage = codeAndMessage(failure)
			at0.Partitions = append(at0.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, at0)
	}
	if len(changes) == 0 {
		return resp
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results, err := b.cfg.Admin.Reassign(ctx, changes)
	for i, k := range at {
		failure := unknownOutcome(err)
		if err == nil {
			failure = refused(results[i])
		}
		ap := &resp.Topics[k.topic].Partitions[k.partition]
		ap.ErrorCode, ap.ErrorMessage = codeAndMessage(failure)
	}
	return resp
}

// checkReassignment finds what is wrong with one new replica list; the
// controller checks again at the moment of the change.
func checkReassignment(img *metadata.Image, t metadata.Topic, req *kmsg.AlterPartitionAssignmentsRequest, rp kmsg.AlterPartitionAssignmentsRequestTopicPartition) error {
	p, ok := img.Partition(t.ID, rp.Partition)
	switch {
	case !ok:
		return fail(kerr.UnknownTopicOrPartition, "topic %q has %d partitions, there is no number %d", t.Name, t.Partitions, rp.Partition)
	case rp.Replicas == nil: // cancels
		return nil
	case len(rp.Replicas) == 0:
		return fail(kerr.InvalidReplicaAssignment, "the new replica list of %s is empty; send null to cancel a reassignment", &p)
	}
	before := len(p.Replicas) - len(p.Adding)
	if req.Version >= 1 && !req.AllowReplicationFactorChange && len(rp.Replicas) != before {
		return fail(kerr.InvalidReplicationFactor, "the new replica list of %s has %d brokers instead of %d, and the request does not allow that", &p, len(rp.Replicas), before)
	}
	return nil
}
