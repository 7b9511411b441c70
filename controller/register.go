package controller

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"ponor/commitlog"
	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
	"ponor/rpc"
)

// Registration is what a broker tells the cluster about itself.
type Registration struct {
	// Endpoints are the advertised client listeners; they must accept already.
	Endpoints []metadata.Endpoint
	// Zone is where the broker runs, Kafka's rack; empty is none.
	Zone string
	// Version of the software, informative.
	Version string
}

// admit registers a broker at the leader. A new incarnation ends the one
// before (cmd-6), unless another process still heartbeats under the id.
func (s *server) register(ctx context.Context, conn *rpc.Conn, q *controllerpb.RegisterRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.RegisterResponse{Outcome: o}
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return &controllerpb.RegisterResponse{Outcome: s.failure(err)}
	}
	defer leave()
	reg := q.GetRegistration()
	if o := s.inUse(l, reg); o != nil {
		return &controllerpb.RegisterResponse{Outcome: o}
	}
	index, results, err := l.propose([]*metadatapb.Command{{
		Body: &metadatapb.Command_RegisterBroker{RegisterBroker: reg},
	}})
	switch {
	case err != nil:
		return &controllerpb.RegisterResponse{Outcome: s.failure(err)}
	case results[0].Err != nil:
		return &controllerpb.RegisterResponse{Outcome: s.outcome(controllerpb.Code_INVALID, results[0].Err)}
	}
	inc := results[0].Incarnation
	if l.sessions.touch(inc, conn, Stats{}, index) {
		l.watch(inc, conn)
	}
	l.log.Info("broker registered", "broker", inc.String(), "zone", reg.GetZone())
	return &controllerpb.RegisterResponse{Outcome: s.ok(), Index: uint64(index), Incarnation: inc.Proto()}
}

// inUse refuses a registration while another process lives under the id. Where
// that is not sure, a process at the same address is its successor, since two
// cannot listen there; one at another address waits for the session to end, so
// that a stray process does not win by a connection that broke.
func (s *server) inUse(l *leadership, reg *metadatapb.RegisterBroker) *controllerpb.Outcome {
	b, ok := s.node.images.image().Broker(metadata.BrokerID(reg.GetBroker()))
	if !ok || b.Fenced || bytes.Equal(b.Nonce[:], reg.GetNonce()) {
		return nil
	}
	switch l.sessions.liveness(b.Incarnation, l.cfg.SessionTimeout) {
	case gone:
		return nil
	case unsure:
		if sameEndpoint(b, reg) {
			return nil
		}
	case beating:
	}
	where := "an unknown address"
	if len(b.Endpoints) > 0 {
		where = b.Endpoints[0].Address()
	}
	return s.outcome(controllerpb.Code_IN_USE, fmt.Errorf(
		"another process is running as node %d at %s: stop it, or start this one with another node id", b.ID, where))
}

func sameEndpoint(b metadata.Broker, reg *metadatapb.RegisterBroker) bool {
	if len(b.Endpoints) == 0 || len(reg.GetEndpoints()) == 0 {
		return len(b.Endpoints) == len(reg.GetEndpoints()) && b.ControllerAddress == reg.GetControllerAddress()
	}
	a, e := b.Endpoints[0], reg.GetEndpoints()[0]
	return a.Host == e.GetHost() && a.Port == e.GetPort()
}

// membership is this process's current registration.
type membership struct {
	inc    metadata.Incarnation
	fenced chan struct{} // closed when the incarnation has ended
}

// Register makes this process a live broker: a new incarnation, which ends any
// earlier one of this node id and inherits its partitions. It retries until
// admitted or ctx ends; while another process heartbeats under the id it logs
// that, because only an operator can help. While the present incarnation lives
// it is returned again. Heartbeats run from then on.
func (n *Node) Register(ctx context.Context, r Registration) (metadata.Incarnation, error) {
	if inc := n.Incarnation(); !inc.IsZero() {
		return inc, nil
	}
	var nonce metadata.Nonce
	if _, err := rand.Read(nonce[:]); err != nil {
		return metadata.Incarnation{}, fmt.Errorf("draw nonce: %w", err)
	}
	n.mu.Lock()
	n.mu.nonces[nonce] = true
	n.mu.Unlock()
	pb := &metadatapb.RegisterBroker{
		Broker: int32(n.cfg.NodeID), Nonce: nonce[:], Zone: r.Zone, Version: r.Version,
		Voter: n.cfg.Voter, ControllerAddress: n.cfg.AdvertiseController,
	}
	for _, e := range r.Endpoints {
		pb.Endpoints = append(pb.Endpoints, &metadatapb.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port, Security: e.Security})
	}
	for {
		inc, err := n.registerOnce(ctx, pb)
		if err != nil || !inc.IsZero() {
			return inc, err
		}
	}
}

// registerOnce returns no incarnation and no error if the one it got ended
// before it was seen.
func (n *Node) registerOnce(ctx context.Context, pb *metadatapb.RegisterBroker) (metadata.Incarnation, error) {
	resp := new(controllerpb.RegisterResponse)
	q := &controllerpb.RegisterRequest{ClusterId: n.clusterID(), Registration: pb}
	for {
		if err := n.client.call(ctx, laneHeartbeat, keyRegister, q, resp); err != nil {
			return metadata.Incarnation{}, fmt.Errorf("register broker %d: %w", n.cfg.NodeID, err)
		}
		if resp.Outcome.GetCode() != controllerpb.Code_IN_USE {
			break
		}
		n.warn.log("cannot register", "broker", n.cfg.NodeID, "reason", resp.Outcome.GetMessage())
		select {
		case <-time.After(n.cfg.HeartbeatInterval):
		case <-ctx.Done():
			return metadata.Incarnation{}, fmt.Errorf("register broker %d: %s: %w", n.cfg.NodeID, resp.Outcome.GetMessage(), ctx.Err())
		}
	}
	if c := resp.Outcome.GetCode(); c != controllerpb.Code_OK {
		return metadata.Incarnation{}, fmt.Errorf("register broker %d: %s", n.cfg.NodeID, resp.Outcome.GetMessage())
	}
	if err := n.Wait(ctx, metadata.Index(resp.Index)); err != nil {
		return metadata.Incarnation{}, err
	}
	inc := metadata.IncarnationFrom(resp.Incarnation)
	n.mu.Lock()
	n.mu.member = &membership{inc: inc, fenced: make(chan struct{})}
	n.mu.Unlock()
	n.own.begin(inc)
	n.checkMembership(n.Image())
	n.member.notify()
	return n.Incarnation(), nil
}

// Incarnation is this process's live registration, zero before Register and
// after a fence.
func (n *Node) Incarnation() metadata.Incarnation {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.mu.member; m != nil && !isClosed(m.fenced) {
		return m.inc
	}
	return metadata.Incarnation{}
}

// Fenced is closed when the registration that was current at the time of the
// call has ended: the broker must drop what it owns and may Register anew. It
// is nil, which blocks for ever, before the first Register.
func (n *Node) Fenced() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.member == nil {
		return nil
	}
	return n.mu.member.fenced
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// checkMembership ends the registration if an image says so. Only images
// decide, never the word of a node that may be a deposed leader.
func (n *Node) checkMembership(img *metadata.Image) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.mu.member
	if m == nil || img.Live(m.inc) {
		return
	}
	ended := isClosed(m.fenced)
	if !ended {
		close(m.fenced)
	}
	// The other process's registration may come with a later image than the fence.
	b, ok := img.Broker(n.cfg.NodeID)
	if ok && m.inc.Less(b.Incarnation) && !n.mu.nonces[b.Nonce] {
		n.fail(fmt.Errorf("node %d: %w: stop one of the two, or give it another node id", n.cfg.NodeID, ErrSuperseded))
		return
	}
	if !ended {
		n.log.Warn("this broker was fenced", "broker", m.inc.String())
	}
}

// runMembership watches the image for the end of the registration.
func (n *Node) runMembership(ctx context.Context) {
	for {
		changed := n.Changed()
		n.checkMembership(n.Image())
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// runHeartbeats tells the leader that this broker lives.
func (n *Node) runHeartbeats(ctx context.Context) {
	tick := time.NewTimer(n.cfg.HeartbeatInterval)
	defer tick.Stop()
	var told *partition.Loads
	for {
		// A new leader is told at once, so that it does not suspect us.
		role, member := n.role.changed(), n.member.changed()
		begun := time.Now()
		if inc := n.Incarnation(); !inc.IsZero() {
			told = n.heartbeat(ctx, inc, told)
		}
		tick.Reset(max(0, n.cfg.HeartbeatInterval-time.Since(begun)))
		select {
		case <-tick.C:
		case <-member:
		case <-role:
		case <-ctx.Done():
			return
		}
	}
}

// maxTrouble bounds the words for a store's trouble in a heartbeat.
const maxTrouble = 500

// ageMillis is a duration for a message, a day at most.
func ageMillis(d time.Duration) uint32 { return uint32(min(d, 24*time.Hour).Milliseconds()) }

// AskMoves sends a heartbeat now, because the leader may have moves for this
// broker, or whoever acts on them is ready for more.
func (n *Node) AskMoves() { n.member.notify() }

// heartbeat sends one; told is the load that was sent before, and it returns
// what was sent now.
func (n *Node) heartbeat(ctx context.Context, inc metadata.Incarnation, told *partition.Loads) *partition.Loads {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.SessionTimeout)
	defer cancel()
	n.mu.Lock()
	stats, mover := n.mu.stats, n.mu.mover
	n.mu.Unlock()
	q := &controllerpb.HeartbeatRequest{ClusterId: n.clusterID(), Incarnation: inc.Proto(), Index: uint64(n.Image().Index())}
	if stats != nil {
		s := stats()
		q.OldestUnresolvedMs = ageMillis(s.OldestUnresolved)
		q.StoreTrouble, q.StoreTroubleMs = strings.ToValidUTF8(s.Trouble[:min(len(s.Trouble), maxTrouble)], ""), ageMillis(s.TroubleFor)
		if s.Load != nil && s.Load != told {
			q.Load, told = loadProto(s.Load), s.Load
		}
	}
	resp := new(controllerpb.HeartbeatResponse)
	if err := n.client.call(ctx, laneHeartbeat, keyHeartbeat, q, resp); err != nil {
		n.log.Debug("heartbeat failed", "err", err)
		return nil
	}
	if len(resp.Moves) > 0 && mover != nil && resp.Outcome.GetCode() == controllerpb.Code_OK {
		mover(movesFrom(resp.Moves))
	}
	return told
}

func movesFrom(pb []*controllerpb.Move) []Move {
	out := make([]Move, 0, len(pb))
	for _, m := range pb {
		if len(m.TopicId) == len(metadata.TopicID{}) {
			out = append(out, Move{
				Topic: metadata.TopicID(m.TopicId), Partition: m.Partition,
				Epoch: commitlog.Epoch(m.Epoch), Target: metadata.IncarnationFrom(m.Target),
			})
		}
	}
	return out
}

// SetStats sets what heartbeats report. It is called from the heartbeat
// goroutine and must be quick.
func (n *Node) SetStats(f func() Stats) {
	n.mu.Lock()
	n.mu.stats = f
	n.mu.Unlock()
}

// SetMover sets who is told of moves that the leader wants of this broker. It
// is called from the heartbeat goroutine, again and again until a move is
// done, and must not wait.
func (n *Node) SetMover(f func([]Move)) {
	n.mu.Lock()
	n.mu.mover = f
	n.mu.Unlock()
}
