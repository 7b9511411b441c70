package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// perMember are the partitions of the large group for each of its members.
const perMember = 10

// leaveWait is how long all members may take to leave: each of them is a rebalance.
const leaveWait = 20 * time.Second

// large measures how long a group of very many members takes from the start of the
// first until each has its share, and after one of them left.
func (g *groups) large() error {
	topic := fmt.Sprintf("large-%d", g.round)
	if err := g.makeTopic(topic, g.o.members*perMember); err != nil {
		return err
	}
	defer func() { _ = g.ponor(g.ctx, g.o, nil, "topic", "delete", topic) }()
	for _, p := range protocols() {
		if err := g.largeBy(p, topic); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (g *groups) largeBy(p groupProtocol, topic string) error {
	opts := p.opts
	if opts == nil {
		// The default is sticky: its leader would be most of the time.
		opts = []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
	}
	var held assigned
	opts = append(opts, append(held.opts(), kgo.FetchMaxWait(30*time.Second))...)
	group, n := fmt.Sprintf("large-%s-%d", p.name, g.round), g.o.members
	var members []*kgo.Client
	defer func() {
		var wg sync.WaitGroup
		for _, c := range members {
			wg.Go(c.Close)
		}
		left := make(chan struct{})
		go func() {
			wg.Wait()
			close(left)
		}()
		select {
		case <-left:
		case <-time.After(leaveWait): // they end with the process
		}
	}()
	cpu, _, err := usage(g.pids)
	if err != nil {
		return err
	}
	begin := time.Now()
	for range n {
		c, err := g.member(group, topic, opts...)
		if err != nil {
			return err
		}
		members = append(members, c)
	}
	if err := held.awaitAll(g.ctx, func(parts, m int) bool { return parts == n*perMember && m == n }); err != nil {
		return err
	}
	took := time.Since(begin)
	after, _, err := usage(g.pids)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s: %d members of %d partitions", p.name, n, n*perMember)
	g.seconds(name+" settle", took)
	g.note(name+", broker CPU", "s", after-cpu)
	return nil
}
