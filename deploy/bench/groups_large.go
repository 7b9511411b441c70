package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// perMember are the partitions of the large group for each of its members.
const perMember = 10

// large measures how long a group of very many members takes from the first request
// until each has its share. They are connected before: that is not the groups' part.
func (g *groups) large() error {
	topic := fmt.Sprintf("large-%d", g.round)
	if err := g.makeLarge(topic, g.o.members*perMember); err != nil {
		return err
	}
	defer func() { _ = g.ponor(g.ctx, g.o, nil, "topic", "delete", topic) }()
	for _, kind := range []struct {
		name string
		live func(*lightMember, context.Context) error
	}{{"classic", (*lightMember).classic}, {"consumer", (*lightMember).consumer}} {
		if err := g.largeBy(kind.name, topic, kind.live); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// makeLarge makes a topic in steps, for Apache Kafka refuses to make 10,000 partitions
// at once. They have one replica: nothing is written to them, and a node of Kafka that
// was allowed 20,000 files died while there were three.
func (g *groups) makeLarge(name string, n int) error {
	const atOnce = 5000
	s := &scale{ctx: g.ctx, o: g.o, system: g.system, Client: g.Client, replicas: 1}
	if err := s.create([]string{name}, min(n, atOnce), 1); err != nil {
		return err
	}
	for has := atOnce; has < n; {
		has = min(n, has+atOnce)
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 60_000
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = name, int32(has)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(g.ctx, g.Client)
		if err != nil {
			return fmt.Errorf("add partitions: %w", err)
		}
		if code := resp.Topics[0].ErrorCode; code != 0 {
			return &codeError{"add partitions to " + name, code}
		}
	}
	return s.awaitAll([]string{name})
}

func (g *groups) largeBy(kind, topic string, live func(*lightMember, context.Context) error) error {
	n := g.o.members
	group, err := g.lightGroup(fmt.Sprintf("large-%s-%d", kind, g.round), topic, n)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(g.ctx, 3*time.Minute)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait() // they leave
	}()
	cpu, _, err := usage(g.pids)
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, m := range group.members {
		wg.Go(func() {
			defer func() { _ = m.conn.Close() }()
			if err := live(m, ctx); err != nil {
				group.fail(err)
			}
		})
	}
	select {
	case err := <-group.done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return fmt.Errorf("the group does not settle: %w", ctx.Err())
	}
	took := time.Since(begin)
	after, _, err := usage(g.pids)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s: %d members of %d partitions", kind, n, n*perMember)
	g.seconds(name+" settle", took)
	g.note(name+", broker CPU", "s", after-cpu)
	return nil
}
