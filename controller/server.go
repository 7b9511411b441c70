package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/rpc"
)

// API keys of the cluster's own calls, all at version 0. Their bodies are
// messages of controllerpb.
const (
	keyHello int16 = rpc.InternalKey + iota
	keySubmit
	keyBarrier
	keyFollow
	keySnapshot
	keyRegister
	keyHeartbeat
	keyAdmin
	keyStatus
	keyQuorum
	keyBalance
)

const (
	// requestLimit bounds a call's frame in bytes: an entry's commands, or an
	// admin request on thousands of topics.
	requestLimit = 16 << 20
	// snapshotPiece is how much of a snapshot one reply carries.
	snapshotPiece = 1 << 20
	// maxFollowWait bounds a long poll.
	maxFollowWait = 10 * time.Second
)

// server answers the cluster's own calls. Any node can serve them; one that
// does not lead says who does.
type server struct {
	node *Node
	mu   struct {
		sync.Mutex
		// The snapshot being read, so that its pieces are of one image.
		snapIndex metadata.Index
		snapGen   uint64
		snapBytes []byte
	}
}

// request and response are what the messages of one call have in common.
type response interface {
	proto.Message
	GetOutcome() *controllerpb.Outcome
}

// APIs are the rows of the cluster's own calls. The Node serves them on its
// controller listener itself; mount them on another listener only where a node
// without one should answer too.
func (n *Node) APIs() []rpc.API {
	s := n.server
	return []rpc.API{
		call(keyHello, s.hello), call(keySubmit, s.submit), call(keyBarrier, s.barrier),
		call(keyFollow, s.follow), call(keySnapshot, s.snapshot), call(keyRegister, s.register),
		call(keyHeartbeat, s.heartbeat), call(keyAdmin, s.admin), call(keyStatus, s.status),
		call(keyQuorum, s.quorum), call(keyBalance, s.balance),
	}
}

// call makes a row of a typed handler.
func call[T any, Q interface {
	*T
	proto.Message
}](key int16, handle func(context.Context, *rpc.Conn, Q) response) rpc.API {
	return rpc.API{Key: key, Raw: true, Limit: requestLimit, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
		q := Q(new(T))
		if err := proto.Unmarshal(r.Raw, q); err != nil {
			return rpc.Response{CloseErr: fmt.Errorf("decode call %d: %w", key, err)}
		}
		b, err := proto.Marshal(handle(ctx, r.Conn, q))
		if err != nil {
			return rpc.Response{CloseErr: fmt.Errorf("encode reply to call %d: %w", key, err)}
		}
		return rpc.Response{Buffers: net.Buffers{b}}
	}}
}

// local serves a call of this process without a connection.
func (s *server) local(ctx context.Context, q proto.Message) response {
	switch q := q.(type) {
	case *controllerpb.HelloRequest:
		return s.hello(ctx, nil, q)
	case *controllerpb.SubmitRequest:
		return s.submit(ctx, nil, q)
	case *controllerpb.BarrierRequest:
		return s.barrier(ctx, nil, q)
	case *controllerpb.RegisterRequest:
		return s.register(ctx, nil, q)
	case *controllerpb.HeartbeatRequest:
		return s.heartbeat(ctx, nil, q)
	case *controllerpb.AdminRequest:
		return s.admin(ctx, nil, q)
	case *controllerpb.StatusRequest:
		return s.status(ctx, nil, q)
	case *controllerpb.QuorumRequest:
		return s.quorum(ctx, nil, q)
	case *controllerpb.BalanceRequest:
		return s.balance(ctx, nil, q)
	}
	return &controllerpb.StatusResponse{Outcome: &controllerpb.Outcome{Code: controllerpb.Code_INVALID}}
}

// outcome names the leader as this node knows it.
func (s *server) outcome(code controllerpb.Code, err error) *controllerpb.Outcome {
	o := &controllerpb.Outcome{Code: code, Leader: -1}
	if id, addr, ok := s.node.leaderHint(); ok {
		o.Leader, o.LeaderAddress = int32(id), addr
	}
	if err != nil {
		o.Message = err.Error()
	}
	return o
}

func (s *server) ok() *controllerpb.Outcome { return s.outcome(controllerpb.Code_OK, nil) }

// failure turns an error of the committer into an outcome.
func (s *server) failure(err error) *controllerpb.Outcome {
	if !errors.Is(err, errNotLeader) {
		return s.outcome(controllerpb.Code_UNKNOWN_OUTCOME, err)
	}
	o := s.outcome(controllerpb.Code_NOT_CONTROLLER, err)
	if metadata.BrokerID(o.Leader) == s.node.cfg.NodeID {
		// Elected, but not ready yet, or about to step down.
		o.Code = controllerpb.Code_UNAVAILABLE
	}
	return o
}

// leading returns the current term, or the outcome that refuses the call.
func (s *server) leading(cluster string) (*leadership, *controllerpb.Outcome) {
	if o := s.foreign(cluster); o != nil {
		return nil, o
	}
	l := s.node.leading.Load()
	if l == nil {
		return nil, s.failure(errNotLeader)
	}
	return l, nil
}

// foreign refuses the calls of another cluster's nodes.
func (s *server) foreign(cluster string) *controllerpb.Outcome {
	ours := s.node.clusterID()
	if cluster == "" || ours == "" || cluster == ours {
		return nil
	}
	return s.outcome(controllerpb.Code_WRONG_CLUSTER, fmt.Errorf(
		"node %d at %s belongs to cluster %s, the caller to %s: check the join addresses",
		s.node.cfg.NodeID, s.node.cfg.AdvertiseController, ours, cluster))
}

func (s *server) submit(ctx context.Context, _ *rpc.Conn, q *controllerpb.SubmitRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.SubmitResponse{Outcome: o}
	}
	index, results, err := l.committer.propose(ctx, q.Commands...)
	if err != nil {
		return &controllerpb.SubmitResponse{Outcome: s.failure(err)}
	}
	resp := &controllerpb.SubmitResponse{Outcome: s.ok(), Index: uint64(index)}
	for _, r := range results {
		b, err := r.Marshal()
		if err != nil {
			return &controllerpb.SubmitResponse{Outcome: s.outcome(controllerpb.Code_UNKNOWN_OUTCOME, err)}
		}
		resp.Results = append(resp.Results, b)
	}
	return resp
}

func (s *server) barrier(ctx context.Context, _ *rpc.Conn, q *controllerpb.BarrierRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.BarrierResponse{Outcome: o}
	}
	index, err := l.committer.barrier(ctx)
	if err != nil {
		return &controllerpb.BarrierResponse{Outcome: s.failure(err)}
	}
	return &controllerpb.BarrierResponse{Outcome: s.ok(), Index: uint64(index)}
}

func (s *server) admin(ctx context.Context, _ *rpc.Conn, q *controllerpb.AdminRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.AdminResponse{Outcome: o}
	}
	resp, err := l.admin(ctx, q)
	if err != nil {
		return &controllerpb.AdminResponse{Outcome: s.failure(err)}
	}
	resp.Outcome = s.ok()
	return resp
}

// follow answers with entries after what the caller has, waiting for one if
// this node leads. Nodes that do not lead give what they have and say who
// leads.
func (s *server) follow(ctx context.Context, _ *rpc.Conn, q *controllerpb.FollowRequest) response {
	resp := &controllerpb.FollowResponse{}
	if resp.Outcome = s.foreign(q.ClusterId); resp.Outcome != nil {
		return resp
	}
	deadline := time.NewTimer(min(time.Duration(q.WaitMs)*time.Millisecond, maxFollowWait))
	defer deadline.Stop()
	for {
		changed, role := s.node.images.changed(), s.node.role.changed()
		l := s.node.leading.Load()
		entries, img, ok := s.node.images.since(metadata.Index(q.After), int(q.MaxBytes))
		resp.Generation, resp.Index = img.Generation(), uint64(img.Index())
		ahead := q.Generation > img.Generation() || q.Generation == img.Generation() && q.After > uint64(img.Index())
		switch {
		case ahead && l != nil:
			resp.Outcome = s.wentBack(ctx, l, q)
			return resp
		case ahead: // this voter lags
		case !ok || q.Generation != img.Generation() && q.After > 0:
			resp.SnapshotNeeded = true
		default:
			for _, e := range entries {
				resp.Entries = append(resp.Entries, &controllerpb.FollowEntry{Index: uint64(e.index), Data: e.data})
			}
		}
		if l == nil {
			resp.Outcome = s.failure(errNotLeader)
			return resp
		}
		if len(resp.Entries) > 0 || resp.SnapshotNeeded {
			resp.Outcome = s.ok()
			return resp
		}
		select {
		case <-changed:
		case <-role:
		case <-deadline.C:
			resp.Outcome = s.ok()
			return resp
		case <-ctx.Done():
			resp.Outcome = s.ok()
			return resp
		}
	}
}

// wentBack answers a node that knows more than this leader. If the quorum
// confirms that this node leads, metadata was lost; otherwise the caller has
// simply followed a newer leader.
func (s *server) wentBack(ctx context.Context, l *leadership, q *controllerpb.FollowRequest) *controllerpb.Outcome {
	index, err := l.committer.barrier(ctx)
	if err != nil {
		return s.failure(err)
	}
	img := s.node.images.image()
	if q.Generation < img.Generation() || q.Generation == img.Generation() && q.After <= uint64(img.Index()) {
		return s.ok()
	}
	return s.outcome(controllerpb.Code_WENT_BACK, fmt.Errorf(
		"the quorum is at generation %d, index %d, the caller was at generation %d, index %d",
		img.Generation(), index, q.Generation, q.After))
}

func (s *server) snapshot(_ context.Context, _ *rpc.Conn, q *controllerpb.SnapshotRequest) response {
	resp := &controllerpb.SnapshotResponse{}
	if resp.Outcome = s.foreign(q.ClusterId); resp.Outcome != nil {
		return resp
	}
	s.mu.Lock()
	index, gen, b := s.mu.snapIndex, s.mu.snapGen, s.mu.snapBytes
	s.mu.Unlock()
	if q.Index == 0 {
		// The one at hand serves while the tail leads on from it: many nodes that
		// start at once would otherwise have each other begin again for ever.
		if _, img, ok := s.node.images.since(index, 0); b == nil || !ok || gen != img.Generation() {
			var err error
			if b, err = encodeSnapshot(img); err != nil {
				resp.Outcome = s.outcome(controllerpb.Code_UNAVAILABLE, err)
				return resp
			}
			index = img.Index()
			s.mu.Lock()
			s.mu.snapIndex, s.mu.snapGen, s.mu.snapBytes = index, img.Generation(), b
			s.mu.Unlock()
		}
	} else if metadata.Index(q.Index) != index || q.Offset > uint64(len(b)) {
		// Another node made this one encode a newer image: begin again.
		resp.Outcome = s.outcome(controllerpb.Code_UNAVAILABLE, errors.New("snapshot is gone, begin again"))
		return resp
	}
	end := min(int(q.Offset)+snapshotPiece, len(b))
	resp.Outcome, resp.Index, resp.Total = s.ok(), uint64(index), uint64(len(b))
	resp.Data = b[min(int(q.Offset), end):end]
	return resp
}

func (s *server) heartbeat(ctx context.Context, conn *rpc.Conn, q *controllerpb.HeartbeatRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.HeartbeatResponse{Outcome: o}
	}
	inc := metadata.IncarnationFrom(q.Incarnation)
	img := s.node.images.image()
	resp := &controllerpb.HeartbeatResponse{Outcome: s.ok(), Index: uint64(img.Index())}
	b, ok := img.Broker(inc.Broker)
	if !ok || b.Incarnation != inc || b.Fenced {
		// The caller judges by its own image once that is as new.
		resp.Outcome = s.outcome(controllerpb.Code_FENCED, fmt.Errorf("incarnation %v has ended", inc))
		return resp
	}
	stats := Stats{OldestUnresolved: time.Duration(q.OldestUnresolvedMs) * time.Millisecond, Load: loadFrom(q.Load),
		Trouble: q.StoreTrouble, TroubleFor: time.Duration(q.StoreTroubleMs) * time.Millisecond}
	if l.sessions.touch(inc, conn, stats, metadata.Index(q.Index)) {
		l.watch(inc, conn)
	}
	// A voter may apply an entry before the leader does, and ask for what it means.
	wait, cancel := context.WithTimeout(ctx, l.cfg.HeartbeatInterval)
	defer cancel()
	_ = l.images.wait(wait, metadata.Index(q.Index)) // else with the next heartbeat
	resp.Moves = l.moves.of(l.images.image, inc)
	return resp
}
