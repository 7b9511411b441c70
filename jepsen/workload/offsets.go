package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// offsets has clients commit offsets of groups without members and read them
// back: each group and key is a register. No offset is committed twice.
type offsets struct{ next atomic.Int64 }

const (
	offsetsRate    = 200
	offsetsClients = 10
	offsetsGroups  = 4
	offsetsKeys    = 4
)

// Plan implements Workload.
func (*offsets) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, offsetsRate)
	o.Concurrency = cmp.Or(o.Concurrency, offsetsClients)
	o.Keys = cmp.Or(o.Keys, offsetsKeys)
	o.Keys += o.Keys % 2
	keysOf(h, o.Keys)
}

// Prepare implements Workload.
func (*offsets) Prepare(ctx context.Context, env *Env) error { return env.createAll(ctx) }

// Load implements Workload.
func (w *offsets) Load(ctx context.Context, env *Env) error {
	pace := newPacer(env.Rate)
	env.besideSends(ctx, "offsets", env.allKeys(), func(_ int, rng *rand.Rand) { w.thread(ctx, env, pace, rng) })
	return nil
}

func (w *offsets) thread(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand) {
	p := env.newProcess(rng, env.Cluster.Bootstrap())
	for pace.wait(ctx) {
		group := w.group(env, rng.IntN(offsetsGroups))
		k := history.Key(rng.IntN(env.Keys))
		var t history.Outcome
		if rng.IntN(2) == 0 {
			t = p.commitOffset(group, k, w.next.Add(1))
		} else {
			t = p.fetchCommitted(group, []history.Key{k})
		}
		if t == history.Info {
			p.crash()
			p = env.newProcess(rng, env.Cluster.Bootstrap())
		}
	}
	env.crashed(p.id)
	p.crash()
}

func (*offsets) group(env *Env, n int) string { return fmt.Sprintf("jepsen-%s-%d", env.Header.Run, n) }

// commitOffset commits one offset of a group without members.
func (p *process) commitOffset(group string, k history.Key, offset int64) history.Outcome {
	op := p.env.begin(p.id, history.Commit)
	op.Group, op.Offsets = group, []history.Offset{{Key: k, Offset: offset}}
	adm, err := p.once()
	if err != nil {
		p.env.end(op, history.Fail, err)
		return history.Fail
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	part := p.env.partition(k)
	var list kadm.Offsets
	list.AddOffset(part.Topic, part.Partition, offset, -1)
	resp, err := adm.CommitOffsets(ctx, group, list)
	if err == nil {
		r, ok := resp.Lookup(part.Topic, part.Partition)
		if err = r.Err; !ok {
			err = errUnanswered
		}
	}
	t := outcome(err, false)
	if err != nil {
		op.Offsets[0].Err = err.Error()
	}
	p.env.end(op, t, err)
	return t
}

// fetchCommitted reads offsets of a group.
func (p *process) fetchCommitted(group string, keys []history.Key) history.Outcome {
	op := p.env.begin(p.id, history.FetchCommitted)
	op.Group, op.Keys = group, keys
	_, err := p.once()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
		defer cancel()
		op.Offsets, err = p.offsetsOf(ctx, group, keys)
	}
	if err != nil {
		p.env.end(op, history.Fail, err) // it only reads
		return history.Info              // and a new client may find the coordinator
	}
	p.env.end(op, history.OK, nil)
	return history.OK
}

// offsetsOf asks for the offsets of keys by name. A question for all offsets of
// a group is answered by ids of topics, which the client may not know: it leaves
// those out, and they look as if they had no offset.
func (p *process) offsetsOf(ctx context.Context, group string, keys []history.Key) ([]history.Offset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, k := range keys {
		part := p.env.partition(k)
		id, err := p.topicID(ctx, part.Topic)
		if err != nil {
			return nil, err
		}
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = part.Topic, id, []int32{part.Partition}
		if n := len(g.Topics); n > 0 && g.Topics[n-1].Topic == part.Topic {
			g.Topics[n-1].Partitions = append(g.Topics[n-1].Partitions, part.Partition)
			continue
		}
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, p.admin)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, errUnanswered
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return nil, err
	}
	got := make(map[history.Partition]history.Offset)
	for _, t := range resp.Groups[0].Topics {
		for _, rp := range t.Partitions {
			o := history.Offset{Offset: rp.Offset}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				o.Err = err.Error()
			}
			got[history.Partition{Topic: t.Topic, Partition: rp.Partition}] = o
		}
	}
	var out []history.Offset
	for _, k := range keys {
		o, ok := got[p.env.partition(k)]
		if !ok {
			return nil, fmt.Errorf("%v: %w", p.env.partition(k), errUnanswered)
		}
		o.Key = k
		out = append(out, o)
	}
	return out, nil
}

// Final implements Workload: every register is read once more by each of
// several processes, also after a restart of everything.
func (w *offsets) Final(ctx context.Context, env *Env) error {
	if err := env.readBack(ctx, env.allKeys()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, env.FinalTimeout)
	defer cancel()
	for i := range env.Cluster.Bootstrap() {
		p := env.newProcess(env.rng("final", i), env.Cluster.Bootstrap()[i:i+1])
		for g := range offsetsGroups {
			for p.fetchCommitted(w.group(env, g), env.allKeys()) != history.OK {
				if !sleep(ctx, settle/10) {
					return ctx.Err()
				}
				p.crash()
				p = env.newProcess(env.rng("final", i), env.Cluster.Bootstrap()[i:i+1])
			}
		}
		env.crashed(p.id)
		p.crash()
	}
	return nil
}

// Results implements Workload.
func (*offsets) Results() []check.Result { return nil }
