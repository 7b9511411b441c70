package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/controller"
	"ponor/metadata"
)

func (c *cluster) DescribeQuorum(context.Context) (controller.QuorumInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.quorum
	q.Members = slices.Clone(q.Members)
	return q, c.adminErr
}

func (c *cluster) setVote(id metadata.BrokerID, vote bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.quorum.Members {
		if m := &c.quorum.Members[i]; m.ID == id {
			m.Voter = vote
			return nil
		}
	}
	return &controller.Error{Code: controller.CodeUnknownBroker, Message: "unknown"}
}

func (c *cluster) AddVoter(_ context.Context, id metadata.BrokerID, _ controller.DirectoryID) error {
	return c.setVote(id, true)
}

func (c *cluster) RemoveVoter(_ context.Context, id metadata.BrokerID, _ controller.DirectoryID) error {
	return c.setVote(id, false)
}

func quorumOf(c *cluster, _ *broker.Config) {
	at := time.UnixMilli(5000)
	c.quorum = controller.QuorumInfo{Leader: 1, Term: 7, Commit: 99, LastIndex: 100, Members: []controller.QuorumMember{
		{ID: 1, Directory: controller.DirectoryID{1}, Address: "n1:9192", Voter: true, Member: true, LastIndex: 100, Heard: at, CaughtUp: at},
		{ID: 2, Directory: controller.DirectoryID{2}, Address: "n2:9192", Voter: true, Member: true},
		{ID: 3, Address: "", LastIndex: 98, Heard: at},
	}}
}

func describeQuorumRequest(topic string, partitions ...int32) *kmsg.DescribeQuorumRequest {
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic = topic
	for _, p := range partitions {
		rt.Partitions = append(rt.Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func TestDescribeQuorum(t *testing.T) {
	c := newCluster(t, quorumOf)
	cl := c.dial()
	for version := range int16(3) {
		resp := ask[*kmsg.DescribeQuorumResponse](cl, version, describeQuorumRequest("__cluster_metadata", 0))
		p := resp.Topics[0].Partitions[0]
		is(t, "leader, epoch, high watermark", fmt.Sprint(p.LeaderID, p.LeaderEpoch, p.HighWatermark), "1 7 100")
		is(t, "voters and observers", fmt.Sprint(len(p.CurrentVoters), len(p.Observers)), "2 1")
		is(t, "ends", fmt.Sprint(p.CurrentVoters[0].LogEndOffset, p.CurrentVoters[1].LogEndOffset, p.Observers[0].LogEndOffset), "101 -1 99")
		if version >= 1 {
			is(t, "times", fmt.Sprint(p.CurrentVoters[0].LastFetchTimestamp, p.CurrentVoters[1].LastFetchTimestamp, p.Observers[0].LastCaughtUpTimestamp), "5000 -1 -1")
		}
		if version >= 2 {
			is(t, "directory", p.CurrentVoters[1].ReplicaDirectoryID, [16]byte{2})
			is(t, "nodes", fmt.Sprintf("%d %s %d", len(resp.Nodes), resp.Nodes[0].Listeners[0].Name, resp.Nodes[0].Listeners[0].Port), "2 CONTROLLER 9192")
		}
	}
	isCode(t, "two partitions", ask[*kmsg.DescribeQuorumResponse](cl, 2, describeQuorumRequest("__cluster_metadata", 0, 1)).ErrorCode, kerr.InvalidRequest)
	isCode(t, "another topic", ask[*kmsg.DescribeQuorumResponse](cl, 2, describeQuorumRequest("t", 0)).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

func TestRaftVoters(t *testing.T) {
	c := newCluster(t, quorumOf)
	cl := c.dial()
	other := "BAAAAAAAAAAAAAAAAAAAAA"
	add := func(id int32, dir byte, cluster *string) int16 {
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID, req.ClusterID = id, [16]byte{dir}, cluster
		return ask[*kmsg.AddRaftVoterResponse](cl, 1, req).ErrorCode
	}
	remove := func(id int32, dir byte, cluster *string) int16 {
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID, req.ClusterID = id, [16]byte{dir}, cluster
		return ask[*kmsg.RemoveRaftVoterResponse](cl, 0, req).ErrorCode
	}
	isCode(t, "add to another cluster", add(3, 0, &other), kerr.InconsistentClusterID)
	isCode(t, "add a voter", add(2, 2, nil), kerr.DuplicateVoter)
	isCode(t, "add a stranger", add(9, 9, nil), kerr.BrokerIDNotRegistered)
	isCode(t, "add", add(3, 0, nil), nil)
	isCode(t, "added", add(3, 0, nil), kerr.DuplicateVoter)
	isCode(t, "remove from another cluster", remove(3, 0, &other), kerr.InconsistentClusterID)
	isCode(t, "remove another directory", remove(2, 5, nil), kerr.VoterNotFound)
	isCode(t, "remove", remove(2, 2, nil), nil)
	isCode(t, "removed", remove(2, 2, nil), kerr.VoterNotFound)
}
