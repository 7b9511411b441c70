package broker

// IncrementalAlterConfigs v0-1: sets, deletes, appends to and subtracts from
// single configs (KIP-339). The controller's leader works the operations out,
// so that two of them at once both count.
//
// Version notes:
//   v1 flexible

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (b *Broker) incrementalAlterConfigs(ctx context.Context, _ call, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := answer[*kmsg.IncrementalAlterConfigsResponse](req)
	var changes []resourceChange
	for _, rr := range req.Resources {
		c := resourceChange{kind: rr.ResourceType, name: rr.ResourceName}
		for _, rc := range rr.Configs {
			c.ops = append(c.ops, configOp{name: rc.Name, op: rc.Op, value: rc.Value})
		}
		changes = append(changes, c)
	}
	for i, err := range b.alter(ctx, changes, req.ValidateOnly) {
		ar := kmsg.NewIncrementalAlterConfigsResponseResource()
		ar.ResourceType, ar.ResourceName = changes[i].kind, changes[i].name
		ar.ErrorCode, ar.ErrorMessage = codeAndMessage(err)
		resp.Resources = append(resp.Resources, ar)
	}
	return resp
}
