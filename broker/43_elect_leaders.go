package broker

// ElectLeaders v0-2: moves partitions to their preferred leaders, the first of
// their replica lists.
//
// Version notes:
//   v1 election types (KIP-460)
//   v2 flexible
//
// An election is a move, which the present leader makes; the answer waits for it
// until the request's timeout. An unclean election (type 1) is for partitions
// without a leader: on shared storage any live broker can lead without loss, so
// there are none to be elected, and as in Kafka a partition that has a leader
// needs no election. With null topics, which is all of them, only partitions that
// had something to be done are listed.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

// election is one partition of the request.
type election struct {
	topic  string
	change controller.PartitionChange
	err    error
}

func (b *Broker) electLeaders(ctx context.Context, _ call, req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := answer[*kmsg.ElectLeadersResponse](req)
	if req.ElectionType != 0 && req.ElectionType != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	img := b.image()
	elections := electionsOf(img, req)
	var asked []*election
	var changes []controller.PartitionChange
	for i := range elections {
		if e := &elections[i]; e.err == nil {
			asked, changes = append(asked, e), append(changes, e.change)
		}
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	if len(changes) > 0 {
		results, err := b.cfg.Admin.ElectPreferred(ctx, changes)
		for i, e := range asked {
			if e.err = unknownOutcome(err); err == nil {
				e.err = refused(results[i])
			}
		}
	}
	for _, e := range asked {
		if e.err == nil {
			e.err = b.awaitPreferred(ctx, e.change)
		}
	}
	for i := range elections {
		e := &elections[i]
		if req.Topics == nil && codeOf(e.err) == kerr.ElectionNotNeeded.Code {
			continue
		}
		ep := kmsg.NewElectLeadersResponseTopicPartition()
		ep.Partition = e.change.Partition
		ep.ErrorCode, ep.ErrorMessage = codeAndMessage(e.err)
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != e.topic {
			et := kmsg.NewElectLeadersResponseTopic()
			et.Topic = e.topic
			resp.Topics = append(resp.Topics, et)
		}
		last := &resp.Topics[len(resp.Topics)-1]
		last.Partitions = append(last.Partitions, ep)
	}
	return resp
}

// electionsOf lists the partitions of a request, with errors for those that
// need not or cannot be elected.
func electionsOf(img *metadata.Image, req *kmsg.ElectLeadersRequest) []election {
	var out []election
	add := func(name string, t metadata.Topic, number int32, err error) {
		e := election{topic: name, change: controller.PartitionChange{Topic: t.ID, Partition: number}, err: err}
		p, ok := img.Partition(t.ID, number)
		switch {
		case err != nil:
		case !ok:
			e.err = fail(kerr.UnknownTopicOrPartition, "topic %q has %d partitions, there is no number %d", name, t.Partitions, number)
		case req.ElectionType == 1 && img.Live(p.Owner), len(p.Replicas) > 0 && p.Owner.Broker == p.Replicas[0]:
			e.err = fail(kerr.ElectionNotNeeded, "%s has the leader it should have, broker %d", &p, p.Owner.Broker)
		case req.ElectionType == 1:
			e.err = fail(kerr.EligibleLeadersNotAvailable, "no live broker can lead %s now", &p)
		}
		out = append(out, e)
	}
	if req.Topics == nil {
		for t := range img.Topics() {
			for n := int32(0); n < t.Partitions && !t.Deleting; n++ {
				add(t.Name, t, n, nil)
			}
		}
		return out
	}
	for _, rt := range req.Topics {
		t, err := topicNamed(img, rt.Topic)
		for _, n := range rt.Partitions {
			add(rt.Topic, t, n, err)
		}
	}
	return out
}

// awaitPreferred waits until the preferred leader has a partition.
func (b *Broker) awaitPreferred(ctx context.Context, c controller.PartitionChange) error {
	begun := time.Now()
	for {
		changed := b.cfg.Meta.Changed()
		p, ok := b.image().Partition(c.Topic, c.Partition)
		if !ok || p.Deleting {
			return fail(kerr.UnknownTopicOrPartition, "the topic was deleted")
		}
		if p.Owner.Broker == p.Replicas[0] {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fail(kerr.RequestTimedOut, "%s is still led by broker %d after %v; the move goes on", &p, p.Owner.Broker, time.Since(begun).Round(time.Millisecond))
		}
	}
}
