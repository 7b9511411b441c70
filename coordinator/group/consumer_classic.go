package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group/assignor"
)

// joinConsumer, syncConsumer, heartbeatConsumer and leaveConsumer serve members that
// use the classic protocol in a consumer group. Each JoinGroup is a step toward the
// target; who joined gets its assignment from SyncGroup, as a follower would; a
// heartbeat tells it to join again when there is a step to take.
func (m *Machine) joinConsumer(now time.Time, g *Group, c *consumerGroup, j join) {
	var replaced *consumerMember
	if j.req.InstanceID != nil {
		if old := c.members[c.instances[*j.req.InstanceID]]; old != nil && (j.req.MemberID == unknownMember || old.epoch == epochLeaveStatic) {
			replaced = old
		}
	}
	switch {
	case c.empty():
		m.out = c.tombstones(m.out)
		classic := newClassicGroup(m, g)
		g.members = classic
		classic.join(now, j)
	case replaced != nil && replaced.classic == nil && c.allClassic(replaced) && len(c.members) == 1:
		// The last member by KIP-848 comes back as a classic one.
		m.out = c.tombstones(m.out)
		classic := newClassicGroup(m, g)
		classic.generation = c.epoch
		g.members = classic
		classic.join(now, j)
	default:
		c.join(now, j, replaced)
	}
}

// join is a JoinGroup of or for a member of the group.
func (c *consumerGroup) join(now time.Time, j join, replaced *consumerMember) {
	id := j.req.MemberID
	switch {
	case len(c.members) >= c.m.cfg().Consumer.MaxSize && c.members[id] == nil && replaced == nil:
		j.fail(unknownMember, kerr.GroupMaxSizeReached)
		return
	case j.req.ProtocolType != consumerProtocol || !c.accepts(j.req.Protocols, c.members[id]):
		j.fail(id, kerr.InconsistentGroupProtocol)
		return
	case id == unknownMember && j.req.InstanceID == nil && j.req.Version >= 4:
		j.fail(c.m.memberID(j.caller.ClientID), kerr.MemberIDRequired) // KIP-394
		return
	}
	s, owned, ok := c.hear(j.caller, j.req.InstanceID, keepProtocols(j.req.Protocols))
	if !ok {
		j.fail(id, kerr.InconsistentGroupProtocol)
		return
	}
	s.rebalanceTimeout, s.classic.sessionTimeout = j.rebalanceTimeout(), millis(j.req.SessionTimeoutMillis)
	h := &heartbeat{now: now, caller: j.caller, owned: owned, said: true}
	m, err := c.joining(h, j, replaced)
	if err != nil {
		j.fail(id, err)
		return
	}
	s.instance = m.instance // also of a static member that does not say so
	if old := m.classic; old != nil && !old.same(s.classic) {
		// What it owns is part of what it says, and no reason to share anew.
		m.classic = s.classic
		c.writeMember(m)
	}
	c.update(h, m, s)
	c.catchUp(now, h.bump)
	if _, err := c.reconcile(now, m, h.owned, h.said); err != nil {
		j.fail(id, err.code)
		return
	}
	c.alive(now, m)
	c.settle(now)
	m.joinBy, m.syncBy = time.Time{}, now.Add(m.rebalanceTimeout)
	c.m.wakeBy(c.g, m.syncBy)
	resp := kmsg.NewPtrJoinGroupResponse()
	kind, protocol := consumerProtocol, c.protocolFor(m)
	resp.Generation, resp.MemberID, resp.ProtocolType, resp.Protocol = m.epoch, m.id, &kind, &protocol
	j.reply(resp)
}

// joining finds or makes the member that joins.
func (c *consumerGroup) joining(h *heartbeat, j join, replaced *consumerMember) (*consumerMember, *kerr.Error) {
	id := j.req.MemberID
	if instance := j.req.InstanceID; instance != nil {
		if replaced != nil {
			c.g.history.note(replaced.change(MemberReplaced))
			return c.replace(replaced, c.m.memberID(*instance)), nil
		}
		if old := c.members[c.instances[*instance]]; old != nil {
			if old.id != id {
				return nil, kerr.FencedInstanceID
			}
			return old, nil
		}
		if id == unknownMember {
			id = c.m.memberID(*instance)
		}
		return c.enrol(h, id, instance), nil
	}
	if id == unknownMember { // before version 4
		id = c.m.memberID(j.caller.ClientID)
	}
	if m := c.members[id]; m != nil {
		return m, nil
	}
	return c.enrol(h, id, nil), nil
}

// accepts says whether the member can do something that all classic members can.
func (c *consumerGroup) accepts(protocols []kmsg.JoinGroupRequestProtocol, self *consumerMember) bool {
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return c.allSupport(p.Name, self) })
}

func (c *consumerGroup) allSupport(protocol string, except *consumerMember) bool {
	for _, m := range c.members {
		if m != except && m.classic != nil && !slices.ContainsFunc(m.classic.protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == protocol }) {
			return false
		}
	}
	return true
}

// protocolFor is the member's favourite of what all classic members can do. It means
// nothing: the coordinator assigns.
func (c *consumerGroup) protocolFor(m *consumerMember) string {
	for _, p := range m.classic.protocols {
		if c.allSupport(p.Name, m) {
			return p.Name
		}
	}
	return m.classic.protocols[0].Name
}

// commonProtocol is protocolFor of some classic member.
func (c *consumerGroup) commonProtocol() string {
	for _, m := range c.members {
		if m.classic != nil && len(m.classic.protocols) > 0 {
			return c.protocolFor(m)
		}
	}
	return ""
}

// hear reads what a classic member says in its first protocol: what it subscribes to
// and what it owns. False if that makes no sense. The rest of the classic part is the
// caller's to fill.
func (c *consumerGroup) hear(client Caller, instance *string, protocols []kmsg.JoinGroupRequestProtocol) (subscription, partitionSet, bool) {
	var metadata kmsg.ConsumerMemberMetadata
	if len(protocols) == 0 || metadata.ReadFrom(protocols[0].Metadata) != nil {
		return subscription{}, nil, false
	}
	s := subscription{instance: instance, rack: metadata.Rack, client: client, topics: slices.Clone(metadata.Topics),
		classic: &classicMember{protocols: protocols}}
	if s.rack != nil && *s.rack == "" {
		s.rack = nil
	}
	slices.Sort(s.topics)
	s.topics = slices.Compact(s.topics)
	owned := make(partitionSet)
	for _, o := range metadata.OwnedPartitions {
		c.named(o.Topic, o.Partitions, func(p assignor.Partition) { owned[p] = 0 })
	}
	return s, owned, true
}

// named finds those of a topic's partitions that there are.
func (c *consumerGroup) named(topic string, numbers []int32, found func(assignor.Partition)) {
	t, _ := c.m.cfg().Topics().Topic(topic) // one that is gone has none
	for _, n := range numbers {
		if n >= 0 && n < t.Partitions {
			found(assignor.Partition{Topic: t.ID, Number: n})
		}
	}
}

// classicMember is the member that a request of the classic protocol is of.
func (c *consumerGroup) classicMember(id string, instance *string) (*consumerMember, *kerr.Error) {
	m := c.members[id]
	if instance != nil {
		m = c.members[c.instances[*instance]]
		if err := checkInstance(m, id, *instance); err != nil {
			return nil, err.code
		}
	}
	if m == nil || m.classic == nil {
		return nil, kerr.UnknownMemberID
	}
	return m, nil
}

func (m *Machine) syncConsumer(now time.Time, _ *Group, c *consumerGroup, req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) {
	member, err := c.classicMember(req.MemberID, req.InstanceID)
	if err == nil {
		c.catchUp(now, false)
		protocol := c.protocolFor(member)
		switch {
		case req.Generation != member.epoch:
			err = kerr.IllegalGeneration
		case req.ProtocolType != nil && *req.ProtocolType != consumerProtocol, req.Protocol != nil && *req.Protocol != protocol:
			err = kerr.InconsistentGroupProtocol
		case c.targetEpoch > member.epoch && member.state != memberUnrevoked:
			err = rebalanceInProgress // one that has to give up does that first
		}
	}
	if err != nil {
		reply(failedSync(err))
		return
	}
	member.syncBy = time.Time{}
	c.alive(now, member)
	kind, protocol := consumerProtocol, c.protocolFor(member)
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &kind, &protocol, c.toAssignment(member)
	reply(resp)
}

func (m *Machine) heartbeatConsumer(now time.Time, _ *Group, c *consumerGroup, req *kmsg.HeartbeatRequest) *kerr.Error {
	member, err := c.classicMember(req.MemberID, req.InstanceID)
	if err != nil {
		return err
	}
	if req.Generation != member.epoch {
		return kerr.IllegalGeneration
	}
	c.alive(now, member)
	c.catchUp(now, false)
	if !c.mustJoin(member) {
		return nil
	}
	if member.joinBy.IsZero() {
		member.joinBy = now.Add(member.rebalanceTimeout)
		m.wakeBy(c.g, member.joinBy)
	}
	return rebalanceInProgress
}

// mustJoin says whether the member has a step to take.
func (c *consumerGroup) mustJoin(m *consumerMember) bool {
	switch {
	case m.epoch < c.targetEpoch || m.state == memberUnrevoked:
		return true
	case m.state != memberUnreleased:
		return false
	}
	for p := range c.targets[m.id] {
		if _, has := m.assigned[p]; has {
			continue
		}
		if owner, taken := c.owners[p]; !taken || owner == m.id {
			return true // more has become free
		}
	}
	return false
}

// leaveConsumer takes any member out, whatever its protocol: an administrator may name it.
func (m *Machine) leaveConsumer(now time.Time, _ *Group, c *consumerGroup, l kmsg.LeaveGroupRequestMember) *kerr.Error {
	member := c.members[l.MemberID]
	if l.InstanceID != nil {
		member = c.members[c.instances[*l.InstanceID]]
		if err := checkInstance(member, l.MemberID, *l.InstanceID); err != nil && (member == nil || l.MemberID != unknownMember) {
			return err.code
		}
	}
	if member == nil {
		return kerr.UnknownMemberID
	}
	c.g.history.note(member.change(MemberLeft))
	c.remove(now, member)
	return nil
}
