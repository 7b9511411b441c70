package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// joinPhase spreads the joins over the heartbeats of who is there.
const joinPhase = 700 * time.Millisecond

// joinTimes is how often each way of joining is measured; the first warms up.
const joinTimes = 4

// protocols are the two by which kgo joins groups.
func protocols() []groupProtocol {
	return []groupProtocol{
		{name: "classic"},
		{name: "consumer", opts: []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}},
	}
}

type groupProtocol struct {
	name string
	opts []kgo.Opt
}

// member starts a client in a group, which begins at the start of partitions that
// have no offset. It commits nothing.
func (g *groups) member(group, topic string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(g.seeds()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	}, opts...)
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("start member: %w", err)
	}
	return c, nil
}

// firstRecord polls until there is one.
func firstRecord(ctx context.Context, c *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		f := c.PollFetches(ctx)
		if f.NumRecords() > 0 {
			return nil
		}
		if err := f.Err0(); err != nil {
			return fmt.Errorf("wait for the first record: %w", err)
		}
	}
}

// join measures how long it is from a member's start to its first record.
func (g *groups) join() error {
	for _, p := range protocols() {
		var fresh, second, left []float64
		for i := range joinTimes {
			a, b, c, err := g.joinOnce(fmt.Sprintf("join-%s-%d-%d", p.name, g.round, i), time.Duration(i)*joinPhase, p.opts)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if i == 0 {
				continue
			}
			fresh, second, left = append(fresh, a.Seconds()), append(second, b.Seconds()), append(left, c.Seconds())
		}
		g.note(p.name+": start to first record, new group", "s", median(fresh))
		g.note(p.name+": start to first record, group of one", "s", median(second))
		g.note(p.name+": all partitions back after the other left", "s", median(left))
	}
	return nil
}

// joinOnce has one member join a new group, after a while another join it, and leave
// it.
func (g *groups) joinOnce(group string, wait time.Duration, opts []kgo.Opt) (fresh, second, back time.Duration, err error) {
	var held assigned
	begin := time.Now()
	one, err := g.member(group, groupTopic, append(opts, held.opts()...)...)
	if err != nil {
		return 0, 0, 0, err
	}
	defer one.Close()
	if err := firstRecord(g.ctx, one); err != nil {
		return 0, 0, 0, err
	}
	fresh = time.Since(begin)
	ctx, cancel := context.WithCancel(g.ctx)
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for ctx.Err() == nil {
			one.PollFetches(ctx)
		}
	}()
	defer func() {
		cancel()
		<-polled
	}()
	pause(g.ctx, wait)
	begin = time.Now()
	two, err := g.member(group, groupTopic, opts...)
	if err != nil {
		return 0, 0, 0, err
	}
	err = firstRecord(g.ctx, two)
	second = time.Since(begin)
	if err == nil {
		err = held.await(g.ctx, func(n int) bool { return n < groupParts })
	}
	begin = time.Now()
	two.Close()
	if err == nil {
		err = held.await(g.ctx, func(n int) bool { return n == groupParts })
	}
	return fresh, second, time.Since(begin), err
}
