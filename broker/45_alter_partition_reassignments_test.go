package broker_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func reassignRequest(topic string, partition int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
		{Partition: partition, Replicas: replicas}}}}
	return req
}

// KIP-455: lists are kept verbatim, what waits for a move is listed, null
// cancels it.
func TestReassignments(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 2)
	cl := c.dial()
	change := func(version int16, replicas []int32) kmsg.AlterPartitionAssignmentsResponseTopicPartition {
		return ask[*kmsg.AlterPartitionAssignmentsResponse](cl, version, reassignRequest("t", 0, replicas)).Topics[0].Partitions[0]
	}
	list := func(topics []kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		resp := ask[*kmsg.ListPartitionReassignmentsResponse](cl, 0, req)
		isCode(t, "list", resp.ErrorCode, nil)
		return resp.Topics
	}
	isCode(t, "cancel nothing", change(1, nil).ErrorCode, kerr.NoReassignmentInProgress)
	isCode(t, "with the owner first", change(0, []int32{1, 3}).ErrorCode, nil)
	p, _ := c.Image().Partition(id, 0)
	is(t, "replicas", fmt.Sprint(p.Replicas), fmt.Sprint([]metadata.BrokerID{1, 3}))
	is(t, "under way", len(list(nil)), 0)
	isCode(t, "without the owner", change(1, []int32{3, 2}).ErrorCode, nil)
	for _, topics := range [][]kmsg.ListPartitionReassignmentsRequestTopic{nil, {{Topic: "none", Partitions: []int32{0}}, {Topic: "t", Partitions: []int32{0, 1, 9}}}} {
		got := list(topics)
		if len(got) != 1 || len(got[0].Partitions) != 1 || got[0].Partitions[0].Partition != 0 || len(got[0].Partitions[0].AddingReplicas) != 1 || len(got[0].Partitions[0].RemovingReplicas) != 1 {
			t.Errorf("list of %v: %+v", topics, got)
		}
	}
	isCode(t, "cancel", change(1, nil).ErrorCode, nil)
	is(t, "under way", len(list(nil)), 0)
}

func TestReassignmentsThatCannotBe(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	cl := c.dial()
	for _, tc := range []struct {
		name string
		req  *kmsg.AlterPartitionAssignmentsRequest
		edit func(*kmsg.AlterPartitionAssignmentsRequest)
		want *kerr.Error
	}{
		{"no topic", reassignRequest("none", 0, []int32{1}), nil, kerr.UnknownTopicOrPartition},
		{"no partition", reassignRequest("t", 7, []int32{1}), nil, kerr.UnknownTopicOrPartition},
		{"empty list", reassignRequest("t", 0, []int32{}), nil, kerr.InvalidReplicaAssignment},
		// KIP-860
		{"other replication factor", reassignRequest("t", 0, []int32{1}), func(r *kmsg.AlterPartitionAssignmentsRequest) { r.AllowReplicationFactorChange = false }, kerr.InvalidReplicationFactor},
		{"same replication factor", reassignRequest("t", 0, []int32{1, 3, 2}), func(r *kmsg.AlterPartitionAssignmentsRequest) { r.AllowReplicationFactorChange = false }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.edit != nil {
				tc.edit(tc.req)
			}
			resp := ask[*kmsg.AlterPartitionAssignmentsResponse](cl, 1, tc.req)
			isCode(t, "request", resp.ErrorCode, nil)
			isCode(t, "partition", resp.Topics[0].Partitions[0].ErrorCode, tc.want)
		})
	}
	twice := reassignRequest("t", 0, []int32{1, 2, 3})
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
	isCode(t, "named twice", ask[*kmsg.AlterPartitionAssignmentsResponse](cl, 0, twice).Topics[0].Partitions[1].ErrorCode, kerr.InvalidRequest)
	c.refuseAll(fmt.Errorf("no leader"))
	isCode(t, "no controller", ask[*kmsg.AlterPartitionAssignmentsResponse](cl, 0, reassignRequest("t", 0, []int32{1})).Topics[0].Partitions[0].ErrorCode, kerr.RequestTimedOut)
}

// KIP-113: the one place of a log can be named, and no other.
func TestAlterReplicaLogDirs(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 2)
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	dir := func(name, topic string, partition int32) {
		req.Dirs = append(req.Dirs, kmsg.AlterReplicaLogDirsRequestDir{Dir: name, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{partition}}}})
	}
	dir("mem://test", "t", 0)
	dir("/elsewhere", "t", 1)
	dir("mem://test", "t", 5)
	dir("mem://test", "none", 0)
	topics := ask[*kmsg.AlterReplicaLogDirsResponse](c.dial(), 2, req).Topics
	isCode(t, "where it is", topics[0].Partitions[0].ErrorCode, nil)
	isCode(t, "elsewhere", topics[0].Partitions[1].ErrorCode, kerr.LogDirNotFound)
	isCode(t, "no partition", topics[0].Partitions[2].ErrorCode, kerr.UnknownTopicOrPartition)
	isCode(t, "no topic", topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

// KIP-460: the answer to an election comes when the preferred leader has the
// partition; of all topics only what had to be elected is listed.
func TestElections(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 3)
	cl := c.dial()
	elect := func(kind int8, timeout int32, topics []kmsg.ElectLeadersRequestTopic) *kmsg.ElectLeadersResponse {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.Topics, req.TimeoutMillis = kind, topics, timeout
		return ask[*kmsg.ElectLeadersResponse](cl, 2, req)
	}
	one := []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{1}}}
	isCode(t, "not needed", elect(0, 1000, one).Topics[0].Partitions[0].ErrorCode, kerr.ElectionNotNeeded)
	isCode(t, "unclean, has a leader", elect(1, 1000, one).Topics[0].Partitions[0].ErrorCode, kerr.ElectionNotNeeded)
	is(t, "all, none needed", len(elect(0, 1000, nil).Topics), 0)
	isCode(t, "unknown kind", elect(2, 1000, one).ErrorCode, kerr.InvalidRequest)
	c.move(id, 1, 3)
	resp := elect(0, 1000, nil)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 1 {
		t.Fatalf("elected %+v", resp.Topics)
	}
	isCode(t, "elected", resp.Topics[0].Partitions[0].ErrorCode, nil)
	if p, _ := c.Image().Partition(id, 1); p.Owner.Broker != 1 {
		t.Errorf("led by %d when the answer came", p.Owner.Broker)
	}
	c.move(id, 1, 3)
	c.mu.Lock()
	c.stuck = true
	c.mu.Unlock()
	isCode(t, "takes too long", elect(0, 50, one).Topics[0].Partitions[0].ErrorCode, kerr.RequestTimedOut)
	isCode(t, "no topic", elect(0, 50, []kmsg.ElectLeadersRequestTopic{{Topic: "none", Partitions: []int32{0}}}).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
	isCode(t, "no partition", elect(0, 50, []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{9}}}).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
}
