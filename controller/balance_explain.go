package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

// Balance is how loaded the brokers are, and what the leader makes of that.
type Balance struct {
	// Enabled is false where auto.leader.rebalance.enable is.
	Enabled bool
	// Verdict says what the balancer would do now and why, or why nothing.
	Verdict string
	Brokers []BrokerBalance // by id
	Moves   []BalanceMove   // that it plans now
}

// BrokerBalance is one broker's part.
type BrokerBalance struct {
	ID   metadata.BrokerID
	Zone string
	// Address is that of its listener for clients, or was.
	Address string
	// State is open, cordoned, draining, silent (the leader waits for a sign of life)
	// or down (stopped or dead: it serves nothing). Only open ones are balanced.
	State string
	// Role in the metadata quorum: leader, voter or observer.
	Role string
	// Partitions it owns, and is the preferred leader of.
	Partitions, Preferred int
	// Known: it has told its load to this leader.
	Known           bool
	Bytes, Requests float64 // per second, in and out, smoothed over some 15 s
	// Share is its part of the load of all open brokers, 0 to 1. In a balanced
	// cluster of n it is about 1/n.
	Share float64
	// OldestUnresolved is the age of its oldest WAL slot without an outcome.
	OldestUnresolved time.Duration
	// Trouble is why the store does not take its writes, empty if it does, and for
	// how long that has been so.
	Trouble    string
	TroubleFor time.Duration
}

// BalanceMove is a leader that the balancer would move.
type BalanceMove struct {
	Topic     string
	Partition int32
	From, To  metadata.BrokerID
	Cause     string // preferred, partitions, bytes or requests
	Reason    string
}

// maxExplained bounds the moves that are listed one by one.
const maxExplained = 1000

// Balance asks the leader.
func (n *Node) Balance(ctx context.Context) (Balance, error) {
	resp, err := n.askBalance(ctx)
	if err != nil {
		return Balance{}, err
	}
	return balanceFrom(resp), nil
}

func (n *Node) askBalance(ctx context.Context) (*controllerpb.BalanceResponse, error) {
	resp := new(controllerpb.BalanceResponse)
	if err := n.client.call(ctx, laneAdmin, keyBalance, &controllerpb.BalanceRequest{ClusterId: n.clusterID()}, resp); err != nil {
		return nil, fmt.Errorf("ask for the balance: %w", err)
	}
	if o := resp.GetOutcome(); o.GetCode() != controllerpb.Code_OK {
		return nil, fmt.Errorf("ask for the balance: %s", o.GetMessage())
	}
	return resp, nil
}

// passBalance passes an operator's question on to the leader.
func (n *Node) passBalance(ctx context.Context, _ *rpc.Conn, _ *controllerpb.BalanceRequest) response {
	ctx, cancel := context.WithTimeout(ctx, operatorPatience)
	defer cancel()
	resp, err := n.askBalance(ctx)
	if err != nil {
		return &controllerpb.BalanceResponse{Outcome: n.server.outcome(controllerpb.Code_UNAVAILABLE, err)}
	}
	return resp
}

// AskBalance asks the cluster behind a client connection how its brokers are
// loaded, and what the balancer makes of that.
func AskBalance(ctx context.Context, c *rpc.Client) (Balance, error) {
	reply, err := callAsTool(ctx, c, keyAskBalance, nil)
	if err != nil {
		return Balance{}, fmt.Errorf("ask for the balance: %w", err)
	}
	resp := new(controllerpb.BalanceResponse)
	if err := proto.Unmarshal(reply, resp); err != nil {
		return Balance{}, fmt.Errorf("ask for the balance: reply: %w", err)
	}
	if o := resp.GetOutcome(); o.GetCode() != controllerpb.Code_OK {
		return Balance{}, errors.New(o.GetMessage())
	}
	return balanceFrom(resp), nil
}

func balanceFrom(resp *controllerpb.BalanceResponse) Balance {
	out := Balance{Enabled: resp.Enabled, Verdict: resp.Verdict}
	for _, b := range resp.Brokers {
		out.Brokers = append(out.Brokers, BrokerBalance{
			ID: metadata.BrokerID(b.Broker), Zone: b.Zone, State: b.State, Role: b.Role,
			Partitions: int(b.Partitions), Preferred: int(b.Preferred),
			Known: b.Known, Bytes: b.Bytes, Requests: b.Requests, Share: b.Share,
			OldestUnresolved: time.Duration(b.OldestUnresolvedMs) * time.Millisecond, Address: b.Address,
			Trouble: b.StoreTrouble, TroubleFor: time.Duration(b.StoreTroubleMs) * time.Millisecond,
		})
	}
	for _, m := range resp.Moves {
		out.Moves = append(out.Moves, BalanceMove{
			Topic: m.Topic, Partition: m.Partition, From: metadata.BrokerID(m.From), To: metadata.BrokerID(m.To), Cause: m.Cause, Reason: m.Reason,
		})
	}
	return out
}

// balance answers keyBalance. It looks at every partition, some 10 ms per
// 100,000.
func (s *server) balance(_ context.Context, _ *rpc.Conn, q *controllerpb.BalanceRequest) response {
	l, o := s.leading(q.ClusterId)
	if o != nil {
		return &controllerpb.BalanceResponse{Outcome: o}
	}
	img, loads, now := l.images.image(), l.sessions.loads(), time.Now()
	resp := &controllerpb.BalanceResponse{Outcome: s.ok(), Enabled: balancing(img)}
	resp.Brokers = s.brokerBalances(l, img, loads)
	v := l.explain(img, loads, now)
	resp.Verdict = v.words
	for _, m := range v.moves[:min(len(v.moves), maxExplained)] {
		resp.Moves = append(resp.Moves, &controllerpb.PlannedMove{
			Topic: m.topic, Partition: m.key.number, From: int32(m.from), To: int32(m.to), Cause: m.cause, Reason: m.reason,
		})
	}
	return resp
}

// explain is what the balancer would do now.
func (l *leadership) explain(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, now time.Time) verdict {
	switch {
	case !balancing(img):
		return verdict{words: "switched off: " + balanceConfig + " is false"}
	case now.Before(l.cautious):
		return verdict{words: fmt.Sprintf("waits %v for brokers that are on their way, as after a restart of the whole cluster", l.cautious.Sub(now).Round(time.Second))}
	}
	v := l.balance.explain(img, loads, now)
	l.balance.mu.Lock()
	defer l.balance.mu.Unlock()
	if n := len(l.balance.mu.placed); n > 0 {
		v.words += fmt.Sprintf("; %d partition(s) that an operator placed stay where they are for %v", n, balancePlaced)
		if l.balance.mu.held {
			v.words += ", and a broker that has few because of that gets its share then"
		}
	}
	return v
}

// explain is what it would do of itself.
func (b *balance) explain(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, now time.Time) verdict {
	if due, left := b.countDue(now); due {
		if moves := b.countPlan(img, now); len(moves) > 0 {
			return verdict{moves: moves, words: fmt.Sprintf("brokers came or went; %d leaders move in %v", len(moves), left.Round(100*time.Millisecond))}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.judgeLocked(img, loads, now)
}

// countDue says whether a round by count is still to come, and how soon.
func (b *balance) countDue(now time.Time) (due bool, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.mu.counted:
		return true, max(0, balanceDelay-now.Sub(b.mu.since))
	case !b.mu.sure:
		return true, max(0, balanceBlind-now.Sub(b.mu.since))
	}
	return false, 0
}

func (s *server) brokerBalances(l *leadership, img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads) []*controllerpb.BrokerBalance {
	preferred := map[metadata.BrokerID]int32{}
	for t := range img.Topics() {
		for p := range img.Partitions(t.ID) {
			preferred[p.Replicas[0]]++
		}
	}
	heard := map[metadata.Incarnation]session{}
	for _, e := range l.sessions.list() {
		heard[e.inc] = e
	}
	roles := map[metadata.BrokerID]string{}
	for _, v := range s.node.Quorum() {
		roles[v.ID] = "voter"
	}
	roles[l.cfg.NodeID] = "leader"
	scale := weigh(img, loads)
	var out []*controllerpb.BrokerBalance
	for b := range img.Brokers() {
		e := &controllerpb.BrokerBalance{
			Broker: int32(b.ID), Zone: b.Zone, State: brokerState(b, heard[b.Incarnation].silent(l.cfg.SessionTimeout)), Role: roles[b.ID], Address: clientAddress(b),
			Partitions: int32(img.OwnedCount(b.Incarnation)), Preferred: preferred[b.ID],
		}
		if e.Role == "" {
			e.Role = "observer"
		}
		if s := heard[b.Incarnation].stats; !b.Fenced {
			e.OldestUnresolvedMs, e.StoreTrouble, e.StoreTroubleMs = ageMillis(s.OldestUnresolved), s.Trouble, ageMillis(s.TroubleFor)
		}
		if load := loads[b.ID]; load != nil && !b.Fenced {
			e.Known, e.Bytes, e.Requests = true, load.Bytes, load.Requests
		}
		if all := scale.mean * float64(len(scale.weight)); all > 0 {
			e.Share = scale.weight[b.ID] / all
		}
		out = append(out, e)
	}
	return out
}

// silent says whether a broker that is not fenced has owed a sign of life for long:
// it hangs, or did not come back when the whole cluster restarted.
func (s session) silent(timeout time.Duration) bool { return time.Since(s.last) > timeout/2 }

// clientAddress is a broker's first listener for clients.
func clientAddress(b metadata.Broker) string {
	if len(b.Endpoints) == 0 {
		return ""
	}
	return b.Endpoints[0].Address()
}

// brokerState is how a broker stands to the balancer.
func brokerState(b metadata.Broker, silent bool) string {
	switch {
	case b.Fenced:
		return "down"
	case silent:
		return "silent"
	case b.Draining:
		return "draining"
	case b.Cordoned:
		return "cordoned"
	}
	return "open"
}
