package group_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// KIP-394: a new member gets its id first, and is a member when it uses it.
func TestANewMemberGetsItsIDFirst(t *testing.T) {
	r := newRig(t)
	first := r.join("")
	first.fails(kerr.MemberIDRequired)
	if !strings.HasPrefix(first.resp.MemberID, "app-") {
		t.Errorf("member id %q does not begin with the client id", first.resp.MemberID)
	}
	r.is("Empty", 0)
	r.join(first.resp.MemberID)
	r.is("PreparingRebalance", 1)
}

// Versions before 4 know nothing of it.
func TestAnOldClientIsAMemberAtOnce(t *testing.T) {
	r := newRig(t)
	j := r.join("", atVersion(3))
	r.pass(3 * time.Second)
	if resp := j.ok(); resp.LeaderID != resp.MemberID || resp.Generation != 1 || len(resp.Members) != 1 {
		t.Errorf("answer %+v, want a leader of generation 1 who learns of one member", resp)
	}
}

// An id that was handed out is forgotten when the session it asked for is over, and
// a client that never came back leaves no group behind.
func TestAnUnusedMemberIDIsForgotten(t *testing.T) {
	r := newRig(t)
	first := r.join("")
	r.pass(11 * time.Second)
	r.join(first.resp.MemberID).fails(kerr.UnknownMemberID)
	if list := r.m.ListGroups(nil, nil); len(list) != 0 {
		t.Errorf("groups %v, want none", list)
	}
}

func TestWhoMayNotJoin(t *testing.T) {
	stable := func(r *rig) { r.stable(1) }
	empty := func(*rig) {}
	for _, tc := range []struct {
		name   string
		before func(*rig)
		id     string
		edit   func(*kmsg.JoinGroupRequest)
		want   *kerr.Error
	}{
		{"without a group", empty, "", func(q *kmsg.JoinGroupRequest) { q.Group = "" }, kerr.InvalidGroupID},
		{"with a session too short", empty, "", func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = 5999 }, kerr.InvalidSessionTimeout},
		{"with a session too long", empty, "", func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = 1_800_001 }, kerr.InvalidSessionTimeout},
		{"with a negative session", empty, "", func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = -1 }, kerr.InvalidSessionTimeout},
		{"with an id of a group that does not exist", empty, "app-x", nil, kerr.UnknownMemberID},
		{"with an id that is none", stable, "app-x", nil, kerr.UnknownMemberID},
		{"without protocols", empty, "", protocols(), kerr.InconsistentGroupProtocol},
		{"without a protocol type", empty, "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "" }, kerr.InconsistentGroupProtocol},
		{"with another protocol type", stable, "", func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" }, kerr.InconsistentGroupProtocol},
		{"with protocols that nobody shares", stable, "", protocols("sticky"), kerr.InconsistentGroupProtocol},
		{"with the instance id of nobody", stable, "app-id1", static("i"), kerr.UnknownMemberID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.before(r)
			before := len(r.m.ListGroups(nil, nil))
			edits := []func(*kmsg.JoinGroupRequest){}
			if tc.edit != nil {
				edits = append(edits, tc.edit)
			}
			r.join(tc.id, edits...).fails(tc.want)
			if after := len(r.m.ListGroups(nil, nil)); after != before {
				t.Errorf("%d groups after it, %d before", after, before)
			}
		})
	}
}

// KIP-134: the first wait is lengthened while members come, and ends at the rebalance
// timeout.
func TestTheInitialDelay(t *testing.T) {
	r := newRig(t)
	_, a := r.joinNew()
	r.pass(2 * time.Second)
	_, b := r.joinNew()
	r.pass(2 * time.Second) // 4 s: the first wait is over, and was lengthened by b
	if !a.open() || !b.open() {
		t.Fatal("the wait was not lengthened when a member came")
	}
	r.pass(2 * time.Second)
	if a.ok().Generation != 1 || b.ok().Generation != 1 || len(a.ok().Members) != 2 {
		t.Errorf("answers %+v and %+v, want both in generation 1", a.resp, b.resp)
	}

	r = newRig(t)
	_, a = r.joinNew(func(q *kmsg.JoinGroupRequest) { q.RebalanceTimeoutMillis = 7000 })
	for range 8 {
		r.pass(time.Second)
		r.joinNew(func(q *kmsg.JoinGroupRequest) { q.RebalanceTimeoutMillis = 7000 })
	}
	if a.open() {
		t.Error("the wait goes on beyond the rebalance timeout")
	}
}

// The default is a wait that nobody notices.
func TestTheInitialDelayIsShort(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = 0 })
	_, j := r.joinNew()
	r.pass(299 * time.Millisecond)
	if !j.open() {
		t.Fatal("there was no wait for more members")
	}
	r.pass(time.Millisecond)
	j.ok()
}

// Without a delay the first member has its generation at once.
func TestNoInitialDelay(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = -1 })
	_, j := r.joinNew()
	r.pass(0)
	j.ok()
}

// The leader alone learns who is in the group; everybody gets what it assigned.
func TestAGenerationFromJoinToAssignment(t *testing.T) {
	r := newRig(t)
	a, ja := r.joinNew()
	b, jb := r.joinNew()
	r.pass(6 * time.Second)
	leader, follower := ja.ok(), jb.ok()
	if leader.LeaderID != a || follower.LeaderID != a || len(leader.Members) != 2 || len(follower.Members) != 0 {
		t.Fatalf("leader got %+v, follower %+v", leader, follower)
	}
	if *leader.ProtocolType != "consumer" || *leader.Protocol != "range" || string(leader.Members[1].ProtocolMetadata) != string(subscription("t")) {
		t.Errorf("leader got %+v", leader)
	}
	r.is("CompletingRebalance", 2)
	sb := r.sync(b, 1)
	if sb.resp != nil {
		t.Fatal("a follower has an assignment before the leader was here")
	}
	before := len(r.log)
	r.sync(a, 1, a, b).gets("for " + a)
	sb.gets("for " + b)
	if len(r.log) != before+1 {
		t.Errorf("%d records for an assignment, want 1: it is told when that is durable (G1)", len(r.log)-before)
	}
	r.is("Stable", 2)
	r.sync(b, 1).gets("for " + b) // asks again
}

// What a leader leaves out is empty, and whom it invents is nobody.
func TestTheLeaderAssignsAsItLikes(t *testing.T) {
	r := newRig(t)
	a, _ := r.joinNew()
	b, _ := r.joinNew()
	r.pass(6 * time.Second)
	sb := r.sync(b, 1)
	r.sync(a, 1, a, "nobody")
	sb.gets("")
	if d := r.m.DescribeGroup(grp, 5); len(d.Members) != 2 {
		t.Errorf("members %v", d.Members)
	}
}

func TestWhoMayNotSync(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	other := "other"
	for _, tc := range []struct {
		name       string
		id         string
		generation int32
		edit       func(*kmsg.SyncGroupRequest)
		want       *kerr.Error
	}{
		{"without a group", ids[0], generation, func(q *kmsg.SyncGroupRequest) { q.Group = "" }, kerr.InvalidGroupID},
		{"in a group that does not exist", ids[0], generation, func(q *kmsg.SyncGroupRequest) { q.Group = "x" }, kerr.UnknownMemberID},
		{"a stranger", "x", generation, nil, kerr.UnknownMemberID},
		{"of an older generation", ids[0], generation - 1, nil, kerr.IllegalGeneration},
		{"with another protocol (KIP-559)", ids[0], generation, func(q *kmsg.SyncGroupRequest) { q.Protocol = &other }, kerr.InconsistentGroupProtocol},
		{"with another protocol type (KIP-559)", ids[0], generation, func(q *kmsg.SyncGroupRequest) { q.ProtocolType = &other }, kerr.InconsistentGroupProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			edit := tc.edit
			if edit == nil {
				edit = func(*kmsg.SyncGroupRequest) {}
			}
			r.t = t
			r.syncWith(tc.id, tc.generation, edit).fails(tc.want)
		})
	}
}

// Every member votes for its favourite among what all can do.
func TestTheProtocolIsVotedFor(t *testing.T) {
	r := newRig(t)
	_, a := r.joinNew(protocols("sticky", "range", "odd"))
	r.joinNew(protocols("range", "sticky"))
	r.joinNew(protocols("range", "sticky", "even"))
	r.pass(10 * time.Second)
	if got := *a.ok().Protocol; got != "range" {
		t.Errorf("selected %q, want range with two votes of three", got)
	}
}

// A leader that joins again has a reason that it alone knows; a follower that does
// lost an answer, unless it has something new to say.
func TestWhoJoinsAgain(t *testing.T) {
	t.Run("a follower as before", func(t *testing.T) {
		r := newRig(t)
		ids, generation := r.stable(2)
		if resp := r.join(ids[1]).ok(); resp.Generation != generation || len(resp.Members) != 0 {
			t.Errorf("answer %+v", resp)
		}
		r.is("Stable", 2)
	})
	t.Run("a follower with another subscription", func(t *testing.T) {
		r := newRig(t)
		ids, _ := r.stable(2)
		if !r.join(ids[1], topics("u")).open() {
			t.Error("it does not wait for the others")
		}
		r.is("PreparingRebalance", 2)
	})
	t.Run("the leader", func(t *testing.T) {
		r := newRig(t)
		ids, generation := r.stable(2)
		leader := r.join(ids[0])
		r.heartbeat(ids[1], generation, kerr.RebalanceInProgress)
		r.join(ids[1]).ok()
		if leader.ok().Generation != generation+1 {
			t.Errorf("generation %d, want %d", leader.resp.Generation, generation+1)
		}
	})
	t.Run("before the assignment, as before", func(t *testing.T) {
		r := newRig(t)
		a, _ := r.joinNew()
		r.pass(3 * time.Second)
		if resp := r.join(a).ok(); resp.Generation != 1 || len(resp.Members) != 1 {
			t.Errorf("answer %+v", resp)
		}
		r.is("CompletingRebalance", 1)
	})
	t.Run("before the assignment, with news", func(t *testing.T) {
		r := newRig(t)
		a, _ := r.joinNew()
		b, _ := r.joinNew()
		r.pass(6 * time.Second)
		sb := r.sync(b, 1)
		r.join(a, topics("u"))
		sb.fails(kerr.RebalanceInProgress)
		r.is("PreparingRebalance", 2)
	})
	t.Run("twice, as its client gave up on the first", func(t *testing.T) {
		r := newRig(t)
		ids, _ := r.stable(2)
		first := r.join(ids[0])
		second := r.join(ids[0])
		first.fails(kerr.RebalanceInProgress)
		r.join(ids[1]).ok()
		second.ok()
	})
}

// KIP-389: a full group takes nobody in, and keeps those who are there.
func TestAFullGroup(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.MaxSize = 2 })
	ids, _ := r.stable(2)
	r.join("").fails(kerr.GroupMaxSizeReached)
	r.join(ids[0])
	r.join("").fails(kerr.MemberIDRequired) // one place is free as long as the other has not joined
	r.is("PreparingRebalance", 2)
	r.join(ids[1])
	r.join("").fails(kerr.GroupMaxSizeReached)
}

// A group that was loaded larger than the limit rebalances, and the last to come stay
// out.
func TestALimitThatWasLowered(t *testing.T) {
	r := newRig(t)
	ids, _ := r.stable(3)
	r.cfg.MaxSize = 2
	r.crash()
	r.is("PreparingRebalance", 3)
	a, b := r.join(ids[0]), r.join(ids[1])
	r.join(ids[2]).fails(kerr.GroupMaxSizeReached)
	a.ok()
	b.ok()
	r.is("CompletingRebalance", 2)
}
