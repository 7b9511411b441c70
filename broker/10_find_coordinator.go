package broker

// FindCoordinator v0-6: who coordinates a group, transaction or share group.
//
// Version notes:
//   v1 key types, error message
//   v3 flexible
//   v4 many keys in one request (KIP-699)
//   v6 share groups (KIP-932)
//
// A group's coordinator is the owner of the partition of __consumer_offsets that
// its id hashes to. The first who asks has the topic made. A move of the partition
// is a move of the coordinator; whoever asks too early is told to go where the
// partition will open in a moment, and waits there.
//
// There are no coordinators of transactions and share groups; the answer is an
// error that clients do not retry, so that they say so at once.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
)

func (b *Broker) findCoordinator(ctx context.Context, c call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := answer[*kmsg.FindCoordinatorResponse](req)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	find := coordinatorAsk{Broker: b, listener: c.listener, kind: req.CoordinatorType}
	find.topic(ctx)
	for _, key := range keys {
		resp.Coordinators = append(resp.Coordinators, find.key(key))
	}
	if req.Version < 4 {
		co := resp.Coordinators[0]
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = co.ErrorCode, co.ErrorMessage, co.NodeID, co.Host, co.Port
		resp.Coordinators = nil
	}
	return resp
}

// coordinatorAsk is the part of a request that applies to each key.
type coordinatorAsk struct {
	*Broker
	listener string
	kind     int8
	img      *metadata.Image
	group    metadata.Topic
	err      error // there is no topic
}

// topic finds the internal topic, or has it made.
func (a *coordinatorAsk) topic(ctx context.Context) {
	if a.img = a.image(); a.kind != 0 {
		return
	}
	var ok bool
	if a.group, ok = a.img.Topic(group.OffsetsTopic); ok && !a.group.Deleting {
		return
	}
	a.err = a.createGroupTopic(ctx, a.img)
	a.img = a.image()
	if a.group, ok = a.img.Topic(group.OffsetsTopic); ok && !a.group.Deleting {
		a.err = nil // whoever made it
	}
}

// createGroupTopic makes __consumer_offsets with the configs that Kafka gives it.
func (b *Broker) createGroupTopic(ctx context.Context, img *metadata.Image) error {
	partitions := b.intConfig(img, "offsets.topic.num.partitions", 50)
	spec := controller.TopicSpec{Name: group.OffsetsTopic, Partitions: int32(partitions), ReplicationFactor: -1, Internal: true,
		Configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
			"segment.bytes":    b.brokerConfig(img, "offsets.topic.segment.bytes").value,
			"storage.mode":     "shared", // or the groups would be lost with a disk
		}}
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	results, err := b.cfg.Admin.CreateTopics(ctx, []controller.TopicSpec{spec}, false)
	if err == nil {
		err = refused(results[0].Err)
	}
	if err != nil {
		return fail(kerr.CoordinatorNotAvailable, "topic %s cannot be made yet: %v", group.OffsetsTopic, err)
	}
	return nil
}

// key answers for one key.
func (a *coordinatorAsk) key(key string) kmsg.FindCoordinatorResponseCoordinator {
	co := kmsg.NewFindCoordinatorResponseCoordinator()
	co.Key, co.NodeID = key, -1
	err := a.err
	if a.kind != 0 {
		err = noCoordinator(a.kind, key)
	}
	if err == nil {
		err = a.owner(key, &co)
	}
	co.ErrorCode, co.ErrorMessage = codeAndMessage(err)
	return co
}

// owner fills in who has the partition of a group.
func (a *coordinatorAsk) owner(key string, co *kmsg.FindCoordinatorResponseCoordinator) error {
	n := coordinator.PartitionOf(key, a.group.Partitions)
	p, ok := a.img.Partition(a.group.ID, n)
	if !ok {
		return fail(kerr.CoordinatorNotAvailable, "topic %s is being made", group.OffsetsTopic)
	}
	l := leadershipOf(a.img, p, a.listener)
	if l.err != nil {
		return fail(kerr.CoordinatorNotAvailable, "partition %d of %s, which keeps group %q, has no leader at the moment", n, group.OffsetsTopic, key)
	}
	br, _ := a.img.Broker(metadata.BrokerID(l.leader))
	at, _ := endpoint(br, a.listener) // leadershipOf has looked
	co.NodeID, co.Host, co.Port = l.leader, at.Host, at.Port
	return nil
}

// noCoordinator is why a key has no coordinator.
func noCoordinator(kind int8, key string) error {
	switch kind {
	case 1:
		return fail(kerr.UnsupportedVersion, "transactional id %q has no coordinator: this cluster serves no transactions yet; produce without transactional.id", key)
	case 2:
		return fail(kerr.UnsupportedVersion, "share group key %q has no coordinator: this cluster serves no share groups", key)
	default:
		return fail(kerr.InvalidRequest, "coordinator type %d is unknown; 0 is a group, 1 a transactional id, 2 a share group", kind)
	}
}
