package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// kill ends processes without warning.
type kill struct {
	name  string
	size  func(*rand.Rand, int) int
	nodes []int32
}

// Name implements Nemesis.
func (k *kill) Name() string { return k.name }

// Start implements Nemesis.
func (k *kill) Start(ctx context.Context, env *Env) (history.Event, error) {
	all := env.Cluster.Nodes()
	k.nodes = env.Nodes.Take(env.Rand, all, k.size(env.Rand, len(all)))
	var proof []string
	err := each(k.nodes, func(n int32) error {
		if err := env.Cluster.Kill(ctx, n); err != nil {
			return err
		}
		if !env.Cluster.Down(n) {
			return fmt.Errorf("node %d: %s", n, env.Cluster.State(n))
		}
		proof = append(proof, env.Cluster.State(n))
		return nil
	})
	return history.Event{Target: nodeNames(k.nodes), Proof: strings.Join(proof, ", ")}, err
}

// Stop implements Nemesis.
func (k *kill) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(k.nodes)
	return run(k.nodes, env, func(n int32) error { return startDown(ctx, env, n) })
}

// pause stops processes as a long collection of garbage, a swapping machine or
// the move of a virtual one does.
type pause struct {
	name  string
	size  func(*rand.Rand, int) int
	nodes []int32
}

// Name implements Nemesis.
func (p *pause) Name() string { return p.name }

// Start implements Nemesis.
func (p *pause) Start(ctx context.Context, env *Env) (history.Event, error) {
	all := env.Cluster.Nodes()
	p.nodes = env.Nodes.Take(env.Rand, all, p.size(env.Rand, len(all)))
	var proof []string
	err := each(p.nodes, func(n int32) error {
		if err := env.Cluster.Pause(ctx, n); err != nil {
			return err
		}
		if !env.Cluster.Paused(n) {
			return fmt.Errorf("node %d: %s", n, env.Cluster.State(n))
		}
		proof = append(proof, env.Cluster.State(n))
		return nil
	})
	return history.Event{Target: nodeNames(p.nodes), Proof: strings.Join(proof, ", ")}, err
}

// Stop implements Nemesis.
func (p *pause) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(p.nodes)
	return run(p.nodes, env, func(n int32) error { return env.Cluster.Resume(ctx, n) })
}

// restart ends nodes in order and starts them, one after the other.
type restart struct {
	background
	name  string
	nodes []int32
}

// Name implements Nemesis.
func (r *restart) Name() string { return r.name }

// Start implements Nemesis: the first node has ended when it returns.
func (r *restart) Start(ctx context.Context, env *Env) (history.Event, error) {
	all := env.Cluster.Nodes()
	r.nodes = env.Nodes.Take(env.Rand, all, len(all))
	if len(r.nodes) == 0 {
		return history.Event{}, nil
	}
	first := r.nodes[0]
	if err := env.Cluster.Stop(ctx, first); err != nil {
		return history.Event{Target: nodeNames(r.nodes)}, err
	}
	proof := env.Cluster.State(first)
	r.begin(func(done <-chan struct{}) (string, error) { return r.roll(done, env) })
	return history.Event{Target: nodeNames(r.nodes), Proof: proof}, nil
}

// rollTimeout bounds the end of one node and its return.
const rollTimeout = time.Minute

// rollWait bounds the wait for a cluster with the node that was restarted.
const rollWait = 10 * time.Second

// roll starts the first node and goes on with the others until it is told to
// end.
func (r *restart) roll(done <-chan struct{}, env *Env) (string, error) {
	rolled := 0
	for i := 0; ; i++ {
		n := r.nodes[i%len(r.nodes)]
		ctx, cancel := context.WithTimeout(context.Background(), rollTimeout)
		var err error
		if i > 0 {
			err = env.Cluster.Stop(ctx, n)
		}
		if err == nil {
			rolled++
			err = env.Cluster.Start(ctx, n)
		}
		if err == nil { // others may be down by another fault: then it goes on after a while
			ready, stop := context.WithTimeout(ctx, rollWait)
			_ = cluster.WaitReady(ready, env.Cluster)
			stop()
		}
		cancel()
		if err != nil {
			return fmt.Sprintf("%d nodes restarted", rolled), err
		}
		select {
		case <-done:
			return fmt.Sprintf("%d nodes restarted", rolled), nil
		default:
		}
	}
}

// Stop implements Nemesis. It starts what is down, because it was killed when it did not
// end in time.
func (r *restart) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(r.nodes)
	proof, err := r.end()
	down := each(r.nodes, func(n int32) error { return startDown(ctx, env, n) })
	return history.Event{Target: nodeNames(r.nodes), Proof: proof}, errors.Join(err, down)
}

// startDown starts a node if it is down.
func startDown(ctx context.Context, env *Env, n int32) error {
	if !env.Cluster.Down(n) {
		return nil
	}
	return env.Cluster.Start(ctx, n)
}

// run does something to each node and gives what they are then.
func run(nodes []int32, env *Env, do func(int32) error) (history.Event, error) {
	err := each(nodes, do)
	var proof []string
	for _, n := range nodes {
		proof = append(proof, env.Cluster.State(n))
	}
	return history.Event{Target: nodeNames(nodes), Proof: strings.Join(proof, ", ")}, err
}

func each(nodes []int32, do func(int32) error) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// background is what goes on between Start and Stop.
type background struct {
	done   chan struct{}
	ended  chan struct{}
	result string
	err    error
}

// begin runs do until its channel is closed.
func (b *background) begin(do func(done <-chan struct{}) (string, error)) {
	b.done, b.ended = make(chan struct{}), make(chan struct{})
	go func() {
		b.result, b.err = do(b.done)
		close(b.ended)
	}()
}

// end waits for it and returns what it said.
func (b *background) end() (string, error) {
	if b.done == nil {
		return "", nil
	}
	close(b.done)
	<-b.ended
	b.done = nil
	return b.result, b.err
}
