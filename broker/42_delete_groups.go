package broker

// DeleteGroups v0-3: deletes groups without members, and their offsets.
//
// Version notes:
//   v2 flexible
//   v3 error message

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) deleteGroups(ctx context.Context, c call, req *kmsg.DeleteGroupsRequest) kmsg.Response {
	resp := answer[*kmsg.DeleteGroupsResponse](req)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	each(len(req.Groups), func(i int) {
		dg := &resp.Groups[i]
		*dg = kmsg.NewDeleteGroupsResponseGroup()
		dg.Group = req.Groups[i]
		var refused *kerr.Error
		err := b.onGroup(ctx, c, dg.Group, func(m *group.Machine, _ time.Time) (records []coordinator.Record) {
			refused, records = m.DeleteGroup(dg.Group)
			return records
		})
		if err == nil && refused != nil {
			err = refused
		}
		dg.ErrorCode, dg.ErrorMessage = codeAndMessage(err)
	})
	return resp
}
