package broker

// DescribeCluster v0-2: id, brokers and controller (KIP-700).
//
// Version notes:
//   v1 endpoint type: 1 brokers, 2 controllers (KIP-919)
//   v2 fenced brokers, when asked (KIP-1073)
//
// A broker listener describes brokers only; asked for controllers it answers
// MISMATCHED_ENDPOINT_TYPE as Kafka does, and UNSUPPORTED_ENDPOINT_TYPE for a
// type that nobody knows.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (b *Broker) describeCluster(_ context.Context, c call, req *kmsg.DescribeClusterRequest) kmsg.Response {
	const brokers, controllers = 1, 2
	resp := answer[*kmsg.DescribeClusterResponse](req)
	resp.EndpointType = brokers
	resp.ClusterAuthorizedOperations = operationsNotAsked
	resp.ControllerID = -1
	if req.Version >= 1 && req.EndpointType != brokers {
		err := fail(kerr.UnsupportedEndpointType, "endpoint type %d is unknown; 1 asks for brokers", req.EndpointType)
		if req.EndpointType == controllers {
			err = fail(kerr.MismatchedEndpointType, "this is a broker endpoint, the request is for controllers; ask with endpoint type 1 or connect to a controller")
		}
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	img := b.image()
	resp.ClusterID = img.ClusterID()
	resp.ControllerID = b.controllerID(img)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for br := range img.Brokers() {
		ep, ok := endpoint(br, c.listener)
		if !ok || br.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		db := kmsg.NewDescribeClusterResponseBroker()
		db.NodeID, db.Host, db.Port, db.Rack, db.IsFenced = int32(br.ID), ep.Host, ep.Port, rack(br), br.Fenced
		resp.Brokers = append(resp.Brokers, db)
	}
	return resp
}
