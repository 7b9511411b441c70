package broker_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func newTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(configs); i += 2 {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = configs[i], &configs[i+1]
		rt.Configs = append(rt.Configs, rc)
	}
	return rt
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = 5000, topics
	return req
}

func TestCreateTopicsAtEveryVersion(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	for v := int16(2); v <= 7; v++ {
		name := "t" + string(rune('0'+v))
		resp := ask[*kmsg.CreateTopicsResponse](cl, v, createRequest(newTopic(name, 3, 2, "retention.ms", "5000")))
		ct := resp.Topics[0]
		isCode(t, name, ct.ErrorCode, nil)
		is(t, "no message", ct.ErrorMessage == nil, true)
		topic, ok := c.Image().Topic(name)
		is(t, "exists", ok, true)
		if v >= 5 { // KIP-525
			is(t, "partitions", ct.NumPartitions, 3)
			is(t, "replicas", ct.ReplicationFactor, 2)
			i := slices.IndexFunc(ct.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "retention.ms" })
			if i < 0 || *ct.Configs[i].Value != "5000" || ct.Configs[i].Source != int8(kmsg.ConfigSourceDynamicTopicConfig) {
				t.Errorf("retention.ms is not among the configs: %v", ct.Configs)
			}
		}
		if v >= 7 {
			is(t, "id", ct.TopicID, [16]byte(topic.ID))
		}
	}
}

func TestCreateTopicsRefusals(t *testing.T) {
	c := newCluster(t)
	c.topic("a.b_c", 1)
	cl := c.dial()
	assigned := newTopic("assigned", 1, -1)
	ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	ra.Replicas = []int32{1, 2}
	assigned.ReplicaAssignment = append(assigned.ReplicaAssignment, ra)
	twice := assigned
	twice.Topic, twice.NumPartitions, twice.ReplicaAssignment = "twice", -1, []kmsg.CreateTopicsRequestTopicReplicaAssignment{ra, ra}
	null := newTopic("null", 1, 1, "retention.ms", "1")
	null.Configs[0].Value = nil
	for _, tc := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		want  *kerr.Error
	}{
		{newTopic("a.b_c", 1, 1), kerr.TopicAlreadyExists},
		{newTopic("a_b.c", 1, 1), kerr.InvalidTopicException}, // Kafka 4.4: they exclude each other
		{newTopic("", 1, 1), kerr.InvalidTopicException},
		{newTopic("..", 1, 1), kerr.InvalidTopicException},
		{newTopic("a/b", 1, 1), kerr.InvalidTopicException},
		{newTopic("p0", 0, 1), kerr.InvalidPartitions},
		{newTopic("p-2", -2, 1), kerr.InvalidPartitions},
		{newTopic("r0", 1, 0), kerr.InvalidReplicationFactor},
		{newTopic("cfg", 1, 1, "retention.mss", "1"), kerr.InvalidConfig},
		{newTopic("cfg2", 1, 1, "retention.ms", "soon"), kerr.InvalidConfig},
		{newTopic("cfg3", 1, 1, "retention.ms", "1", "retention.ms", "2"), kerr.InvalidRequest},
		{null, kerr.InvalidConfig},
		{assigned, kerr.InvalidRequest},
		{twice, kerr.InvalidReplicaAssignment},
	} {
		// A good topic beside it is made all the same.
		good := "good-" + tc.want.Message + "-" + string(rune('a'+c.Image().TopicCount()))
		resp := ask[*kmsg.CreateTopicsResponse](cl, 7, createRequest(tc.topic, newTopic(good, 1, 1)))
		isCode(t, tc.topic.Topic, resp.Topics[0].ErrorCode, tc.want)
		if m := resp.Topics[0].ErrorMessage; m == nil || *m == "" {
			t.Errorf("%s: no message", tc.topic.Topic)
		}
		// The Java Admin client fails on null configs when partitions are set.
		is(t, "partitions", resp.Topics[0].NumPartitions, -1)
		isCode(t, good, resp.Topics[1].ErrorCode, nil)
	}
}

// Kafka 4.4: a name that appears twice is INVALID_REQUEST, for that name only.
func TestCreateTopicsTwiceInARequest(t *testing.T) {
	c := newCluster(t)
	resp := ask[*kmsg.CreateTopicsResponse](c.dial(), 7, createRequest(newTopic("x", 1, 1), newTopic("y", 1, 1), newTopic("x", 1, 1)))
	is(t, "answers", len(resp.Topics), 2)
	for _, ct := range resp.Topics {
		want := map[string]*kerr.Error{"x": kerr.InvalidRequest}[ct.Topic]
		isCode(t, ct.Topic, ct.ErrorCode, want)
	}
}

func TestCreateTopicsValidateOnlyAndDefaults(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	req := createRequest(newTopic("t", -1, -1)) // KIP-464
	req.ValidateOnly = true
	ct := ask[*kmsg.CreateTopicsResponse](cl, 7, req).Topics[0]
	isCode(t, "validate", ct.ErrorCode, nil)
	is(t, "partitions", ct.NumPartitions, 1)
	is(t, "configs are not null", len(ct.Configs) > 0, true)
	_, ok := c.Image().Topic("t")
	is(t, "made", ok, false)
}

// KIP-464 and before: replicas by hand, the first is the preferred leader.
func TestCreateTopicsWithAssignments(t *testing.T) {
	c := newCluster(t)
	rt := newTopic("t", -1, -1)
	for n, ids := range [][]int32{{2, 1}, {1, 3}} {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(n), ids
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	ct := ask[*kmsg.CreateTopicsResponse](c.dial(), 7, createRequest(rt)).Topics[0]
	isCode(t, "create", ct.ErrorCode, nil)
	is(t, "partitions", ct.NumPartitions, 2)
	p, _ := c.Image().Partition(ct.TopicID, 0)
	if !slices.Equal(p.Replicas, []metadata.BrokerID{2, 1}) {
		t.Errorf("replicas %v, want the given list", p.Replicas)
	}
}

// An outcome that nobody knows is retriable and says why.
func TestCreateTopicsWithoutController(t *testing.T) {
	c := newCluster(t)
	c.refuseAll(errors.New("no leader was reached"))
	ct := ask[*kmsg.CreateTopicsResponse](c.dial(), 7, createRequest(newTopic("t", 1, 1))).Topics[0]
	isCode(t, "create", ct.ErrorCode, kerr.RequestTimedOut)
	is(t, "has a message", ct.ErrorMessage != nil, true)
}

func TestDeleteTopics(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	for v := int16(1); v <= 6; v++ {
		c.topic("t", 1)
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 5000
		if v < 6 {
			req.TopicNames = []string{"t", "nope"}
		} else {
			for _, name := range []string{"t", "nope"} {
				rt := kmsg.NewDeleteTopicsRequestTopic()
				rt.Topic = &name
				req.Topics = append(req.Topics, rt)
			}
		}
		resp := ask[*kmsg.DeleteTopicsResponse](cl, v, req)
		isCode(t, "delete", resp.Topics[0].ErrorCode, nil)
		isCode(t, "unknown", resp.Topics[1].ErrorCode, kerr.UnknownTopicOrPartition)
		if v >= 5 {
			is(t, "has a message", resp.Topics[1].ErrorMessage != nil, true)
		}
		_, there := c.Image().Topic("t")
		is(t, "its name is free", !there, true)
	}
}

// KIP-516: by id, with an error for what makes no sense.
func TestDeleteTopicsByID(t *testing.T) {
	c := newCluster(t)
	id, other := c.topic("t", 1), c.topic("other", 1)
	cl := c.dial()
	entry := func(id metadata.TopicID, name *string) kmsg.DeleteTopicsRequestTopic {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID, rt.Topic = id, name
		return rt
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		entry(id, nil), entry(metadata.TopicID{3}, nil), entry(id, kmsg.StringPtr("t")), entry(metadata.TopicID{}, nil),
		entry(other, nil), entry(metadata.TopicID{}, kmsg.StringPtr("other")),
	}
	resp := ask[*kmsg.DeleteTopicsResponse](cl, 6, req)
	for i, want := range []*kerr.Error{nil, kerr.UnknownTopicID, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest} {
		isCode(t, "entry "+string(rune('0'+i)), resp.Topics[i].ErrorCode, want)
	}
	is(t, "name", *resp.Topics[0].Topic, "t")
	_, err := c.Image().Topic("other")
	is(t, "named twice is not deleted", err, true)
}

func TestCreatePartitions(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	grow := func(version int16, only bool, entries ...kmsg.CreatePartitionsRequestTopic) *kmsg.CreatePartitionsResponse {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis, req.ValidateOnly, req.Topics = 5000, only, entries
		return ask[*kmsg.CreatePartitionsResponse](cl, version, req)
	}
	entry := func(name string, count int32, assignments ...[]int32) kmsg.CreatePartitionsRequestTopic {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = name, count
		for _, a := range assignments {
			ra := kmsg.NewCreatePartitionsRequestTopicAssignment()
			ra.Replicas = a
			rt.Assignment = append(rt.Assignment, ra)
		}
		return rt
	}
	c.topic("t", 1)
	count := func() int32 { topic, _ := c.Image().Topic("t"); return topic.Partitions }
	for v := int16(0); v <= 3; v++ {
		want := count() + 1
		isCode(t, "grow", grow(v, false, entry("t", want)).Topics[0].ErrorCode, nil)
		is(t, "partitions", count(), want)
	}
	isCode(t, "validate", grow(3, true, entry("t", 20)).Topics[0].ErrorCode, nil)
	is(t, "not grown", count(), 5)
	for _, tc := range []struct {
		entry kmsg.CreatePartitionsRequestTopic
		want  *kerr.Error
	}{
		{entry("nope", 3), kerr.UnknownTopicOrPartition},
		{entry("t", 5), kerr.InvalidPartitions},
		{entry("t", 2), kerr.InvalidPartitions},
		{entry("t", -1), kerr.InvalidPartitions},
		{entry("t", 7, []int32{1}), kerr.InvalidReplicaAssignment},
	} {
		ct := grow(3, false, tc.entry).Topics[0]
		isCode(t, tc.entry.Topic, ct.ErrorCode, tc.want)
		is(t, "has a message", ct.ErrorMessage != nil, true)
	}
	resp := grow(3, false, entry("t", 8), entry("t", 9))
	is(t, "answers", len(resp.Topics), 1)
	isCode(t, "twice", resp.Topics[0].ErrorCode, kerr.InvalidRequest)
}

func TestDeleteRecords(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	c.topic("compacted", 1, "cleanup.policy", "compact")
	c.move(c.topic("moved", 1), 0, 2)
	cl := c.dial()
	for range 6 {
		cl.mustProduce("t", 0, "x")
	}
	del := func(version int16, topic string, number int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 5000
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = number, offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.DeleteRecordsResponse](cl, version, req).Topics[0].Partitions[0]
	}
	for _, tc := range []struct {
		name   string
		topic  string
		number int32
		offset int64
		low    int64
		want   *kerr.Error
	}{
		{"to an offset", "t", 0, 2, 2, nil},
		{"below the start: no error, the start (Kafka 4.4)", "t", 0, 1, 2, nil},
		{"above the end", "t", 0, 99, -1, kerr.OffsetOutOfRange},
		{"negative", "t", 0, -2, -1, kerr.OffsetOutOfRange},
		{"all", "t", 0, -1, 6, nil},
		{"compacted only (Kafka 4.4)", "compacted", 0, -1, -1, kerr.PolicyViolation},
		{"unknown topic", "nope", 0, 0, -1, kerr.UnknownTopicOrPartition},
		{"unknown partition", "t", 3, 0, -1, kerr.UnknownTopicOrPartition},
		{"led elsewhere", "moved", 0, 0, -1, kerr.NotLeaderForPartition},
	} {
		p := del(2, tc.topic, tc.number, tc.offset)
		isCode(t, tc.name, p.ErrorCode, tc.want)
		is(t, tc.name, p.LowWatermark, tc.low)
	}
	is(t, "v0", del(0, "t", 0, 0).LowWatermark, 6)
	is(t, "earliest", cl.listOffset(5, "t", 0, -2).Offset, 6)
}

func TestDescribeLogDirs(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 3)
	c.topic("u", 1)
	cl := c.dial()
	cl.mustProduce("t", 1, "x")
	cl.mustProduce("t", 2, "y")
	c.move(id, 2, 2)
	c.move(id, 0, 2)
	c.must(&metadatapb.Command{Body: &metadatapb.Command_AssignReplicas{AssignReplicas: &metadatapb.AssignReplicas{TopicId: id[:], Replicas: []int32{2}}}})
	for v := int16(1); v <= 5; v++ {
		resp := ask[*kmsg.DescribeLogDirsResponse](cl, v, kmsg.NewPtrDescribeLogDirsRequest())
		isCode(t, "response", resp.ErrorCode, nil)
		is(t, "dirs", len(resp.Dirs), 1)
		dir := resp.Dirs[0]
		is(t, "dir", dir.Dir, "mem://test")
		is(t, "topics", len(dir.Topics), 2)
		is(t, "owned or replica", len(dir.Topics[0].Partitions), 2)
		is(t, "bytes", dir.Topics[0].Partitions[0].Size, int64(len(batch("x"))))
		is(t, "of a replica", dir.Topics[0].Partitions[1].Partition, 2)
		is(t, "bytes of a replica", dir.Topics[0].Partitions[1].Size, 0)
	}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	for _, name := range []string{"t", "nope"} {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = name, []int32{1, 2, 9}
		req.Topics = append(req.Topics, rt)
	}
	dir := ask[*kmsg.DescribeLogDirsResponse](cl, 4, req).Dirs[0]
	is(t, "topics", len(dir.Topics), 1)
	is(t, "partitions", len(dir.Topics[0].Partitions), 2)
}
