package broker

// DescribeGroups v0-6: the members of classic groups.
//
// Version notes:
//   v3 authorized operations (KIP-430)
//   v4 instance ids (KIP-345)
//   v5 flexible
//   v6 a group that does not exist, or is not classic, is an error (KIP-1043); before
//      it is one in state "Dead"

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) describeGroups(ctx context.Context, c call, req *kmsg.DescribeGroupsRequest) kmsg.Response {
	resp := answer[*kmsg.DescribeGroupsResponse](req)
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	each(len(req.Groups), func(i int) {
		dg := &resp.Groups[i]
		err := b.onGroup(ctx, c, req.Groups[i], func(m *group.Machine, _ time.Time) []coordinator.Record {
			*dg = m.DescribeGroup(req.Groups[i], req.Version)
			return nil
		})
		if err != nil {
			*dg = kmsg.NewDescribeGroupsResponseGroup()
			dg.Group, dg.ErrorCode = req.Groups[i], codeOf(err)
		} else if req.IncludeAuthorizedOperations && dg.ErrorCode == 0 {
			dg.AuthorizedOperations = groupOperations
		}
	})
	return resp
}
