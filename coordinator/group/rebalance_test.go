package group_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// Who does not join again within the longest rebalance timeout of the members is
// dropped, and the others go on: a member that sends heartbeats and never polls.
func TestAMemberThatNeverPolls(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	j := r.join(ids[0])
	for range 59 {
		r.pass(time.Second)
		r.heartbeat(ids[1], generation, kerr.RebalanceInProgress)
	}
	if !j.open() {
		t.Fatal("the group went on before the rebalance timeout")
	}
	r.pass(time.Second)
	j.ok()
	r.is("CompletingRebalance", 1)
	r.heartbeat(ids[1], generation, kerr.UnknownMemberID)
}

// Who is silent for its session timeout is dropped; a heartbeat, a sync or a commit is
// a sign of life.
func TestSessions(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	for i := range 3 {
		r.pass(9 * time.Second)
		r.heartbeat(ids[0], generation, nil)
		switch i {
		case 0:
			r.heartbeat(ids[1], generation, nil)
		case 1:
			r.sync(ids[1], generation).fails(nil)
		case 2:
			r.commit(5, nil, by(ids[1], generation))
		}
	}
	r.is("Stable", 2)
	r.pass(9 * time.Second)
	r.heartbeat(ids[0], generation, nil)
	r.pass(time.Second)
	r.is("PreparingRebalance", 1)
	r.heartbeat(ids[1], generation, kerr.UnknownMemberID)
	r.heartbeat(ids[0], generation, kerr.RebalanceInProgress)
}

// Who waits in JoinGroup or SyncGroup need not send heartbeats, and its session begins
// anew after it.
func TestWhoWaitsIsAlive(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	j := r.join(ids[0])
	for range 5 {
		r.pass(8 * time.Second) // 40 s
		r.heartbeat(ids[1], generation, kerr.RebalanceInProgress)
	}
	r.join(ids[1])
	j.ok()
	waiting := r.sync(ids[1], generation+1)
	for range 4 {
		r.pass(9 * time.Second)
		r.heartbeat(ids[0], generation+1, nil)
	}
	r.sync(ids[0], generation+1, ids...)
	waiting.gets("for " + ids[1])
	r.pass(9 * time.Second)
	r.is("Stable", 2)
}

// A new member cannot send heartbeats before it knows its generation. One that waits
// too long is one whose client is gone.
func TestANewMemberThatIsGone(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1, func(q *kmsg.JoinGroupRequest) {
		q.RebalanceTimeoutMillis, q.SessionTimeoutMillis = 600_000, 1_000_000
	})
	_, j := r.joinNew()
	r.pass(299 * time.Second)
	r.heartbeat(ids[0], generation, kerr.RebalanceInProgress)
	if !j.open() {
		t.Fatal("it was dropped too early")
	}
	r.pass(time.Second)
	j.fails(kerr.UnknownMemberID)
	r.is("PreparingRebalance", 1)
}

// KIP-394: an id that was handed out is waited for, as somebody is about to join.
func TestARebalanceWaitsForAnIDThatWasHandedOut(t *testing.T) {
	r := newRig(t)
	ids, _ := r.stable(1)
	pending := r.join("")
	j := r.join(ids[0])
	if !j.open() {
		t.Fatal("the group goes on without it")
	}
	r.join(pending.resp.MemberID)
	if len(j.ok().Members) != 2 {
		t.Errorf("answer %+v", j.resp)
	}

	r = newRig(t)
	ids, _ = r.stable(1)
	pending = r.join("")
	j = r.join(ids[0])
	r.leave(nil, member(pending.resp.MemberID))
	j.ok()
}

// Who joins and never asks for its assignment is dropped, as all others wait for it.
func TestWhoNeverSyncs(t *testing.T) {
	r := newRig(t)
	a, _ := r.joinNew()
	b, _ := r.joinNew()
	r.pass(6 * time.Second)
	sa := r.sync(a, 1, a, b)
	sa.gets("for " + a)
	for range 59 {
		r.pass(time.Second)
		r.heartbeat(a, 1, nil)
		r.heartbeat(b, 1, nil)
	}
	r.is("Stable", 2)
	r.pass(time.Second)
	r.is("PreparingRebalance", 1)
	r.heartbeat(b, 1, kerr.UnknownMemberID)
}

// A leader that never assigns goes the same way, and another leads.
func TestALeaderThatNeverAssigns(t *testing.T) {
	r := newRig(t)
	a, _ := r.joinNew()
	b, _ := r.joinNew()
	r.pass(6 * time.Second)
	sb := r.sync(b, 1)
	for range 60 {
		r.pass(time.Second)
		if sb.resp == nil {
			r.heartbeat(a, 1, nil)
		}
	}
	sb.fails(kerr.RebalanceInProgress)
	if resp := r.join(b).ok(); resp.LeaderID != b || resp.Generation != 2 {
		t.Errorf("answer %+v, want b to lead generation 2", resp)
	}
}

func TestWhoLeaves(t *testing.T) {
	t.Run("the others share", func(t *testing.T) {
		r := newRig(t)
		ids, generation := r.stable(2)
		r.leave(nil, member(ids[0]))
		r.heartbeat(ids[1], generation, kerr.RebalanceInProgress)
		if resp := r.join(ids[1]).ok(); resp.LeaderID != ids[1] || resp.Generation != generation+1 {
			t.Errorf("answer %+v", resp)
		}
	})
	t.Run("the last", func(t *testing.T) {
		r := newRig(t)
		ids, generation := r.stable(1)
		r.leave(nil, member(ids[0]))
		r.is("Empty", 0)
		r.heartbeat(ids[0], generation, kerr.UnknownMemberID)
		_, j := r.joinNew()
		r.pass(3 * time.Second)
		if got := j.ok().Generation; got != generation+2 {
			t.Errorf("generation %d, want %d (G1)", got, generation+2)
		}
	})
	t.Run("a stranger", func(t *testing.T) {
		r := newRig(t)
		r.stable(1)
		r.leave(kerr.UnknownMemberID, member("x"))
		r.is("Stable", 1)
	})
	t.Run("a group that does not exist", func(t *testing.T) {
		newRig(t).leave(kerr.UnknownMemberID, member("x"))
	})
	t.Run("while it waits", func(t *testing.T) {
		r := newRig(t)
		ids, _ := r.stable(3)
		j := r.join(ids[0])
		r.leave(nil, member(ids[0]))
		j.fails(kerr.UnknownMemberID)
	})
	t.Run("before version 3 the error is the answer's", func(t *testing.T) {
		r := newRig(t)
		r.stable(1)
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group, req.MemberID = 2, grp, "x"
		resp, _ := r.m.LeaveGroup(r.now, req)
		code(t, "LeaveGroup", resp.ErrorCode, kerr.UnknownMemberID)
	})
}

func TestHeartbeats(t *testing.T) {
	r := newRig(t)
	r.heartbeat("x", 1, kerr.UnknownMemberID)
	a, _ := r.joinNew()
	r.heartbeat(a, 0, kerr.RebalanceInProgress)
	r.pass(3 * time.Second)
	r.heartbeat(a, 1, nil) // consumers send them before SyncGroup
	r.heartbeat(a, 0, kerr.IllegalGeneration)
	r.heartbeat(a, 2, kerr.IllegalGeneration)
	r.heartbeat("x", 1, kerr.UnknownMemberID)
}

// KIP-345: a static member that comes back takes its place, nobody else notices, and
// its former self is fenced.
func TestAStaticMemberThatComesBack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		who     int // of two members, the first of which leads
		version int16
		skip    bool // it leads and must not assign (KIP-814)
		leads   bool // it is told that it leads
	}{
		{"a follower", 1, 9, false, false},
		{"the leader", 0, 9, true, true},
		{"the leader, by a client that knows no KIP-814", 0, 8, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			var ids []string
			for _, instance := range []string{"a", "b"} {
				j := r.join("", static(instance))
				if !j.open() {
					t.Fatal("a static member needs no second JoinGroup")
				}
				defer func() { _ = j }()
			}
			r.pass(6 * time.Second)
			for _, m := range r.m.DescribeGroup(grp, 5).Members {
				ids = append(ids, m.MemberID)
			}
			sb := r.sync(ids[1], 1)
			r.sync(ids[0], 1, ids...).gets("for " + ids[0])
			sb.gets("for " + ids[1])

			instance := []string{"a", "b"}[tc.who]
			resp := r.join("", static(instance), atVersion(tc.version)).ok()
			if resp.Generation != 1 || resp.SkipAssignment != tc.skip || (resp.LeaderID == resp.MemberID) != tc.leads {
				t.Errorf("answer %+v", resp)
			}
			r.is("Stable", 2)
			r.heartbeat(ids[1-tc.who], 1, nil)
			fenced := func(q *kmsg.SyncGroupRequest) { q.InstanceID = &instance }
			r.syncWith(ids[tc.who], 1, fenced).fails(kerr.FencedInstanceID)
			r.join(ids[tc.who], static(instance)).fails(kerr.FencedInstanceID)
			r.leave(kerr.FencedInstanceID, kmsg.LeaveGroupRequestMember{MemberID: ids[tc.who], InstanceID: &instance})
			r.commit(1, kerr.FencedInstanceID, by(ids[tc.who], 1), func(q *kmsg.OffsetCommitRequest) { q.InstanceID = &instance })
			r.commit(1, kerr.UnknownMemberID, by(ids[tc.who], 1))
			r.syncWith(resp.MemberID, 1, fenced).gets("for " + ids[tc.who])
			r.crash() // the new id is in the log
			r.syncWith(resp.MemberID, 1, fenced).gets("for " + ids[tc.who])
		})
	}
}

// If the group would use another protocol with the new self, there is a rebalance.
func TestAStaticMemberThatComesBackDifferent(t *testing.T) {
	r := newRig(t)
	r.join("", static("a"), protocols("range", "sticky"))
	r.pass(3 * time.Second)
	id := r.m.DescribeGroup(grp, 5).Members[0].MemberID
	r.sync(id, 1, id)
	j := r.join("", static("a"), protocols("sticky", "range"))
	if got := j.ok(); got.Generation != 2 || *got.Protocol != "sticky" {
		t.Errorf("answer %+v, want generation 2", got)
	}
}

// Before the assignment the leader does not know the new id, so all join again; and
// two clients with one instance id fence each other.
func TestAStaticMemberThatComesBackInTheMiddle(t *testing.T) {
	r := newRig(t)
	first := r.join("", static("a"))
	second := r.join("", static("a"))
	first.fails(kerr.FencedInstanceID)
	r.pass(3 * time.Second)
	s := r.sync(second.ok().MemberID, 1)
	r.is("Stable", 1)
	s.gets("")

	r = newRig(t)
	r.join("", static("a"))
	_, jb := r.joinNew()
	r.pass(6 * time.Second)
	b := jb.ok().MemberID
	sb := r.sync(b, 1)
	r.join("", static("a"))
	sb.fails(kerr.RebalanceInProgress)
	r.is("PreparingRebalance", 2)
}

// A static member that is away keeps its place for its session timeout, and an
// administrator can take it out.
func TestAStaticMemberThatIsAway(t *testing.T) {
	r := newRig(t)
	r.join("", static("a"))
	r.pass(3 * time.Second)
	id := r.m.DescribeGroup(grp, 5).Members[0].MemberID
	r.sync(id, 1, id)
	r.pass(9 * time.Second)
	r.is("Stable", 1)
	instance := "a"
	r.leave(kerr.UnknownMemberID, kmsg.LeaveGroupRequestMember{InstanceID: kmsg.StringPtr("b")})
	r.leave(nil, kmsg.LeaveGroupRequestMember{InstanceID: &instance})
	r.is("Empty", 0)

	r.join("", static("a"))
	r.pass(3 * time.Second)
	r.pass(10 * time.Second)
	r.is("Empty", 0)
}

// A rebalance does not drop a static member that is away before its session ends; when
// only such are left the group waits.
func TestARebalanceWithAStaticMemberAway(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = -1 })
	long := func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = 200_000 }
	r.join("", static("a"), long)
	r.pass(0)
	a := r.m.DescribeGroup(grp, 5).Members[0].MemberID
	r.sync(a, 1, a)
	_, jb := r.joinNew(long)
	r.pass(60 * time.Second)
	resp := jb.ok()
	if len(resp.Members) != 2 || resp.LeaderID != resp.MemberID {
		t.Errorf("answer %+v, want b to lead both", resp)
	}
	r.leave(nil, member(resp.MemberID)) // a is left, and away
	r.pass(60 * time.Second)
	r.is("PreparingRebalance", 1)
	r.pass(200 * time.Second)
	r.is("Empty", 0)
}

// A coordinator that takes over begins all sessions anew, and knows the assignments.
func TestATakeover(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	r.pass(9 * time.Second)
	r.crash()
	r.pass(9 * time.Second)
	for _, id := range ids {
		r.sync(id, generation).gets("for " + id)
		r.heartbeat(id, generation, nil)
		r.commit(7, nil, by(id, generation))
	}
	r.is("Stable", 2)
	r.pass(10 * time.Second)
	r.is("Empty", 0)
}

// A rebalance that a takeover cuts off begins again.
func TestATakeoverDuringARebalance(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	r.join(ids[0])
	r.join(ids[1])
	r.is("CompletingRebalance", 2)
	r.crash()
	r.is("Stable", 2)
	r.heartbeat(ids[0], generation+1, kerr.IllegalGeneration)
	r.commit(1, kerr.IllegalGeneration, by(ids[0], generation+1))
	r.join(ids[1]).ok()
	if !r.join(ids[0]).open() {
		t.Error("the leader does not wait for the follower")
	}
}
