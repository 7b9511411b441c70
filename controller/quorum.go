package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"ponor/controller/controllerpb"
	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/rpc"
)

// lookEvery is how many heartbeat intervals the leader waits between two looks
// at the members. Whoever asks for a change or a description causes a look.
const lookEvery = 4

// quorum is the leader's care of who votes. Every change goes through turn, one
// at a time; found has its own lock.
type quorum struct {
	node  *Node
	voter *voter
	turn  chan struct{} // holds one token while nobody changes anything
	mu    struct {
		sync.Mutex
		found map[metadata.BrokerID]finding
		last  uint64 // index of our log at the last look
	}
}

func newQuorum(n *Node, v *voter) *quorum {
	q := &quorum{node: n, voter: v, turn: make(chan struct{}, 1)}
	q.turn <- struct{}{}
	q.mu.found = map[metadata.BrokerID]finding{}
	return q
}

// enter takes the turn; the caller calls the function returned.
func (q *quorum) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-q.turn:
		return func() { q.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, errors.Join(errNotLeader, ctx.Err())
	}
}

// run asks all members how they are, again and again, and repairs what needs
// it.
func (q *quorum) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery * q.node.cfg.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		leave, err := q.enter(ctx)
		if err != nil {
			return
		}
		if err := q.repair(ctx); err != nil && ctx.Err() == nil {
			q.node.warn.log("cannot change the quorum, will try again", "reason", err)
		}
		leave()
	}
}

// repair takes all steps that the quorum needs now. The caller has the turn.
func (q *quorum) repair(ctx context.Context) error {
	for {
		m := q.survey(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the term is over, the next leader looks again
		}
		c, ok := m.repair()
		if !ok {
			return m.stuck()
		}
		if err := q.apply(c); err != nil {
			return err
		}
	}
}

// apply changes the configuration and waits until that is committed.
func (q *quorum) apply(c quorumChange) error {
	var f raft.IndexFuture
	verb := ""
	switch r := q.voter.raft; c.kind {
	case addNonvoter:
		verb, f = "add a member without a vote", r.AddNonvoter(c.id, c.address, 0, enqueueTimeout)
	case addVoter:
		verb, f = "give a vote", r.AddVoter(c.id, c.address, 0, enqueueTimeout)
	case removeServer:
		verb, f = "remove a member", r.RemoveServer(c.id, 0, enqueueTimeout)
	}
	if err := f.Error(); err != nil {
		if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			err = fmt.Errorf("%w: %w", errNotLeader, err)
		}
		return fmt.Errorf("%s (%s): %w", verb, c.id, err)
	}
	q.node.log.Info("quorum changed", "change", verb, "server", string(c.id), "reason", c.why)
	return nil
}

// survey asks every node that votes or could, and returns what is known then.
func (q *quorum) survey(ctx context.Context) roster {
	asked, last := map[metadata.BrokerID]string{}, q.voter.raft.LastIndex()
	// Under load some entries are always on their way: what counts is that a
	// server has all that there was one look before.
	q.mu.Lock()
	before := q.mu.last
	q.mu.last = last
	q.mu.Unlock()
	if before == 0 {
		before = last
	}
	servers := q.voter.servers()
	for _, s := range servers {
		_, asked[nodeID(s.ID)] = dialAddress(s.Address)
	}
	for b := range q.node.Image().Brokers() {
		// Where it registered it was reached, wherever it was before.
		if b.Voter && !b.Fenced && b.ControllerAddress != "" {
			asked[b.ID] = b.ControllerAddress
		}
	}
	delete(asked, q.node.cfg.NodeID)
	answers := make(chan finding, len(asked))
	for id, address := range asked {
		go func() { answers <- q.ask(ctx, id, address, before, last) }() // ends within the timeout of one call
	}
	now := time.Now()
	found := map[metadata.BrokerID]finding{q.node.cfg.NodeID: {
		node: q.node.cfg.NodeID, address: q.node.cfg.AdvertiseController, id: q.voter.id, last: last,
		generation: q.voter.log.generation(), heard: now, caughtUp: now, current: true,
	}}
	for range asked {
		f := <-answers
		found[f.node] = f
	}
	q.mu.Lock()
	q.mu.found = found
	q.mu.Unlock()
	return roster{servers: servers, found: found, generation: q.voter.log.generation()}
}

// ask says Hello. What the node said before stays where it says nothing now.
func (q *quorum) ask(ctx context.Context, id metadata.BrokerID, address string, before, last uint64) finding {
	q.mu.Lock()
	f := q.mu.found[id]
	q.mu.Unlock()
	f.node, f.address = id, address
	begun := time.Now()
	resp, err := q.node.sayHello(ctx, address)
	if err == nil && metadata.BrokerID(resp.NodeId) != id {
		err = fmt.Errorf("node %d answers there", resp.NodeId)
	}
	if f.err = err; err != nil {
		return f
	}
	f.id, f.last, f.generation, f.heard = "", resp.LastIndex, resp.LogGeneration, begun
	if d := directoryFrom(resp.Directory); !d.isZero() {
		f.id = serverID(id, d)
	}
	f.behind, f.current = last-min(last, f.last), f.last >= before
	if f.behind == 0 {
		f.caughtUp = begun
	}
	return f
}

// quorum answers what is asked of the leader.
func (s *server) quorum(ctx context.Context, _ *rpc.Conn, req *controllerpb.QuorumRequest) response {
	resp := &controllerpb.QuorumResponse{}
	l, o := s.leading(req.ClusterId)
	if o != nil {
		resp.Outcome = o
		return resp
	}
	leave, err := l.quorum.enter(ctx)
	if err != nil {
		resp.Outcome = s.failure(err)
		return resp
	}
	defer leave()
	m := l.quorum.survey(ctx)
	switch node := metadata.BrokerID(req.NodeId); req.Op {
	case controllerpb.QuorumRequest_ADD:
		err = l.quorum.add(ctx, m, node, directoryFrom(req.Directory), resp)
	case controllerpb.QuorumRequest_REMOVE:
		err = l.quorum.remove(m, node, directoryFrom(req.Directory), resp)
	case controllerpb.QuorumRequest_TRANSFER:
		err = l.quorum.transfer(m, node, resp)
	default:
		l.describeQuorum(m, resp)
	}
	var refused *Error
	switch {
	case errors.As(err, &refused):
		resp.Outcome, resp.Refusal = s.outcome(controllerpb.Code_INVALID, err), int32(refused.Code)
	case err != nil:
		resp.Outcome = s.failure(err)
	default:
		resp.Outcome = s.ok()
	}
	return resp
}

// add makes a node a member without a vote, if it is none, and tells how far it
// has come; the vote follows by itself (see roster.repair).
func (q *quorum) add(ctx context.Context, m roster, node metadata.BrokerID, dir DirectoryID, resp *controllerpb.QuorumResponse) error {
	f, known := m.found[node]
	if !known {
		if _, ok := q.node.Image().Broker(node); ok {
			return refuse(CodeInvalidRequest, "node %d has no controller listener, or is not running: start it with the controller role, a --controller-listen address and a --data-dir", node)
		}
		return refuse(CodeUnknownBroker, "node %d is not known: start it with the controller role and --join naming a voter, and try again when it has registered", node)
	}
	if err := m.joinable(f); err != nil {
		return refuse(CodeInvalidRequest, "%v", err)
	}
	if !dir.isZero() && serverID(node, dir) != f.id {
		_, has := splitServer(f.id)
		return refuse(CodeInvalidRequest, "the controller directory of node %d is %s, not %s", node, has, dir)
	}
	s, member := m.server(f.id)
	if member && s.Suffrage == raft.Voter {
		resp.Done = true
		return nil
	}
	for _, other := range m.servers {
		if other.Suffrage != raft.Voter && other.ID != f.id {
			resp.Progress = fmt.Sprintf("waiting for node %d, which is being added", nodeID(other.ID))
			return nil
		}
	}
	if !member {
		if n := len(m.servers); n >= maxVoters {
			return refuse(CodeInvalidRequest, "the quorum has %d members already: remove one first", n)
		}
		if err := q.apply(quorumChange{addNonvoter, f.id, raftAddress(f.id, f.address), "asked for"}); err != nil {
			return err
		}
	}
	if err := q.repair(ctx); err != nil {
		return err
	}
	for _, v := range q.voter.voters() {
		resp.Done = resp.Done || v.ID == f.id
	}
	if !resp.Done {
		q.mu.Lock()
		f = q.mu.found[node]
		q.mu.Unlock()
		resp.Progress = fmt.Sprintf("node %d has %d of %d log entries", node, f.last, f.last+f.behind)
	}
	return nil
}

// remove takes a node out. A leader hands over first; the next one is asked
// again then.
func (q *quorum) remove(m roster, node metadata.BrokerID, dir DirectoryID, resp *controllerpb.QuorumResponse) error {
	servers := m.of(node)
	if _, known := q.node.Image().Broker(node); len(servers) == 0 && !known {
		return refuse(CodeVoterNotFound, "node %d is not known; the voters are %v", node, m.voters())
	}
	for _, s := range servers {
		if !dir.isZero() && s.ID != serverID(node, dir) {
			continue
		}
		if s.Suffrage == raft.Voter {
			if err := m.safeWithout(s.ID); err != nil {
				return refuse(CodeInvalidRequest, "removing node %d: %v", node, err)
			}
		}
		if s.ID == q.voter.id {
			if err := q.handOver(m, -1); err != nil {
				return err
			}
			return fmt.Errorf("%w: it handed over to be removed", errNotLeader)
		}
		if err := q.apply(quorumChange{kind: removeServer, id: s.ID, why: "asked for"}); err != nil {
			return err
		}
	}
	resp.Done = true
	return nil
}

func (q *quorum) transfer(m roster, node metadata.BrokerID, resp *controllerpb.QuorumResponse) error {
	if node != q.node.cfg.NodeID {
		if err := q.handOver(m, node); err != nil {
			return err
		}
	}
	resp.Done = true
	return nil
}

// handOver makes another voter lead: node, or the best one if that is -1.
func (q *quorum) handOver(m roster, node metadata.BrokerID) error {
	s, ok := m.heir(q.voter.id)
	if node >= 0 {
		ok = false
		for _, s = range m.of(node) {
			if ok = s.Suffrage == raft.Voter; ok {
				break
			}
		}
		if !ok {
			return refuse(CodeVoterNotFound, "node %d is no voter; the voters are %v", node, m.voters())
		}
		if f := m.found[node]; !f.answers(s.ID) {
			return refuse(CodeInvalidRequest, "node %d does not answer (%v): choose another one", node, f.err)
		}
	}
	if !ok {
		return refuse(CodeInvalidRequest, "no other voter answers: there is nobody to lead")
	}
	if err := q.voter.raft.LeadershipTransferToServer(s.ID, s.Address).Error(); err != nil {
		return fmt.Errorf("hand over to node %d: %w", nodeID(s.ID), err)
	}
	q.node.log.Info("handed leadership over", "to", int32(nodeID(s.ID)))
	return nil
}

// describeQuorum lists members, then nodes that could become some.
func (l *leadership) describeQuorum(m roster, resp *controllerpb.QuorumResponse) {
	v := l.quorum.voter
	resp.Done, resp.Term, resp.Commit, resp.LastIndex = true, v.raft.CurrentTerm(), v.raft.CommitIndex(), v.raft.LastIndex()
	add := func(id raft.ServerID, f finding) *controllerpb.QuorumMember {
		node, dir := splitServer(id)
		p := &controllerpb.QuorumMember{NodeId: int32(node), Directory: dir[:], Address: f.address, HeardMs: -1, CaughtUpMs: -1}
		if f.id == id {
			p.LastIndex, p.HeardMs, p.CaughtUpMs = f.last, millis(f.heard), millis(f.caughtUp)
		}
		resp.Members = append(resp.Members, p)
		return p
	}
	for _, s := range m.servers {
		f := m.found[nodeID(s.ID)]
		_, f.address = dialAddress(s.Address)
		p := add(s.ID, f)
		p.Member, p.Voter = true, s.Suffrage == raft.Voter
	}
	sessions := map[metadata.BrokerID]session{}
	for _, e := range l.sessions.list() {
		sessions[e.inc.Broker] = e
	}
	for b := range l.images.image().Brokers() {
		if b.Fenced || len(m.of(b.ID)) > 0 {
			continue
		}
		p := &controllerpb.QuorumMember{NodeId: int32(b.ID), Address: b.ControllerAddress, HeardMs: -1, CaughtUpMs: -1}
		if _, dir := splitServer(m.found[b.ID].id); b.Voter {
			p.Directory = dir[:]
		}
		if e, ok := sessions[b.ID]; ok && e.heard {
			p.LastIndex, p.HeardMs = uint64(e.index), millis(e.last)
			if uint64(e.index) >= uint64(l.images.image().Index()) {
				p.CaughtUpMs = p.HeardMs
			}
		}
		resp.Members = append(resp.Members, p)
	}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return wall.Milli(t)
}
