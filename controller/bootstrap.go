package controller

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/rpc"
)

// helloPause is the time between two rounds of asking.
const helloPause = 200 * time.Millisecond

// formingPatience is how long nodes may take to find each other before that is
// worth a warning.
const formingPatience = 3 * time.Second

// joinHash identifies a join list, whatever its order.
func joinHash(join []string) []byte {
	sorted := slices.Clone(join)
	slices.Sort(sorted)
	h := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return h[:]
}

func (s *server) hello(_ context.Context, _ *rpc.Conn, _ *controllerpb.HelloRequest) response {
	n := s.node
	resp := &controllerpb.HelloResponse{
		Outcome: s.ok(), NodeId: int32(n.cfg.NodeID), Nonce: n.process[:],
		JoinHash: joinHash(n.cfg.Join), Join: n.cfg.Join,
		Address: n.cfg.AdvertiseController, ClusterId: n.clusterID(),
	}
	own := n.vote.Load()
	if own == nil && n.cfg.Voter {
		// Not fresh and not formed either: the asker must come again.
		resp.Outcome = s.outcome(controllerpb.Code_UNAVAILABLE, errors.New("it is starting"))
		return resp
	}
	if own != nil {
		servers := own.servers()
		for _, v := range servers {
			_, address := dialAddress(v.Address)
			resp.Voters = append(resp.Voters, &controllerpb.Voter{NodeId: int32(nodeID(v.ID)), Address: address})
		}
		resp.Fresh = own.fresh && len(servers) == 0 && resp.ClusterId == ""
		resp.Directory, resp.LastIndex, resp.LogGeneration = own.directory[:], own.raft.LastIndex(), own.log.generation()
	}
	return resp
}

// bootstrap makes a quorum of fresh nodes that list each other. It returns
// when this node has a configuration: the one it made, or one that a leader
// brought. What stands in the way is logged, again and again but not too
// often, because only an operator can remove it.
//
// The quorum is made once: by the lowest node id, and only after every node of
// the list has said that it is fresh and has the same list (K10). Nodes that
// are started again, or on an empty disk, thus never make a second one; they
// and those that no list of all names follow the cluster they find, and wait to
// be given a vote.
func (n *Node) bootstrap(ctx context.Context, v *voter) {
	if !v.fresh {
		n.standAlone(v)
		return
	}
	// A directory that was in a cluster never makes one, and whoever has found
	// one only joins it.
	began := time.Now()
	for len(v.servers()) == 0 && n.clusterID() == "" {
		if len(n.cfg.Join) == 0 || len(n.cfg.Join) == 1 && n.cfg.Join[0] == n.cfg.AdvertiseController {
			n.form(v, []raft.Server{{ID: v.id, Address: v.self}})
			return
		}
		peers, problem := n.meet(ctx)
		if ctx.Err() != nil {
			return
		}
		if problem == nil && peers[0].id == n.cfg.NodeID {
			servers := make([]raft.Server, 0, len(peers))
			for _, p := range peers {
				id := serverID(p.id, directoryFrom(p.hello.Directory))
				servers = append(servers, raft.Server{ID: id, Address: raftAddress(id, p.address)})
			}
			n.form(v, servers)
			return
		}
		if problem != nil {
			n.formingTrouble(began, problem)
		}
		select {
		case <-time.After(helloPause):
		case <-ctx.Done():
			return
		}
	}
	if len(v.servers()) == 0 {
		n.log.Info("the cluster exists, this node follows the quorum without a vote; 'ponor quorum add' gives it one, and the leader by itself if this is a voter whose disk was replaced", "cluster", n.clusterID(), "broker", n.cfg.NodeID)
	}
}

// formingTrouble reports why there is no quorum yet. While nodes that were
// started together find each other there is always something; that is no
// warning.
func (n *Node) formingTrouble(began time.Time, problem error) {
	if time.Since(began) < formingPatience {
		n.log.Debug("waiting for the quorum to form", "broker", n.cfg.NodeID, "reason", problem)
		return
	}
	n.warn.log("waiting for the quorum to form", "broker", n.cfg.NodeID, "reason", problem)
}

// form bootstraps Raft and stands for election at once, since nobody else can
// be leading.
func (n *Node) form(v *voter, servers []raft.Server) {
	if err := v.log.begin(firstGeneration); err != nil {
		n.fail(fmt.Errorf("bootstrap quorum: %w", err))
		return
	}
	if err := v.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		if !errors.Is(err, raft.ErrCantBootstrap) {
			n.fail(fmt.Errorf("bootstrap quorum: %w", err))
		}
		return
	}
	n.log.Info("quorum formed", "voters", len(servers))
	_ = v.transport.stand()
}

// standAlone spares a restarted quorum of one the election timeout.
func (n *Node) standAlone(v *voter) {
	if s := v.voters(); len(s) == 1 && s[0].ID == v.id {
		_ = v.transport.stand()
	}
}

// peer is a node of the join list that answered.
type peer struct {
	id      metadata.BrokerID
	address string // under which others reach it
	asked   string // the address of the join list
	hello   *controllerpb.HelloResponse
}

// meet asks every address of the join list once. It returns all nodes, by id,
// if together they may form a quorum, and otherwise what is in the way.
func (n *Node) meet(ctx context.Context) ([]peer, error) {
	peers := make([]peer, 0, len(n.cfg.Join))
	var silent []string
	type answer struct {
		asked string
		resp  *controllerpb.HelloResponse
		err   error
	}
	answers := make(chan answer, len(n.cfg.Join))
	for _, a := range n.cfg.Join {
		go func() { // ends within the timeout of one call; all are waited for below
			resp, err := n.sayHello(ctx, a)
			answers <- answer{a, resp, err}
		}()
	}
	for range n.cfg.Join {
		a := <-answers
		if a.err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", a.asked, a.err))
			continue
		}
		peers = append(peers, peer{id: metadata.BrokerID(a.resp.NodeId), address: a.resp.Address, asked: a.asked, hello: a.resp})
	}
	slices.SortFunc(peers, func(a, b peer) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.asked, b.asked))
	})
	slices.Sort(silent)
	if err := n.judgePeers(peers); err != nil {
		return nil, err
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("no answer from %s: start those nodes, or correct --join on all nodes", strings.Join(silent, ", "))
	}
	return peers, nil
}

// judgePeers says what keeps nodes that did answer from forming a quorum.
func (n *Node) judgePeers(peers []peer) error {
	self := false
	mine := joinHash(n.cfg.Join)
	for i, p := range peers {
		h := p.hello
		switch {
		case bytes.Equal(h.Nonce, n.process[:]):
			self = true
		case p.id == n.cfg.NodeID:
			return fmt.Errorf("the node at %s has node id %d, which is also this node's: give each node its own id", p.asked, p.id)
		}
		if i > 0 && peers[i-1].id == p.id {
			return fmt.Errorf("the nodes at %s and %s have the same node id %d: give each node its own id, and list each node once", peers[i-1].asked, p.asked, p.id)
		}
		if !h.Fresh {
			return n.alreadyFormed(p)
		}
		if !bytes.Equal(h.JoinHash, mine) {
			return fmt.Errorf("the node at %s was started with --join %s, this one with --join %s: use the same list on all nodes",
				p.asked, strings.Join(h.Join, ","), strings.Join(n.cfg.Join, ","))
		}
	}
	if !self && len(peers) == len(n.cfg.Join) {
		return fmt.Errorf("this node's own controller address %s is not in --join %s: it waits for those to form a quorum, to follow it; to be one of the first voters it must be in the list of all of them",
			n.cfg.AdvertiseController, strings.Join(n.cfg.Join, ","))
	}
	return nil
}

// alreadyFormed explains a node that has a quorum while this one is empty.
func (n *Node) alreadyFormed(p peer) error {
	for _, v := range p.hello.Voters {
		if metadata.BrokerID(v.NodeId) == n.cfg.NodeID {
			return fmt.Errorf("cluster %s exists and counts this node as a voter, but this node's controller directory is empty: waiting for the leader to bring it up to date and to give it a new vote",
				orUnknown(p.hello.ClusterId))
		}
	}
	return fmt.Errorf("the node at %s already belongs to cluster %s, in which node %d is no voter: waiting for its leader, to follow it; 'ponor quorum add %d' makes it a voter then",
		p.asked, orUnknown(p.hello.ClusterId), n.cfg.NodeID, n.cfg.NodeID)
}

func orUnknown(s string) string {
	if s == "" {
		return "(not named yet)"
	}
	return s
}

func (n *Node) sayHello(ctx context.Context, address string) (*controllerpb.HelloResponse, error) {
	q := &controllerpb.HelloRequest{NodeId: int32(n.cfg.NodeID), Nonce: n.process[:], JoinHash: joinHash(n.cfg.Join), ClusterId: n.clusterID()}
	resp := new(controllerpb.HelloResponse)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := n.client.attempt(ctx, address, laneHello, keyHello, q, resp); err != nil {
		return nil, err
	}
	if resp.Outcome.GetCode() != controllerpb.Code_OK {
		return nil, errors.New(resp.Outcome.GetMessage())
	}
	return resp, nil
}
