package workload

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// topics has clients create, alter, describe and delete a few topics, each
// request by a node drawn at random. A topic with a change of unknown effect is
// left, because nothing can be said of it any more. A slow sender goes on beside.
type topics struct {
	config atomic.Int64 // no value of a config is set twice
	mu     struct {
		sync.Mutex
		names []string
		made  int
	}
}

const (
	topicsRate    = 50
	topicsClients = 6
	topicsAtOnce  = 8
	topicConfig   = "retention.ms"
	// leastRetention is more than a run takes.
	leastRetention = 24 * 3600 * 1000
)

// Plan implements Workload.
func (w *topics) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, topicsRate)
	o.Concurrency = cmp.Or(o.Concurrency, topicsClients)
	o.Keys = 2
	keysOf(h, o.Keys)
}

// Prepare implements Workload.
func (w *topics) Prepare(ctx context.Context, env *Env) error {
	for range topicsAtOnce {
		w.mu.names = append(w.mu.names, w.newName(env))
	}
	return env.createAll(ctx)
}

// newName is called with the lock held, or before there are others.
func (w *topics) newName(env *Env) string {
	w.mu.made++
	return fmt.Sprintf("jepsen-%s-m%d", env.Header.Run, w.mu.made)
}

// Load implements Workload.
func (w *topics) Load(ctx context.Context, env *Env) error {
	pace := newPacer(env.Rate)
	env.besideSends(ctx, "topics", env.allKeys(), func(_ int, rng *rand.Rand) { w.thread(ctx, env, pace, rng) })
	return nil
}

func (w *topics) thread(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand) {
	p := env.newProcess(rng, env.Cluster.Bootstrap())
	for pace.wait(ctx) {
		w.mu.Lock()
		slot := rng.IntN(len(w.mu.names))
		name := w.mu.names[slot]
		w.mu.Unlock()
		nodes := env.Cluster.Nodes()
		op, t := w.operate(p, w.draw(rng), name, nodes[rng.IntN(len(nodes))])
		if t != history.Info {
			continue
		}
		if op.F != history.DescribeTopic {
			w.mu.Lock()
			if w.mu.names[slot] == name {
				w.mu.names[slot] = w.newName(env)
			}
			w.mu.Unlock()
		}
		p.crash()
		p = env.newProcess(rng, env.Cluster.Bootstrap())
	}
	env.crashed(p.id)
	p.crash()
}

// draw an operation. Half of them look.
func (w *topics) draw(rng *rand.Rand) history.Func {
	kinds := []history.Func{
		history.DescribeTopic, history.DescribeTopic, history.DescribeTopic,
		history.CreateTopic, history.AlterConfig, history.DeleteTopic,
	}
	return kinds[rng.IntN(len(kinds))]
}

// operate does one operation on a topic by a node.
func (w *topics) operate(p *process, f history.Func, name string, node int32) (*history.Op, history.Outcome) {
	do := w.describe
	switch f {
	case history.CreateTopic:
		do = w.create
	case history.AlterConfig:
		do = w.alter
	case history.DeleteTopic:
		do = w.remove
	default:
	}
	op := p.env.begin(p.id, f)
	op.Topic, op.Node = &history.Topic{Name: name}, node
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout)
	defer cancel()
	_, err := p.once()
	if err == nil {
		err = do(ctx, p, op)
	}
	t := outcome(err, false)
	if t != history.OK && f == history.DescribeTopic {
		p.env.end(op, history.Fail, err) // it only reads
		return op, history.Info
	}
	p.env.end(op, t, err)
	return op, t
}

// by sends a request to a node, or to whom it concerns where others than the
// harness's own brokers do not pass it on.
func (p *process) by(ctx context.Context, node int32, req kmsg.Request) (kmsg.Response, error) {
	if p.env.Exclusive {
		return p.admin.Broker(int(node)).Request(ctx, req)
	}
	return p.admin.Request(ctx, req)
}

// timeoutMillis of requests that a broker waits for.
func (p *process) timeoutMillis() int32 { return int32(p.env.OpTimeout.Milliseconds()) }

func (w *topics) create(ctx context.Context, p *process, op *history.Op) error {
	value := fmt.Sprint(leastRetention + w.config.Add(1))
	op.Topic.Partitions, op.Topic.Config = 1+p.rng.Int32N(4), map[string]string{topicConfig: value}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = p.timeoutMillis()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = op.Topic.Name, op.Topic.Partitions, -1
	if p.env.Replicas > 0 {
		t.ReplicationFactor = p.env.Replicas
	}
	c := kmsg.NewCreateTopicsRequestTopicConfig()
	c.Name, c.Value = topicConfig, &value
	t.Configs = append(t.Configs, c)
	req.Topics = append(req.Topics, t)
	kresp, err := p.by(ctx, op.Node, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.CreateTopicsResponse)
	if len(resp.Topics) != 1 {
		return errUnanswered
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return err
	}
	if id := resp.Topics[0].TopicID; id != ([16]byte{}) {
		op.Topic.ID = hex.EncodeToString(id[:])
	}
	return nil
}

func (w *topics) alter(ctx context.Context, p *process, op *history.Op) error {
	value := fmt.Sprint(leastRetention + w.config.Add(1))
	op.Topic.Config = map[string]string{topicConfig: value}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, op.Topic.Name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = topicConfig, &value, kmsg.IncrementalAlterConfigOpSet
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	kresp, err := p.by(ctx, op.Node, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.IncrementalAlterConfigsResponse)
	if len(resp.Resources) != 1 {
		return errUnanswered
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}

func (w *topics) remove(ctx context.Context, p *process, op *history.Op) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = p.timeoutMillis()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(op.Topic.Name)
	req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, op.Topic.Name)
	kresp, err := p.by(ctx, op.Node, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.DeleteTopicsResponse)
	if len(resp.Topics) != 1 {
		return errUnanswered
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// describe asks one node what a topic is like, and for its config if it is there.
func (w *topics) describe(ctx context.Context, p *process, op *history.Op) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(op.Topic.Name)
	req.Topics = append(req.Topics, t)
	kresp, err := p.admin.Broker(int(op.Node)).Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.MetadataResponse)
	if len(resp.Topics) != 1 {
		return errUnanswered
	}
	rt := resp.Topics[0]
	switch err := kerr.ErrorForCode(rt.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil
	case err != nil:
		return err
	}
	op.Topic.Exists, op.Topic.ID, op.Topic.Partitions = true, hex.EncodeToString(rt.TopicID[:]), int32(len(rt.Partitions))
	value, err := w.configOf(ctx, p.admin, op.Node, op.Topic.Name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil // it went away meanwhile
	}
	if err == nil && value != "" {
		op.Topic.Config = map[string]string{topicConfig: value}
	}
	return err
}

// configOf asks one node.
func (w *topics) configOf(ctx context.Context, cl *kgo.Client, node int32, topic string) (string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{topicConfig}
	req.Resources = append(req.Resources, r)
	kresp, err := cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return "", err
	}
	resp := kresp.(*kmsg.DescribeConfigsResponse)
	if len(resp.Resources) != 1 {
		return "", errUnanswered
	}
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		return "", err
	}
	for _, c := range resp.Resources[0].Configs {
		if c.Name == topicConfig && c.Value != nil {
			return *c.Value, nil
		}
	}
	return "", nil
}

// heard is when brokers must have heard of all changes: an answer before shows nothing.
const heard = check.StaleBound + 2*time.Second

// lastTopics are changed when there are no faults any more: of most others the last change
// has an unknown effect, and they show nothing.
const lastTopics = 16

// lastChanges makes topics, and alters, deletes, or makes anew three of four.
func (w *topics) lastChanges(env *Env) {
	p := env.newProcess(env.rng("last", 0), env.Cluster.Bootstrap())
	nodes := env.Cluster.Nodes()
	for i := range lastTopics {
		name := w.newName(env)
		for _, f := range [][]history.Func{
			{history.CreateTopic},
			{history.CreateTopic, history.AlterConfig},
			{history.CreateTopic, history.DeleteTopic},
			{history.CreateTopic, history.DeleteTopic, history.CreateTopic},
		}[i%4] {
			w.operate(p, f, name, nodes[p.rng.IntN(len(nodes))])
		}
	}
	env.crashed(p.id)
	p.crash()
}

// Final implements Workload: every node is asked for every topic.
func (w *topics) Final(ctx context.Context, env *Env) error {
	w.lastChanges(env)
	if err := env.readBack(ctx, env.allKeys()); err != nil {
		return err
	}
	if !sleep(ctx, heard) {
		return ctx.Err()
	}
	p := env.newProcess(env.rng("final", 0), env.Cluster.Bootstrap())
	if _, err := p.once(); err != nil {
		return err
	}
	for n := 1; n <= w.mu.made; n++ {
		for _, node := range env.Cluster.Nodes() {
			op := env.begin(p.id, history.DescribeTopic)
			op.Topic, op.Node = &history.Topic{Name: fmt.Sprintf("jepsen-%s-m%d", env.Header.Run, n)}, node
			attempt, cancel := context.WithTimeout(ctx, env.OpTimeout)
			err := w.describe(attempt, p, op)
			cancel()
			t := history.OK
			if err != nil {
				t = history.Fail
			}
			env.end(op, t, err)
		}
	}
	env.crashed(p.id)
	p.crash()
	return nil
}

// Results implements Workload.
func (w *topics) Results() []check.Result { return nil }
