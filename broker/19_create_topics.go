package broker

// CreateTopics v2-7: on any broker; placement is the controller's.
//
// Version notes:
//   v4 defaults: -1 partitions, -1 replication factor (KIP-464)
//   v5 flexible; what was created, with its configs (KIP-525)
//   v7 topic ids (KIP-516)
//
// A name that appears twice in a request is INVALID_REQUEST for that name only.
// Configs in a response are never null once the partition count is filled in:
// the Java Admin client fails on that.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) createTopics(ctx context.Context, _ call, req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := answer[*kmsg.CreateTopicsResponse](req)
	count := make(map[string]int, len(req.Topics))
	for _, rt := range req.Topics {
		count[rt.Topic]++
	}
	var specs []controller.TopicSpec
	at := make(map[string]int, len(req.Topics)) // index in resp.Topics
	for _, rt := range req.Topics {
		if _, done := at[rt.Topic]; done {
			continue
		}
		at[rt.Topic] = len(resp.Topics)
		ct := newCreatedTopic(rt.Topic)
		spec, err := topicSpec(rt)
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
	results, err := b.cfg.Admin.CreateTopics(ctx, specs, req.ValidateOnly)
	for i, spec := range specs {
		ct := &resp.Topics[at[spec.Name]]
		if err != nil {
			ct.ErrorCode, ct.ErrorMessage = codeAndMessage(unknownOutcome(err))
			continue
		}
		b.createdTopic(ct, spec, results[i])
	}
	return resp
}

func newCreatedTopic(name string) kmsg.CreateTopicsResponseTopic {
	ct := kmsg.NewCreateTopicsResponseTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, -1, -1
	ct.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return ct
}

// createdTopic fills in one result.
func (b *Broker) createdTopic(ct *kmsg.CreateTopicsResponseTopic, spec controller.TopicSpec, r controller.TopicResult) {
	if r.Err != nil {
		ct.ErrorCode, ct.ErrorMessage = codeAndMessage(refused(r.Err))
		return
	}
	img := b.image()
	ct.TopicID, ct.NumPartitions, ct.ReplicationFactor = r.ID, r.Partitions, r.ReplicationFactor
	if p, ok := img.Partition(r.ID, 0); ok && r.Partitions == 0 { // found made by an earlier attempt
		t, _ := img.TopicByID(r.ID)
		ct.NumPartitions, ct.ReplicationFactor = t.Partitions, int16(len(p.Replicas))
	}
	for _, def := range metadata.TopicConfigs() {
		if def.Internal {
			continue
		}
		v := topicConfig(img, spec.Name, spec.Configs, def)
		cc := kmsg.NewCreateTopicsResponseTopicConfig()
		cc.Name, cc.Value, cc.Source = def.Name, v.shown(), int8(v.source)
		cc.ReadOnly, cc.IsSensitive = def.ReadOnly(), def.Sensitive
		ct.Configs = append(ct.Configs, cc)
	}
}

// topicSpec reads one topic of the request and checks what needs no cluster
// state.
func topicSpec(rt kmsg.CreateTopicsRequestTopic) (controller.TopicSpec, error) {
	spec := controller.TopicSpec{
		Name: rt.Topic, Partitions: rt.NumPartitions, ReplicationFactor: rt.ReplicationFactor,
		Internal: controller.IsInternal(rt.Topic),
	}
	if err := checkTopicName(rt.Topic); err != nil {
		return spec, err
	}
	switch {
	case len(rt.ReplicaAssignment) > 0:
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return spec, fail(kerr.InvalidRequest, "a replica assignment excludes partition count and replication factor; send -1 for both")
		}
	case rt.NumPartitions == 0 || rt.NumPartitions < -1:
		return spec, fail(kerr.InvalidPartitions, "partition count %d is not positive; -1 asks for the default", rt.NumPartitions)
	case rt.ReplicationFactor == 0 || rt.ReplicationFactor < -1:
		return spec, fail(kerr.InvalidReplicationFactor, "replication factor %d is not positive; -1 asks for the default", rt.ReplicationFactor)
	}
	for _, a := range rt.ReplicaAssignment {
		if spec.Assignments == nil {
			spec.Assignments = make(map[int32][]metadata.BrokerID, len(rt.ReplicaAssignment))
		}
		if _, twice := spec.Assignments[a.Partition]; twice {
			return spec, fail(kerr.InvalidReplicaAssignment, "partition %d is assigned twice", a.Partition)
		}
		spec.Assignments[a.Partition] = brokerIDs(a.Replicas)
	}
	for _, c := range rt.Configs {
		if spec.Configs == nil {
			spec.Configs = make(map[string]string, len(rt.Configs))
		}
		if _, twice := spec.Configs[c.Name]; twice {
			return spec, fail(kerr.InvalidRequest, "config %q is given twice", c.Name)
		}
		if c.Value == nil {
			return spec, fail(kerr.InvalidConfig, "config %q has a null value; leave it out for the default", c.Name)
		}
		spec.Configs[c.Name] = *c.Value
	}
	if err := metadata.ValidateTopicConfigs(spec.Configs); err != nil {
		return spec, fail(kerr.InvalidConfig, "%v", err)
	}
	return spec, nil
}

func brokerIDs(ids []int32) []metadata.BrokerID {
	out := make([]metadata.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = metadata.BrokerID(id)
	}
	return out
}
