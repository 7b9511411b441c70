package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func consumerScripts() []script {
	return []script{
		{"consumer heartbeats refused", beatsRefused},
		{"consumer life", consumerLife},
		{"consumer two members", consumerTwo},
		{"consumer static", consumerStatic},
		{"consumer epochs", consumerEpochs},
		{"consumer regex", consumerRegex},
		{"consumer and classic", consumerAndClassic},
	}
}

// beatRequest is a heartbeat; one of epoch 0 has all that a first one must have.
func beatRequest(group, member string, epoch int32, more ...func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch = group, member, epoch
	r.RebalanceTimeoutMillis = -1
	if epoch == 0 {
		r.RebalanceTimeoutMillis, r.Topics = 10_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	for _, f := range more {
		f(r)
	}
	return r
}

type beatOption = func(*kmsg.ConsumerGroupHeartbeatRequest)

func subscribes(topics ...string) beatOption {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = append([]string{}, topics...) }
}

func matching(regex string) beatOption {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = &regex }
}

func instance(id string) beatOption {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &id }
}

// owns says which partitions of a topic the member has.
func (s *session) owns(topic string, partitions ...int32) beatOption {
	id := s.topicOrNot(topic)
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = id, partitions
		r.Topics = append(r.Topics, t)
	}
}

func ownsNothing(r *kmsg.ConsumerGroupHeartbeatRequest) {
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
}

// beat sends a heartbeat.
func (s *session) beat(what string, r *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](s, what, 1, r)
}

// age has a consumer group's epoch be larger than the numbers that mean something else.
func (s *session) age(group string) {
	for range 2 {
		s.beat("join", beatRequest(group, "old", 0, subscribes("u")))
		s.beat("leave", beatRequest(group, "old", -1))
	}
}

// describeConsumers has a group's members compared.
func (s *session) describeConsumers(group string) {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Groups = []string{group}
	ask[*kmsg.ConsumerGroupDescribeResponse](s, "describe", 1, r)
}

func beatsRefused(s *session) {
	set := func(f beatOption) beatOption { return f }
	stable, classic, simple := s.group("stable"), s.group("classic"), s.group("simple")
	s.age(stable)
	first := s.beat("join", beatRequest(stable, "m", 0, subscribes("t")))
	s.alone("other", classic)
	s.commitAs("simple", simple, "", -1)
	epoch := first.MemberEpoch
	for v := int16(0); v <= 1; v++ {
		for i, c := range []struct {
			what          string
			group, member string
			epoch         int32
			f             []beatOption
		}{
			{"no group", "", "m", 0, []beatOption{subscribes("t")}},
			{"a group of spaces", "  ", "m", 0, []beatOption{subscribes("t")}},
			{"no member id", "?", "", 0, []beatOption{subscribes("t")}},
			{"a member id of spaces", "?", " ", 0, []beatOption{subscribes("t")}},
			{"no member id, an epoch", stable, "", epoch, nil},
			{"no member id, leaves", stable, "", -1, nil},
			{"a long member id", "?", fmt.Sprintf("%040d", 7), 0, []beatOption{subscribes("t")}},
			{"epoch -3", stable, "m", -3, nil},
			{"epoch -2 without an instance", stable, "m", -2, nil},
			{"no subscription", "?", "m", 0, nil},
			{"an empty subscription", "?", "m", 0, []beatOption{subscribes()}},
			{"an unknown topic", "?", "m", 0, []beatOption{subscribes("unknown")}},
			{"no rebalance timeout", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })}},
			{"rebalance timeout 0", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = 0 })}},
			{"rebalance timeout -2", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -2 })}},
			{"owns at the join", "?", "m", 0, []beatOption{subscribes("t"), s.owns("t", 0)}},
			{"owns null at the join", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil })}},
			{"empty instance", "?", "m", 0, []beatOption{subscribes("t"), instance("")}},
			{"an instance of spaces", "?", "m", 0, []beatOption{subscribes("t"), instance(" ")}},
			{"an unknown instance", stable, "m", epoch, []beatOption{instance("i")}},
			{"an unknown instance leaves", stable, "m", -2, []beatOption{instance("i")}},
			{"empty rack", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = kmsg.StringPtr("") })}},
			{"unknown assignor", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("x") })}},
			{"empty assignor", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("") })}},
			{"assignor range", "?", "m", 0, []beatOption{subscribes("t"), set(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("range") })}},
			{"unknown group, epoch 1", "?", "m", 1, nil},
			{"unknown group, leaves", "?", "m", -1, nil},
			{"classic group, epoch 1", classic, "m", 1, nil},
			{"classic group, leaves", classic, "m", -1, nil},
			{"simple group, epoch 1", simple, "m", 1, nil},
			{"simple group, leaves", simple, "m", -1, nil},
			{"unknown member", stable, "x", epoch, nil},
			{"unknown member leaves", stable, "x", -1, nil},
			{"the epoch before", stable, "m", epoch - 1, nil},
			{"the epoch after", stable, "m", epoch + 1, nil},
			{"an unknown topic owned", stable, "m", epoch, []beatOption{s.owns("unknown", 0)}},
			{"an unknown partition owned", stable, "m", epoch, []beatOption{s.owns("t", 99)}},
			{"a topic twice", "?", "m", 0, []beatOption{subscribes("t", "t")}},
		} {
			r := beatRequest(c.group, c.member, c.epoch, c.f...)
			if c.group == "?" {
				r.Group = s.group(fmt.Sprint("new-", v, "-", i))
			}
			ask[*kmsg.ConsumerGroupHeartbeatResponse](s, c.what, v, r)
			if c.group == "?" {
				s.describeConsumers(r.Group)
			}
		}
	}
	s.describeConsumers(stable)
	s.describe(classic)
}

func consumerLife(s *session) {
	for v := int16(0); v <= 1; v++ {
		group := s.group(fmt.Sprint(v))
		r := beatRequest(group, "", 0, subscribes("t"))
		if v == 1 {
			r.MemberID = "AAAAAAAAAAAAAAAAAAAAAQ"
		}
		beat := func(what string, r *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
			return ask[*kmsg.ConsumerGroupHeartbeatResponse](s, what, v, r)
		}
		joined := beat("join", r)
		if joined.MemberID == nil {
			return
		}
		id, epoch := *joined.MemberID, joined.MemberEpoch
		s.describeConsumers(group)
		beat("nothing new", beatRequest(group, id, epoch))
		beat("owns what it got", beatRequest(group, id, epoch, s.owns("t", 0, 1, 2)))
		beat("owns nothing", beatRequest(group, id, epoch, ownsNothing))
		full := beatRequest(group, id, epoch, subscribes("t"), s.owns("t", 0, 1, 2))
		full.RebalanceTimeoutMillis = 10_000
		beat("everything", full)
		beat("joins again", beatRequest(group, id, 0, subscribes("t")))
		epoch = beat("reads more", beatRequest(group, id, epoch, subscribes("u", "t"))).MemberEpoch
		s.describeConsumers(group)
		epoch = beat("reads less", beatRequest(group, id, epoch, subscribes("u"), s.owns("t", 0, 1, 2), s.owns("u", 0, 1))).MemberEpoch
		s.describeConsumers(group)
		epoch = beat("gave up", beatRequest(group, id, epoch, s.owns("u", 0, 1))).MemberEpoch
		s.describeConsumers(group)
		other := beatRequest(group, id, epoch)
		other.RackID, other.ServerAssignor = kmsg.StringPtr("r"), kmsg.StringPtr("range")
		epoch = beat("another rack and assignor", other).MemberEpoch
		s.describeConsumers(group)
		timeout := beatRequest(group, id, epoch)
		timeout.RebalanceTimeoutMillis = 20_000
		epoch = beat("another timeout", timeout).MemberEpoch
		epoch = beat("reads nothing", beatRequest(group, id, epoch, subscribes())).MemberEpoch
		beat("gave up all", beatRequest(group, id, epoch, ownsNothing))
		s.describeConsumers(group)
		beat("leaves", beatRequest(group, id, -1))
		s.describeConsumers(group)
		beat("leaves again", beatRequest(group, id, -1))
		beat("after it left", beatRequest(group, id, epoch))
		beat("joins anew", beatRequest(group, id, 0, subscribes("t")))
		s.describeConsumers(group)
	}
}

// consumerTwo is the way of partitions from one member to another.
func consumerTwo(s *session) {
	group := s.group("g")
	s.age(group)
	a := s.beat("a joins", beatRequest(group, "a", 0, subscribes("t")))
	b := s.beat("b joins", beatRequest(group, "b", 0, subscribes("t")))
	s.describeConsumers(group)
	a = s.beat("a hears", beatRequest(group, "a", a.MemberEpoch))
	s.describeConsumers(group)
	s.beat("a has not given up", beatRequest(group, "a", a.MemberEpoch, s.owns("t", 0, 1, 2)))
	b = s.beat("b waits", beatRequest(group, "b", b.MemberEpoch, ownsNothing))
	kept := []int32{}
	if a.Assignment != nil && len(a.Assignment.Topics) == 1 {
		kept = a.Assignment.Topics[0].Partitions
	}
	a = s.beat("a gave up", beatRequest(group, "a", a.MemberEpoch, s.owns("t", kept...)))
	s.describeConsumers(group)
	s.beat("b gets", beatRequest(group, "b", b.MemberEpoch))
	s.describeConsumers(group)
	s.beat("b leaves", beatRequest(group, "b", -1))
	s.describeConsumers(group)
	a = s.beat("a gets all", beatRequest(group, "a", a.MemberEpoch))
	s.describeConsumers(group)
	s.beat("a of the epoch before", beatRequest(group, "a", a.MemberEpoch-1))
	s.beat("a of the epoch before, with less than it has", beatRequest(group, "a", a.MemberEpoch-1, s.owns("t", kept...)))
	s.beat("a of the epoch before, with more than it has", beatRequest(group, "a", a.MemberEpoch-1, s.owns("t", 0, 1, 2), s.owns("u", 0)))
	s.beat("c reads another topic", beatRequest(group, "c", 0, subscribes("u")))
	s.describeConsumers(group)
	s.beat("a", beatRequest(group, "a", a.MemberEpoch))
	s.describeConsumers(group)
}

func consumerStatic(s *session) {
	group := s.group("g")
	s.age(group)
	a := s.beat("join", beatRequest(group, "a", 0, subscribes("t"), instance("i")))
	s.beat("another with the instance", beatRequest(group, "b", 0, subscribes("t"), instance("i")))
	s.beat("without the instance", beatRequest(group, "a", a.MemberEpoch))
	s.beat("with another instance", beatRequest(group, "a", a.MemberEpoch, instance("k")))
	s.beat("another id", beatRequest(group, "b", a.MemberEpoch, instance("i")))
	s.beat("leaves for a while with another id", beatRequest(group, "b", -2, instance("i")))
	s.beat("leaves for a while", beatRequest(group, "a", -2, instance("i")))
	s.describeConsumers(group)
	s.beat("while away", beatRequest(group, "a", a.MemberEpoch, instance("i")))
	s.beat("leaves again", beatRequest(group, "a", -2, instance("i")))
	b := s.beat("back with another id", beatRequest(group, "b", 0, subscribes("t"), instance("i")))
	s.describeConsumers(group)
	s.beat("the old id", beatRequest(group, "a", a.MemberEpoch, instance("i")))
	s.beat("the old id leaves", beatRequest(group, "a", -1, instance("i")))
	s.beat("the old id without the instance", beatRequest(group, "a", a.MemberEpoch))
	o := s.commitRequest(group, "a", a.MemberEpoch)
	o.InstanceID = kmsg.StringPtr("i")
	ask[*kmsg.OffsetCommitResponse](s, "the old id", 9, o)
	s.beat("the new id", beatRequest(group, "b", b.MemberEpoch, instance("i")))
	s.beat("leaves for a while", beatRequest(group, "b", -2, instance("i")))
	s.beat("back with another subscription", beatRequest(group, "c", 0, subscribes("u"), instance("i")))
	s.describeConsumers(group)
	s.beat("leaves for a while", beatRequest(group, "c", -2, instance("i")))
	s.beat("back with the same id", beatRequest(group, "c", 0, subscribes("u"), instance("i")))
	s.describeConsumers(group)
	s.beat("a dynamic one with its id", beatRequest(group, "c", 0, subscribes("u")))
	s.describeConsumers(group)
	s.beat("leaves", beatRequest(group, "c", -1, instance("i")))
	s.describeConsumers(group)
}

// consumerEpochs is what a member is told that repeats itself.
func consumerEpochs(s *session) {
	group := s.group("g")
	s.age(group)
	s.beat("join", beatRequest(group, "a", 0, subscribes("t")))
	s.beat("join again", beatRequest(group, "a", 0, subscribes("t")))
	s.beat("join again, other topics", beatRequest(group, "a", 0, subscribes("u")))
	s.describeConsumers(group)
	a := s.beat("join again, both", beatRequest(group, "a", 0, subscribes("u", "t")))
	s.describeConsumers(group)
	for _, epoch := range []int32{a.MemberEpoch - 2, a.MemberEpoch - 1, a.MemberEpoch, a.MemberEpoch + 1, 1 << 30} {
		name := fmt.Sprintf("%+d", epoch-a.MemberEpoch)
		if epoch == 1<<30 {
			name = "far away"
		}
		s.beat("epoch "+name, beatRequest(group, "a", epoch))
		s.beat("epoch "+name+", owns nothing", beatRequest(group, "a", epoch, ownsNothing))
		s.beat("epoch "+name+", owns all", beatRequest(group, "a", epoch, s.owns("t", 0, 1, 2), s.owns("u", 0, 1)))
		s.beat("epoch "+name+", owns more", beatRequest(group, "a", epoch, s.owns("t", 0, 1, 2), s.owns("u", 0, 1, 2)))
	}
	s.describeConsumers(group)
}

func consumerRegex(s *session) {
	for i, regex := range []string{"t", "t|u", "t.*", "[tu]", "", "(", "[", "*", "a{2,1}", "(?i)T", "(?<name>t)", "(?P<name>t)", `\Qt\E`, `t\1`, "t(?=u)", "^t$", "x"} {
		group := s.group(fmt.Sprint(i))
		s.expression("join with "+regex, group, matching(regex))
	}
	s.expression("names and a regex", s.group("g"), subscribes("u"), matching("t"))
	s.expression("no names and a regex", s.group("h"), subscribes(), matching("t"))
	group := s.group("changes")
	a := s.beat("names", beatRequest(group, "a", 0, subscribes("t")))
	s.beat("a wrong regex", beatRequest(group, "a", a.MemberEpoch, matching("(")))
	s.beat("a regex of an unknown member", beatRequest(group, "b", a.MemberEpoch, matching("(")))
	s.beat("a wrong regex, leaves", beatRequest(group, "a", -1, matching("(")))
	s.describeConsumers(group)
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "a regex that is not sent", 0, beatRequest(s.group("old"), "a", 0, matching("t")))
}

// expression has a member join with a regular expression and what it is assigned in the
// end compared: Kafka finds the topics while the member waits.
func (s *session) expression(what, group string, subscription ...beatOption) {
	w := s.send("main", what, 1, beatRequest(group, "a", 0, subscription...))
	<-w.done
	resp, ok := w.resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if ok {
		resp.Assignment = nil
	}
	w.keep()
	for i := 0; ok && resp.ErrorCode == 0 && i < 2; i++ {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-s.ctx.Done():
		}
		resp = quiet[*kmsg.ConsumerGroupHeartbeatResponse](s, 1, beatRequest(group, "a", resp.MemberEpoch))
	}
	s.describeConsumers(group)
}

// consumerAndClassic is a group of both protocols.
func consumerAndClassic(s *session) {
	group := s.group("empty")
	member, _ := s.alone("a", group)
	ask[*kmsg.LeaveGroupResponse](s, "leave", 5, leaveRequest(group, member))
	s.beat("a consumer in an empty classic group", beatRequest(group, "m", 0, subscribes("t")))
	s.describe(group)
	s.describeConsumers(group)
	s.beat("leaves", beatRequest(group, "m", -1))
	s.alone("a", group)
	s.describe(group)

	group = s.group("connect")
	kind := func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }
	ask[*kmsg.JoinGroupResponse](s, "connect", 3, joinRequest(group, "", kind))
	s.beat("a consumer in a group of another type", beatRequest(group, "m", 0, subscribes("t")))

	group = s.group("nonsense")
	raw := func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Metadata = []byte{1} }
	ask[*kmsg.JoinGroupResponse](s, "a consumer that says nonsense", 3, joinRequest(group, "", raw))
	s.beat("a consumer beside it", beatRequest(group, "m", 0, subscribes("t")))

	group = s.group("mixed")
	s.age(group)
	s.beat("a consumer", beatRequest(group, "m", 0, subscribes("t")))
	id := s.memberID("a", group)
	j := as[*kmsg.JoinGroupResponse](s, "a", "a classic member", 9, joinRequest(group, id))
	s.describeConsumers(group)
	as[*kmsg.SyncGroupResponse](s, "a", "sync", 5, syncRequest(group, id, j.Generation))
	as[*kmsg.SyncGroupResponse](s, "a", "sync of another protocol", 5, func() *kmsg.SyncGroupRequest {
		r := syncRequest(group, id, j.Generation)
		r.Protocol = kmsg.StringPtr("x")
		return r
	}())
	ask[*kmsg.HeartbeatResponse](s, "heartbeat", 4, heartbeatRequest(group, id, j.Generation))
	ask[*kmsg.HeartbeatResponse](s, "heartbeat of the generation before", 4, heartbeatRequest(group, id, j.Generation-1))
	ask[*kmsg.HeartbeatResponse](s, "heartbeat of a consumer", 4, heartbeatRequest(group, "m", 1))
	ask[*kmsg.SyncGroupResponse](s, "sync of a consumer", 5, syncRequest(group, "m", 1))
	s.commitAs("of the classic member", group, id, j.Generation)
	s.commitAs("of the classic member, before", group, id, j.Generation-1)
	ask[*kmsg.JoinGroupResponse](s, "another protocol", 9, joinRequest(group, id, inProtocols("x")))
	ask[*kmsg.JoinGroupResponse](s, "another type", 9, joinRequest(group, "", kind))
	ask[*kmsg.JoinGroupResponse](s, "nonsense", 3, joinRequest(group, "", raw))
	s.beat("the classic one's id", beatRequest(group, id, j.Generation))
	s.describe(group)
	ask[*kmsg.LeaveGroupResponse](s, "leave of a consumer", 5, leaveRequest(group, "x", "m"))
	s.describe(group)
	ask[*kmsg.HeartbeatResponse](s, "heartbeat of who is left", 4, heartbeatRequest(group, id, j.Generation))
}
