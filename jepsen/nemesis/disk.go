package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

func diskKinds() []Kind {
	return []Kind{
		{"disk-full", "take all room of the disk with one node's quorum log, then give it back; needs root, for a small file system", cluster.NeedsDisk, func() Nemesis { return &diskFull{} }},
		{"disk-slow", "every sync of one node's quorum log takes up to a second more; needs strace", cluster.NeedsTrace, func() Nemesis {
			return &diskTampered{name: "disk-slow", inject: func(rng *rand.Rand) string {
				return fmt.Sprintf("fdatasync:delay_enter=%d", 50_000+rng.IntN(950_000)) // us
			}}
		}},
		{"disk-errors", "some or all writes or syncs of one node's quorum log fail with EIO; needs strace", cluster.NeedsTrace, func() Nemesis {
			return &diskTampered{name: "disk-errors", inject: func(rng *rand.Rand) string {
				return fmt.Sprintf("%s:error=EIO:when=1+%d", []string{"fdatasync", "pwrite64"}[rng.IntN(2)], 1+rng.IntN(4))
			}}
		}},
	}
}

// tamperer has nodes whose system calls on their quorum log it can change.
type tamperer interface {
	Tamper(node int32, inject string) error
	Untamper(node int32) error
	Tampered(node int32) (int, error)
}

// diskTampered has a node's disk be slow or fail.
type diskTampered struct {
	name   string
	inject func(*rand.Rand) string
	how    string
	nodes  []int32
}

// Name implements Nemesis.
func (d *diskTampered) Name() string { return d.name }

// Start implements Nemesis: one call has met it when it returns.
func (d *diskTampered) Start(ctx context.Context, env *Env) (history.Event, error) {
	t, ok := env.Cluster.(tamperer)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	d.nodes = env.Nodes.Take(env.Rand, env.Cluster.Nodes(), 1)
	if len(d.nodes) == 0 {
		return history.Event{}, nil
	}
	if n := d.nodes[0]; env.Cluster.Down(n) { // it gave up only when the fault before was over
		env.Nodes.Free(d.nodes)
		d.nodes = nil
		return history.Event{}, env.Cluster.Start(ctx, n)
	}
	d.how = d.inject(env.Rand)
	e := history.Event{Target: nodeNames(d.nodes)}
	err := t.Tamper(d.nodes[0], d.how)
	if err == nil {
		defer provoke(ctx, env)()
		var calls int
		var over error
		err = met(ctx, func() bool {
			calls, over = t.Tampered(d.nodes[0])
			return calls > 0 || over != nil
		})
		if err == nil {
			e.Proof, err = d.proof(calls), over
		}
	}
	return e, err
}

// provokeEvery is how often there is something to write, at least.
const provokeEvery = time.Second

// provoke moves a partition now and then, so that the quorum has something to write
// under workloads that change no metadata. It ends with what it returns.
func provoke(ctx context.Context, env *Env) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, provokeEvery) {
			_, _ = moveSome(ctx, env, 1) // the fault may be why it fails
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (d *diskTampered) proof(calls int) string { return fmt.Sprintf("%s: %d calls", d.how, calls) }

// Stop implements Nemesis: a node that gave up is started again. A fault that was over
// before is an error.
func (d *diskTampered) Stop(ctx context.Context, env *Env) (history.Event, error) {
	t, ok := env.Cluster.(tamperer)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	if len(d.nodes) == 0 {
		return history.Event{}, nil
	}
	defer env.Nodes.Free(d.nodes)
	n := d.nodes[0]
	calls, _ := t.Tampered(n) // Untamper says if it was over
	proof := d.proof(calls)
	err := t.Untamper(n)
	if env.Cluster.Down(n) { // then it is no wonder that the fault was over
		proof += ", which ended the node"
		err = env.Cluster.Start(ctx, n)
	}
	return history.Event{Target: nodeNames(d.nodes), Proof: proof}, err
}

// filler has nodes with small disks.
type filler interface {
	Fill(node int32) (int64, error)
	Empty(node int32) error
}

// diskFull fills a node's disk.
type diskFull struct{ nodes []int32 }

// Name implements Nemesis.
func (*diskFull) Name() string { return "disk-full" }

// Start implements Nemesis.
func (d *diskFull) Start(_ context.Context, env *Env) (history.Event, error) {
	f, ok := env.Cluster.(filler)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	d.nodes = env.Nodes.Take(env.Rand, env.Cluster.Nodes(), 1)
	if len(d.nodes) == 0 {
		return history.Event{}, nil
	}
	n, err := f.Fill(d.nodes[0])
	return history.Event{Target: nodeNames(d.nodes), Proof: fmt.Sprintf("the last %d bytes of its disk are taken", n)}, err
}

// Stop implements Nemesis: a node that gave up is started again.
func (d *diskFull) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(d.nodes)
	f, ok := env.Cluster.(filler)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	return run(d.nodes, env, func(n int32) error {
		if err := f.Empty(n); err != nil {
			return err
		}
		return startDown(ctx, env, n)
	})
}
