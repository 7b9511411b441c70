package broker

// ListPartitionReassignments v0: what AlterPartitionReassignments began and is
// not done (KIP-455). It answers from a fresh image, because tools ask it right
// after a change that another broker took.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) listPartitionReassignments(ctx context.Context, _ call, req *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	resp := answer[*kmsg.ListPartitionReassignmentsResponse](req)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	img, err := b.cfg.Meta.Barrier(ctx)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(unknownOutcome(err))
		return resp
	}
	if req.Topics == nil {
		for t := range img.Topics() {
			if !t.Deleting {
				listReassignments(img, t, nil, resp)
			}
		}
		return resp
	}
	for _, rt := range req.Topics {
		// A topic that does not exist has nothing under way, as in Kafka.
		if t, err := topicNamed(img, rt.Topic); err == nil {
			listReassignments(img, t, rt.Partitions, resp)
		}
	}
	return resp
}

// listReassignments adds the reassignments of one topic; nil numbers are all.
func listReassignments(img *metadata.Image, t metadata.Topic, numbers []int32, resp *kmsg.ListPartitionReassignmentsResponse) {
	lt := kmsg.NewListPartitionReassignmentsResponseTopic()
	lt.Topic = t.Name
	add := func(p metadata.Partition) {
		if len(p.Adding)+len(p.Removing) == 0 {
			return
		}
		lp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		lp.Partition = p.Number
		lp.Replicas, lp.AddingReplicas, lp.RemovingReplicas = int32s(p.Replicas), int32s(p.Adding), int32s(p.Removing)
		lt.Partitions = append(lt.Partitions, lp)
	}
	if numbers == nil {
		for p := range img.Partitions(t.ID) {
			add(p)
		}
	}
	for _, n := range numbers {
		if p, ok := img.Partition(t.ID, n); ok {
			add(p)
		}
	}
	if len(lt.Partitions) > 0 {
		resp.Topics = append(resp.Topics, lt)
	}
}

// int32s are broker ids as the protocol has them.
func int32s(ids []metadata.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
