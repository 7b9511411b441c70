package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// scripts are all there are.
func scripts() []script {
	return append(append(append(append(classicScripts(), staticScripts()...), offsetScripts()...), consumerScripts()...), adminScripts()...)
}

func classicScripts() []script {
	return []script{
		{"classic versions", classicVersions},
		{"classic joins refused", joinsRefused},
		{"classic rebalance", classicRebalance},
		{"classic protocols", classicProtocols},
		{"classic syncs refused", syncsRefused},
		{"classic heartbeats refused", heartbeatsRefused},
		{"classic leaves", leaves},
		{"classic pending", pendingMembers},
	}
}

// subscription is what a consumer says in a protocol.
func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, topics
	return m.AppendTo(nil)
}

// joinRequest is by a consumer of t; session and rebalance timeouts are 10 s.
func joinRequest(group, member string, more ...func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 10_000
	inProtocols("range")(r)
	for _, f := range more {
		f(r)
	}
	return r
}

func inProtocols(names ...string) func(*kmsg.JoinGroupRequest) {
	return func(r *kmsg.JoinGroupRequest) {
		r.Protocols = nil
		for _, name := range names {
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = name, subscription("t")
			r.Protocols = append(r.Protocols, p)
		}
	}
}

func readsTopics(topics ...string) func(*kmsg.JoinGroupRequest) {
	return func(r *kmsg.JoinGroupRequest) {
		for i := range r.Protocols {
			r.Protocols[i].Metadata = subscription(topics...)
		}
	}
}

func instanceOf(id string) func(*kmsg.JoinGroupRequest) {
	return func(r *kmsg.JoinGroupRequest) { r.InstanceID = &id }
}

// memberID has a client given an id.
func (s *session) memberID(client, group string) string {
	return as[*kmsg.JoinGroupResponse](s, client, "ask for an id", 9, joinRequest(group, "")).MemberID
}

// syncRequest brings an assignment for each of some members.
func syncRequest(group, member string, generation int32, assigned ...string) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for i, id := range assigned {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = id, fmt.Appendf(nil, "part %d", i)
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	return r
}

func heartbeatRequest(group, member string, generation int32) *kmsg.HeartbeatRequest {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	return r
}

func leaveRequest(group string, members ...string) *kmsg.LeaveGroupRequest {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group = group
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.Reason = id, kmsg.StringPtr("it is late")
		r.Members, r.MemberID = append(r.Members, m), id
	}
	return r
}

// alone makes a stable group of one member.
func (s *session) alone(client, group string) (member string, generation int32) {
	joined := as[*kmsg.JoinGroupResponse](s, client, "join", 9, joinRequest(group, s.memberID(client, group)))
	as[*kmsg.SyncGroupResponse](s, client, "sync", 5, syncRequest(group, joined.MemberID, joined.Generation, joined.MemberID))
	return joined.MemberID, joined.Generation
}

// describe has a group's members compared.
func (s *session) describe(group string) {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{group}
	ask[*kmsg.DescribeGroupsResponse](s, "describe", 6, r)
}

// classicVersions is a member's life in every version.
func classicVersions(s *session) {
	for v := int16(0); v <= 9; v++ {
		group := s.group(fmt.Sprint(v))
		reason := func(r *kmsg.JoinGroupRequest) { r.Reason = kmsg.StringPtr("why not") }
		j := ask[*kmsg.JoinGroupResponse](s, "join", v, joinRequest(group, "", reason))
		if v >= 4 {
			j = ask[*kmsg.JoinGroupResponse](s, "join with the id", v, joinRequest(group, j.MemberID))
		}
		ask[*kmsg.HeartbeatResponse](s, "heartbeat before sync", min(v, 4), heartbeatRequest(group, j.MemberID, j.Generation))
		s.describe(group)
		ask[*kmsg.JoinGroupResponse](s, "join again before sync", v, joinRequest(group, j.MemberID))
		ask[*kmsg.SyncGroupResponse](s, "sync", min(v, 5), syncRequest(group, j.MemberID, j.Generation, j.MemberID))
		ask[*kmsg.SyncGroupResponse](s, "sync again", min(v, 5), syncRequest(group, j.MemberID, j.Generation))
		ask[*kmsg.HeartbeatResponse](s, "heartbeat", min(v, 4), heartbeatRequest(group, j.MemberID, j.Generation))
		for d := int16(0); d <= 6; d++ {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups, r.IncludeAuthorizedOperations = []string{group}, d%2 == 0
			ask[*kmsg.DescribeGroupsResponse](s, "describe stable", d, r)
		}
		j = ask[*kmsg.JoinGroupResponse](s, "leader joins again", v, joinRequest(group, j.MemberID))
		ask[*kmsg.SyncGroupResponse](s, "sync without assignments", min(v, 5), syncRequest(group, j.MemberID, j.Generation))
		s.describe(group)
		ask[*kmsg.LeaveGroupResponse](s, "leave", min(v, 5), leaveRequest(group, j.MemberID))
		ask[*kmsg.LeaveGroupResponse](s, "leave again", min(v, 5), leaveRequest(group, j.MemberID))
		ask[*kmsg.HeartbeatResponse](s, "heartbeat of who left", min(v, 4), heartbeatRequest(group, j.MemberID, j.Generation))
		ask[*kmsg.JoinGroupResponse](s, "join with an old id", v, joinRequest(group, j.MemberID))
		s.describe(group)
	}
}

func joinsRefused(s *session) {
	set := func(f func(*kmsg.JoinGroupRequest)) func(*kmsg.JoinGroupRequest) { return f }
	stable := s.group("stable")
	member, _ := s.alone("other", stable)
	for _, v := range []int16{0, 3, 4, 5, 9} {
		for i, c := range []struct {
			what          string
			group, member string
			f             func(*kmsg.JoinGroupRequest)
		}{
			{"no group", "", "", nil},
			{"no group, with an id", "", "x", nil},
			{"unknown member of an unknown group", "?", "x", nil},
			{"unknown member", stable, "x", nil},
			{"short session", "?", "", set(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 999 })},
			{"long session", "?", "", set(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_001 })},
			{"negative session", "?", "", set(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = -1 })},
			{"short session of a member", stable, member, set(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 })},
			{"no protocol type", "?", "", set(func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })},
			{"no protocols", "?", "", set(func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })},
			{"another protocol type", stable, "", set(func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })},
			{"another protocol", stable, "", inProtocols("roundrobin")},
			{"no protocols of a member", stable, member, set(func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })},
			{"another protocol type of a member", stable, member, set(func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })},
			{"instance of an unknown group", "?", "x", instanceOf("i")},
			{"unknown instance", stable, "x", instanceOf("i")},
			{"unknown instance of a dynamic member", stable, member, instanceOf("i")},
			{"empty instance", "?", "", instanceOf("")},
			{"instance with odd letters", "?", "", instanceOf("a b")},
		} {
			if v < 5 && (c.what == "empty instance" || c.what == "instance with odd letters") {
				continue // it is not sent
			}
			r := joinRequest(c.group, c.member)
			if c.group == "?" {
				r.Group = s.group(fmt.Sprint("new-", v, "-", i))
			}
			if c.f != nil {
				c.f(r)
			}
			ask[*kmsg.JoinGroupResponse](s, c.what, v, r)
		}
	}
	s.describe(stable)
}

// classicRebalance is two members that come, say something else, and go.
func classicRebalance(s *session) {
	group := s.group("g")
	a, generation := s.alone("a", group)
	as[*kmsg.JoinGroupResponse](s, "a", "a follower asks, who is the leader", 9, joinRequest(group, "nobody"))
	b := s.memberID("b", group)
	ask[*kmsg.HeartbeatResponse](s, "an id was handed out", 4, heartbeatRequest(group, a, generation))
	s.describe(group)
	second := s.send("b", "second", 9, joinRequest(group, b))
	s.untilState(group, "PreparingRebalance", 2)
	s.describe(group)
	ask[*kmsg.HeartbeatResponse](s, "during the rebalance", 4, heartbeatRequest(group, a, generation))
	ask[*kmsg.HeartbeatResponse](s, "of who waits", 4, heartbeatRequest(group, b, generation))
	ask[*kmsg.SyncGroupResponse](s, "sync during the rebalance", 5, syncRequest(group, a, generation))
	s.commitAs("during the rebalance", group, a, generation)
	first := s.send("a", "first", 9, joinRequest(group, a))
	first.keep()
	second.keep()
	generation++
	s.describe(group)
	s.commitAs("before sync", group, a, generation)
	s.commitAs("of the generation before", group, a, generation-1)
	follower := s.send("b", "follower", 5, syncRequest(group, b, generation, a, b))
	s.untilState(group, "CompletingRebalance", 2)
	as[*kmsg.JoinGroupResponse](s, "a", "the leader repeats its join", 9, joinRequest(group, a))
	as[*kmsg.SyncGroupResponse](s, "a", "leader", 5, syncRequest(group, a, generation, a, b, "gone"))
	follower.keep()
	s.describe(group)
	s.commitAs("stable", group, b, generation)
	as[*kmsg.JoinGroupResponse](s, "b", "a follower repeats its join", 9, joinRequest(group, b))
	as[*kmsg.SyncGroupResponse](s, "b", "a follower repeats its sync", 5, syncRequest(group, b, generation))

	changed := s.send("b", "a follower reads something else", 9, joinRequest(group, b, readsTopics("u")))
	s.untilState(group, "PreparingRebalance", 2)
	as[*kmsg.LeaveGroupResponse](s, "a", "the leader leaves", 5, leaveRequest(group, a))
	changed.keep()
	s.describe(group)
	as[*kmsg.SyncGroupResponse](s, "b", "the new leader", 5, syncRequest(group, b, generation+1, b))
	s.describe(group)
	as[*kmsg.LeaveGroupResponse](s, "b", "the last one leaves", 5, leaveRequest(group, b))
	s.describe(group)
	s.alone("c", group)
}

// classicProtocols is the choice of protocols.
func classicProtocols(s *session) {
	group := s.group("votes")
	a := s.memberID("a", group)
	b := s.memberID("b", group)
	c := s.memberID("c", group)
	one := s.send("a", "prefers x", 9, joinRequest(group, a, inProtocols("x", "y", "z")))
	s.untilState(group, "PreparingRebalance", 1)
	two := s.send("b", "prefers y", 9, joinRequest(group, b, inProtocols("y", "x")))
	s.untilState(group, "PreparingRebalance", 2)
	three := s.send("c", "prefers y, too", 9, joinRequest(group, c, inProtocols("y", "x", "w")))
	s.untilState(group, "PreparingRebalance", 3)
	as[*kmsg.JoinGroupResponse](s, "d", "only z", 9, joinRequest(group, "", inProtocols("z")))
	as[*kmsg.JoinGroupResponse](s, "d", "another type", 9, joinRequest(group, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }))
	one.keep()
	two.keep()
	three.keep()
	r := syncRequest(group, a, 1)
	as[*kmsg.SyncGroupResponse](s, "a", "with another protocol", 5, r)
	r.Protocol = kmsg.StringPtr("y")
	as[*kmsg.SyncGroupResponse](s, "a", "with the protocol", 5, r)
	s.describe(group)

	for _, protocols := range [][]string{{""}, {"range"}} {
		connect := s.group("connect " + protocols[0])
		kind := func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }
		j := ask[*kmsg.JoinGroupResponse](s, "connect", 3, joinRequest(connect, "", inProtocols(protocols...), kind))
		r := syncRequest(connect, j.MemberID, j.Generation, j.MemberID)
		ask[*kmsg.SyncGroupResponse](s, "of another type", 5, r)
		r.ProtocolType, r.Protocol = kmsg.StringPtr("connect"), &protocols[0]
		ask[*kmsg.SyncGroupResponse](s, "of the type", 5, r)
		s.describe(connect)
	}
}

func syncsRefused(s *session) {
	stable := s.group("stable")
	member, generation := s.alone("other", stable)
	for v := int16(0); v <= 5; v++ {
		for _, c := range []struct {
			what          string
			group, member string
			generation    int32
			f             func(*kmsg.SyncGroupRequest)
		}{
			{"no group", "", member, generation, nil},
			{"unknown group", s.group("?"), member, generation, nil},
			{"unknown member", stable, "x", generation, nil},
			{"no member", stable, "", generation, nil},
			{"generation -1", stable, member, -1, nil},
			{"the generation before", stable, member, generation - 1, nil},
			{"the generation after", stable, member, generation + 1, nil},
			{"another protocol type", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = kmsg.StringPtr("connect") }},
			{"another protocol", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.Protocol = kmsg.StringPtr("sticky") }},
			{"no protocol type", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = nil }},
			{"no protocol", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.Protocol = nil }},
			{"neither", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.Protocol, r.ProtocolType = nil, nil }},
			{"neither, of nobody", stable, "x", generation, func(r *kmsg.SyncGroupRequest) { r.Protocol, r.ProtocolType = nil, nil }},
			{"neither, of no group", "", "x", generation, func(r *kmsg.SyncGroupRequest) { r.Protocol, r.ProtocolType = nil, nil }},
			{"unknown instance", stable, member, generation, func(r *kmsg.SyncGroupRequest) { r.InstanceID = kmsg.StringPtr("i") }},
			{"all is well", stable, member, generation, nil},
		} {
			r := syncRequest(c.group, c.member, c.generation)
			if c.f != nil {
				c.f(r)
			}
			ask[*kmsg.SyncGroupResponse](s, c.what, v, r)
		}
	}
}

func heartbeatsRefused(s *session) {
	stable := s.group("stable")
	member, generation := s.alone("other", stable)
	simple := s.group("simple")
	s.commitAs("simple", simple, "", -1)
	for v := int16(0); v <= 4; v++ {
		for _, c := range []struct {
			what          string
			group, member string
			generation    int32
			instance      *string
		}{
			{"no group", "", member, generation, nil},
			{"unknown group", s.group("?"), member, generation, nil},
			{"a group without members", simple, member, generation, nil},
			{"unknown member", stable, "x", generation, nil},
			{"no member", stable, "", generation, nil},
			{"generation -1", stable, member, -1, nil},
			{"the generation before", stable, member, generation - 1, nil},
			{"the generation after", stable, member, generation + 1, nil},
			{"unknown instance", stable, member, generation, kmsg.StringPtr("i")},
			{"all is well", stable, member, generation, nil},
		} {
			r := heartbeatRequest(c.group, c.member, c.generation)
			r.InstanceID = c.instance
			ask[*kmsg.HeartbeatResponse](s, c.what, v, r)
		}
	}
}

func leaves(s *session) {
	for v := int16(0); v <= 5; v++ {
		ask[*kmsg.LeaveGroupResponse](s, "no group", v, leaveRequest("", "x"))
		ask[*kmsg.LeaveGroupResponse](s, "unknown group", v, leaveRequest(s.group("?"), "x", "y"))
		ask[*kmsg.LeaveGroupResponse](s, "unknown group, nobody", v, leaveRequest(s.group("?")))
		group := s.group(fmt.Sprint(v))
		member, _ := s.alone("other", group)
		ask[*kmsg.LeaveGroupResponse](s, "nobody", v, leaveRequest(group))
		ask[*kmsg.LeaveGroupResponse](s, "one without an id", v, leaveRequest(group, ""))
		ask[*kmsg.LeaveGroupResponse](s, "unknown members", v, leaveRequest(group, "x", "y"))
		r := leaveRequest(group, member)
		if v >= 3 {
			r.Members[0].InstanceID = kmsg.StringPtr("i")
			ask[*kmsg.LeaveGroupResponse](s, "unknown instance", v, r)
		}
		s.describe(group)
		ask[*kmsg.LeaveGroupResponse](s, "one, and others", v, leaveRequest(group, "x", member, "y", member)) // v0 to 2 send the last
		s.describe(group)
		simple := s.group(fmt.Sprint("simple", v))
		s.commitAs("simple", simple, "", -1)
		ask[*kmsg.LeaveGroupResponse](s, "a group without members", v, leaveRequest(simple, "x"))
	}
}

// pendingMembers are ids that were handed out.
func pendingMembers(s *session) {
	group := s.group("g")
	id := s.memberID("a", group)
	s.describe(group)
	ask[*kmsg.HeartbeatResponse](s, "heartbeat", 4, heartbeatRequest(group, id, -1))
	ask[*kmsg.HeartbeatResponse](s, "heartbeat of generation 0", 4, heartbeatRequest(group, id, 0))
	ask[*kmsg.SyncGroupResponse](s, "sync", 5, syncRequest(group, id, -1))
	ask[*kmsg.SyncGroupResponse](s, "sync of generation 0", 5, syncRequest(group, id, 0))
	s.commitAs("commit", group, id, -1)
	s.commitAs("commit of generation 0", group, id, 0)
	ask[*kmsg.JoinGroupResponse](s, "of another type", 9, joinRequest(group, id, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }))
	ask[*kmsg.JoinGroupResponse](s, "static with that id", 9, joinRequest(group, id, instanceOf("i")))
	ask[*kmsg.LeaveGroupResponse](s, "leave with an instance", 5, func() *kmsg.LeaveGroupRequest {
		r := leaveRequest(group, id)
		r.Members[0].InstanceID = kmsg.StringPtr("i")
		return r
	}())
	ask[*kmsg.LeaveGroupResponse](s, "leave", 5, leaveRequest(group, id))
	ask[*kmsg.LeaveGroupResponse](s, "leave again", 5, leaveRequest(group, id))
	s.describe(group)
	ask[*kmsg.JoinGroupResponse](s, "join with the id", 9, joinRequest(group, id))

	group = s.group("left")
	member, _ := s.alone("a", group)
	other := s.memberID("b", group)
	ask[*kmsg.LeaveGroupResponse](s, "the last member leaves", 5, leaveRequest(group, member))
	s.describe(group)
	third := s.memberID("c", group)
	s.list("", "")
	joins := s.send("b", "the id is used", 9, joinRequest(group, other))
	s.until(group, func(g kmsg.DescribeGroupsResponseGroup) bool { return len(g.Members) == 1 })
	ask[*kmsg.LeaveGroupResponse](s, "the last id leaves", 5, leaveRequest(group, third))
	joins.keep()
}
