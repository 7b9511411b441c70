package group

import (
	"cmp"
	"slices"
	"sort"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/internal/plant"
	"ponor/internal/wall"
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

// topicOffsets are those of one topic, by partition in order. Groups are many, and
// most have few offsets: slices take a third of what maps do.
type topicOffsets struct {
	topic string
	of    []partitionOffset
}

// partitionOffset is what was committed for a partition; what it points to never
// changes.
type partitionOffset struct {
	partition int32
	*offset
}

// findTopic is where the offsets of a topic are, or belong. It makes no string of
// bytes: nearly all that a load does is this.
func findTopic[T string | []byte](list []topicOffsets, name T) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].topic >= string(name) })
	return i, i < len(list) && list[i].topic == string(name)
}

// find is where the offset of a partition is, or belongs.
func (t *topicOffsets) find(partition int32) (int, bool) {
	return slices.BinarySearchFunc(t.of, partition, func(p partitionOffset, n int32) int { return cmp.Compare(p.partition, n) })
}

// offset is what was committed for a partition, nil for nothing.
func (g *Group) offset(topic string, partition int32) *offset {
	if i, ok := findTopic(g.offsets, topic); ok {
		if at, ok := g.offsets[i].find(partition); ok {
			return g.offsets[i].of[at].offset
		}
	}
	return nil
}

func (g *Group) setOffset(topic string, partition int32, o offset) {
	i, ok := findTopic(g.offsets, topic)
	if !ok {
		g.addTopic(i, topic)
	}
	t := &g.offsets[i]
	at, ok := t.find(partition)
	if !ok {
		t.add(at, partition, nil)
	}
	t.of[at].offset = &o
}

// addTopic makes room at i for the offsets of a topic.
func (g *Group) addTopic(i int, topic string) {
	g.offsets = slices.Insert(g.offsets, i, topicOffsets{topic: intern(topic)})
}

// add makes room at a place for the offset of a partition.
func (t *topicOffsets) add(at int, partition int32, o *offset) {
	t.of = slices.Insert(t.of, at, partitionOffset{partition, o})
}

// deleteOffset says whether there was one.
func (g *Group) deleteOffset(topic string, partition int32) bool {
	i, ok := findTopic(g.offsets, topic)
	if !ok {
		return false
	}
	t := &g.offsets[i]
	at, ok := t.find(partition)
	if !ok {
		return false
	}
	if t.of = slices.Delete(t.of, at, at+1); len(t.of) == 0 {
		g.offsets = slices.Delete(g.offsets, i, i+1)
	}
	return true
}

type topicPartition struct {
	topic     string
	partition int32
}

// offsetList lists where the group has offsets, in order.
func (g *Group) offsetList() []topicPartition {
	var list []topicPartition
	for _, t := range g.offsets {
		for _, p := range t.of {
			list = append(list, topicPartition{t.topic, p.partition})
		}
	}
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
				o := offset{at: rp.Offset, epoch: rp.LeaderEpoch, committed: wall.Milli(now), expires: -1, topic: rt.TopicID}
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
	if limit := m.cfg().OffsetMetadataMaxBytes; len(o.note) > limit && len(utf16.Encode([]rune(o.note))) > limit {
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
	if g != nil && (req.MemberID != nil || req.MemberEpoch >= 0) {
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
	if g != nil {
		if o := g.offset(topic, partition); o != nil {
			return partitionOffset{partition, o}.answer()
		}
	}
	return partitionOffset{partition, &offset{at: -1, epoch: -1}}.answer()
}

func (p partitionOffset) answer() kmsg.OffsetFetchResponseGroupTopicPartition {
	fp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	fp.Partition, fp.Offset, fp.LeaderEpoch, fp.Metadata = p.partition, p.at, p.epoch, &p.note
	return fp
}

// allOffsets are all as an answer, sorted; g may be nil.
func (g *Group) allOffsets() []kmsg.OffsetFetchResponseGroupTopic {
	list := []kmsg.OffsetFetchResponseGroupTopic{}
	if g == nil {
		return list
	}
	for _, t := range g.offsets {
		ft := kmsg.NewOffsetFetchResponseGroupTopic()
		ft.Topic = t.topic
		for _, p := range t.of {
			ft.Partitions = append(ft.Partitions, p.answer())
		}
		list = append(list, ft)
	}
	return list
}
