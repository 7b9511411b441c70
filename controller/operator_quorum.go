package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/rpc"
)

// passQuorum passes an operator's request on to the leader.
func (n *Node) passQuorum(ctx context.Context, _ *rpc.Conn, q *controllerpb.QuorumRequest) response {
	ctx, cancel := context.WithTimeout(ctx, operatorPatience)
	defer cancel()
	resp, err := n.askQuorum(ctx, q)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return &controllerpb.QuorumResponse{Refusal: int32(refused.Code), Outcome: n.server.outcome(controllerpb.Code_INVALID, err)}
	case err != nil:
		return &controllerpb.QuorumResponse{Outcome: n.server.outcome(controllerpb.Code_UNAVAILABLE, err)}
	}
	return resp
}

// VoterChange is a change of the quorum that an operator asks for.
type VoterChange int

// What can be asked for; see AddVoter, RemoveVoter and TransferLeadership of Node.
const (
	AddVoter VoterChange = iota + 1
	RemoveVoter
	TransferLeadership
)

// AskVoters has the cluster behind a client connection change its quorum, and
// waits until that is done. progress is told how far it has come. It is safe to
// ask again, also elsewhere, after any error.
func AskVoters(ctx context.Context, c *rpc.Client, change VoterChange, node metadata.BrokerID, progress func(string)) error {
	q := &controllerpb.QuorumRequest{NodeId: int32(node)}
	switch change {
	case AddVoter:
		q.Op = controllerpb.QuorumRequest_ADD
	case RemoveVoter:
		q.Op = controllerpb.QuorumRequest_REMOVE
	case TransferLeadership:
		q.Op = controllerpb.QuorumRequest_TRANSFER
	}
	for {
		resp, err := askVoters(ctx, c, q)
		if err != nil || resp.Done {
			return err
		}
		progress(resp.Progress)
		select {
		case <-time.After(changePause):
		case <-ctx.Done():
			return fmt.Errorf("change the quorum: %s: %w; it goes on, ask again", resp.Progress, ctx.Err())
		}
	}
}

// AskQuorum asks the cluster behind a client connection who votes.
func AskQuorum(ctx context.Context, c *rpc.Client) (QuorumInfo, error) {
	resp, err := askVoters(ctx, c, &controllerpb.QuorumRequest{})
	if err != nil {
		return QuorumInfo{}, err
	}
	return QuorumInfoFrom(resp), nil
}

func askVoters(ctx context.Context, c *rpc.Client, q *controllerpb.QuorumRequest) (*controllerpb.QuorumResponse, error) {
	b, err := proto.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode request to the quorum: %w", err)
	}
	reply, err := c.Call(ctx, keyVoters, 0, b)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("ask the quorum: %w", err)
	case err != nil:
		return nil, fmt.Errorf("ask the quorum: %w; is this a Ponor cluster?", err)
	}
	resp := new(controllerpb.QuorumResponse)
	if err := proto.Unmarshal(reply, resp); err != nil {
		return nil, fmt.Errorf("ask the quorum: reply: %w", err)
	}
	if o := resp.GetOutcome(); o.GetCode() != controllerpb.Code_OK {
		return nil, errors.New(o.GetMessage())
	}
	return resp, nil
}
