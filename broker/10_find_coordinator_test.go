package broker_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/metadata"
)

const groupTopic = "__consumer_offsets"

// findCoordinators asks for keys and returns the answers as v4 has them.
func findCoordinators(cl *client, version int16, kind int8, keys ...string) []kmsg.FindCoordinatorResponseCoordinator {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = keys[0], keys, kind
	resp := ask[*kmsg.FindCoordinatorResponse](cl, version, req)
	if version >= 4 {
		return resp.Coordinators
	}
	return []kmsg.FindCoordinatorResponseCoordinator{{Key: keys[0], NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port,
		ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage}}
}

func TestFindCoordinatorOfGroups(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	for v := int16(0); v <= 6; v++ {
		got := findCoordinators(cl, v, 0, "g", "h")
		is(t, "keys", len(got), map[bool]int{true: 2, false: 1}[v >= 4])
		topic, _ := c.Image().Topic(groupTopic)
		for i, co := range got {
			isCode(t, fmt.Sprint("v", v), co.ErrorCode, nil)
			is(t, "key", co.Key, []string{"g", "h"}[i])
			p, _ := c.Image().Partition(topic.ID, coordinator.PartitionOf(co.Key, topic.Partitions))
			is(t, "node", metadata.BrokerID(co.NodeID), p.Owner.Broker)
			br, _ := c.Image().Broker(p.Owner.Broker)
			is(t, "host", co.Host, br.Endpoints[0].Host)
			is(t, "port", co.Port, br.Endpoints[0].Port)
		}
	}
}

func TestFindCoordinatorMakesTheTopicOfGroupsOnce(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	c.refuseAll(errors.New("no quorum"))
	co := findCoordinators(cl, 4, 0, "g")[0]
	isCode(t, "no quorum", co.ErrorCode, kerr.CoordinatorNotAvailable)
	is(t, "node", co.NodeID, -1)
	is(t, "message", co.ErrorMessage != nil, true)
	c.refuseAll(nil)
	findCoordinators(cl, 4, 0, "g")
	topic, ok := c.Image().Topic(groupTopic)
	is(t, "made", ok, true)
	is(t, "partitions", topic.Partitions, 50)
	is(t, "internal", topic.Internal, true)
	set := c.Image().TopicSettings(groupTopic)
	is(t, "compact", set.Compact && !set.Delete, true)
	is(t, "segment.bytes", set.SegmentBytes, 100<<20)
	findCoordinators(cl, 4, 0, "h")
	again, _ := c.Image().Topic(groupTopic)
	is(t, "the same topic", again.ID, topic.ID)
}

func TestFindCoordinatorOfOthers(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	for v := int16(1); v <= 6; v++ {
		for kind, want := range map[int8]*kerr.Error{1: kerr.UnsupportedVersion, 2: kerr.UnsupportedVersion, 9: kerr.InvalidRequest} {
			for _, co := range findCoordinators(cl, v, kind, "g", "h") {
				isCode(t, "code", co.ErrorCode, want)
				is(t, "has a message", co.ErrorMessage != nil, true)
				is(t, "node", co.NodeID, -1)
			}
		}
	}
	_, ok := c.Image().Topic(groupTopic)
	is(t, "topic of groups was made for nothing", ok, false)
}

// Where a group is kept depends on the number of partitions.
func TestTopicOfGroupsKeepsItsPartitions(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	findCoordinators(cl, 4, 0, "g")
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = groupTopic, 60
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 1000
	resp := ask[*kmsg.CreatePartitionsResponse](cl, 3, req)
	isCode(t, "CreatePartitions", resp.Topics[0].ErrorCode, kerr.InvalidPartitions)
	topic, _ := c.Image().Topic(groupTopic)
	is(t, "partitions", topic.Partitions, 50)
}
