package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/coordinator"
	"ponor/coordinator/group"
)

// coordinating is a connection to a broker that coordinates all groups, with a topic t
// of two partitions.
func coordinating(t *testing.T) *client {
	c, _ := coordinators(t)
	return c.dial()
}

// coordinators is that broker, and what keeps its groups.
func coordinators(t *testing.T, edit ...func(*cluster, *broker.Config)) (*cluster, *coordinator.Shards[*group.Machine]) {
	var groups *coordinator.Shards[*group.Machine]
	c := newCluster(t, func(c *cluster, cfg *broker.Config) {
		for _, f := range edit {
			f(c, cfg)
		}
		groups = coordinator.New(coordinator.Config[*group.Machine]{
			Topic: groupTopic, Partitions: c, New: func(int32) *group.Machine { return group.New(group.Config{}) }, Image: c.Image,
			LoadWait: time.Minute, // calls wait until it has loaded, however busy the machine is
		})
		cfg.Groups = groups
	})
	t.Cleanup(groups.Close)
	offsets := c.topic(groupTopic, 1)
	c.topic("t", 2)
	p, err := c.Get(offsets, 0)
	if err != nil {
		t.Fatal(err)
	}
	groups.Opened(p)
	return c, groups
}

// commitOf commits offset 7 for partitions of topics.
func commitOf(topics ...string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = "g", -1
	for _, name := range topics {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = name
		for _, n := range []int32{0, 1, 2, -1} {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset = n, 7
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// Offsets are of partitions that there are.
func TestOffsetsOfPartitionsThatDoNotExist(t *testing.T) {
	cl := coordinating(t)
	resp := ask[*kmsg.OffsetCommitResponse](cl, 9, commitOf("t", "unknown", ""))
	is(t, "topics", len(resp.Topics), 3)
	for i, ct := range resp.Topics {
		is(t, "topic", ct.Topic, []string{"t", "unknown", ""}[i])
		is(t, "partitions", len(ct.Partitions), 4)
		for _, cp := range ct.Partitions {
			want := kerr.UnknownTopicOrPartition
			if ct.Topic == "t" && cp.Partition >= 0 && cp.Partition < 2 {
				want = nil
			}
			isCode(t, "commit", cp.ErrorCode, want)
		}
	}

	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	for _, name := range []string{"", "t"} {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = name
		for _, n := range []int32{2, 0, -1} {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: n})
		}
		req.Topics = append(req.Topics, rt)
	}
	deleted := ask[*kmsg.OffsetDeleteResponse](cl, 0, req)
	is(t, "topics", len(deleted.Topics), 2)
	for _, dt := range deleted.Topics {
		is(t, "partitions", len(dt.Partitions), 3)
		for _, dp := range dt.Partitions {
			want := kerr.UnknownTopicOrPartition
			if dt.Topic == "t" && dp.Partition == 0 {
				want = nil
			}
			isCode(t, "delete", dp.ErrorCode, want)
		}
	}

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = "g"
	left := ask[*kmsg.OffsetFetchResponse](cl, 7, fetch)
	is(t, "topics", len(left.Topics), 1)
	is(t, "partitions", len(left.Topics[0].Partitions), 1)
	is(t, "partition", left.Topics[0].Partitions[0].Partition, 1)
}

// KIP-559: from version 5 on a member says which protocol it takes for the selected one.
func TestSyncGroupNamesTheProtocol(t *testing.T) {
	cl := coordinating(t)
	for _, c := range []struct {
		version        int16
		kind, protocol *string
		want           *kerr.Error
	}{
		{4, nil, nil, kerr.UnknownMemberID},
		{5, nil, kmsg.StringPtr("range"), kerr.InconsistentGroupProtocol},
		{5, kmsg.StringPtr("consumer"), nil, kerr.InconsistentGroupProtocol},
		{5, kmsg.StringPtr("consumer"), kmsg.StringPtr("range"), kerr.UnknownMemberID},
	} {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.ProtocolType, req.Protocol = "g", "m", c.kind, c.protocol
		isCode(t, "sync", ask[*kmsg.SyncGroupResponse](cl, c.version, req).ErrorCode, c.want)
	}
}

// Who may not read a group learns nothing of it, also of topics that do not exist.
func TestARefusedOffsetFetchHasNoTopics(t *testing.T) {
	cl := coordinating(t)
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Group, join.MemberID, join.RebalanceTimeoutMillis = "g", "m", 1000
	join.SubscribedTopicNames, join.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	isCode(t, "join", ask[*kmsg.ConsumerGroupHeartbeatResponse](cl, 1, join).ErrorCode, nil)
	for member, want := range map[string]*kerr.Error{"m": nil, "x": kerr.UnknownMemberID} {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group, rg.MemberID, rg.MemberEpoch = "g", &member, 1
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.TopicID, rt.Partitions = [16]byte{1}, []int32{0}
		rg.Topics = append(rg.Topics, rt)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Groups = append(req.Groups, rg)
		got := ask[*kmsg.OffsetFetchResponse](cl, 10, req).Groups[0]
		isCode(t, "fetch", got.ErrorCode, want)
		is(t, "topics", len(got.Topics), map[bool]int{true: 1, false: 0}[want == nil])
	}
}
