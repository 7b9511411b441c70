package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group/assignor"
)

// Versions of the keys of consumer groups. The values, all of version 0, are Kafka
// 4.4's; version 4 was partition metadata, which only Kafka before 4.1 needs.
const (
	keyConsumerEpoch       = 3  // group: epoch and topics' hash
	keyConsumerMember      = 5  // group, member: subscription
	keyConsumerTargetEpoch = 6  // group: assignment epoch
	keyConsumerTarget      = 7  // group, member: target assignment
	keyConsumerCurrent     = 8  // group, member: position
	keyConsumerRegex       = 16 // group, expression: topics that match
)

// consumerKey and memberKey are keys of one and two names.
func consumerKey(version int16, group string) []byte {
	return kbin.AppendString(kbin.AppendInt16(nil, version), group)
}

func memberKey(version int16, group, member string) []byte {
	return kbin.AppendString(consumerKey(version, group), member)
}

// erase writes a tombstone.
func (c *consumerGroup) erase(key []byte) { c.m.write(coordinator.Record{Key: key}) }

func (c *consumerGroup) writeEpoch() { c.m.write(c.epochRecord()) }

func (c *consumerGroup) epochRecord() coordinator.Record {
	value := kbin.AppendInt32(kbin.AppendInt16(nil, 0), c.epoch)
	if c.hash == 0 {
		return coordinator.Record{Key: consumerKey(keyConsumerEpoch, c.g.id), Value: append(value, 0)}
	}
	value = kbin.AppendInt64(append(value, 1, 0, 8), c.hash)
	return coordinator.Record{Key: consumerKey(keyConsumerEpoch, c.g.id), Value: value}
}

func (c *consumerGroup) writeTargetEpoch() { c.m.write(c.targetEpochRecord()) }

func (c *consumerGroup) targetEpochRecord() coordinator.Record {
	value := kbin.AppendInt32(kbin.AppendInt16(nil, 0), c.targetEpoch)
	return coordinator.Record{Key: consumerKey(keyConsumerTargetEpoch, c.g.id), Value: append(value, 0)}
}

func (c *consumerGroup) writeTarget(member string) { c.m.write(c.targetRecord(member)) }

func (c *consumerGroup) targetRecord(member string) coordinator.Record {
	value := appendPartitions(kbin.AppendInt16(nil, 0), c.targets[member], false)
	return coordinator.Record{Key: memberKey(keyConsumerTarget, c.g.id, member), Value: append(value, 0)}
}

func (c *consumerGroup) writeCurrent(m *consumerMember) { c.m.write(c.currentRecord(m)) }

func (c *consumerGroup) currentRecord(m *consumerMember) coordinator.Record {
	value := kbin.AppendInt32(kbin.AppendInt16(nil, 0), m.epoch)
	value = kbin.AppendInt32(value, m.previous)
	value = kbin.AppendInt8(value, int8(m.state))
	value = appendPartitions(value, m.assigned, true)
	value = appendPartitions(value, m.revoking, true)
	return coordinator.Record{Key: memberKey(keyConsumerCurrent, c.g.id, m.id), Value: append(value, 0)}
}

// writeRegex records what an expression matches, unless that is more than a record may
// be: then who loads the group looks it up, as at any change of topics.
func (c *consumerGroup) writeRegex(expr string) {
	if r, ok := c.regexRecord(expr); ok {
		c.m.write(r)
	} else {
		c.erase(r.Key)
	}
}

// regexRecord is false if the record would be too large.
func (c *consumerGroup) regexRecord(expr string) (coordinator.Record, bool) {
	r := c.regexes[expr]
	value := appendStrings(kbin.AppendInt16(nil, 0), r.topics)
	value = kbin.AppendInt64(kbin.AppendInt64(value, r.version), r.at)
	record := coordinator.Record{Key: memberKey(keyConsumerRegex, c.g.id, expr), Value: append(value, 0)}
	return record, len(record.Key)+len(record.Value) <= c.m.cfg().MaxRecordBytes
}

func (c *consumerGroup) writeMember(m *consumerMember) { c.m.write(c.memberRecord(m)) }

func (c *consumerGroup) memberRecord(m *consumerMember) coordinator.Record {
	optional := func(dst []byte, s string) []byte {
		if s == "" {
			return kbin.AppendCompactNullableString(dst, nil)
		}
		return kbin.AppendCompactString(dst, s)
	}
	value := kbin.AppendCompactNullableString(kbin.AppendInt16(nil, 0), m.instance)
	value = kbin.AppendCompactNullableString(value, m.rack)
	value = kbin.AppendCompactString(value, m.client.ClientID)
	value = kbin.AppendCompactString(value, m.client.Host)
	value = appendStrings(value, m.topics)
	value = optional(value, m.regex)
	value = kbin.AppendInt32(value, int32(m.rebalanceTimeout.Milliseconds()))
	value = optional(value, m.assignor)
	if m.classic == nil {
		value = append(value, 0)
	} else {
		value = appendTagged(append(value, 1), 0, m.classic.appendTo(nil))
	}
	return coordinator.Record{Key: memberKey(keyConsumerMember, c.g.id, m.id), Value: value}
}

// appendTo adds the struct, which is nullable: its first byte says that it is there.
func (m *classicMember) appendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(kbin.AppendInt8(dst, 1), int32(m.sessionTimeout.Milliseconds()))
	dst = kbin.AppendCompactArrayLen(dst, len(m.protocols))
	for _, p := range m.protocols {
		dst = kbin.AppendCompactString(dst, p.Name)
		dst = append(kbin.AppendCompactBytes(dst, p.Metadata), 0)
	}
	return append(dst, 0)
}

// appendTagged adds one tagged field (KIP-482).
func appendTagged(dst []byte, tag uint32, field []byte) []byte {
	dst = kbin.AppendUvarint(kbin.AppendUvarint(dst, tag), uint32(len(field)))
	return append(dst, field...)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, s := range list {
		dst = kbin.AppendCompactString(dst, s)
	}
	return dst
}

// appendPartitions adds a set by topic, with the epochs of each partition where they
// mean something: tag 0 of a topic.
func appendPartitions(dst []byte, set partitionSet, epochs bool) []byte {
	list := set.sorted()
	topics := 0
	for i, p := range list {
		if i == 0 || list[i-1].Topic != p.Topic {
			topics++
		}
	}
	dst = kbin.AppendCompactArrayLen(dst, topics)
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(p assignor.Partition) bool { return p.Topic != list[0].Topic })
		if n < 0 {
			n = len(list)
		}
		dst = kbin.AppendUuid(dst, list[0].Topic)
		dst = kbin.AppendCompactArrayLen(dst, n)
		var since []byte
		for _, p := range list[:n] {
			dst = kbin.AppendInt32(dst, p.Number)
			since = kbin.AppendInt32(since, set[p])
		}
		if epochs {
			dst = appendTagged(append(dst, 1), 0, append(kbin.AppendCompactArrayLen(nil, n), since...))
		} else {
			dst = append(dst, 0)
		}
		list = list[n:]
	}
	return dst
}

// live yields the records of the membership.
func (c *consumerGroup) live(yield func(coordinator.Record) bool) bool {
	if !yield(c.epochRecord()) {
		return false
	}
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if !yield(c.memberRecord(c.members[id])) || !yield(c.currentRecord(c.members[id])) {
			return false
		}
	}
	for expr := range c.regexes {
		if r, ok := c.regexRecord(expr); ok && !yield(r) {
			return false
		}
	}
	for id := range c.targets {
		if !yield(c.targetRecord(id)) {
			return false
		}
	}
	return c.targetEpoch == 0 || yield(c.targetEpochRecord())
}

// errValue: a value ends too soon, or has something where it should end.
var errValue = errors.New("value is damaged")

// replayConsumer takes a record of a consumer group, whose key has that version.
// Those of versions that it does not know are skipped.
func (m *Machine) replayConsumer(version int16, r coordinator.Record) error {
	switch version {
	case keyConsumerEpoch, keyConsumerMember, keyConsumerTargetEpoch, keyConsumerTarget, keyConsumerCurrent, keyConsumerRegex:
	default:
		return nil
	}
	key := kbin.Reader{Src: r.Key[2:]}
	id, second := key.String(), ""
	if version != keyConsumerEpoch && version != keyConsumerTargetEpoch {
		second = key.String()
	}
	if err := key.Complete(); err != nil {
		return fmt.Errorf("replay consumer group: read key of version %d: %w", version, err)
	}
	g := m.find(id)
	if r.Value == nil {
		if c := g.asConsumer(); c != nil {
			m.replayErased(c, version, second)
		}
		return nil
	}
	if g == nil {
		g = m.create(id)
	}
	c := g.consumer()
	if c == nil {
		c = newConsumerGroup(m, g)
		g.members = c
	}
	value := kbin.Reader{Src: r.Value}
	if v := value.Int16(); value.Ok() && v != 0 {
		return fmt.Errorf("replay consumer group %q: value of key version %d has version %d; this release knows 0", id, version, v)
	}
	c.replay(version, second, &value)
	if !value.Ok() || len(value.Src) > 0 {
		return fmt.Errorf("replay consumer group %q: read value of key version %d: %w", id, version, errValue)
	}
	return nil
}

// replayErased takes a tombstone.
func (m *Machine) replayErased(c *consumerGroup, version int16, second string) {
	c.reads = nil
	switch version {
	case keyConsumerEpoch:
		c.g.members = newClassicGroup(m, c.g)
		m.dropIfUnused(c.g)
	case keyConsumerTargetEpoch:
		c.targetEpoch = 0
	case keyConsumerTarget:
		delete(c.targets, second)
	case keyConsumerCurrent:
		if member := c.members[second]; member != nil {
			member.position = position{}
		}
	case keyConsumerMember:
		if member := c.members[second]; member != nil && member.instance != nil && c.instances[*member.instance] == second {
			delete(c.instances, *member.instance)
		}
		delete(c.members, second)
	case keyConsumerRegex:
		delete(c.regexes, second)
	}
}

// replay takes a value.
func (c *consumerGroup) replay(version int16, second string, b *kbin.Reader) {
	c.reads = nil
	switch version {
	case keyConsumerEpoch:
		c.epoch, c.hash = b.Int32(), 0
		readTagged(b, func(tag uint32, field *kbin.Reader) {
			if tag == 0 {
				c.hash = field.Int64()
			}
		})
	case keyConsumerTargetEpoch:
		c.targetEpoch = b.Int32()
		readTagged(b, nil)
	case keyConsumerTarget:
		c.targets[second] = readPartitions(b, 0)
		readTagged(b, nil)
	case keyConsumerCurrent:
		m := c.known(second)
		m.epoch, m.previous, m.state = b.Int32(), b.Int32(), memberState(b.Int8())
		m.assigned, m.revoking = readPartitions(b, m.epoch), readPartitions(b, m.epoch)
		readTagged(b, nil)
	case keyConsumerRegex:
		r := resolved{topics: readStrings(b), version: b.Int64(), at: b.Int64()}
		c.regexes[second] = r
		readTagged(b, nil)
	case keyConsumerMember:
		m := c.known(second)
		m.subscription = readSubscription(b)
		if m.instance != nil {
			c.instances[*m.instance] = second
		}
	}
}

// known is a member, which is made if its first record comes.
func (c *consumerGroup) known(id string) *consumerMember {
	m := c.members[id]
	if m == nil {
		m = &consumerMember{id: id}
		c.members[id] = m
	}
	return m
}

func readSubscription(b *kbin.Reader) subscription {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	s := subscription{instance: b.CompactNullableString(), rack: b.CompactNullableString()}
	s.client = Caller{ClientID: b.CompactString(), Host: b.CompactString()}
	s.topics, s.regex = readStrings(b), text(b.CompactNullableString())
	s.rebalanceTimeout, s.assignor = millis(b.Int32()), text(b.CompactNullableString())
	readTagged(b, func(tag uint32, field *kbin.Reader) {
		if tag == 0 {
			s.classic = readClassicMember(field)
		}
	})
	return s
}

func readClassicMember(b *kbin.Reader) *classicMember {
	if b.Int8() < 0 {
		return nil
	}
	m := &classicMember{sessionTimeout: millis(b.Int32())}
	for range readLen(b) {
		p := kmsg.JoinGroupRequestProtocol{Name: b.CompactString(), Metadata: b.CompactBytes()}
		readTagged(b, nil)
		m.protocols = append(m.protocols, p)
	}
	readTagged(b, nil)
	return m
}

// readLen is the length of an array; kbin has looked that there are as many bytes.
func readLen(b *kbin.Reader) int { return max(int(b.CompactArrayLen()), 0) }

func readStrings(b *kbin.Reader) []string {
	n := readLen(b)
	list := make([]string, 0, n)
	for range n {
		list = append(list, b.CompactString())
	}
	return list
}

// readPartitions reads a set; partitions without an epoch have the given one.
func readPartitions(b *kbin.Reader, epoch int32) partitionSet {
	set := make(partitionSet)
	for range readLen(b) {
		topic := b.Uuid()
		n := readLen(b)
		numbers := make([]int32, 0, n)
		for range n {
			numbers = append(numbers, b.Int32())
			set[assignor.Partition{Topic: topic, Number: numbers[len(numbers)-1]}] = epoch
		}
		readTagged(b, func(tag uint32, field *kbin.Reader) {
			if tag != 0 {
				return
			}
			for i := range readLen(field) {
				if since := field.Int32(); i < len(numbers) {
					set[assignor.Partition{Topic: topic, Number: numbers[i]}] = since
				}
			}
		})
	}
	return set
}

// readTagged reads the tagged fields of a struct; those that f does not know, or all
// if it is nil, are skipped.
func readTagged(b *kbin.Reader, f func(tag uint32, field *kbin.Reader)) {
	for range b.Uvarint() {
		tag, size := b.Uvarint(), b.Uvarint()
		field := kbin.Reader{Src: b.Span(int(size))}
		if !b.Ok() {
			return
		}
		if f != nil {
			f(tag, &field)
		}
	}
}
