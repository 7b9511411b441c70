package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group/assignor"
)

// upgrade makes a consumer group of a classic one with members, for one that joins
// by KIP-848. The others keep what they read, and their protocol: their generation
// is their epoch, and what their leader gave them is the target until the next epoch.
func (m *Machine) upgrade(now time.Time, g *Group, classic *classicGroup) (*consumerGroup, *refusal) {
	if !m.cfg().Consumer.Migration.up() || classic.protoType != consumerProtocol || len(classic.members) >= m.cfg().Consumer.MaxSize {
		return nil, notConsumer(g.id)
	}
	c := newConsumerGroup(m, g)
	c.epoch, c.targetEpoch = classic.generation, classic.generation
	for _, old := range classic.members {
		s, _, ok := c.hear(old.client, old.instance, old.protocols)
		if !ok {
			return nil, notConsumer(g.id) // only who understands all members may assign
		}
		s.rebalanceTimeout = old.rebalanceTimeout
		s.classic.sessionTimeout = old.sessionTimeout
		member := &consumerMember{id: old.id, subscription: s}
		member.epoch, member.previous = classic.generation, classic.generation
		member.assigned = c.fromAssignment(old.assignment, classic.generation)
		c.members[old.id] = member
		if old.instance != nil {
			c.instances[*old.instance] = old.id
		}
	}
	m.out = classic.tombstones(m.out)
	for _, old := range classic.members {
		classic.finishJoin(old, failedJoin(old.id, rebalanceInProgress))
		classic.finishSync(old, failedSync(rebalanceInProgress))
		old.pulse.interrupt()
	}
	g.members = c
	c.writeEpoch()
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		member := c.members[id]
		c.writeMember(member)
		c.targets[id] = maps.Clone(member.assigned)
		for p := range c.targets[id] {
			c.targets[id][p] = 0
		}
		c.writeTarget(id)
		c.own(member)
		c.writeCurrent(member)
		c.alive(now, member)
	}
	c.writeTargetEpoch()
	return c, nil
}

// fromAssignment reads what a leader assigned. What is taken already stays with who
// has it: a leader may err, an epoch has one owner (C1).
func (c *consumerGroup) fromAssignment(b []byte, epoch int32) partitionSet {
	set := make(partitionSet)
	var a kmsg.ConsumerMemberAssignment
	if a.ReadFrom(b) != nil {
		return set
	}
	for _, at := range a.Topics {
		c.named(at.Topic, at.Partitions, func(p assignor.Partition) {
			if !c.assignedTo(p) {
				set[p] = epoch
			}
		})
	}
	return set
}

func (c *consumerGroup) assignedTo(p assignor.Partition) bool {
	for _, m := range c.members {
		if _, ok := m.assigned[p]; ok {
			return true
		}
	}
	return false
}

// downgrade makes a classic group of a consumer group whose members all use the
// classic protocol, after the last that did not has left. They rebalance.
func (m *Machine) downgrade(now time.Time, c *consumerGroup) {
	if !c.allClassic(nil) {
		return
	}
	classic := m.makeClassic(now, c)
	classic.prepare(now)
}

// allClassic says whether the group may become a classic one: all members but one
// that is about to be replaced use that protocol.
func (c *consumerGroup) allClassic(except *consumerMember) bool {
	n := 0
	for _, m := range c.members {
		if m == except {
			continue
		}
		if m.classic == nil {
			return false
		}
		n++
	}
	return (n > 0 || except != nil) && n <= c.m.cfg().MaxSize && c.m.cfg().Consumer.Migration.down()
}

// makeClassic has the members go on as they are in a stable classic group.
func (m *Machine) makeClassic(now time.Time, c *consumerGroup) *classicGroup {
	protocol := c.commonProtocol()
	m.out = c.tombstones(m.out)
	classic := newClassicGroup(m, c.g)
	classic.generation, classic.protoType, classic.protocol = c.epoch, consumerProtocol, &protocol
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		old := c.members[id]
		if classic.leader == "" {
			classic.leader = id
		}
		member := &member{
			id: id, instance: old.instance, client: old.client, rebalanceTimeout: old.rebalanceTimeout,
			sessionTimeout: old.classic.sessionTimeout, protocols: old.classic.protocols, assignment: c.toAssignment(old),
		}
		classic.insert(member)
		classic.alive(now, member)
	}
	classic.enter(now, stateEmpty)
	if len(classic.members) > 0 {
		classic.enter(now, stateStable)
	}
	classic.subscribe()
	c.g.members = classic
	classic.writeMembers()
	return classic
}

// toAssignment is what a member has, as a leader would have said it.
func (c *consumerGroup) toAssignment(m *consumerMember) []byte {
	a := kmsg.ConsumerMemberAssignment{Version: m.classic.version()}
	topics := c.m.cfg().Topics()
	for _, t := range described(topics, m.assigned).TopicPartitions {
		at := kmsg.NewConsumerMemberAssignmentTopic()
		at.Topic, at.Partitions = t.Topic, t.Partitions
		a.Topics = append(a.Topics, at)
	}
	return a.AppendTo(nil)
}

// version is the member's of the consumer protocol, which the answer is in as well.
func (m *classicMember) version() int16 {
	var metadata kmsg.ConsumerMemberMetadata
	if len(m.protocols) == 0 || metadata.ReadFrom(m.protocols[0].Metadata) != nil {
		return 0
	}
	return min(metadata.Version, 3)
}
