package broker

// AddRaftVoter v0-1: a node that follows gets a vote (KIP-853).
//
// Version notes:
//   v1 may ask for an answer before the change is committed; it gets one after
//
// The node must be running. It is found where it registered, so the listeners
// of the request decide nothing.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) addRaftVoter(ctx context.Context, _ call, req *kmsg.AddRaftVoterRequest) kmsg.Response {
	resp := answer[*kmsg.AddRaftVoterResponse](req)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	id := metadata.BrokerID(req.VoterID)
	err := b.checkCluster(req.ClusterID)
	if err == nil {
		var is bool
		if is, err = b.votes(ctx, id, req.VoterDirectoryID); is {
			err = fail(kerr.DuplicateVoter, "node %d is a voter already", id)
		}
	}
	if err == nil {
		err = quorumError(b.cfg.Admin.AddVoter(ctx, id, req.VoterDirectoryID))
	}
	resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
	return resp
}

// checkCluster refuses what is meant for another cluster.
func (b *Broker) checkCluster(id *string) error {
	if ours := b.image().ClusterID(); id != nil && *id != ours {
		return fail(kerr.InconsistentClusterID, "this is cluster %s, not %s", ours, *id)
	}
	return nil
}

// votes says whether a node has a vote with a directory; zero is any.
func (b *Broker) votes(ctx context.Context, id metadata.BrokerID, dir controller.DirectoryID) (bool, error) {
	info, err := b.cfg.Admin.DescribeQuorum(ctx)
	if err != nil {
		return false, quorumError(err)
	}
	for _, m := range info.Members {
		if m.ID == id && m.Voter && (dir == m.Directory || dir == controller.DirectoryID{}) {
			return true, nil
		}
	}
	return false, nil
}

// quorumError keeps refusals, and says of all else that it may be asked again.
func quorumError(err error) error {
	var refused *controller.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fail(kerr.RequestTimedOut, "%v", err)
}
