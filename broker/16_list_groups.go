package broker

// ListGroups v0-5: the groups that this broker coordinates; clients ask all brokers.
//
// Version notes:
//   v3 flexible
//   v4 states (KIP-518)
//   v5 types (KIP-848)

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) listGroups(ctx context.Context, c call, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := answer[*kmsg.ListGroupsResponse](req)
	resp.Groups = []kmsg.ListGroupsResponseGroup{}
	groups, err := b.groups()
	if err == nil {
		err = groups.All(ctx, c.Received, func(m *group.Machine, _ time.Time) []coordinator.Record {
			resp.Groups = append(resp.Groups, m.ListGroups(req.StatesFilter, req.TypesFilter)...)
			return nil
		})
	}
	if err != nil {
		resp.ErrorCode, resp.Groups = codeOf(err), []kmsg.ListGroupsResponseGroup{}
	}
	return resp
}
