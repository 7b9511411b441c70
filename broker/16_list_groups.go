package broker

// ListGroups v0-5: the groups that this broker coordinates; clients ask all brokers.
//
// Version notes:
//   v3 flexible
//   v4 states (KIP-518)
//   v5 types (KIP-848)

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) listGroups(ctx context.Context, c call, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := answer[*kmsg.ListGroupsResponse](req)
	groups, err := b.groups()
	if err == nil {
		var lists [][]kmsg.ListGroupsResponseGroup
		lists, err = coordinator.All(ctx, groups, c.Received, func(m *group.Machine, _ time.Time) ([]kmsg.ListGroupsResponseGroup, []coordinator.Record) {
			return m.ListGroups(req.StatesFilter, req.TypesFilter), nil
		})
		resp.Groups = slices.Concat(lists...)
	}
	if resp.ErrorCode = codeOf(err); resp.Groups == nil {
		resp.Groups = []kmsg.ListGroupsResponseGroup{}
	}
	return resp
}
