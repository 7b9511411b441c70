package group

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// Versions of keys in __consumer_offsets: the first two bytes of each. Those above
// are of consumer groups.
const (
	keyOffsetV0 = 0
	keyOffset   = 1
	keyGroup    = 2
)

// groupValueVersion is the version of membership values that Kafka writes.
const groupValueVersion = 3

// groupKey is the key of a classic group's membership.
func groupKey(id string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyGroup, Group: id}
	return k.AppendTo(nil)
}

// offsetKey is the key of an offset.
func offsetKey(group, topic string, partition int32) []byte {
	return appendOffsetKey(nil, group, topic, partition)
}

func appendOffsetKey(dst []byte, group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: keyOffset, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(dst)
}

// value is the offset as Kafka writes it: version 4, which has the topic's id, or 1 if
// it has a time to expire, which only commits of old clients have.
func (o *offset) value() []byte { return o.appendTo(nil) }

func (o *offset) appendTo(dst []byte) []byte {
	v := kmsg.OffsetCommitValue{
		Version: 4, Offset: o.at, LeaderEpoch: o.epoch, Metadata: o.note,
		CommitTimestamp: o.committed, ExpireTimestamp: o.expires, TopicID: o.topic,
	}
	if o.expires >= 0 {
		v.Version = 1
	}
	return v.AppendTo(dst)
}

// writeMembers records the membership: the generation, and every member with its
// assignment. False if it is more than a record may be.
func (c *classicGroup) writeMembers() bool {
	v := kmsg.GroupMetadataValue{
		Version: groupValueVersion, ProtocolType: c.protoType, Generation: c.generation,
		Protocol: c.protocol, CurrentStateTimestamp: c.since,
	}
	if c.leader != "" {
		v.Leader = &c.leader
	}
	for _, m := range c.members {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.client.ClientID, ClientHost: m.client.Host,
			RebalanceTimeoutMillis: int32(m.rebalanceTimeout.Milliseconds()),
			SessionTimeoutMillis:   int32(m.sessionTimeout.Milliseconds()),
			Subscription:           m.metadata(*c.protocol), Assignment: m.assignment,
		})
	}
	r := coordinator.Record{Key: groupKey(c.g.id), Value: bytes.Clone(v.AppendTo(nil))} // it is kept, and grew
	if len(r.Key)+len(r.Value) > c.m.cfg().MaxRecordBytes {
		return false
	}
	c.written, c.writtenGeneration = r.Value, c.generation
	c.m.write(r)
	return true
}

// Replay takes one record of the log, in order. Keys of unknown versions are skipped:
// a newer version wrote them.
func (m *Machine) Replay(r coordinator.Record, _, _ int64) error {
	if len(r.Key) < 2 {
		return fmt.Errorf("replay record of a group: key of %d bytes has no version", len(r.Key))
	}
	version := int16(binary.BigEndian.Uint16(r.Key))
	if version != keyOffsetV0 && version != keyOffset {
		r.Value = bytes.Clone(r.Value) // parts of it are kept
	}
	switch version {
	case keyOffsetV0, keyOffset:
		return m.replayOffset(r)
	case keyGroup:
		return m.replayGroup(r)
	default:
		return m.replayConsumer(version, r)
	}
}

// readOffsetKey finds the parts of the key of an offset, behind its version. Nearly all
// that a load reads are such keys.
func readOffsetKey(b []byte) (group, topic []byte, partition int32, ok bool) {
	text := func() []byte {
		if len(b) < 2 || int(binary.BigEndian.Uint16(b)) > len(b)-2 {
			return nil
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		s := b[2:n:n]
		b = b[n:]
		return s
	}
	if group = text(); group != nil {
		topic = text()
	}
	if topic == nil || len(b) != 4 {
		return nil, nil, 0, false
	}
	return group, topic, int32(binary.BigEndian.Uint32(b)), true
}

func (m *Machine) replayOffset(r coordinator.Record) error {
	group, topic, partition, ok := readOffsetKey(r.Key[2:])
	if !ok {
		return fmt.Errorf("replay offset: read key of %d bytes: %w", len(r.Key), errValue)
	}
	g := m.replayed
	if g == nil || g.id != string(group) {
		g = m.groups[string(group)]
		m.replayed = g
	}
	if r.Value == nil {
		if g != nil {
			g.deleteOffset(string(topic), partition)
			m.dropIfUnused(g)
		}
		return nil
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("replay offset of group %q: read value: %w", group, err)
	}
	if g == nil {
		g = m.create(string(group))
		m.replayed = g
	}
	o := offset{at: v.Offset, epoch: -1, note: v.Metadata, committed: v.CommitTimestamp, expires: -1, topic: v.TopicID}
	if v.Version >= 3 {
		o.epoch = v.LeaderEpoch
	}
	if v.Version == 1 {
		o.expires = v.ExpireTimestamp // -1 is none, and not long ago (KAFKA-8069)
	}
	i, ok := findTopic(g.offsets, topic)
	if !ok {
		g.addTopic(i, string(topic))
	}
	t := &g.offsets[i]
	at, ok := t.find(partition)
	if !ok {
		t.add(at, partition, m.newOffset())
	}
	*t.of[at].offset = o // nobody has seen it yet
	return nil
}

// offsetsAtOnce is how many offsets a load makes at a time: nearly all that it does is
// to make them.
const offsetsAtOnce = 64

// newOffset is memory for an offset of a load.
func (m *Machine) newOffset() *offset {
	if len(m.fresh) == 0 {
		m.fresh = make([]offset, offsetsAtOnce)
	}
	o := &m.fresh[0]
	m.fresh = m.fresh[1:]
	return o
}

func (m *Machine) replayGroup(r coordinator.Record) error {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("replay group: read key: %w", err)
	}
	g := m.find(k.Group)
	if r.Value == nil {
		if g != nil && g.classic() != nil {
			g.members = newClassicGroup(m, g)
			m.dropIfUnused(g)
		}
		return nil
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("replay group %q: read value: %w", k.Group, err)
	}
	if g == nil {
		g = m.create(k.Group)
	}
	c := newClassicGroup(m, g)
	c.load(v)
	c.written, c.writtenGeneration = r.Value, c.generation
	g.members = c
	return nil
}

// load takes the membership from a record: members that have an assignment are a
// stable group.
func (c *classicGroup) load(v kmsg.GroupMetadataValue) {
	c.generation, c.protoType, c.protocol, c.since = v.Generation, intern(v.ProtocolType), v.Protocol, v.CurrentStateTimestamp
	if v.Version < 2 {
		c.since = -1
	}
	if v.Leader != nil {
		c.leader = *v.Leader
	}
	for _, vm := range v.Members {
		m := &member{
			id: vm.MemberID, instance: vm.InstanceID, client: Caller{vm.ClientID, vm.ClientHost}.kept(),
			sessionTimeout: millis(vm.SessionTimeoutMillis), rebalanceTimeout: millis(vm.RebalanceTimeoutMillis),
			assignment: vm.Assignment,
		}
		if vm.RebalanceTimeoutMillis < 0 { // version 0
			m.rebalanceTimeout = m.sessionTimeout
		}
		if c.protocol != nil {
			m.protocols = []kmsg.JoinGroupRequestProtocol{{Name: intern(*c.protocol), Metadata: vm.Subscription}}
		}
		c.insert(m)
	}
	if len(c.members) > 0 {
		c.st = stateStable
	}
	c.subscribe()
}

// liveOffsets yields the group's offsets, false once yield said so.
func (g *Group) liveOffsets(yield func(coordinator.Record) bool) bool {
	var key, value []byte
	for _, t := range g.offsets {
		for _, p := range t.of {
			key, value = appendOffsetKey(key[:0], g.id, t.topic, p.partition), p.appendTo(value[:0])
			if !yield(coordinator.Record{Key: key, Value: value}) {
				return false
			}
		}
	}
	return true
}

// writeOffset commits an offset.
func (m *Machine) writeOffset(g *Group, topic string, partition int32, o offset) {
	g.setOffset(topic, partition, o)
	m.write(coordinator.Record{Key: offsetKey(g.id, topic, partition), Value: o.value()})
}

// eraseOffset deletes an offset.
func (m *Machine) eraseOffset(g *Group, topic string, partition int32) {
	if g.deleteOffset(topic, partition) {
		m.write(coordinator.Record{Key: offsetKey(g.id, topic, partition)})
	}
}

// erase deletes a group with all that it has.
func (m *Machine) erase(g *Group) {
	for _, at := range g.offsetList() {
		m.eraseOffset(g, at.topic, at.partition)
	}
	m.out = g.members.tombstones(m.out)
	m.drop(g)
}
