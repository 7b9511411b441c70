package controller

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/rpc"
)

// Status is what one node knows of the controller.
type Status struct {
	NodeID     metadata.BrokerID
	ClusterID  string
	Generation uint64
	// Index and Hash are of one image: nodes at equal index have equal hashes
	// (K2).
	Index metadata.Index
	Hash  [32]byte
	// Term is Raft's, 0 on a node that has no vote.
	Term uint64
	// State is Raft's state (Leader, Follower, Candidate), or Observer on a node
	// that has no vote.
	State    string
	Voters   []VoterStatus
	Sessions []SessionStatus // of the leader only
}

// String is one line for logs and tests.
func (s Status) String() string {
	return fmt.Sprintf("node %d %s term %d index %d hash %s", s.NodeID, s.State, s.Term, s.Index, hex.EncodeToString(s.Hash[:4]))
}

// VoterStatus is one member of the quorum.
type VoterStatus struct {
	ID      metadata.BrokerID
	Address string
	Leader  bool
}

// SessionStatus is what the leader knows of a broker.
type SessionStatus struct {
	Incarnation metadata.Incarnation
	Silent      time.Duration  // since the last heartbeat
	Index       metadata.Index // of the image it reported
	Stats       Stats
}

// LeaderInfo is the leader as far as this node knows: its id, -1 if only the
// address is known, and its controller address. ok is false if none is known.
func (n *Node) LeaderInfo() (id metadata.BrokerID, address string, ok bool) { return n.leaderHint() }

// Leading says whether this node is the leader and ready to act as one.
func (n *Node) Leading() bool { return n.leading.Load() != nil }

// Quorum lists the voters as this node knows them: from Raft on a voter, from
// the registrations elsewhere.
func (n *Node) Quorum() []VoterStatus {
	leader, _, _ := n.leaderHint()
	var out []VoterStatus
	if v := n.vote.Load(); v != nil && v.votes() {
		for _, s := range v.voters() {
			id := nodeID(s.ID)
			_, address := dialAddress(s.Address)
			out = append(out, VoterStatus{ID: id, Address: address, Leader: id == leader})
		}
		return out
	}
	for b := range n.Image().Brokers() {
		if b.Voter {
			out = append(out, VoterStatus{ID: b.ID, Address: b.ControllerAddress, Leader: b.ID == leader})
		}
	}
	return out
}

// Status describes this node. It computes the image's hash, which takes
// milliseconds per thousand partitions.
func (n *Node) Status() Status {
	img := n.Image()
	s := Status{
		NodeID: n.cfg.NodeID, ClusterID: n.clusterID(), Generation: img.Generation(),
		Index: img.Index(), Hash: img.Hash(), State: "Observer", Voters: n.Quorum(),
	}
	if v := n.vote.Load(); v != nil && v.votes() {
		s.Term, s.State = v.raft.CurrentTerm(), v.raft.State().String()
	}
	if l := n.leading.Load(); l != nil {
		for _, e := range l.sessions.list() {
			s.Sessions = append(s.Sessions, SessionStatus{
				Incarnation: e.inc, Silent: time.Since(e.last), Index: e.index, Stats: e.stats,
			})
		}
		slices.SortFunc(s.Sessions, func(a, b SessionStatus) int { return int(a.Incarnation.Broker - b.Incarnation.Broker) })
	}
	return s
}

// StatusOf asks the node whose controller listens at address.
func (n *Node) StatusOf(ctx context.Context, address string) (Status, error) {
	resp := new(controllerpb.StatusResponse)
	if _, err := n.client.attempt(ctx, address, laneAdmin, keyStatus, &controllerpb.StatusRequest{}, resp); err != nil {
		return Status{}, fmt.Errorf("ask for status: %w", err)
	}
	return statusFrom(resp), nil
}

// AskStatus asks the node whose controller listens at address, from a process
// that is no node.
func AskStatus(ctx context.Context, address string) (Status, error) {
	var d net.Dialer
	conn, err := rpc.Dial(ctx, d.DialContext, address, rpc.ClientConfig{ClientID: "ponor-cli"})
	if err != nil {
		return Status{}, fmt.Errorf("ask for status: %w", err)
	}
	defer func() { _ = conn.Close() }()
	body, err := proto.Marshal(&controllerpb.StatusRequest{})
	if err != nil {
		return Status{}, fmt.Errorf("encode status request: %w", err)
	}
	resp := new(controllerpb.StatusResponse)
	b, err := conn.Call(ctx, keyStatus, 0, body)
	if err != nil {
		return Status{}, fmt.Errorf("ask %s for status: %w", address, err)
	}
	if err := proto.Unmarshal(b, resp); err != nil {
		return Status{}, fmt.Errorf("decode status of %s: %w", address, err)
	}
	return statusFrom(resp), nil
}

func statusFrom(resp *controllerpb.StatusResponse) Status {
	s := Status{
		NodeID: metadata.BrokerID(resp.NodeId), ClusterID: resp.ClusterId, Generation: resp.Generation,
		Index: metadata.Index(resp.Index), Term: resp.Term, State: resp.State,
	}
	copy(s.Hash[:], resp.Hash)
	for _, v := range resp.Voters {
		s.Voters = append(s.Voters, VoterStatus{ID: metadata.BrokerID(v.NodeId), Address: v.Address, Leader: v.Leader})
	}
	for _, e := range resp.Sessions {
		s.Sessions = append(s.Sessions, SessionStatus{
			Incarnation: metadata.IncarnationFrom(e.Incarnation), Silent: time.Duration(e.SilentMs) * time.Millisecond,
			Index: metadata.Index(e.Index), Stats: Stats{OldestUnresolved: time.Duration(e.OldestUnresolvedMs) * time.Millisecond},
		})
	}
	return s
}

func (s *server) status(context.Context, *rpc.Conn, *controllerpb.StatusRequest) response {
	st := s.node.Status()
	resp := &controllerpb.StatusResponse{
		Outcome: s.ok(), NodeId: int32(st.NodeID), ClusterId: st.ClusterID, Generation: st.Generation,
		Index: uint64(st.Index), Hash: st.Hash[:], Term: st.Term, State: st.State,
	}
	for _, v := range st.Voters {
		resp.Voters = append(resp.Voters, &controllerpb.VoterStatus{NodeId: int32(v.ID), Address: v.Address, Leader: v.Leader})
	}
	for _, e := range st.Sessions {
		resp.Sessions = append(resp.Sessions, &controllerpb.SessionStatus{
			Incarnation: e.Incarnation.Proto(), SilentMs: uint32(e.Silent.Milliseconds()),
			Index: uint64(e.Index), OldestUnresolvedMs: uint32(e.Stats.OldestUnresolved.Milliseconds()),
		})
	}
	return resp
}
