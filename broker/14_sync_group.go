package broker

// SyncGroup v0-5: brings the assignments of the leader of a classic group, and waits
// for them.
//
// Version notes:
//   v3 static members (KIP-345)
//   v4 flexible
//   v5 the protocol must be the one that was selected (KIP-559)

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) syncGroup(ctx context.Context, c call, req *kmsg.SyncGroupRequest) kmsg.Response {
	failed := answer[*kmsg.SyncGroupResponse](req)
	failed.MemberAssignment, failed.Version = []byte{}, req.Version
	resp, err := askGroup(ctx, b, c, req.Group,
		func(m *group.Machine, now time.Time, reply func(*kmsg.SyncGroupResponse)) []coordinator.Record {
			records := m.SyncGroup(now, req, reply)
			c.Forget() // it may wait for the leader's request for minutes
			req = nil
			return records
		})
	if err != nil {
		resp, failed.ErrorCode = failed, codeOf(err)
	}
	resp.Version = failed.Version
	return resp
}
