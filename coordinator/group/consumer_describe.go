package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConsumerGroup shows a consumer group. Any other is not found.
func (m *Machine) DescribeConsumerGroup(id string) kmsg.ConsumerGroupDescribeResponseGroup {
	resp := kmsg.NewConsumerGroupDescribeResponseGroup()
	resp.Group = id
	if id == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	g := m.find(id)
	c := g.asConsumer()
	if c == nil {
		resp.ErrorCode = kerr.GroupIDNotFound.Code
		resp.ErrorMessage = kmsg.StringPtr("Group " + id + " not found.")
		if g != nil {
			resp.ErrorMessage = &notConsumer(id).text
		}
		return resp
	}
	resp.State, resp.Epoch, resp.AssignmentEpoch, resp.AssignorName = c.state(), c.epoch, c.targetEpoch, c.assignorName()
	topics := m.cfg().Topics()
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		member := c.members[id]
		dm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		dm.MemberID, dm.InstanceID, dm.RackID, dm.MemberEpoch = id, member.instance, member.rack, member.epoch
		dm.ClientID, dm.ClientHost = member.client.ClientID, member.client.Host
		dm.SubscribedTopics = member.topics
		regex := member.regex // the answer is encoded after the call
		dm.SubscribedTopicRegex = &regex
		has := maps.Clone(member.assigned)
		maps.Copy(has, member.revoking) // it has not given them up
		dm.Assignment, dm.TargetAssignment = described(topics, has), described(topics, c.targets[id])
		dm.MemberType = 1
		if member.classic != nil {
			dm.MemberType = 0
		}
		resp.Members = append(resp.Members, dm)
	}
	return resp
}

// described is a set as an answer. Topics that were deleted have no name to show.
func described(topics Topics, set partitionSet) kmsg.Assignment {
	a := kmsg.NewAssignment()
	a.TopicPartitions = []kmsg.AssignmentTopicPartition{}
	for _, p := range set.sorted() {
		n := len(a.TopicPartitions)
		if n == 0 || a.TopicPartitions[n-1].TopicID != p.Topic {
			name, ok := topics.Name(p.Topic)
			if !ok {
				continue
			}
			t := kmsg.NewAssignmentTopicPartition()
			t.TopicID, t.Topic = p.Topic, name
			a.TopicPartitions = append(a.TopicPartitions, t)
			n++
		}
		t := &a.TopicPartitions[n-1]
		t.Partitions = append(t.Partitions, p.Number)
	}
	return a
}
