package broker

// LeaveGroup v0-5: takes members out of a classic group.
//
// Version notes:
//   v3 many members, static ones by instance id (KIP-345)
//   v4 flexible
//   v5 reasons (KIP-800), logged at debug level

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) leaveGroup(ctx context.Context, c call, req *kmsg.LeaveGroupRequest) kmsg.Response {
	for _, l := range req.Members {
		if l.Reason != nil && *l.Reason != "" {
			b.log.Debug("member leaves", "group", req.Group, "member", l.MemberID, "reason", *l.Reason)
		}
	}
	resp := answer[*kmsg.LeaveGroupResponse](req)
	err := b.onGroup(ctx, c, req.Group, func(m *group.Machine, now time.Time) (records []coordinator.Record) {
		resp, records = m.LeaveGroup(now, req)
		return records
	})
	if err != nil {
		resp = answer[*kmsg.LeaveGroupResponse](req)
		resp.ErrorCode = codeOf(err)
	}
	resp.Version = req.Version
	return resp
}
