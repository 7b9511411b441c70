package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetScripts() []script {
	return []script{
		{"commit versions", commitVersions},
		{"commit refused", commitsRefused},
		{"commit of members", commitsOfMembers},
		{"fetch versions", fetchVersions},
		{"fetch refused", fetchesRefused},
		{"fetch of consumer groups", fetchesOfConsumers},
		{"offset delete", offsetDeletes},
	}
}

// commitRequest commits offset 7 of t-0.
func (s *session) commitRequest(group, member string, generation int32) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	s.commits(r, "t", 0, 7)
	return r
}

// commits adds an offset. An unknown topic has an unknown id.
func (s *session) commits(r *kmsg.OffsetCommitRequest, topic string, partition int32, offset int64) {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, s.topicOrNot(topic)
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = partition, offset, 0
	p.Metadata = kmsg.StringPtr("a note")
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
}

// topicOrNot is the id of a topic, or one that no topic has.
func (s *session) topicOrNot(name string) [16]byte {
	if topics[name] > 0 {
		return s.topic(name)
	}
	return [16]byte{1, 2, 3}
}

// commitAs commits by names.
func (s *session) commitAs(what, group, member string, generation int32) {
	ask[*kmsg.OffsetCommitResponse](s, "commit "+what, 9, s.commitRequest(group, member, generation))
}

// fetchRequest asks for partitions 0 and 1 of topics, in every version's way.
func (s *session) fetchRequest(version int16, group string, names ...string) *kmsg.OffsetFetchRequest {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, name := range names {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = name, []int32{0, 1}
		r.Topics = append(r.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = name, s.topicOrNot(name), []int32{0, 1}
		g.Topics = append(g.Topics, gt)
	}
	if version >= 8 {
		r.Groups = append(r.Groups, g)
	}
	return r
}

func commitVersions(s *session) {
	for v := int16(2); v <= 10; v++ {
		group := s.group(fmt.Sprint(v))
		r := s.commitRequest(group, "", -1)
		s.commits(r, "u", 1, 8)
		s.commits(r, "unknown", 0, 9)
		r.RetentionTimeMillis = 1000
		ask[*kmsg.OffsetCommitResponse](s, "commit", v, r)
		ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, group))
		r = s.commitRequest(group, "", -1)
		r.Topics[0].Partitions[0].Metadata = nil
		r.Topics[0].Partitions[0].LeaderEpoch = -1
		ask[*kmsg.OffsetCommitResponse](s, "without a note", v, r)
		ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, group))
		r = kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.Generation = group, -1
		ask[*kmsg.OffsetCommitResponse](s, "nothing", v, r)
		r = kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.Generation = group, -1
		s.commits(r, "unknown", 0, 9)
		ask[*kmsg.OffsetCommitResponse](s, "only an unknown topic", v, r)
		for _, partition := range []int32{-1, 3} { // there are three
			r = s.commitRequest(group, "", -1)
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
			r.Topics[0].Partitions[1].Partition = partition
			ask[*kmsg.OffsetCommitResponse](s, fmt.Sprint("partition ", partition), v, r)
		}
		r = s.commitRequest(group, "", -1)
		r.Topics[0].TopicID, r.Topics[0].Topic = [16]byte{}, ""
		ask[*kmsg.OffsetCommitResponse](s, "no topic", v, r)
		ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, group))
	}
}

func commitsRefused(s *session) {
	stable := s.group("stable")
	member, generation := s.alone("other", stable)
	simple := s.group("simple")
	s.commitAs("simple", simple, "", -1)
	for _, v := range []int16{2, 6, 8, 9, 10} {
		for i, c := range []struct {
			what          string
			group, member string
			generation    int32
			f             func(*kmsg.OffsetCommitRequest)
		}{
			{"no group", "", "", -1, nil},
			{"unknown group, generation 1", "?", "", 1, nil},
			{"unknown group, a member", "?", "x", -1, nil},
			{"unknown group, a member of generation 1", "?", "x", 1, nil},
			{"generation -2", "?", "", -2, nil},
			{"group without members, generation 1", simple, "", 1, nil},
			{"group without members, generation 0", simple, "", 0, nil},
			{"group without members, a member", simple, "x", -1, nil},
			{"no member", stable, "", -1, nil},
			{"no member, its generation", stable, "", generation, nil},
			{"unknown member", stable, "x", generation, nil},
			{"without a generation", stable, member, -1, nil},
			{"the generation before", stable, member, generation - 1, nil},
			{"the generation after", stable, member, generation + 1, nil},
			{"a long note", stable, member, generation, func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(fmt.Sprintf("%65d", 0))
			}},
			{"a note of umlauts", stable, member, generation, func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("ääääääääääääääääääääääääääääääääää") // 34, of 68 bytes
			}},
			{"offset -1", stable, member, generation, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = -1 }},
			{"offset -2", stable, member, generation, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = -2 }},
			{"partition 9", stable, member, generation, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 9 }},
			{"unknown topic and member", stable, "x", generation, func(r *kmsg.OffsetCommitRequest) { s.commits(r, "unknown", 0, 1) }},
			{"all is well", stable, member, generation, nil},
		} {
			group := c.group
			if group == "?" {
				group = s.group(fmt.Sprint("new-", v, "-", i))
			}
			r := s.commitRequest(group, c.member, c.generation)
			if c.f != nil {
				c.f(r)
			}
			ask[*kmsg.OffsetCommitResponse](s, c.what, v, r)
			if c.group == "?" {
				s.describe(group)
			}
		}
	}
	ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, stable))
}

// commitsOfMembers are those of members of consumer groups.
func commitsOfMembers(s *session) {
	group := s.group("g")
	s.age(group)
	first := ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "join", 1, beatRequest(group, "m", 0, subscribes("t")))
	epoch := first.MemberEpoch
	for _, v := range []int16{2, 8, 9, 10} {
		ask[*kmsg.OffsetCommitResponse](s, "the epoch", v, s.commitRequest(group, "m", epoch))
		ask[*kmsg.OffsetCommitResponse](s, "the epoch before", v, s.commitRequest(group, "m", epoch-1))
		ask[*kmsg.OffsetCommitResponse](s, "the epoch after", v, s.commitRequest(group, "m", epoch+1))
		ask[*kmsg.OffsetCommitResponse](s, "without an epoch", v, s.commitRequest(group, "m", -1))
		ask[*kmsg.OffsetCommitResponse](s, "unknown member", v, s.commitRequest(group, "x", epoch))
		ask[*kmsg.OffsetCommitResponse](s, "nobody", v, s.commitRequest(group, "", -1))
		ask[*kmsg.OffsetCommitResponse](s, "nobody, the epoch", v, s.commitRequest(group, "", epoch))
	}
	changed := ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "reads more", 1, beatRequest(group, "m", epoch, subscribes("t", "u"), s.owns("t", 0, 1, 2)))
	for _, v := range []int16{8, 9, 10} {
		r := s.commitRequest(group, "m", epoch)
		ask[*kmsg.OffsetCommitResponse](s, "the epoch before, of what it had", v, r)
		s.commits(r, "u", 0, 1)
		ask[*kmsg.OffsetCommitResponse](s, "the epoch before, of what it had and of what is new", v, r)
	}
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "leaves", 1, beatRequest(group, "m", -1))
	ask[*kmsg.OffsetCommitResponse](s, "after it left", 9, s.commitRequest(group, "m", changed.MemberEpoch))
	ask[*kmsg.OffsetCommitResponse](s, "nobody after it left", 9, s.commitRequest(group, "", -1))
	ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, group))
}

func fetchVersions(s *session) {
	group := s.group("g")
	c := s.commitRequest(group, "", -1)
	s.commits(c, "u", 1, 8)
	ask[*kmsg.OffsetCommitResponse](s, "commit", 9, c)
	for v := int16(1); v <= 10; v++ {
		ask[*kmsg.OffsetFetchResponse](s, "some", v, s.fetchRequest(v, group, "t", "unknown", "u"))
		if v >= 2 {
			ask[*kmsg.OffsetFetchResponse](s, "all", v, s.fetchRequest(v, group))
			ask[*kmsg.OffsetFetchResponse](s, "all of an unknown group", v, s.fetchRequest(v, s.group("?")))
			ask[*kmsg.OffsetFetchResponse](s, "all of no group", v, s.fetchRequest(v, ""))
		}
		r := s.fetchRequest(v, group, "t")
		r.RequireStable = true
		ask[*kmsg.OffsetFetchResponse](s, "stable", v, r)
		ask[*kmsg.OffsetFetchResponse](s, "some of an unknown group", v, s.fetchRequest(v, s.group("?"), "t", "unknown"))
		ask[*kmsg.OffsetFetchResponse](s, "some of no group", v, s.fetchRequest(v, "", "t"))
		r = s.fetchRequest(v, group, "t")
		r.Topics[0].Partitions = []int32{-1, 5, 0, 0}
		if v >= 8 {
			r.Groups[0].Topics[0].Partitions = r.Topics[0].Partitions
		}
		ask[*kmsg.OffsetFetchResponse](s, "odd partitions", v, r)
		r = s.fetchRequest(v, group, "t")
		r.Topics[0].Partitions = nil
		if v >= 8 {
			r.Groups[0].Topics[0].Partitions = nil
		}
		ask[*kmsg.OffsetFetchResponse](s, "no partitions", v, r)
		r = s.fetchRequest(v, group)
		r.Topics = []kmsg.OffsetFetchRequestTopic{}
		if v >= 8 {
			r.Groups[0].Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
		ask[*kmsg.OffsetFetchResponse](s, "no topics", v, r)
		if v >= 8 {
			r = s.fetchRequest(v, group, "t")
			r.Groups = append(r.Groups, s.fetchRequest(v, s.group("?"), "u").Groups[0], s.fetchRequest(v, group).Groups[0], s.fetchRequest(v, "").Groups[0])
			ask[*kmsg.OffsetFetchResponse](s, "many groups", v, r)
			r.Groups = nil
			ask[*kmsg.OffsetFetchResponse](s, "no groups", v, r)
		}
	}
}

// fetchesRefused are fetches of a classic group by who says who it is.
func fetchesRefused(s *session) {
	group := s.group("g")
	member, generation := s.alone("other", group)
	s.commitAs("some", group, member, generation)
	s.fetchesBy(group, member, generation)
}

// fetchesOfConsumers are those of a consumer group.
func fetchesOfConsumers(s *session) {
	group := s.group("g")
	s.age(group)
	first := ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "join", 1, beatRequest(group, "m", 0, subscribes("t")))
	s.commitAs("some", group, "m", first.MemberEpoch)
	s.fetchesBy(group, "m", first.MemberEpoch)
}

func (s *session) fetchesBy(group, member string, generation int32) {
	for v := int16(8); v <= 10; v++ {
		for _, all := range []bool{false, true} {
			for _, c := range []struct {
				what  string
				id    *string
				epoch int32
			}{
				{"nobody", nil, -1},
				{"a member", &member, generation},
				{"a member before", &member, generation - 1},
				{"a member after", &member, generation + 1},
				{"a member without a generation", &member, -1},
				{"nobody of a generation", nil, generation},
				{"an empty id", kmsg.StringPtr(""), -1},
				{"an unknown member", kmsg.StringPtr("x"), generation},
				{"an unknown member without a generation", kmsg.StringPtr("x"), -1},
			} {
				r := s.fetchRequest(v, group, "t", "unknown")
				if all {
					r = s.fetchRequest(v, group)
				}
				r.Groups[0].MemberID, r.Groups[0].MemberEpoch = c.id, c.epoch
				ask[*kmsg.OffsetFetchResponse](s, fmt.Sprint(c.what, ", all ", all), v, r)
			}
		}
	}
}

func deleteOffsets(group string, topics ...string) *kmsg.OffsetDeleteRequest {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = group
	for _, name := range topics {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = name
		for _, n := range []int32{0, 1} {
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			p.Partition = n
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func offsetDeletes(s *session) {
	ask[*kmsg.OffsetDeleteResponse](s, "no group", 0, deleteOffsets("", "t"))
	ask[*kmsg.OffsetDeleteResponse](s, "unknown group", 0, deleteOffsets(s.group("?"), "t"))
	ask[*kmsg.OffsetDeleteResponse](s, "unknown group and topic", 0, deleteOffsets(s.group("?"), "unknown"))
	simple := s.group("simple")
	s.commitAs("simple", simple, "", -1)
	ask[*kmsg.OffsetDeleteResponse](s, "nothing", 0, deleteOffsets(simple))
	r := deleteOffsets(simple, "t")
	r.Topics[0].Partitions = nil
	ask[*kmsg.OffsetDeleteResponse](s, "no partitions", 0, r)
	r = deleteOffsets(simple, "t")
	r.Topics[0].Partitions[0].Partition = 99
	ask[*kmsg.OffsetDeleteResponse](s, "an unknown partition", 0, r)
	ask[*kmsg.OffsetDeleteResponse](s, "some", 0, deleteOffsets(simple, "u", "unknown", "t"))
	s.describe(simple)
	ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, simple))
	ask[*kmsg.OffsetDeleteResponse](s, "again", 0, deleteOffsets(simple, "t"))

	stable := s.group("stable")
	member, generation := s.alone("other", stable)
	c := s.commitRequest(stable, member, generation)
	s.commits(c, "u", 1, 8)
	ask[*kmsg.OffsetCommitResponse](s, "commit", 9, c)
	ask[*kmsg.OffsetDeleteResponse](s, "of topics that are read and not", 0, deleteOffsets(stable, "t", "u", "unknown"))
	ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, stable))

	connect := s.group("connect")
	kind := func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }
	j := ask[*kmsg.JoinGroupResponse](s, "connect", 3, joinRequest(connect, "", kind))
	ask[*kmsg.OffsetDeleteResponse](s, "of connect", 0, deleteOffsets(connect, "t"))
	ask[*kmsg.LeaveGroupResponse](s, "leave", 5, leaveRequest(connect, j.MemberID))
	ask[*kmsg.OffsetDeleteResponse](s, "of connect without members", 0, deleteOffsets(connect, "t"))

	group := s.group("consumer")
	beat := ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "join", 1, beatRequest(group, "m", 0, subscribes("t")))
	c = s.commitRequest(group, "m", beat.MemberEpoch)
	s.commits(c, "u", 1, 8)
	ask[*kmsg.OffsetCommitResponse](s, "commit", 9, c)
	ask[*kmsg.OffsetDeleteResponse](s, "of a consumer group", 0, deleteOffsets(group, "t", "u", "unknown"))
	ask[*kmsg.OffsetFetchResponse](s, "all", 7, s.fetchRequest(7, group))
}
