package broker

// CreatePartitions v0-3: more partitions for topics that exist (KIP-195).
//
// Version notes:
//   v2 flexible
//   v3 THROTTLING_QUOTA_EXCEEDED

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) createPartitions(ctx context.Context, _ call, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := answer[*kmsg.CreatePartitionsResponse](req)
	img := b.image()
	count := make(map[string]int, len(req.Topics))
	for _, rt := range req.Topics {
		count[rt.Topic]++
	}
	var specs []controller.PartitionsSpec
	at := make(map[string]int, len(req.Topics))
	for _, rt := range req.Topics {
		if _, done := at[rt.Topic]; done {
			continue
		}
		at[rt.Topic] = len(resp.Topics)
		ct := kmsg.NewCreatePartitionsResponseTopic()
		ct.Topic = rt.Topic
		spec, err := partitionsSpec(img, rt)
		if count[rt.Topic] > 1 {
			err = fail(kerr.InvalidRequest, "topic %q is named %d times in the request", rt.Topic, count[rt.Topic])
		}
		if err != nil {
			ct.ErrorCode, ct.ErrorMessage = codeAndMessage(err)
		} else {
			specs = append(specs, spec)
		}
		resp.Topics = append(resp.Topics, ct)
	}
	if len(specs) == 0 {
		return resp
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results, err := b.cfg.Admin.CreatePartitions(ctx, specs, req.ValidateOnly)
	for i, spec := range specs {
		ct := &resp.Topics[at[spec.Topic]]
		if err != nil {
			ct.ErrorCode, ct.ErrorMessage = codeAndMessage(unknownOutcome(err))
		} else {
			ct.ErrorCode, ct.ErrorMessage = codeAndMessage(refused(results[i]))
		}
	}
	return resp
}

// partitionsSpec reads one topic of the request and checks it against the
// image; the controller checks again at the moment of the change.
func partitionsSpec(img *metadata.Image, rt kmsg.CreatePartitionsRequestTopic) (controller.PartitionsSpec, error) {
	spec := controller.PartitionsSpec{Topic: rt.Topic, Count: rt.Count}
	t, err := topicNamed(img, rt.Topic)
	if err != nil {
		return spec, err
	}
	switch {
	case t.Internal:
		return spec, fail(kerr.InvalidPartitions, "topic %q is internal: what it keeps is found by the number of its partitions and would be lost", rt.Topic)
	case rt.Count < t.Partitions:
		return spec, fail(kerr.InvalidPartitions, "topic %q has %d partitions, which is more than the asked %d; partitions cannot be taken away", rt.Topic, t.Partitions, rt.Count)
	case rt.Count == t.Partitions:
		return spec, fail(kerr.InvalidPartitions, "topic %q has %d partitions already", rt.Topic, t.Partitions)
	case rt.Assignment != nil && len(rt.Assignment) != int(rt.Count-t.Partitions):
		return spec, fail(kerr.InvalidReplicaAssignment, "%d assignments are given for %d new partitions", len(rt.Assignment), rt.Count-t.Partitions)
	}
	for _, a := range rt.Assignment {
		spec.Assignments = append(spec.Assignments, brokerIDs(a.Replicas))
	}
	return spec, nil
}
