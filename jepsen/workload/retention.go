package workload

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// retention has records go away: clients delete what lies before an offset, and
// in half of the topics records expire after some seconds. Others send, read and
// ask for the ends of logs.
type retention struct{}

const (
	retentionRate    = 300
	retentionClients = 9
	retentionKeys    = 8
	// retentionShort is how long records live in topics with a retention.
	retentionShort = "10000"
)

// Plan implements Workload.
func (*retention) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, retentionRate)
	o.Concurrency = cmp.Or(o.Concurrency, retentionClients)
	o.Keys = cmp.Or(o.Keys, retentionKeys)
	o.Keys += o.Keys % 2
	keysOf(h, o.Keys)
	for k := range h.Keys {
		if expires(k) {
			h.Retained = append(h.Retained, history.Key(k))
		}
	}
}

// expires says whether a key's topic has a short retention: every other topic.
func expires(k int) bool { return k/2%2 == 1 }

// Prepare implements Workload.
func (*retention) Prepare(ctx context.Context, env *Env) error {
	for k := 0; k < len(env.Header.Keys); k += 2 {
		var config map[string]string
		if expires(k) {
			config = map[string]string{"retention.ms": retentionShort, "segment.ms": "1000"}
		}
		if err := env.create(ctx, env.Header.Keys[k].Topic, 2, config); err != nil {
			return err
		}
	}
	return nil
}

// Load implements Workload.
func (w *retention) Load(ctx context.Context, env *Env) error {
	pace := newPacer(env.Rate)
	threads(env.Concurrency, func(i int) { w.thread(ctx, env, pace, env.rng("retention", i)) })
	return nil
}

func (w *retention) thread(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand) {
	p := env.newProcess(rng, env.Cluster.Bootstrap())
	life := lifetime(rng, crashAfter)
	seek := false
	for pace.wait(ctx) {
		alive := true
		switch n := rng.IntN(100); {
		case time.Since(p.born) > life:
			env.crashed(p.id)
			alive = false
		case !p.consuming || n == 0:
			// What was out of range at the old place is not at the start.
			alive = p.assign(w.some(env, rng), seek || rng.IntN(4) == 0) == nil
			seek = false
		case n < 45:
			alive = p.send(p.sendable(w.some(env, rng))) != history.Info
		case n < 50:
			alive = w.remove(p, history.Key(rng.IntN(env.Keys))) != history.Info
		case n < 55:
			alive = w.list(p, rng) != history.Info
		default:
			p.poll(pollWait, pollMost)
			seek = !p.consuming
		}
		if !alive {
			p.crash()
			p, life, seek = env.newProcess(rng, env.Cluster.Bootstrap()), lifetime(rng, crashAfter), false
		}
	}
	env.crashed(p.id)
	p.crash()
}

// some keys, distinct.
func (*retention) some(env *Env, rng *rand.Rand) []history.Key {
	var keys []history.Key
	for _, k := range rng.Perm(env.Keys)[:1+rng.IntN(sendsAtMost)] {
		keys = append(keys, history.Key(k))
	}
	return keys
}

// remove deletes what lies some records before the end of a key, or before all
// of it.
func (*retention) remove(p *process, k history.Key) history.Outcome {
	op := p.env.begin(p.id, history.DeleteRecords)
	before := max(0, p.env.ledger.end(k)-p.rng.Int64N(200))
	op.Offsets = []history.Offset{{Key: k, Offset: -1, Asked: before}}
	adm, err := p.once()
	if err != nil {
		p.env.end(op, history.Fail, err)
		return history.Fail
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	part := p.env.partition(k)
	var list kadm.Offsets
	list.AddOffset(part.Topic, part.Partition, before, -1)
	resp, err := adm.DeleteRecords(ctx, list)
	if err == nil {
		r, ok := resp.Lookup(part.Topic, part.Partition)
		if err = r.Err; !ok {
			err = errUnanswered
		}
		if err == nil {
			op.Offsets[0].Offset = r.LowWatermark
		}
	}
	t := outcome(err, false)
	p.env.end(op, t, err)
	return t
}

// list asks for one end of some keys' logs.
func (w *retention) list(p *process, rng *rand.Rand) history.Outcome {
	adm, err := p.once()
	if err != nil {
		return history.Info
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	spec := "latest"
	if rng.IntN(2) == 0 {
		spec = "earliest"
	}
	if _, err := p.listOffsets(ctx, adm, w.some(p.env, rng), spec); err != nil {
		return history.Info
	}
	return history.OK
}

// Final implements Workload.
func (*retention) Final(ctx context.Context, env *Env) error { return env.readBack(ctx, env.allKeys()) }

// Results implements Workload.
func (*retention) Results() []check.Result { return nil }
