package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/jepsen/history"
)

// move gives random partitions other leaders.
type move struct{ background }

const (
	moveEvery   = 100 * time.Millisecond
	moveTimeout = 5 * time.Second
	// moveAtOnce bounds the partitions of one call.
	moveAtOnce = 4
)

// Name implements Nemesis.
func (m *move) Name() string { return "move" }

// Start implements Nemesis: it has moved one partition when it returns, if it
// could.
func (m *move) Start(ctx context.Context, env *Env) (history.Event, error) {
	var proof string
	var err error
	from := env.Now()
	for proof == "" && ctx.Err() == nil {
		if proof, err = moveSome(ctx, env, 1); err != nil || proof == "" {
			select {
			case <-ctx.Done():
			case <-time.After(moveEvery):
			}
		}
	}
	m.begin(func(done <-chan struct{}) (string, error) { return moveOn(done, env) })
	if proof == "" {
		waited := time.Duration(env.Now() - from).Round(time.Second)
		if err == nil {
			err = ctx.Err()
		}
		err = fmt.Errorf("no partition had another leader within %v: %w", waited, err)
		c := env.Cluster
		if slices.ContainsFunc(c.Nodes(), func(n int32) bool { return c.Down(n) || c.Paused(n) }) {
			err = fmt.Errorf("%w: %w", errUnmet, err) // as others hurt it too much
		}
	}
	return history.Event{Target: []string{"partitions"}, Proof: proof}, err
}

// Stop implements Nemesis.
func (m *move) Stop(context.Context, *Env) (history.Event, error) {
	proof, err := m.end()
	return history.Event{Target: []string{"partitions"}, Proof: proof}, err
}

// moveOn moves partitions until done, and says how often it was seen that one
// has moved. A move that fails because of another fault is none.
func moveOn(done <-chan struct{}, env *Env) (string, error) {
	moved, tried := 0, 0
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return fmt.Sprintf("%d of %d moves seen in the metadata", moved, tried), nil
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), moveTimeout)
		tried++
		if proof, err := moveSome(ctx, env, 1+env.Rand.IntN(moveAtOnce)); err == nil && proof != "" {
			moved++
		}
		cancel()
	}
}

// moveSome makes other brokers the leaders of up to n partitions of one topic
// and waits until one of them is seen to lead. Empty: nothing is there to move.
func moveSome(ctx context.Context, env *Env, n int) (string, error) {
	topics := env.Topics()
	if len(topics) == 0 {
		return "", nil
	}
	topic := topics[env.Rand.IntN(len(topics))]
	md, err := env.Admin.Metadata(ctx, topic)
	if err != nil {
		return "", fmt.Errorf("ask for the leaders of %s: %w", topic, err)
	}
	t := md.Topics[topic]
	if t.Err != nil || len(t.Partitions) == 0 || len(md.Brokers) < 2 {
		return "", t.Err
	}
	parts := t.Partitions.Sorted()
	env.Rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	parts = parts[:min(n, len(parts))]
	var req kadm.AlterPartitionAssignmentsReq
	set := kadm.TopicsSet{}
	to := make(map[int32]int32)
	for _, p := range parts {
		for to[p.Partition] = p.Leader; to[p.Partition] == p.Leader; {
			to[p.Partition] = md.Brokers[env.Rand.IntN(len(md.Brokers))].NodeID
		}
		req.Assign(topic, p.Partition, ledBy(p.Replicas, to[p.Partition]))
		set.Add(topic, p.Partition)
	}
	if _, err := env.Admin.AlterPartitionAssignments(ctx, req); err != nil {
		return "", fmt.Errorf("move partitions of %s: %w", topic, err)
	}
	// Where the log is replicated, the new leader has to be elected as well.
	if _, err := env.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
		return "", fmt.Errorf("elect leaders of %s: %w", topic, err)
	}
	return seenMoved(ctx, env.Admin, topic, to)
}

// seenMoved waits until a partition has its new leader.
func seenMoved(ctx context.Context, adm *kadm.Client, topic string, to map[int32]int32) (string, error) {
	for {
		md, err := adm.Metadata(ctx, topic)
		for _, p := range md.Topics[topic].Partitions {
			if leader, ok := to[p.Partition]; ok && p.Leader == leader {
				return fmt.Sprintf("%s-%d is led by %d at epoch %d", topic, p.Partition, p.Leader, p.LeaderEpoch), nil
			}
		}
		if err != nil && ctx.Err() != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s did not move: %w", topic, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ledBy puts a broker first in a replica list, in another's place if it was not
// in it.
func ledBy(replicas []int32, to int32) []int32 {
	out := []int32{to}
	for _, r := range replicas {
		if r != to && len(out) < len(replicas) {
			out = append(out, r)
		}
	}
	return out
}
