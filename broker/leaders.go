package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

// patience is how long one request may still wait for what will soon be; the
// waiting begins when it first has to.
type patience struct {
	total time.Duration
	end   time.Time
}

// left is what remains of it.
func (p *patience) left() time.Duration {
	if p.end.IsZero() {
		p.end = time.Now().Add(p.total)
	}
	return time.Until(p.end)
}

// find is a partition that this node serves, waiting for one that is opening, or
// about to become ours, as long as the request has patience.
func (b *Broker) find(ctx context.Context, topic metadata.TopicID, number int32, p *patience) (*partition.Partition, error) {
	part, err := b.cfg.Partitions.Get(topic, number)
	if err == nil || !errors.Is(err, partition.ErrNotLeader) {
		return part, err
	}
	left := p.left()
	if left <= 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return b.cfg.Partitions.Await(ctx, topic, number)
}

// findNamed is find by topic name.
func (b *Broker) findNamed(ctx context.Context, img *metadata.Image, topic string, number int32, p *patience) (*partition.Partition, error) {
	t, err := topicNamed(img, topic)
	if err != nil {
		return nil, err
	}
	if number < 0 || number >= t.Partitions {
		return nil, fail(kerr.UnknownTopicOrPartition, "topic %q has %d partitions, there is no number %d", topic, t.Partitions, number)
	}
	return b.find(ctx, t.ID, number, p)
}

// leaderHint is the partition's leader as the image has it (KIP-951), so that a
// client which came to the wrong broker needs no Metadata request; nil if there
// is no such partition.
func leaderHint(img *metadata.Image, topic metadata.TopicID, number int32) *rpc.LeaderEpoch {
	p, ok := img.Partition(topic, number)
	if !ok {
		return nil
	}
	hint := &rpc.LeaderEpoch{LeaderID: int32(p.Owner.Broker), Epoch: int32(p.Epoch)}
	if !img.Live(p.Owner) {
		hint.LeaderID = -1
	}
	return hint
}

// addNode adds the endpoint of a hint's leader to those of the response, once.
func addNode(nodes []rpc.NodeEndpoint, img *metadata.Image, hint *rpc.LeaderEpoch, listener string) []rpc.NodeEndpoint {
	if hint == nil || hint.LeaderID < 0 || slices.ContainsFunc(nodes, func(n rpc.NodeEndpoint) bool { return n.ID == hint.LeaderID }) {
		return nodes
	}
	br, ok := liveBroker(img, metadata.BrokerID(hint.LeaderID))
	if !ok {
		return nodes
	}
	ep, ok := endpoint(br, listener)
	if !ok {
		return nodes
	}
	return append(nodes, rpc.NodeEndpoint{ID: hint.LeaderID, Host: ep.Host, Port: ep.Port, Rack: rack(br)})
}
