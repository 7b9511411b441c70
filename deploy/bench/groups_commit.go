package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// committers are groups that commit at a time, each by a client of its own.
const committers = 200

// commit measures how many offset commits are acknowledged in a second: of many
// groups, and of one, each with one commit at a time under way.
func (g *groups) commit() error {
	for _, n := range []int{committers, 1} {
		name := fmt.Sprintf("commits of %d groups", n)
		if n == 1 {
			name = "commits of one group"
		}
		if err := g.commitWith(name, n); err != nil {
			return err
		}
	}
	return nil
}

func (g *groups) commitWith(name string, n int) error {
	clients := make([]*kgo.Client, n)
	for i := range clients {
		c, err := kgo.NewClient(kgo.SeedBrokers(g.seeds()...))
		if err != nil {
			return fmt.Errorf("make client: %w", err)
		}
		defer c.Close()
		clients[i] = c
	}
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	var wg sync.WaitGroup
	var done atomic.Int64
	failures := make(chan error, n)
	for i, c := range clients {
		wg.Go(func() {
			for offset := int64(1); ctx.Err() == nil; offset++ {
				if err := g.commitAs(g.ctx, c, fmt.Sprintf("commit-%d-%d", n, i), offset); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	pause(g.ctx, g.o.warmup)
	slots := int64(0)
	if g.slots != nil {
		slots = g.slots.look()
	}
	cpu, _, err := usage(g.pids)
	before, begin := done.Load(), time.Now()
	pause(g.ctx, g.o.duration)
	commits, took := float64(done.Load()-before), time.Since(begin).Seconds()
	after, _, err2 := usage(g.pids)
	if g.slots != nil {
		slots = g.slots.look() - slots
	}
	cancel()
	wg.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	if err != nil || err2 != nil {
		return fmt.Errorf("measure CPU: %w, %w", err, err2)
	}
	g.note(name, "/s", commits/took)
	g.note(name+", broker CPU each", "us", 1e6*(after-cpu)/commits)
	if g.slots != nil {
		g.note(name+", WAL puts each", "", float64(slots)/commits)
	}
	return nil
}
