package broker

// ConsumerGroupHeartbeat v0-1: how a member joins, lives in and leaves a consumer
// group, and learns its assignment (KIP-848).
//
// Version notes:
//   v1 the client makes the member id (KIP-1082), and may subscribe by a regular
//      expression

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) consumerGroupHeartbeat(ctx context.Context, c call, req *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	resp := answer[*kmsg.ConsumerGroupHeartbeatResponse](req)
	err := b.onGroup(ctx, c, req.Group, func(m *group.Machine, now time.Time) (records []coordinator.Record) {
		resp, records = m.ConsumerGroupHeartbeat(now, c.caller(), req)
		return records
	})
	if err != nil {
		resp = answer[*kmsg.ConsumerGroupHeartbeatResponse](req)
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	}
	return resp
}
