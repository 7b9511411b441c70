package nemesis

import (
	"context"
	"fmt"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

func diskKinds() []Kind {
	return []Kind{
		{"disk-full", "take all room of the disk with one node's quorum log, then give it back; needs root, for a small file system", cluster.NeedsDisk, func() Nemesis { return &diskFull{} }},
	}
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
		if env.Cluster.Down(n) {
			return env.Cluster.Start(ctx, n)
		}
		return nil
	})
}
