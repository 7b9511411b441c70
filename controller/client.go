package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/rpc"
)

// lane is a connection's purpose. Replies of one connection are in order, so
// calls that wait long must not share one with calls that are urgent.
type lane int

const (
	laneFollow lane = iota
	laneHeartbeat
	laneCommand
	laneBarrier
	laneAdmin
	laneHello
)

const (
	minBackoff  = 10 * time.Millisecond
	maxBackoff  = 300 * time.Millisecond
	dialTimeout = 2 * time.Second
)

// client reaches the leader, wherever it is: it tries who is known to lead,
// then every voter in turn, and follows what they say.
type client struct {
	node *Node
	mu   struct {
		sync.Mutex
		conns  map[connKey]*rpc.Client
		leader string // address, empty if unknown
		closed bool
	}
}

type connKey struct {
	address string
	lane    lane
}

func newClient(n *Node) *client {
	c := &client{node: n}
	c.mu.conns = map[connKey]*rpc.Client{}
	return c
}

// call makes a call until the leader has answered it or ctx ends. It repeats a
// call whose outcome is unknown, so the call must be one that may arrive more
// than once. The response's code is OK or one that retrying does not help.
func (c *client) call(ctx context.Context, on lane, key int16, q proto.Message, resp response) error {
	return c.try(ctx, on, key, q, resp, true)
}

// callOnce is call for what must not arrive twice: it ends with
// ErrUnknownOutcome where call would repeat.
func (c *client) callOnce(ctx context.Context, on lane, key int16, q proto.Message, resp response) error {
	return c.try(ctx, on, key, q, resp, false)
}

func (c *client) try(ctx context.Context, on lane, key int16, q proto.Message, resp response, again bool) error {
	backoff := minBackoff
	began := time.Now()
	silent := map[string]error{} // why the nodes that were asked last in vain did not answer
	var last error
	for at := anyTurn(); ; {
		role := c.node.role.changed()
		address := c.target(&at)
		sent, err := c.attempt(ctx, address, on, key, q, resp)
		if err == nil {
			delete(silent, address)
			var retry bool
			if retry, sent, err = c.judge(address, resp.GetOutcome()); !retry {
				return err
			}
		} else {
			silent[address] = err
			c.forget(address)
		}
		if sent && !again {
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		last = err
		if time.Since(began) > c.node.cfg.SessionTimeout {
			c.node.warn.log("the controller cannot be reached, trying on", "err", err)
		}
		if ctx.Err() == nil && c.hurry(resp.GetOutcome(), err, backoff) {
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, maxBackoff)
		case <-role:
		case <-ctx.Done():
			if c.known() == "" {
				return &leaderlessError{silent: silent, seeds: c.node.seeds(), cause: ctx.Err(), last: last}
			}
			return fmt.Errorf("reach the controller at %s: %w: %w", address, ctx.Err(), last)
		}
	}
}

// leaderlessError says in words for an operator that nobody leads the quorum.
type leaderlessError struct {
	silent      map[string]error // why they do not answer
	seeds       []string
	cause, last error
}

func (e *leaderlessError) Error() string {
	look := fmt.Sprintf("'ponor quorum status --controllers %s' shows each", strings.Join(e.seeds, ","))
	who := slices.Sorted(maps.Keys(e.silent))
	if len(who) == 0 {
		return fmt.Sprintf("no leader of the metadata quorum, though its controllers answer (%v); %s", e.last, look)
	}
	what := "no leader"
	if 2*len(who) > len(e.seeds) {
		what = "no majority"
	}
	words := "controller at %s does not answer (%v); start its node"
	if len(who) > 1 {
		words = "controllers at %s do not answer (%v); start their nodes"
	}
	return fmt.Sprintf("%s of the metadata quorum: the "+words+", %s", what, strings.Join(who, " and "), e.silent[who[0]], look)
}

// Unwrap has why it was given up.
func (e *leaderlessError) Unwrap() []error { return []error{e.cause, e.last} }

// hurry says whether to go on without a pause: the first time that a call was
// sent on to a leader that is known.
func (c *client) hurry(o *controllerpb.Outcome, err error, backoff time.Duration) bool {
	return err != nil && backoff == minBackoff && o.GetCode() == controllerpb.Code_NOT_CONTROLLER && o.GetLeaderAddress() != ""
}

// judge decides by the outcome of a call to the node at address whether to
// retry. sent: it may have been done.
func (c *client) judge(address string, o *controllerpb.Outcome) (retry, sent bool, err error) {
	switch o.GetCode() {
	case controllerpb.Code_NOT_CONTROLLER:
		c.redirect(address, o.GetLeaderAddress())
		return true, false, fmt.Errorf("node at %s: %s", address, o.GetMessage())
	case controllerpb.Code_UNAVAILABLE:
		return true, false, errors.New(o.GetMessage())
	case controllerpb.Code_UNKNOWN_OUTCOME:
		return true, true, errors.New(o.GetMessage())
	case controllerpb.Code_WRONG_CLUSTER:
		err := fmt.Errorf("%w: %s", ErrWrongCluster, o.GetMessage())
		c.node.warn.log("joined the wrong cluster", "err", err)
		return true, false, err
	default:
		return false, false, nil
	}
}

// turn is a caller's own place among the seeds. Callers that took turns of one
// count would, as many as there are seeds and in step, each find the same seed
// for ever.
type turn uint32

// anyTurn lets callers begin at different seeds, and one that calls again and
// again begin at each of them some time.
func anyTurn() turn { return turn(rand.Uint32()) }

// target is where to send now: to the leader, or to the next seed.
func (c *client) target(t *turn) string {
	if leader := c.known(); leader != "" {
		return leader
	}
	seeds := c.node.seeds()
	*t++
	return seeds[*t%turn(len(seeds))]
}

// redirect notes whom a node that does not lead takes for the leader, empty if
// it knows none. That says nothing against a leader that another one named:
// calls that go on at the same time would take from each other what they know.
// And this node knows of itself whether it leads: a memory of others that it did
// would come back to it forever.
func (c *client) redirect(from, to string) {
	if c.node.isSelf(to) {
		to = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.leader == "" || c.mu.leader == from {
		c.mu.leader = to
	}
}

// confirm notes a node that has answered as the leader. Calls that wait for
// another one are cut short: it is paused, or was deposed.
func (c *client) confirm(address string) {
	c.mu.Lock()
	changed := c.mu.leader != address
	c.mu.leader = address
	c.mu.Unlock()
	if changed {
		c.node.role.notify()
	}
}

// forget drops a leader that did not answer.
func (c *client) forget(address string) {
	c.mu.Lock()
	if c.mu.leader == address {
		c.mu.leader = ""
	}
	c.mu.Unlock()
}

// attempt makes one call to one node. sent says whether it may have arrived.
func (c *client) attempt(ctx context.Context, address string, on lane, key int16, q proto.Message, resp response) (sent bool, err error) {
	proto.Reset(resp)
	if address == c.node.cfg.AdvertiseController && c.node.cfg.Voter {
		proto.Merge(resp, c.node.server.local(ctx, q))
		return true, nil
	}
	ctx, cancel := c.bound(ctx, on, address)
	defer cancel()
	conn, err := c.conn(ctx, address, on)
	if err != nil {
		return false, err
	}
	body, err := proto.Marshal(q)
	if err != nil {
		return false, fmt.Errorf("encode call %d: %w", key, err)
	}
	b, err := conn.Call(ctx, key, 0, body)
	if err != nil {
		// A call that timed out leaves its reply in the way of later ones, and
		// the node may be paused: start afresh.
		c.drop(connKey{address, on}, conn)
		return true, fmt.Errorf("call node at %s: %w", address, err)
	}
	if err := proto.Unmarshal(b, resp); err != nil {
		return true, fmt.Errorf("decode reply of node at %s: %w", address, err)
	}
	return true, nil
}

// bound limits one attempt, so that a paused node holds nobody up, and cuts it
// short when another leader is known; a Hello is not for the leader, and the
// leader itself asks.
func (c *client) bound(ctx context.Context, on lane, address string) (context.Context, context.CancelFunc) {
	// A heartbeat must have time to reach the next leader before the session
	// ends there.
	limit := c.node.cfg.SessionTimeout / 3
	switch on {
	case laneAdmin:
		limit = 30 * time.Second
	case laneCommand:
		limit = 10 * time.Second
	case laneFollow:
		limit += c.node.followWait()
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if on == laneHello {
		return ctx, cancel
	}
	stop := c.node.role.onChange(func() {
		if leader := c.known(); leader != "" && leader != address {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// known is the leader's address, empty if not known.
func (c *client) known() string {
	if _, address, ok := c.node.raftLeader(); ok {
		return address
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leader
}

func (c *client) conn(ctx context.Context, address string, on lane) (*rpc.Client, error) {
	k := connKey{address, on}
	c.mu.Lock()
	conn := c.mu.conns[k]
	c.mu.Unlock()
	if conn != nil {
		if conn.Err() == nil {
			return conn, nil
		}
		c.drop(k, conn)
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := rpc.Dial(dctx, c.node.cfg.Dial, address, rpc.ClientConfig{ClientID: "ponor-node"})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	old, closed := c.mu.conns[k], c.mu.closed
	if !closed {
		c.mu.conns[k] = conn
	}
	c.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	if closed {
		_ = conn.Close()
		return nil, ErrClosed
	}
	return conn, nil
}

func (c *client) drop(k connKey, conn *rpc.Client) {
	c.mu.Lock()
	if c.mu.conns[k] == conn {
		delete(c.mu.conns, k)
	}
	c.mu.Unlock()
	_ = conn.Close()
}

func (c *client) close() {
	c.mu.Lock()
	conns := c.mu.conns
	c.mu.conns, c.mu.closed = map[connKey]*rpc.Client{}, true
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// seeds are the addresses at which a voter may be: those of the join list,
// those that registered, and those that this node's Raft log names.
func (n *Node) seeds() []string {
	out := append([]string(nil), n.cfg.Join...)
	seen := map[string]bool{}
	for _, a := range out {
		seen[a] = true
	}
	remember := func(address string) {
		if address != "" && !seen[address] {
			out, seen[address] = append(out, address), true
		}
	}
	for b := range n.Image().Brokers() {
		if b.Voter {
			remember(b.ControllerAddress)
		}
	}
	if v := n.vote.Load(); v != nil { // its disk remembers, whatever the list says
		for _, s := range v.servers() {
			_, address := dialAddress(s.Address)
			remember(address)
		}
	}
	if len(out) == 0 {
		out = append(out, n.cfg.AdvertiseController)
	}
	return out
}

// Submit sends a command that belongs to no incarnation to the leader and
// waits until its effect is in the local image. Result.Err says that the
// command was rejected; an error that it was not done (ErrNotSubmitted) or
// that nobody knows (ErrUnknownOutcome). Brokers' own commands go through
// SubmitOwn.
func (n *Node) Submit(ctx context.Context, command *metadatapb.Command) (metadata.Result, error) {
	q := &controllerpb.SubmitRequest{ClusterId: n.clusterID(), Commands: []*metadatapb.Command{command}}
	resp := new(controllerpb.SubmitResponse)
	if err := n.client.callOnce(ctx, laneAdmin, keySubmit, q, resp); err != nil {
		if !errors.Is(err, ErrUnknownOutcome) {
			err = fmt.Errorf("%w: %w", ErrNotSubmitted, err)
		}
		return metadata.Result{}, fmt.Errorf("submit command: %w", err)
	}
	if c := resp.Outcome.GetCode(); c != controllerpb.Code_OK || len(resp.Results) != 1 {
		return metadata.Result{}, fmt.Errorf("submit command: %w: %v: %s", ErrNotSubmitted, c, resp.Outcome.GetMessage())
	}
	r, err := metadata.UnmarshalResult(resp.Results[0])
	if err != nil {
		return r, fmt.Errorf("submit command: %w: %w", ErrUnknownOutcome, err)
	}
	return r, n.Wait(ctx, metadata.Index(resp.Index))
}

// Barrier is a linearizable read barrier: it returns an image that holds
// everything that completed anywhere before the call (K6).
func (n *Node) Barrier(ctx context.Context) (*metadata.Image, error) {
	resp := new(controllerpb.BarrierResponse)
	if err := n.client.call(ctx, laneBarrier, keyBarrier, &controllerpb.BarrierRequest{ClusterId: n.clusterID()}, resp); err != nil {
		return nil, fmt.Errorf("metadata barrier: %w", err)
	}
	if c := resp.Outcome.GetCode(); c != controllerpb.Code_OK {
		return nil, fmt.Errorf("metadata barrier: %v: %s", c, resp.Outcome.GetMessage())
	}
	if err := n.Wait(ctx, metadata.Index(resp.Index)); err != nil {
		return nil, err
	}
	return n.Image(), nil
}
