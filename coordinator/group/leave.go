package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// Heartbeat keeps the caller's session, and tells it of a rebalance.
func (m *Machine) Heartbeat(now time.Time, req *kmsg.HeartbeatRequest) (*kmsg.HeartbeatResponse, []coordinator.Record) {
	var err *kerr.Error
	if g := m.find(req.Group); req.Group == "" {
		err = kerr.InvalidGroupID
	} else if g == nil {
		err = kerr.UnknownMemberID
	} else {
		switch members := g.members.(type) {
		case *classicGroup:
			err = members.heartbeat(now, req)
		case *consumerGroup:
			err = m.heartbeatConsumer(now, g, members, req)
		}
	}
	return heartbeatAnswer(err), m.take()
}

func (c *classicGroup) heartbeat(now time.Time, req *kmsg.HeartbeatRequest) *kerr.Error {
	if err := c.check(req.MemberID, req.InstanceID); err != nil {
		return err
	}
	if req.Generation != c.generation {
		return kerr.IllegalGeneration
	}
	c.alive(now, c.member(req.MemberID))
	if c.st == statePreparing {
		return rebalanceInProgress
	}
	return nil
}

// LeaveGroup takes members out: the caller, or, by instance id alone, static ones
// that an administrator names (KIP-345).
func (m *Machine) LeaveGroup(now time.Time, req *kmsg.LeaveGroupRequest) (*kmsg.LeaveGroupResponse, []coordinator.Record) {
	resp := kmsg.NewPtrLeaveGroupResponse()
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp, nil
	}
	leaving := req.Members
	if req.Version < 3 {
		leaving = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	g := m.find(req.Group)
	gone := false // a member, not just an id that was handed out
	for _, l := range leaving {
		lm := kmsg.NewLeaveGroupResponseMember()
		lm.MemberID, lm.InstanceID = l.MemberID, l.InstanceID
		err := kerr.UnknownMemberID
		if g != nil {
			switch members := g.members.(type) {
			case *classicGroup:
				var was bool
				was, err = members.leave(l)
				gone = gone || was
			case *consumerGroup:
				err = m.leaveConsumer(now, g, members, l)
			}
		}
		lm.ErrorCode = codeOf(err)
		resp.Members = append(resp.Members, lm)
	}
	if req.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	if g != nil {
		if c := g.classic(); c != nil {
			c.left(now, gone)
			m.dropIfUnused(g)
		}
	}
	return resp, m.take()
}

// leave takes one member out, or an id that was handed out; only the former is news
// to the others.
func (c *classicGroup) leave(l kmsg.LeaveGroupRequestMember) (member bool, err *kerr.Error) {
	id := l.MemberID
	if id == unknownMember {
		if l.InstanceID == nil || c.instances[*l.InstanceID] == "" {
			return false, kerr.UnknownMemberID
		}
		id = c.instances[*l.InstanceID]
	}
	if _, ok := c.pending[id]; ok {
		c.forgetPending(id)
		return false, nil
	}
	if err := c.check(id, l.InstanceID); err != nil {
		return false, err
	}
	c.expel(c.member(id), MemberLeft)
	return true, nil
}

// left has the others share what those who left had.
func (c *classicGroup) left(now time.Time, gone bool) {
	if gone {
		c.rebalance(now)
		return
	}
	c.maybeComplete(now)
}

// codeOf is an error's code, 0 for nil.
func codeOf(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}
