package broker

// FindCoordinator v0-6: who coordinates a group, transaction or share group.
//
// Version notes:
//   v1 key types, error message
//   v3 flexible
//   v4 many keys in one request (KIP-699)
//   v6 share groups (KIP-932)
//
// There are no coordinators yet, and the group and transaction APIs are not
// advertised. This key is, because librdkafka before 2.4 allows lz4 only if
// FindCoordinator v0 is in the range. The answer is an error that clients do not
// retry: a consumer with a group id then says so at once, instead of polling
// for ever.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (b *Broker) findCoordinator(_ context.Context, _ call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := answer[*kmsg.FindCoordinatorResponse](req)
	if req.Version < 4 {
		resp.NodeID = -1
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(noCoordinator(req.CoordinatorType, req.CoordinatorKey))
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		co := kmsg.NewFindCoordinatorResponseCoordinator()
		co.Key, co.NodeID = key, -1
		co.ErrorCode, co.ErrorMessage = codeAndMessage(noCoordinator(req.CoordinatorType, key))
		resp.Coordinators = append(resp.Coordinators, co)
	}
	return resp
}

// noCoordinator is why a key has no coordinator.
func noCoordinator(kind int8, key string) error {
	switch kind {
	case 0:
		return fail(kerr.UnsupportedVersion, "group %q has no coordinator: this cluster serves no consumer groups yet; consume with assigned partitions and no group id", key)
	case 1:
		return fail(kerr.UnsupportedVersion, "transactional id %q has no coordinator: this cluster serves no transactions yet; produce without transactional.id", key)
	case 2:
		return fail(kerr.UnsupportedVersion, "share group key %q has no coordinator: this cluster serves no share groups", key)
	default:
		return fail(kerr.InvalidRequest, "coordinator type %d is unknown; 0 is a group, 1 a transactional id, 2 a share group", kind)
	}
}
