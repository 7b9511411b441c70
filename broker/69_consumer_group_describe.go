package broker

// ConsumerGroupDescribe v0-1: the members of consumer groups, with what they read and
// what they shall read (KIP-848).
//
// Version notes:
//   v1 the protocol of each member (KIP-1099)

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) consumerGroupDescribe(ctx context.Context, c call, req *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	resp := answer[*kmsg.ConsumerGroupDescribeResponse](req)
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(req.Groups))
	each(len(req.Groups), func(i int) {
		dg := &resp.Groups[i]
		err := b.onGroup(ctx, c, req.Groups[i], func(m *group.Machine, _ time.Time) []coordinator.Record {
			*dg = m.DescribeConsumerGroup(req.Groups[i])
			return nil
		})
		if err != nil {
			*dg = kmsg.NewConsumerGroupDescribeResponseGroup()
			dg.Group = req.Groups[i]
			dg.ErrorCode, dg.ErrorMessage = codeAndMessage(err)
		} else if req.IncludeAuthorizedOperations && dg.ErrorCode == 0 {
			dg.AuthorizedOperations = groupOperations
		}
	})
	return resp
}
