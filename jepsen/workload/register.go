package workload

import (
	"cmp"
	"context"
	"math/rand/v2"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// register has few clients append to one partition, ask for its end and read all
// of it, so that a check can search for one order of all of that.
type register struct{}

const (
	registerClients = 8
	// registerOps bounds a run: the search takes time and memory of their square.
	registerOps  = 8000
	registerRate = 100
)

// Plan implements Workload.
func (*register) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, min(registerRate, registerOps/o.Time.Seconds()))
	o.Concurrency = cmp.Or(o.Concurrency, registerClients)
	o.Keys = 1
	keysOf(h, 1)
}

// Prepare implements Workload.
func (*register) Prepare(ctx context.Context, env *Env) error {
	return env.create(ctx, env.Header.Keys[0].Topic, 1, nil)
}

// Load implements Workload.
func (w *register) Load(ctx context.Context, env *Env) error {
	pace := newPacer(env.Rate)
	threads(env.Concurrency, func(i int) { w.thread(ctx, env, pace, env.rng("register", i)) })
	return nil
}

func (w *register) thread(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand) {
	p := env.newProcess(rng, env.Cluster.Bootstrap())
	for pace.wait(ctx) {
		var alive bool
		switch n := rng.IntN(8); {
		case n < 4:
			alive = p.send(p.sendable(make([]history.Key, 1+rng.IntN(3)))) != history.Info
		case n < 5 || n < 6 && !env.Exclusive:
			alive = w.end(p) != history.Info
		case n < 6:
			nodes := env.Cluster.Nodes()
			alive = true
			w.endOf(p, nodes[rng.IntN(len(nodes))])
		default:
			alive = w.readAll(p) != history.Info
		}
		if !alive {
			p.crash()
			p = env.newProcess(rng, env.Cluster.Bootstrap())
		}
	}
	env.crashed(p.id)
	p.crash()
}

// end asks for the high watermark.
func (*register) end(p *process) history.Outcome {
	adm, err := p.once()
	if err != nil {
		return history.Info
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	_, err = p.listOffsets(ctx, adm, []history.Key{0}, "latest")
	if err != nil {
		return history.Info // a new client knows the leader better
	}
	return history.OK
}

// endOf asks one node, whether it leads, did so before or never will: who does not
// lead has to know that it does not. Whoever it is, other nodes may answer the client.
func (*register) endOf(p *process, node int32) {
	op := p.env.begin(p.id, history.ListOffsets)
	op.Keys, op.Spec, op.Node = []history.Key{0}, "latest", node
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	o, err := p.listAt(ctx, node, 0)
	t := history.OK
	if err != nil {
		t = history.Fail // it only reads
	} else {
		op.Offsets = []history.Offset{o}
	}
	p.env.end(op, t, err)
}

// readAll reads the partition from its start until an answer reaches the high
// watermark that it tells: what was read is the log at the moment of that answer.
func (*register) readAll(p *process) history.Outcome {
	op := p.env.begin(p.id, history.Poll)
	op.Spec, op.Keys = "all", []history.Key{0}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	polls, node, err := p.fetchAll(ctx, 0)
	op.Polls, op.Node = polls, node
	t := history.OK
	if err != nil {
		t, op.Polls = history.Fail, nil // it only reads
	}
	p.env.end(op, t, err)
	if err != nil {
		return history.Info
	}
	return history.OK
}

// Final implements Workload.
func (*register) Final(ctx context.Context, env *Env) error {
	return env.readBack(ctx, []history.Key{0})
}

// Results implements Workload.
func (*register) Results() []check.Result { return nil }
