package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func staticScripts() []script {
	return []script{
		{"static versions", staticVersions},
		{"static fencing", staticFencing},
		{"static follower", staticFollower},
		{"static leave", staticLeave},
		{"static pending join", staticPendingJoin},
	}
}

// staticAlone makes a stable group of one static member.
func (s *session) staticAlone(client, group, instance string) (member string, generation int32) {
	j := as[*kmsg.JoinGroupResponse](s, client, "join", 9, joinRequest(group, "", instanceOf(instance)))
	r := syncRequest(group, j.MemberID, j.Generation, j.MemberID)
	r.InstanceID = &instance
	as[*kmsg.SyncGroupResponse](s, client, "sync", 5, r)
	return j.MemberID, j.Generation
}

// staticVersions is a static leader that comes back, in every version.
func staticVersions(s *session) {
	for v := int16(5); v <= 9; v++ {
		group := s.group(fmt.Sprint(v))
		s.staticAlone("a", group, "i")
		j := ask[*kmsg.JoinGroupResponse](s, "back unchanged", v, joinRequest(group, "", instanceOf("i")))
		ask[*kmsg.SyncGroupResponse](s, "sync", min(v, 5), syncRequest(group, j.MemberID, j.Generation))
		s.describe(group)
		ask[*kmsg.HeartbeatResponse](s, "heartbeat", 4, heartbeatRequest(group, j.MemberID, j.Generation))
		j = ask[*kmsg.JoinGroupResponse](s, "again with the id", v, joinRequest(group, j.MemberID, instanceOf("i")))
		ask[*kmsg.SyncGroupResponse](s, "sync", min(v, 5), syncRequest(group, j.MemberID, j.Generation, j.MemberID))
		j = ask[*kmsg.JoinGroupResponse](s, "back with another subscription", v, joinRequest(group, "", instanceOf("i"), readsTopics("u")))
		s.describe(group)
		ask[*kmsg.SyncGroupResponse](s, "sync", min(v, 5), syncRequest(group, j.MemberID, j.Generation, j.MemberID))
		s.describe(group)
		j = ask[*kmsg.JoinGroupResponse](s, "back with another protocol", v, joinRequest(group, "", instanceOf("i"), inProtocols("sticky")))
		r := syncRequest(group, j.MemberID, j.Generation, j.MemberID)
		r.Protocol = kmsg.StringPtr("sticky")
		ask[*kmsg.SyncGroupResponse](s, "sync", min(v, 5), r)
		s.describe(group)
		ask[*kmsg.JoinGroupResponse](s, "back with more protocols", v, joinRequest(group, "", instanceOf("i"), inProtocols("range", "sticky")))
		s.describe(group)
	}
}

// staticFencing is what the id before is told, by every API.
func staticFencing(s *session) {
	group := s.group("g")
	old, generation := s.staticAlone("a", group, "i")
	j := ask[*kmsg.JoinGroupResponse](s, "back", 9, joinRequest(group, "", instanceOf("i")))
	for _, c := range []struct{ what, member, instance string }{
		{"the old id", old, "i"},
		{"the old id without the instance", old, ""},
		{"the new id", j.MemberID, "i"},
		{"the new id without the instance", j.MemberID, ""},
		{"the new id with another instance", j.MemberID, "k"},
		{"no id", "", "i"},
		{"another id", "x", "i"},
	} {
		var instance *string
		if c.instance != "" {
			instance = &c.instance
		}
		b := heartbeatRequest(group, c.member, generation)
		b.InstanceID = instance
		ask[*kmsg.HeartbeatResponse](s, c.what, 4, b)
		y := syncRequest(group, c.member, generation)
		y.InstanceID = instance
		ask[*kmsg.SyncGroupResponse](s, c.what, 5, y)
		o := s.commitRequest(group, c.member, generation)
		o.InstanceID = instance
		ask[*kmsg.OffsetCommitResponse](s, c.what, 9, o)
		if c.member != j.MemberID && c.member != "" {
			n := joinRequest(group, c.member)
			n.InstanceID = instance
			ask[*kmsg.JoinGroupResponse](s, c.what, 9, n)
			l := leaveRequest(group, c.member)
			l.Members[0].InstanceID = instance
			ask[*kmsg.LeaveGroupResponse](s, c.what, 5, l)
		}
	}
	s.describe(group)
	o := s.commitRequest(group, "", -1)
	o.InstanceID = kmsg.StringPtr("i")
	ask[*kmsg.OffsetCommitResponse](s, "without a generation", 9, o)
}

// staticFollower is a follower that comes back beside a leader that stays.
func staticFollower(s *session) {
	group := s.group("g")
	one := s.send("a", "leader", 9, joinRequest(group, "", instanceOf("i")))
	s.untilState(group, "PreparingRebalance", 1)
	two := s.send("b", "follower", 9, joinRequest(group, "", instanceOf("k")))
	s.untilState(group, "PreparingRebalance", 2)
	leader, _ := one.keep().(*kmsg.JoinGroupResponse)
	follower, _ := two.keep().(*kmsg.JoinGroupResponse)
	if leader == nil || follower == nil {
		return
	}
	generation := leader.Generation
	as[*kmsg.SyncGroupResponse](s, "a", "leader", 5, syncRequest(group, leader.MemberID, generation, leader.MemberID, follower.MemberID))
	as[*kmsg.SyncGroupResponse](s, "b", "follower", 5, syncRequest(group, follower.MemberID, generation))
	back := as[*kmsg.JoinGroupResponse](s, "b", "the follower is back", 9, joinRequest(group, "", instanceOf("k")))
	as[*kmsg.SyncGroupResponse](s, "b", "the follower", 5, syncRequest(group, back.MemberID, generation))
	ask[*kmsg.HeartbeatResponse](s, "the leader", 4, heartbeatRequest(group, leader.MemberID, generation))
	for _, v := range []int16{5, 8, 9} {
		j := as[*kmsg.JoinGroupResponse](s, "a", "the leader is back", v, joinRequest(group, "", instanceOf("i")))
		as[*kmsg.SyncGroupResponse](s, "a", "the leader", min(v, 5), syncRequest(group, j.MemberID, generation))
		leader = j
	}
	s.describe(group)
	again := s.send("b", "the follower reads something else", 9, joinRequest(group, back.MemberID, instanceOf("k"), readsTopics("u")))
	s.untilState(group, "PreparingRebalance", 2)
	s.describe(group)
	as[*kmsg.JoinGroupResponse](s, "a", "the leader", 9, joinRequest(group, leader.MemberID, instanceOf("i")))
	again.keep()
	s.describe(group)
	generation++
	waits := s.send("c", "back while it completes", 9, joinRequest(group, "", instanceOf("k"), readsTopics("u")))
	s.until(group, func(g kmsg.DescribeGroupsResponseGroup) bool { return g.State == "PreparingRebalance" })
	ask[*kmsg.HeartbeatResponse](s, "the leader", 4, heartbeatRequest(group, leader.MemberID, generation))
	as[*kmsg.JoinGroupResponse](s, "a", "the leader", 9, joinRequest(group, leader.MemberID, instanceOf("i")))
	waits.keep()
}

func staticLeave(s *session) {
	for v := int16(3); v <= 5; v++ {
		group := s.group(fmt.Sprint(v))
		one := s.send("a", "one", 9, joinRequest(group, "", instanceOf("i")))
		s.untilState(group, "PreparingRebalance", 1)
		two := s.send("b", "two", 9, joinRequest(group, "", instanceOf("k")))
		s.untilState(group, "PreparingRebalance", 2)
		one.keep()
		two.keep()
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group = group
		for _, instance := range []string{"k", "unknown", "k"} {
			m := kmsg.NewLeaveGroupRequestMember()
			m.InstanceID = &instance
			r.Members = append(r.Members, m)
		}
		ask[*kmsg.LeaveGroupResponse](s, "by instance", v, r)
		s.until(group, func(g kmsg.DescribeGroupsResponseGroup) bool { return len(g.Members) == 1 })
		s.describe(group)
		m := kmsg.NewLeaveGroupRequestMember()
		m.InstanceID, m.MemberID = kmsg.StringPtr("i"), "x"
		r.Members = []kmsg.LeaveGroupRequestMember{m}
		ask[*kmsg.LeaveGroupResponse](s, "by instance and another id", v, r)
		r.Members[0].MemberID = ""
		ask[*kmsg.LeaveGroupResponse](s, "the last", v, r)
		s.describe(group)
	}
}

// staticPendingJoin is a static member that comes back while its join waits.
func staticPendingJoin(s *session) {
	group := s.group("g")
	first := s.send("a", "first", 9, joinRequest(group, "", instanceOf("i")))
	s.untilState(group, "PreparingRebalance", 1)
	second := s.send("b", "second", 9, joinRequest(group, "", instanceOf("i")))
	first.keep()
	second.keep()
	s.describe(group)
}
