package group_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// lose ends the connection on which a member waits in JoinGroup.
func (r *rig) lose(id string) {
	r.t.Helper()
	r.wrote(r.m.Disconnect(r.now, grp, id))
}

// A member that dies while it waits to join does not get to share the partitions: nobody
// would have any until its session ends, and often the next leader is dead by then.
func TestALeaderThatIsGoneDoesNotLead(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(3)
	lost := r.join(ids[0])
	r.pass(time.Second)
	r.lose(ids[0])
	lost.fails(kerr.RebalanceInProgress)
	b, c := r.join(ids[1]), r.join(ids[2])
	if got := b.ok(); got.LeaderID != ids[1] || len(got.Members) != 3 || c.ok().LeaderID != ids[1] {
		t.Fatalf("the answer is %+v", got)
	}
	r.sync(ids[1], generation+1, ids...).gets("for " + ids[1])
	r.sync(ids[2], generation+1).gets("for " + ids[2])
	for range 3 { // its session is of the time when it went
		r.pass(3 * time.Second)
		r.heartbeat(ids[1], generation+1, nil)
		r.heartbeat(ids[2], generation+1, nil)
	}
	r.pass(time.Second)
	r.is("PreparingRebalance", 2)
}

// It lost its connection only, and asks again.
func TestAMemberThatComesBackStays(t *testing.T) {
	for name, before := range map[string]bool{"before the others have joined": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ids, generation := r.stable(2)
			r.join(ids[1], topics("u"))
			r.lose(ids[1])
			r.pass(8 * time.Second)
			again := &joining{}
			if before {
				again = r.join(ids[1], topics("u"))
				if !again.open() {
					t.Error("it does not wait for the other")
				}
			}
			r.join(ids[0]).ok()
			if !before {
				again = r.join(ids[1], topics("u"))
			}
			if got := again.ok(); got.Generation != generation+1 || got.LeaderID != ids[0] {
				t.Errorf("the answer is %+v", got)
			}
			r.pass(8 * time.Second)
			r.is("CompletingRebalance", 2)
			r.sync(ids[0], generation+1, ids...).gets("for " + ids[0])
			r.sync(ids[1], generation+1).gets("for " + ids[1])
		})
	}
}

// One that does not come back is not waited for longer than its session.
func TestAMemberThatIsGoneExpiresWhileOthersJoin(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(3)
	r.join(ids[1])
	r.lose(ids[1])
	a := r.join(ids[0])
	r.pass(9 * time.Second)
	r.heartbeat(ids[2], generation, kerr.RebalanceInProgress)
	r.pass(time.Second)
	r.is("PreparingRebalance", 2)
	r.join(ids[1]).fails(kerr.UnknownMemberID)
	r.join(ids[2]).ok()
	if got := a.ok(); len(got.Members) != 2 {
		t.Errorf("the answer is %+v", got)
	}
}

// A new one has nothing yet, so nobody waits for it.
func TestANewMemberThatIsGoneIsNone(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	id, joins := r.joinNew()
	r.heartbeat(ids[0], generation, kerr.RebalanceInProgress)
	r.lose(id)
	joins.fails(kerr.UnknownMemberID)
	if got := r.join(ids[0]).ok(); len(got.Members) != 1 {
		t.Errorf("the answer is %+v", got)
	}
	r.join(id).fails(kerr.UnknownMemberID) // its client asks for another id then
	other, joins := r.joinNew()
	r.join(ids[0]).ok()
	joins.ok()
	r.lose(other) // it waits no more
	r.is("CompletingRebalance", 2)
}

// The only one, in a group that was empty.
func TestTheFirstMemberThatIsGoneLeavesNothing(t *testing.T) {
	r := newRig(t)
	id, _ := r.joinNew()
	r.lose(id)
	r.pass(time.Minute)
	r.is("Empty", 0)
	r.lose(id)
	r.wrote(r.m.Disconnect(r.now, "another", id))
	_, joins := r.joinNew()
	r.pass(3 * time.Second)
	joins.ok()
}

// Where all are gone one leads as before, and they have their sessions to come back.
func TestWhenAllAreGoneOneLeads(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(3)
	for _, id := range ids[:2] {
		r.join(id, topics("u"))
		r.lose(id)
	}
	r.leave(nil, member(ids[2]))
	r.is("CompletingRebalance", 2)
	if got := r.join(ids[0], topics("u")).ok(); got.Generation != generation+1 || got.LeaderID != ids[0] || len(got.Members) != 2 {
		t.Errorf("the answer is %+v", got)
	}
	r.pass(9 * time.Second)
	r.heartbeat(ids[0], generation+1, nil)
	r.is("CompletingRebalance", 2)
	r.pass(time.Second)
	r.is("PreparingRebalance", 1)
}
