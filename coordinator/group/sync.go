package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// SyncGroup replies with the member's assignment as soon as the leader, who brings
// everybody's, was here.
func (m *Machine) SyncGroup(now time.Time, req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) []coordinator.Record {
	if req.Group == "" {
		reply(failedSync(kerr.InvalidGroupID))
		return nil
	}
	g := m.find(req.Group)
	if g == nil {
		reply(failedSync(kerr.UnknownMemberID))
		return nil
	}
	switch members := g.members.(type) {
	case *classicGroup:
		members.sync(now, req, reply)
	case *consumerGroup:
		m.syncConsumer(now, g, members, req, reply)
	}
	return m.take()
}

// checkSync says whether the request is of the current generation (KIP-559: and of
// the protocol that was selected).
func (c *classicGroup) checkSync(req *kmsg.SyncGroupRequest) *kerr.Error {
	if err := c.check(req.MemberID, req.InstanceID); err != nil {
		return err
	}
	switch {
	case req.Generation != c.generation:
		return kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != c.protoType,
		req.Protocol != nil && (c.protocol == nil || *req.Protocol != *c.protocol):
		return kerr.InconsistentGroupProtocol
	case c.st == statePreparing:
		return rebalanceInProgress
	}
	return nil
}

func (c *classicGroup) sync(now time.Time, req *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) {
	if err := c.checkSync(req); err != nil {
		reply(failedSync(err))
		return
	}
	m := c.member(req.MemberID)
	c.synced(m)
	if c.st == stateStable {
		reply(c.assigned(m))
		c.alive(now, m)
		return
	}
	// An older SyncGroup of the member that still waits is one whose client gave up.
	c.finishSync(m, failedSync(rebalanceInProgress))
	m.syncing = reply
	if m.id == c.leader {
		c.assign(now, req.GroupAssignment)
	}
}

// synced notes that a member has asked for its assignment.
func (c *classicGroup) synced(m *member) {
	delete(c.unsynced, m.id)
	if len(c.unsynced) == 0 {
		c.unsynced, c.syncBy = nil, time.Time{}
	}
}

// assign takes the leader's assignments. They are in the log before anybody has
// them (G1): the records of this call are durable before its replies are.
func (c *classicGroup) assign(now time.Time, assignments []kmsg.SyncGroupRequestGroupAssignment) {
	for _, m := range c.members {
		m.assignment = []byte{}
	}
	for _, a := range assignments {
		if m := c.member(a.MemberID); m != nil { // others have left meanwhile
			m.assignment = append([]byte{}, a.MemberAssignment...)
		}
	}
	if !c.writeMembers() {
		c.resetAssignments(now, kerr.UnknownServerError)
		c.rebalance(now)
		return
	}
	c.enter(now, stateStable)
	c.g.history.assigned(now)
	for _, m := range c.members {
		if c.finishSync(m, c.assigned(m)) {
			c.alive(now, m)
		}
	}
}

// assigned is the answer to a member that has an assignment.
func (c *classicGroup) assigned(m *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	kind := c.protoType // the answer is encoded after the call
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &kind, c.protocol, m.assignment
	return resp
}

// failedSync is the answer to a SyncGroup that was refused.
func failedSync(code *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode, resp.MemberAssignment = code.Code, []byte{}
	return resp
}
