package group

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// OffsetDelete deletes offsets of topics that no member subscribes to (KIP-496).
func (m *Machine) OffsetDelete(req *kmsg.OffsetDeleteRequest) (*kmsg.OffsetDeleteResponse, []coordinator.Record) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	g := m.find(req.Group)
	switch {
	case req.Group == "":
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp, nil
	case g == nil:
		resp.ErrorCode = kerr.GroupIDNotFound.Code
		return resp, nil
	}
	if err := g.members.checkOffsetDelete(); err != nil {
		resp.ErrorCode = err.Code
		return resp, nil
	}
	for _, rt := range req.Topics {
		dt := kmsg.NewOffsetDeleteResponseTopic()
		dt.Topic = rt.Topic
		var code int16
		if g.members.subscribed(rt.Topic) {
			code = kerr.GroupSubscribedToTopic.Code
		}
		for _, rp := range rt.Partitions {
			dp := kmsg.NewOffsetDeleteResponseTopicPartition()
			dp.Partition, dp.ErrorCode = rp.Partition, code
			if code == 0 {
				m.eraseOffset(g, rt.Topic, rp.Partition)
			}
			dt.Partitions = append(dt.Partitions, dp)
		}
		resp.Topics = append(resp.Topics, dt)
	}
	return resp, m.take() // a group that has nothing left stays for a while: the call may be repeated
}

// DeleteGroup deletes a group without members, and its offsets. nil is done.
func (m *Machine) DeleteGroup(id string) (*kerr.Error, []coordinator.Record) {
	g := m.find(id)
	switch {
	case g == nil:
		return kerr.GroupIDNotFound, nil
	case !g.members.empty():
		return kerr.NonEmptyGroup, nil
	}
	m.erase(g)
	return nil, m.take()
}

// ListGroups lists the groups that a filter lets through. No states or no types lets
// all through; names of states and types are in any case.
func (m *Machine) ListGroups(states, types []string) []kmsg.ListGroupsResponseGroup {
	has := func(list []string, name string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
	}
	var groups []kmsg.ListGroupsResponseGroup
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		members := m.groups[id].members
		if !has(states, members.state()) || !has(types, members.kind()) {
			continue
		}
		lg := kmsg.NewListGroupsResponseGroup()
		lg.Group, lg.ProtocolType, lg.GroupState, lg.GroupType = id, members.protocolType(), members.state(), members.kind()
		groups = append(groups, lg)
	}
	return groups
}

// DescribeGroup shows a classic group. Any other is "Dead", which version 6 calls an
// error.
func (m *Machine) DescribeGroup(id string, version int16) kmsg.DescribeGroupsResponseGroup {
	resp := kmsg.NewDescribeGroupsResponseGroup()
	resp.Group = id
	var c *classicGroup
	if g := m.find(id); g != nil {
		c = g.classic()
	}
	if c == nil {
		resp.State = "Dead"
		if version >= 6 {
			resp.ErrorCode = kerr.GroupIDNotFound.Code
			resp.ErrorMessage = kmsg.StringPtr("Group " + id + " not found.")
		}
		return resp
	}
	resp.State, resp.ProtocolType = c.state(), c.protoType
	if c.st == stateStable && c.protocol != nil {
		resp.Protocol = *c.protocol
	}
	for _, m := range c.members {
		dm := kmsg.NewDescribeGroupsResponseGroupMember()
		dm.MemberID, dm.InstanceID, dm.ClientID, dm.ClientHost = m.id, m.instance, m.client.ClientID, m.client.Host
		dm.ProtocolMetadata, dm.MemberAssignment = []byte{}, m.assignment // also the one that a rebalance ends
		if c.st == stateStable {
			dm.ProtocolMetadata = m.metadata(resp.Protocol)
		}
		resp.Members = append(resp.Members, dm)
	}
	return resp
}
