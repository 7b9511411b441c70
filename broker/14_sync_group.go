package broker

// SyncGroup v0-5: brings the assignments of the leader of a classic group, and waits
// for them.
//
// Version notes:
//   v3 static members (KIP-345)
//   v4 flexible
//   v5 the protocol must be given, and be the one that was selected (KIP-559)

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

func (b *Broker) syncGroup(ctx context.Context, c call, req *kmsg.SyncGroupRequest) kmsg.Response {
	failed := answer[*kmsg.SyncGroupResponse](req)
	failed.MemberAssignment, failed.Version = []byte{}, req.Version
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		failed.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return failed
	}
	resp, err := askGroup(ctx, b, c, req.Group, req, (*group.Machine).SyncGroup, nil)
	if err != nil {
		resp, failed.ErrorCode = failed, codeOf(err)
	}
	resp.Version = failed.Version
	return resp
}
