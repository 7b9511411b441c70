package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
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
	if o.Rate == 0 {
		o.Rate = min(registerRate, registerOps/o.Time.Seconds())
	}
	if o.Concurrency == 0 {
		o.Concurrency = registerClients
	}
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
		case n < 6:
			alive = w.end(p) != history.Info
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

// fetchAll asks the leader of a key for everything.
func (p *process) fetchAll(ctx context.Context, k history.Key) ([]history.Polled, int32, error) {
	adm, err := p.once()
	if err != nil {
		return nil, 0, err
	}
	part := p.env.partition(k)
	leader, err := cluster.LeaderOf(ctx, adm, part.Topic, part.Partition)
	if err != nil {
		return nil, 0, err
	}
	var polls []history.Polled
	for next := int64(0); ; {
		resp, err := p.fetch(ctx, leader, part, next)
		if err != nil {
			return nil, leader, err
		}
		for _, r := range resp.Records {
			o, damage := parse(p.env.Run, k, r)
			polls = append(polls, history.Polled{Key: k, Value: o.value, Offset: r.Offset, Damage: damage})
			next = r.Offset + 1
		}
		if next >= resp.HighWatermark {
			return polls, leader, nil
		}
	}
}

// fetchBytes is how much one fetch asks for.
const fetchBytes = 4 << 20

// fetch sends one fetch, once.
func (p *process) fetch(ctx context.Context, leader int32, part history.Partition, offset int64) (kgo.FetchPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 0, fetchBytes
	// The client asks by the topic's id if the broker can.
	t := kmsg.NewFetchRequestTopic()
	t.Topic = part.Topic
	if id, err := p.topicID(ctx, part.Topic); err == nil {
		t.TopicID = id
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = part.Partition, offset, fetchBytes
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	kresp, err := p.admin.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return kgo.FetchPartition{}, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return kgo.FetchPartition{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return kgo.FetchPartition{}, fmt.Errorf("fetch answered for %d topics", len(resp.Topics))
	}
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: offset, Topic: part.Topic, Partition: part.Partition},
		&resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return got, got.Err
}

// topicID asks for the id of a topic.
func (p *process) topicID(ctx context.Context, topic string) ([16]byte, error) {
	adm, err := p.once()
	if err != nil {
		return [16]byte{}, err
	}
	md, err := adm.Metadata(ctx, topic)
	if err != nil {
		return [16]byte{}, err
	}
	t, ok := md.Topics[topic]
	if !ok {
		return [16]byte{}, errors.New("no such topic")
	}
	return t.ID, t.Err
}

// Final implements Workload.
func (*register) Final(ctx context.Context, env *Env) error {
	return env.readBack(ctx, []history.Key{0})
}

// Results implements Workload.
func (*register) Results() []check.Result { return nil }
