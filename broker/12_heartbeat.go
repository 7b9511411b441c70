package broker

// Heartbeat v0-4: keeps the session of a member of a classic group.
//
// Version notes:
//   v3 static members (KIP-345)
//   v4 flexible

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) heartbeat(ctx context.Context, c call, req *kmsg.HeartbeatRequest) kmsg.Response {
	resp := answer[*kmsg.HeartbeatResponse](req)
	err := b.onGroup(ctx, c, req.Group, func(m *group.Machine, now time.Time) (records []coordinator.Record) {
		resp, records = m.Heartbeat(now, req)
		return records
	})
	if resp.Version = req.Version; err != nil {
		resp.ErrorCode = codeOf(err)
	}
	return resp
}
