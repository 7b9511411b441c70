package broker

// RemoveRaftVoter v0: a node loses its vote and goes on as a broker (KIP-853).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) removeRaftVoter(ctx context.Context, _ call, req *kmsg.RemoveRaftVoterRequest) kmsg.Response {
	resp := answer[*kmsg.RemoveRaftVoterResponse](req)
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	id := metadata.BrokerID(req.VoterID)
	err := b.checkCluster(req.ClusterID)
	if err == nil {
		var is bool
		if is, err = b.votes(ctx, id, req.VoterDirectoryID); err == nil && !is {
			err = fail(kerr.VoterNotFound, "node %d is no voter with this directory", id)
		}
	}
	if err == nil {
		err = quorumError(b.cfg.Admin.RemoveVoter(ctx, id, req.VoterDirectoryID))
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}
