package broker

// Heartbeat v0-4: keeps the session of a member of a classic group.
//
// Version notes:
//   v3 static members (KIP-345)
//   v4 flexible
//
// Clients that are known to be served by it get the answer late (see holding): a member
// that is there hears of a rebalance when it begins, not an interval later.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/rpc"
)

// holding are the clients, by the names they have in ApiVersions, whose heartbeats are
// held. For each it was read in its source and tried that the next heartbeat is sent an
// interval after the last one was, that a connection to the coordinator carries nothing
// that could wait behind it unseen, and that nothing but the join waits for the answer.
//
//	apache-kafka-java: Heartbeat.sentHeartbeat sets the timer; the heartbeat thread and
//	  poll go on without the answer, and the next heartbeat is sent though the last has
//	  none. The session timer begins anew with an answer.
//	librdkafka, confluent-kafka-python: rd_kafka_cgrp_heartbeat is called once in an
//	  interval and sends nothing while one has no answer (so that must come before), which
//	  has the session timeout. The session begins anew with an answer.
//	kafka-python (3.0): Heartbeat.last_send. A coroutine of its own waits for the answer,
//	  which else waits for the next heartbeat.
//
// Not franz-go: it counts from the answer, so that a hold as long as the interval would
// cover half of the time; and what its group loop has to do meanwhile, such as to join
// again for topics that were added, waits for the answer, as does the end of each
// transaction of a GroupTransactSession (which sends a heartbeat to see that its member is
// still one).
var holding = map[string]bool{
	"apache-kafka-java":      true,
	"librdkafka":             true,
	"confluent-kafka-python": true,
	"kafka-python":           true,
}

func (b *Broker) heartbeat(ctx context.Context, c call) rpc.Response {
	req := c.Body.(*kmsg.HeartbeatRequest)
	version, held := req.Version, time.Duration(0)
	failed := answer[*kmsg.HeartbeatResponse](req)
	var resp *kmsg.HeartbeatResponse
	var err error
	if c.Conn != nil && holding[c.Conn.Software().Name] {
		resp, held, err = b.holdHeartbeat(ctx, c, req)
	} else {
		err = b.onGroup(ctx, c, req.Group, func(m *group.Machine, now time.Time) (records []coordinator.Record) {
			resp, records = m.Heartbeat(now, req)
			return records
		})
	}
	if err != nil {
		resp, failed.ErrorCode = failed, codeOf(err)
	}
	resp.Version = version
	return rpc.Response{Body: resp, Held: held}
}

// holdHeartbeat answers at once what comes behind, and says for how long the answer was
// held.
func (b *Broker) holdHeartbeat(ctx context.Context, c call, req *kmsg.HeartbeatRequest) (*kmsg.HeartbeatResponse, time.Duration, error) {
	groups, err := b.groups()
	if err != nil {
		return nil, 0, err
	}
	var held *group.Held
	var since, replied time.Time
	resp, err := coordinator.AskUntil(ctx, groups, req.Group, c.Received,
		func(m *group.Machine, now time.Time, reply func(*kmsg.HeartbeatResponse)) (records []coordinator.Record) {
			since = now
			held, records = m.HoldHeartbeat(now, req, func(resp *kmsg.HeartbeatResponse) {
				replied = time.Now()
				reply(resp)
			})
			c.Forget()
			req = nil
			return records
		},
		coordinator.Until[*group.Machine]{Early: c.Behind(), Over: func(m *group.Machine, _ time.Time) []coordinator.Record {
			return m.Release(held, c.Last())
		}})
	switch {
	case held == nil:
		return resp, 0, err
	case err != nil:
		return resp, time.Since(since), err // until the coordinator was lost, or nearly
	}
	return resp, replied.Sub(since), nil
}
