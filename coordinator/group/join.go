package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// unknownMember is the member id of who has none.
const unknownMember = ""

// join is one JoinGroup on its way through a classic group.
type join struct {
	caller Caller
	req    *kmsg.JoinGroupRequest
	reply  func(*kmsg.JoinGroupResponse)
}

// fail answers with an error, and the member id to go on with.
func (j join) fail(id string, code *kerr.Error) { j.reply(failedJoin(id, code)) }

// millis is a client's time in ms; negative is zero.
func millis(ms int32) time.Duration { return time.Duration(max(ms, 0)) * time.Millisecond }

// rebalanceTimeout is how long a member may take to join again; version 0 did not
// know it.
func (j join) rebalanceTimeout() time.Duration {
	if j.req.Version == 0 && j.req.RebalanceTimeoutMillis == -1 {
		return millis(j.req.SessionTimeoutMillis)
	}
	return millis(j.req.RebalanceTimeoutMillis)
}

// JoinGroup makes the caller a member of the group's next generation and replies
// when there is one.
func (m *Machine) JoinGroup(now time.Time, caller Caller, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) []coordinator.Record {
	j := join{caller, req, reply}
	session := millis(req.SessionTimeoutMillis)
	switch {
	case req.Group == "":
		j.fail(req.MemberID, kerr.InvalidGroupID)
		return nil
	case session < m.cfg().MinSessionTimeout || session > m.cfg().MaxSessionTimeout:
		j.fail(req.MemberID, kerr.InvalidSessionTimeout)
		return nil
	}
	g := m.find(req.Group)
	if g == nil {
		if req.MemberID != unknownMember {
			j.fail(req.MemberID, kerr.UnknownMemberID)
			return nil
		}
		g = m.create(req.Group)
	}
	switch members := g.members.(type) {
	case *classicGroup:
		members.join(now, j)
	case *consumerGroup:
		m.joinConsumer(now, g, members, j)
	}
	m.dropIfUnused(g)
	return m.take()
}

// dropIfUnused forgets a group that a refused call made.
func (m *Machine) dropIfUnused(g *Group) {
	c := g.classic()
	if c != nil && c.st == stateEmpty && c.written == nil && len(g.offsets) == 0 && len(c.pending) == 0 {
		m.drop(g)
	}
}

func (c *classicGroup) join(now time.Time, j join) {
	id := j.req.MemberID
	switch {
	case !c.hasRoom(id):
		if m := c.member(id); m != nil {
			c.remove(m, kerr.GroupMaxSizeReached)
		}
		c.forgetPending(id)
		j.fail(unknownMember, kerr.GroupMaxSizeReached)
		c.maybeComplete(now)
	case !c.accepts(j.req.ProtocolType, j.req.Protocols):
		j.fail(id, kerr.InconsistentGroupProtocol)
	case id == unknownMember:
		c.joinNew(now, j)
	default:
		c.joinAgain(now, j)
	}
}

// hasRoom is KIP-389. While members join, those that wait are counted, so that the
// last to come are turned away when a loaded group is larger than the limit.
func (c *classicGroup) hasRoom(id string) bool {
	m := c.member(id)
	switch c.st {
	case stateEmpty:
		return true
	case statePreparing:
		return m != nil && m.joining != nil || c.awaiting < c.m.cfg().MaxSize
	default:
		return m != nil || len(c.members) < c.m.cfg().MaxSize
	}
}

// maxName is how many bytes of what a client calls itself go into a member id. In the
// log an id is a string of at most 32,767 bytes; a longer one could not be read again.
const maxName = 255

// memberID makes the id of a new member.
func (m *Machine) memberID(name string) string {
	return name[:min(len(name), maxName)] + "-" + m.cfg().NewID()
}

// joinNew is the first JoinGroup of a client.
func (c *classicGroup) joinNew(now time.Time, j join) {
	if instance := j.req.InstanceID; instance != nil {
		id := c.m.memberID(*instance)
		if old := c.member(c.instances[*instance]); old != nil {
			c.joinReplacing(now, j, old, id)
			return
		}
		c.joinAs(now, j, id)
		return
	}
	id := c.m.memberID(j.caller.ClientID)
	if j.req.Version < 4 {
		c.joinAs(now, j, id)
		return
	}
	// It gets an id first, and is a member when it comes back with it: a client
	// that times out and retries leaves no member behind (KIP-394).
	if c.pending == nil {
		c.pending = make(map[string]time.Time)
	}
	c.pending[id] = now.Add(millis(j.req.SessionTimeoutMillis))
	c.m.wakeBy(c.g, c.pending[id])
	j.fail(id, kerr.MemberIDRequired)
}

// joinAs makes a member with that id.
func (c *classicGroup) joinAs(now time.Time, j join, id string) {
	m := &member{
		id: id, instance: j.req.InstanceID, client: j.caller.kept(), isNew: true,
		rebalanceTimeout: j.rebalanceTimeout(), sessionTimeout: millis(j.req.SessionTimeoutMillis),
		protocols: keepProtocols(j.req.Protocols),
	}
	if c.first != nil {
		c.first.joined = true
	}
	c.g.history.note(m.change(MemberJoined))
	c.add(m, j.req.ProtocolType, j.reply)
	c.dieAt(m, now.Add(c.m.cfg().NewMemberJoinTimeout))
	c.rebalance(now)
}

// update takes what a member says anew and has it wait for the next generation.
func (c *classicGroup) update(m *member, j join) {
	m.protocols = keepProtocols(j.req.Protocols)
	m.rebalanceTimeout, m.sessionTimeout = j.rebalanceTimeout(), millis(j.req.SessionTimeoutMillis)
	c.awaitJoin(m, j.reply)
}

// joinAgain is a JoinGroup with a member id.
func (c *classicGroup) joinAgain(now time.Time, j join) {
	id := j.req.MemberID
	if _, ok := c.pending[id]; ok && j.req.InstanceID == nil { // handed out to a dynamic member
		c.joinAs(now, j, id)
		return
	}
	if err := c.check(id, j.req.InstanceID); err != nil {
		j.fail(id, err)
		return
	}
	m := c.member(id)
	unchanged := m.matches(j.req.Protocols)
	switch {
	case c.st == stateCompleting && unchanged:
		// It did not get the answer to its JoinGroup.
		c.alive(now, m)
		j.reply(c.joined(m, c.leader, false))
	case c.st == stateStable && unchanged && c.leader != id:
		// A follower that asks again gets its assignment from SyncGroup. The leader
		// asks again when something changed that it alone knows, such as the number of
		// partitions.
		c.alive(now, m)
		j.reply(c.joined(m, c.leader, false))
	default:
		if why := c.rejoining(m, j); why != "" {
			c.g.history.note(m.change(why))
		}
		c.update(m, j)
		c.rebalance(now)
	}
}

// joinReplacing is a static member that comes back: it takes the place of the one
// before it, whose id is fenced (KIP-345). Where the group would go on just the
// same nobody else notices.
func (c *classicGroup) joinReplacing(now time.Time, j join, m *member, id string) {
	leader := c.leader
	c.replace(m, id, j.caller)
	c.update(m, j)
	c.alive(now, m)
	if c.st != stateStable || c.protocol == nil || c.selectProtocol() != *c.protocol {
		c.g.history.note(m.change(MemberReplaced))
		c.rebalance(now)
		return
	}
	if !c.writeMembers() {
		c.prepare(now)
		return
	}
	switch {
	case j.req.Version >= 9:
		c.finishJoin(m, c.joined(m, c.leader, c.leader == id))
	case leader == c.leader:
		c.finishJoin(m, c.joined(m, c.leader, false))
	default:
		// Versions before 9 cannot say that the leader need not assign (KIP-814): it
		// is told that the leader is its former self.
		c.finishJoin(m, c.joined(m, leader, false))
	}
}

// Disconnect is for a JoinGroup that waits and whose connection has ended: nobody will
// hear the answer. Kafka goes on as if somebody did. A member that has died takes part in
// the next generation then, and if it is to share the partitions, all do nothing until its
// session ends; where clients come and go faster than that, from one generation to the
// next.
//
// A new member is none any more: it owns nothing, and a client that lives comes again. One
// that was there before may come back for its session, and does not lead meanwhile. Who
// has not told its id, with JoinGroup before version 4, is not found.
func (m *Machine) Disconnect(now time.Time, name, id string) []coordinator.Record {
	g := m.find(name)
	if g == nil || g.classic() == nil {
		return nil
	}
	c := g.classic()
	member := c.member(id)
	if member == nil || member.joining == nil {
		return nil
	}
	if member.isNew && !member.static() {
		c.expel(member, MemberLost)
		c.rebalance(now)
		m.dropIfUnused(g)
		return m.take()
	}
	member.joining(failedJoin(id, rebalanceInProgress))
	member.joining = func(*kmsg.JoinGroupResponse) {}
	member.lost = true
	c.dieAt(member, now.Add(member.sessionTimeout))
	return m.take()
}

// failedJoin is the answer to a JoinGroup that was refused.
func failedJoin(id string, code *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.MemberID, resp.ErrorCode = -1, id, code.Code
	return resp
}
