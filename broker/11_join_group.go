package broker

// JoinGroup v0-9: makes the client a member of a classic group's next generation,
// and waits for that.
//
// Version notes:
//   v1 rebalance timeout (KIP-62)
//   v4 a new member gets its id first (KIP-394)
//   v5 static members (KIP-345)
//   v6 flexible
//   v7 the protocol type in the answer (KIP-559)
//   v8 reasons (KIP-800), logged at debug level
//   v9 SkipAssignment (KIP-814)

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) joinGroup(ctx context.Context, c call, req *kmsg.JoinGroupRequest) kmsg.Response {
	if req.Reason != nil && *req.Reason != "" {
		b.log.Debug("member joins", "group", req.Group, "member", req.MemberID, "reason", *req.Reason)
	}
	failed := answer[*kmsg.JoinGroupResponse](req)
	failed.Generation, failed.MemberID, failed.Version = -1, req.MemberID, req.Version
	name, member := req.Group, req.MemberID
	resp, err := askGroup(ctx, b, c, req.Group, req,
		func(m *group.Machine, now time.Time, req *kmsg.JoinGroupRequest, reply func(*kmsg.JoinGroupResponse)) []coordinator.Record {
			return m.JoinGroup(now, c.caller(), req, reply)
		},
		func(m *group.Machine, now time.Time) []coordinator.Record { return m.Disconnect(now, name, member) })
	if err != nil {
		resp, failed.ErrorCode = failed, codeOf(err)
	}
	resp.Version = failed.Version
	return resp
}
