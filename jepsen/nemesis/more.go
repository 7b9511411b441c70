package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

func processKinds() []Kind {
	everybody := func(_ *rand.Rand, nodes int) int { return nodes }
	return []Kind{
		{"kill-all", "kill -9 of all nodes at once, then start them", "kill", func() Nemesis { return &kill{name: "kill-all", size: everybody} }},
		{"pause-all", "stop all processes (SIGSTOP), then let them go on", "pause", func() Nemesis { return &pause{name: "pause-all", size: everybody} }},
		{"crash-loop", "kill one node again and again while it starts", "kill", func() Nemesis { return &crashLoop{} }},
		{"pause-kill", "pause a minority while writes go on, kill the others, let the paused go on with one of the killed, then start the rest", cluster.NeedsPauseKill, func() Nemesis { return &pauseKill{} }},
		{"roll", "a rolling restart, as an upgrade does it: the same as restart", "stop", func() Nemesis { return &restart{name: "roll"} }},
	}
}

// crashLoop kills a node while it starts.
type crashLoop struct {
	background
	nodes []int32
}

// crashWithin bounds how long a node lives.
const crashWithin = 1500 * time.Millisecond

// Name implements Nemesis.
func (*crashLoop) Name() string { return "crash-loop" }

// Start implements Nemesis: it was killed once when it returns.
func (c *crashLoop) Start(ctx context.Context, env *Env) (history.Event, error) {
	c.nodes = env.Nodes.Take(env.Rand, env.Cluster.Nodes(), 1)
	if len(c.nodes) == 0 {
		return history.Event{}, nil
	}
	n := c.nodes[0]
	e := history.Event{Target: nodeNames(c.nodes)}
	if err := env.Cluster.Kill(ctx, n); err != nil {
		return e, err
	}
	e.Proof = env.Cluster.State(n)
	c.begin(func(done <-chan struct{}) (string, error) {
		killed := 1
		for {
			ctx, cancel := context.WithTimeout(context.Background(), rollTimeout)
			err := env.Cluster.Start(ctx, n)
			if err == nil {
				sleep(ctx, time.Duration(env.Rand.Int64N(int64(crashWithin))))
				select {
				case <-done:
					cancel()
					return fmt.Sprintf("killed %d times; %s", killed, env.Cluster.State(n)), nil
				default:
				}
				err = env.Cluster.Kill(ctx, n)
				killed++
			}
			cancel()
			if err != nil {
				return fmt.Sprintf("killed %d times", killed), err
			}
		}
	})
	return e, nil
}

// Stop implements Nemesis: the node runs.
func (c *crashLoop) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(c.nodes)
	proof, err := c.end()
	for _, n := range c.nodes {
		if err == nil {
			err = startDown(ctx, env, n)
		}
	}
	return history.Event{Target: nodeNames(c.nodes), Proof: proof}, err
}

// pauseKill makes a majority of nodes that know less and the one that knows all:
// while a minority is paused the others go on, then they are killed, and the
// minority meets one of them first.
type pauseKill struct{ nodes []int32 }

// pauseKillApart is how long the others go on without the minority.
const pauseKillApart = 3 * time.Second

// Name implements Nemesis.
func (*pauseKill) Name() string { return "pause-kill" }

// Start implements Nemesis.
func (p *pauseKill) Start(ctx context.Context, env *Env) (history.Event, error) {
	all := env.Cluster.Nodes()
	p.nodes = env.Nodes.Take(env.Rand, all, len(all))
	if len(p.nodes) < len(all) || len(all) < 3 {
		env.Nodes.Free(p.nodes)
		p.nodes = nil
		return history.Event{}, nil
	}
	order := shuffled(env.Rand, all)
	few, others := order[:(len(all)-1)/2], order[(len(all)-1)/2:]
	e := history.Event{Target: nodeNames(all)}
	if err := each(few, func(n int32) error { return env.Cluster.Pause(ctx, n) }); err != nil {
		return e, err
	}
	e.Proof = fmt.Sprintf("node %d: %s", few[0], env.Cluster.State(few[0]))
	sleep(ctx, pauseKillApart)
	if err := each(others, func(n int32) error { return env.Cluster.Kill(ctx, n) }); err != nil {
		return e, err
	}
	for _, n := range others {
		e.Proof += fmt.Sprintf(", node %d: %s", n, env.Cluster.State(n))
	}
	if err := each(few, func(n int32) error { return env.Cluster.Resume(ctx, n) }); err != nil {
		return e, err
	}
	return e, env.Cluster.Start(ctx, others[0])
}

// Stop implements Nemesis.
func (p *pauseKill) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(p.nodes)
	return run(p.nodes, env, func(n int32) error {
		if env.Cluster.Paused(n) {
			return env.Cluster.Resume(ctx, n)
		}
		return startDown(ctx, env, n)
	})
}
