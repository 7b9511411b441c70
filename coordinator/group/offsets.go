package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/internal/plant"
)

// offset is what a group committed for one partition.
type offset struct {
	at        int64
	epoch     int32 // leader epoch of the last record read, -1 for none (KIP-320)
	note      string
	committed int64 // ms
	expires   int64 // ms, -1 for none: commits before version 5 may say when
	// topic is the id that the topic's name had, zero if not known.
	topic [16]byte
}

// topicOffsets are a topic's by partition; what they point to never changes. Most
// groups have few, and the smallest map has room for eight values.
type topicOffsets map[int32]*offset

func (g *Group) setOffset(topic string, partition int32, o offset) {
	if g.offsets == nil {
		g.offsets = make(map[string]topicOffsets, 1)
	}
	t := g.offsets[topic]
	if t == nil {
		t = make(topicOffsets, 1)
		g.offsets[intern(topic)] = t
	}
	t[partition] = &o
}

// deleteOffset says whether there was one.
func (g *Group) deleteOffset(topic string, partition int32) bool {
	t := g.offsets[topic]
	_, ok := t[partition]
	if delete(t, partition); ok && len(t) == 0 {
		delete(g.offsets, topic)
	}
	return ok
}

type topicPartition struct {
	topic     string
	partition int32
}

func (a topicPartition) compare(b topicPartition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

// sortedOffsets lists where the group has offsets.
func (g *Group) sortedOffsets() []topicPartition {
	var list []topicPartition
	for topic, partitions := range g.offsets {
		for p := range partitions {
			list = append(list, topicPartition{topic, p})
		}
	}
	slices.SortFunc(list, topicPartition.compare)
	return list
}

// OffsetCommit keeps offsets. Topics must have both name and id, whatever the
// version; the answer has them in the same order.
func (m *Machine) OffsetCommit(now time.Time, req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, []coordinator.Record) {
	who := identity{member: req.MemberID, instance: req.InstanceID, generation: req.Generation, version: req.Version}
	g, refused := m.committer(now, req.Group, who)
	resp := kmsg.NewPtrOffsetCommitResponse()
	for _, rt := range req.Topics {
		ct := kmsg.NewOffsetCommitResponseTopic()
		ct.Topic, ct.TopicID = rt.Topic, rt.TopicID
		code := refused
		if code == nil && !m.cfg().Exists(rt.Topic, rt.TopicID) {
			code = unknownTopic(req.Version)
		}
		for _, rp := range rt.Partitions {
			cp := kmsg.NewOffsetCommitResponseTopicPartition()
			cp.Partition = rp.Partition
			code := code
			if code == nil {
				code = m.checkPartition(g, who, rt.Topic, rp.Partition)
			}
			if cp.ErrorCode = codeOf(code); code == nil {
				o := offset{at: rp.Offset, epoch: rp.LeaderEpoch, committed: now.UnixMilli(), expires: -1, topic: rt.TopicID}
				if rp.Metadata != nil {
					o.note = *rp.Metadata
				}
				if req.RetentionTimeMillis >= 0 && req.Version <= 4 {
					o.expires = o.committed + req.RetentionTimeMillis
				}
				cp.ErrorCode = codeOf(m.commit(g, rt.Topic, rp.Partition, o))
			}
			ct.Partitions = append(ct.Partitions, cp)
		}
		resp.Topics = append(resp.Topics, ct)
	}
	if g != nil {
		m.dropIfUnused(g)
	}
	return resp, m.take()
}

// unknownTopic is the code for a topic that is gone.
func unknownTopic(version int16) *kerr.Error {
	if version >= 10 {
		return kerr.UnknownTopicID
	}
	return kerr.UnknownTopicOrPartition
}

// committer is the group that who may commit offsets for. A group that does not exist
// is made for who has no generation: a consumer that assigns itself, or an admin.
func (m *Machine) committer(now time.Time, id string, who identity) (*Group, *kerr.Error) {
	g := m.find(id)
	switch {
	case g != nil && plant.On(plant.AnyGeneration):
		return g, nil
	case g != nil:
		return g, g.members.checkCommit(now, who)
	case who.generation < 0:
		return m.create(id), nil
	case who.version >= 9:
		return nil, kerr.GroupIDNotFound
	default:
		return nil, kerr.IllegalGeneration
	}
}

// commit keeps one offset.
func (m *Machine) commit(g *Group, topic string, partition int32, o offset) *kerr.Error {
	if len(o.note) > m.cfg().OffsetMetadataMaxBytes {
		return kerr.OffsetMetadataTooLarge
	}
	m.writeOffset(g, topic, partition, o)
	return nil
}

// OffsetFetch answers a group's offsets: those of the topics asked for, -1 where
// there is none, or all if topics is nil. Topics must have names. A group that does
// not exist has none, which is no error.
func (m *Machine) OffsetFetch(req kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	g := m.find(req.Group)
	if g != nil {
		who := identity{generation: req.MemberEpoch}
		if req.MemberID != nil {
			who.member = *req.MemberID
		}
		if err := g.members.checkFetch(who); err != nil {
			resp.ErrorCode = err.Code
			return resp
		}
	}
	if req.Topics == nil {
		resp.Topics = g.allOffsets()
		return resp
	}
	for _, rt := range req.Topics {
		ft := kmsg.NewOffsetFetchResponseGroupTopic()
		ft.Topic, ft.TopicID = rt.Topic, rt.TopicID
		for _, p := range rt.Partitions {
			ft.Partitions = append(ft.Partitions, g.fetched(rt.Topic, p))
		}
		resp.Topics = append(resp.Topics, ft)
	}
	return resp
}

// fetched is one offset as an answer; g may be nil.
func (g *Group) fetched(topic string, partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	fp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	fp.Partition, fp.Offset, fp.LeaderEpoch, fp.Metadata = partition, -1, -1, kmsg.StringPtr("")
	if g == nil {
		return fp
	}
	if o, ok := g.offsets[topic][partition]; ok {
		fp.Offset, fp.LeaderEpoch, fp.Metadata = o.at, o.epoch, &o.note
	}
	return fp
}

// allOffsets are all as an answer, sorted; g may be nil.
func (g *Group) allOffsets() []kmsg.OffsetFetchResponseGroupTopic {
	list := []kmsg.OffsetFetchResponseGroupTopic{}
	if g == nil {
		return list
	}
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		ft := kmsg.NewOffsetFetchResponseGroupTopic()
		ft.Topic = topic
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			ft.Partitions = append(ft.Partitions, g.fetched(topic, p))
		}
		list = append(list, ft)
	}
	return list
}
