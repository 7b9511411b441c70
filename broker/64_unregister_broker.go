package broker

// UnregisterBroker v0: a broker that is gone for good is forgotten (KIP-631). Kafka
// takes whatever broker, also one that lives; here it must be down, own nothing and
// have no vote, and it leaves the replica lists that it was in.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) unregisterBroker(ctx context.Context, _ call, req *kmsg.UnregisterBrokerRequest) kmsg.Response {
	resp := answer[*kmsg.UnregisterBrokerResponse](req)
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(b.cfg.Admin.UnregisterBroker(ctx, metadata.BrokerID(req.BrokerID)))
	return resp
}
