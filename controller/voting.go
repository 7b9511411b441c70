package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
)

// QuorumInfo is the quorum as its leader knows it.
type QuorumInfo struct {
	Leader metadata.BrokerID
	Term   uint64
	// Commit and LastIndex are of the leader's Raft log.
	Commit, LastIndex uint64
	Members           []QuorumMember
}

// QuorumMember is a node that votes, that is on its way to, or that only
// follows.
type QuorumMember struct {
	ID        metadata.BrokerID
	Directory DirectoryID // zero on a node that cannot vote
	Address   string      // of its controller listener, empty without one
	Voter     bool
	Member    bool // Raft sends it the log
	// LastIndex is the end of its log; of a node without one the index of its
	// image.
	LastIndex uint64
	// Heard is when it answered last, CaughtUp when it last had all that the
	// leader had; zero is never in this leader's term.
	Heard, CaughtUp time.Time
}

// DescribeQuorum asks the leader about the quorum, through whichever node this
// is.
func (n *Node) DescribeQuorum(ctx context.Context) (QuorumInfo, error) {
	resp, err := n.askQuorum(ctx, &controllerpb.QuorumRequest{})
	if err != nil {
		return QuorumInfo{}, err
	}
	return QuorumInfoFrom(resp), nil
}

// QuorumInfoFrom reads the leader's answer.
func QuorumInfoFrom(resp *controllerpb.QuorumResponse) QuorumInfo {
	info := QuorumInfo{
		Leader: metadata.BrokerID(resp.GetOutcome().GetLeader()), Term: resp.Term, Commit: resp.Commit, LastIndex: resp.LastIndex,
	}
	at := func(ms int64) time.Time {
		if ms < 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	for _, m := range resp.Members {
		info.Members = append(info.Members, QuorumMember{
			ID: metadata.BrokerID(m.NodeId), Directory: directoryFrom(m.Directory), Address: m.Address,
			Voter: m.Voter, Member: m.Member, LastIndex: m.LastIndex, Heard: at(m.HeardMs), CaughtUp: at(m.CaughtUpMs),
		})
	}
	return info
}

// AddVoter gives a node that follows the cluster a vote, and returns when it
// has it: first it gets the log, which takes as long as there is to copy. It
// may be called again after any failure, and for a node that has a vote. dir
// names the node's controller directory; zero is whichever it has. Refusals are
// *Error.
func (n *Node) AddVoter(ctx context.Context, id metadata.BrokerID, dir DirectoryID) error {
	return n.changeQuorum(ctx, &controllerpb.QuorumRequest{Op: controllerpb.QuorumRequest_ADD, NodeId: int32(id), Directory: dirBytes(dir)})
}

// RemoveVoter takes a node's vote; it goes on as a broker that follows. It may
// be called again after any failure, and for a node that has no vote.
func (n *Node) RemoveVoter(ctx context.Context, id metadata.BrokerID, dir DirectoryID) error {
	return n.changeQuorum(ctx, &controllerpb.QuorumRequest{Op: controllerpb.QuorumRequest_REMOVE, NodeId: int32(id), Directory: dirBytes(dir)})
}

// TransferLeadership makes another voter lead; -1 leaves to the leader which.
func (n *Node) TransferLeadership(ctx context.Context, id metadata.BrokerID) error {
	return n.changeQuorum(ctx, &controllerpb.QuorumRequest{Op: controllerpb.QuorumRequest_TRANSFER, NodeId: int32(id)})
}

func dirBytes(d DirectoryID) []byte {
	if d.isZero() {
		return nil
	}
	return d[:]
}

// changePause is the time between two looks at a change that goes on.
const changePause = 200 * time.Millisecond

func (n *Node) changeQuorum(ctx context.Context, q *controllerpb.QuorumRequest) error {
	for {
		resp, err := n.askQuorum(ctx, q)
		if err != nil || resp.Done {
			return err
		}
		select {
		case <-time.After(changePause):
		case <-ctx.Done():
			return fmt.Errorf("change the quorum: %s: %w; it goes on, ask again", resp.Progress, ctx.Err())
		}
	}
}

// askQuorum has the leader look at the quorum or take the next step of a
// change.
func (n *Node) askQuorum(ctx context.Context, q *controllerpb.QuorumRequest) (*controllerpb.QuorumResponse, error) {
	q.ClusterId = n.clusterID()
	resp := new(controllerpb.QuorumResponse)
	if err := n.client.call(ctx, laneAdmin, keyQuorum, q, resp); err != nil {
		return nil, fmt.Errorf("ask for the quorum: %w", err)
	}
	switch o := resp.GetOutcome(); {
	case resp.Refusal != 0:
		return nil, &Error{Code: ErrorCode(resp.Refusal), Message: o.GetMessage()}
	case o.GetCode() != controllerpb.Code_OK:
		return nil, errors.New(o.GetMessage())
	}
	return resp, nil
}
