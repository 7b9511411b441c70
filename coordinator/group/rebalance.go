package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rebalanceInProgress tells members to join again.
var rebalanceInProgress = kerr.RebalanceInProgress

// firstRebalance is the wait of a group that was empty for more members: it is
// lengthened as long as some come, up to the rebalance timeout (KIP-134).
type firstRebalance struct {
	joined      bool          // since the wait was last lengthened
	delay, left time.Duration // this wait, and what may follow it
}

// rebalance begins one if the group is not in it already, else looks whether it is
// done.
func (c *classicGroup) rebalance(now time.Time) {
	if c.st == statePreparing {
		c.maybeComplete(now)
		return
	}
	c.prepare(now)
}

// prepare waits for all members to join again.
func (c *classicGroup) prepare(now time.Time) {
	if c.st == stateCompleting {
		c.resetAssignments(now, rebalanceInProgress)
	}
	c.syncBy = time.Time{}
	c.g.history.begin(now)
	wasEmpty := c.st == stateEmpty
	c.enter(now, statePreparing)
	for _, m := range c.members {
		m.pulse.interrupt()
	}
	if wasEmpty {
		delay := max(c.m.cfg().InitialRebalanceDelay, 0)
		c.first = &firstRebalance{delay: delay, left: max(c.rebalanceTimeout()-delay, 0)}
		c.waitToJoin(now, delay)
		return
	}
	c.first = nil
	if c.allJoined() {
		c.complete(now)
		return
	}
	c.waitToJoin(now, c.rebalanceTimeout())
}

func (c *classicGroup) waitToJoin(now time.Time, d time.Duration) {
	c.joinBy = now.Add(d)
	c.m.wakeBy(c.g, c.joinBy)
}

// allJoined says whether nobody has to be waited for.
func (c *classicGroup) allJoined() bool {
	return len(c.members) == c.awaiting && len(c.pending) == 0
}

// maybeComplete ends the wait if everybody is there; the first wait of a group
// takes its time.
func (c *classicGroup) maybeComplete(now time.Time) {
	if c.st == statePreparing && c.first == nil && c.allJoined() {
		c.complete(now)
	}
}

// joinDue is the end of the wait for members.
func (c *classicGroup) joinDue(now time.Time) {
	f := c.first
	if f == nil || !f.joined || f.left == 0 {
		c.complete(now)
		return
	}
	f.joined = false
	spent := f.delay
	f.delay = min(max(c.m.cfg().InitialRebalanceDelay, 0), f.left)
	f.left = max(f.left-spent, 0)
	c.waitToJoin(now, f.delay)
}

// complete makes a new generation of those that joined, and tells them.
func (c *classicGroup) complete(now time.Time) {
	c.joinBy, c.first = time.Time{}, nil
	c.removeAbsent()
	if len(c.members) > 0 && !c.electLeader() {
		// Only static members are left and none is here: wait until one comes or
		// their sessions end.
		c.waitToJoin(now, max(c.rebalanceTimeout(), time.Second))
		return
	}
	c.generation++
	c.g.history.joined(now, c.generation, len(c.members))
	clear(c.unsynced)
	if len(c.members) == 0 {
		c.protocol = nil
		c.enter(now, stateEmpty)
		c.subscribe()
		c.members, c.byID, c.instances, c.unsynced = nil, nil, nil, nil // 10,000 idle groups shall be small
		c.writeMembers()
		return
	}
	protocol := c.selectProtocol()
	c.protocol = &protocol
	c.enter(now, stateCompleting)
	c.subscribe()
	if c.unsynced == nil {
		c.unsynced = make(map[string]struct{}, len(c.members))
	}
	for _, m := range c.members {
		c.finishJoin(m, c.joined(m, c.leader, false))
		m.isNew = false
		if !m.lost {
			c.alive(now, m)
		}
		c.unsynced[m.id] = struct{}{}
	}
	c.syncBy = now.Add(c.rebalanceTimeout())
	c.m.wakeBy(c.g, c.syncBy)
}

// removeAbsent drops the dynamic members that did not join again. Static ones
// stay until their session ends.
func (c *classicGroup) removeAbsent() {
	for i := len(c.members) - 1; i >= 0; i-- {
		if m := c.members[i]; m.joining == nil && !m.static() {
			c.expel(m, MemberAbsent)
		}
	}
}

// electLeader makes sure that the leader is one that joined, and is there if any is; false
// if none joined.
func (c *classicGroup) electLeader() bool {
	could := func(m *member) bool { return m.joining != nil && !m.lost }
	if l := c.member(c.leader); l != nil && could(l) {
		return true
	}
	i := slices.IndexFunc(c.members, could)
	if i < 0 {
		i = slices.IndexFunc(c.members, func(m *member) bool { return m.joining != nil })
	}
	if i < 0 {
		return false
	}
	c.leader = c.members[i].id
	return true
}

// syncDue drops the members that joined and did not ask for their assignment.
func (c *classicGroup) syncDue(now time.Time) {
	c.syncBy = time.Time{}
	if len(c.unsynced) == 0 || c.st == stateEmpty || c.st == statePreparing {
		return
	}
	for i := len(c.members) - 1; i >= 0; i-- {
		m := c.members[i]
		if _, ok := c.unsynced[m.id]; ok {
			c.expel(m, MemberUnsynced)
		}
	}
	c.prepare(now)
}

// resetAssignments forgets them and answers those who wait for theirs.
func (c *classicGroup) resetAssignments(now time.Time, code *kerr.Error) {
	for _, m := range c.members {
		m.assignment = nil
		if c.finishSync(m, failedSync(code)) {
			c.alive(now, m)
		}
	}
}

// joined is the answer to a member of the current generation. Only the leader
// learns of the others. skip tells it that they have their assignments (KIP-814).
func (c *classicGroup) joined(m *member, leader string, skip bool) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	kind := c.protoType // the answer is encoded after the call
	resp.Generation, resp.Protocol, resp.ProtocolType = c.generation, c.protocol, &kind
	resp.LeaderID, resp.MemberID, resp.SkipAssignment = leader, m.id, skip
	if m.id != leader {
		return resp
	}
	for _, other := range c.members {
		jm := kmsg.NewJoinGroupResponseMember()
		jm.MemberID, jm.InstanceID, jm.ProtocolMetadata = other.id, other.instance, other.metadata(*c.protocol)
		resp.Members = append(resp.Members, jm)
	}
	return resp
}
