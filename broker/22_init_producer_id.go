package broker

// InitProducerId v0-5: a producer id for idempotent producing (KIP-98).
//
// Version notes:
//   v2 flexible
//   v3 the producer's present id and epoch (KIP-360)
//   v4 PRODUCER_FENCED
//   v5 transactions of KIP-890
//
// Without transactional id the answer is always a new id with epoch 0, whatever
// the request says about an old one, as in Kafka. Transactional ids are not
// served yet; UNSUPPORTED_VERSION is fatal to a producer, the coordinator errors
// would have it retry for ever.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (b *Broker) initProducerID(ctx context.Context, _ call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := answer[*kmsg.InitProducerIDResponse](req)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if err := checkInitProducerID(req); err != nil {
		resp.ErrorCode = codeOf(err)
		return resp
	}
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	id, err := b.cfg.Admin.AllocateProducerID(ctx)
	if err != nil {
		b.log.WarnContext(ctx, "no producer id", "err", err)
		// Retriable for every client, unlike UNKNOWN_SERVER_ERROR.
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}

func checkInitProducerID(req *kmsg.InitProducerIDRequest) error {
	if req.Version >= 3 && (req.ProducerID == -1) != (req.ProducerEpoch == -1) {
		return fail(kerr.InvalidRequest, "producer id %d and epoch %d must be given together", req.ProducerID, req.ProducerEpoch)
	}
	switch {
	case req.TransactionalID == nil:
		return nil
	case *req.TransactionalID == "":
		return fail(kerr.InvalidRequest, "the transactional id is empty")
	default:
		return noCoordinator(1, *req.TransactionalID)
	}
}
