package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

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
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: next, Topic: part.Topic, Partition: part.Partition}, resp, kgo.DefaultDecompressor(), nil)
		if got.Err != nil {
			return nil, leader, got.Err
		}
		for _, r := range got.Records {
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
func (p *process) fetch(ctx context.Context, leader int32, part history.Partition, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
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
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetch answered for %d topics", len(resp.Topics))
	}
	got := &resp.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// direct is a client that asks one node, and nothing before what it is told to ask:
// what it asks a node that is paused is there when that goes on.
func (p *process) direct(node int32) (*kgo.Client, error) {
	if cl := p.nodes[node]; cl != nil {
		return cl, nil
	}
	only := &kversion.Versions{}
	only.SetMaxKeyVersion(kmsg.ListOffsets.Int16(), listVersion)
	at := slices.Index(p.env.Cluster.Nodes(), node)
	cl, err := cluster.Client(p.env.Cluster.Bootstrap()[at:at+1], kgo.Dialer(p.wire.dial), kgo.RequestRetries(0), kgo.MaxVersions(only))
	if err != nil {
		return nil, err
	}
	if p.nodes == nil {
		p.nodes = make(map[int32]*kgo.Client)
	}
	p.nodes[node], p.others = cl, append(p.others, cl)
	return cl, nil
}

// listVersion of ListOffsets is the first that tells the leader epoch.
const listVersion = 4

// listAt asks one node for the high watermark of a key, once.
func (p *process) listAt(ctx context.Context, node int32, k history.Key) (history.Offset, error) {
	cl, err := p.direct(node)
	if err != nil {
		return history.Offset{}, err
	}
	part := p.env.partition(k)
	req := kmsg.NewPtrListOffsetsRequest()
	t, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = part.Partition, -1
	t.Topic, t.Partitions = part.Topic, append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	kresp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return history.Offset{}, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return history.Offset{}, fmt.Errorf("list-offsets answered for %d topics", len(resp.Topics))
	}
	got := &resp.Topics[0].Partitions[0]
	return history.Offset{Key: k, Offset: got.Offset, Epoch: got.LeaderEpoch}, kerr.ErrorForCode(got.ErrorCode)
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

// Batches reads the headers of all batches of all keys, of as many keys as have
// up to about most of them together.
func (e *Env) Batches(ctx context.Context, most int) (map[history.Key][]check.Batch, error) {
	p := e.newProcess(e.rng("batches", 0), e.Cluster.Bootstrap())
	defer p.crash()
	adm, err := p.once()
	if err != nil {
		return nil, err
	}
	topics := e.Topics()
	out := make(map[history.Key][]check.Batch)
	n := 0
	for i, part := range e.Header.Keys {
		if n >= most || !slices.Contains(topics, part.Topic) {
			continue
		}
		starts, err := adm.ListStartOffsets(ctx, part.Topic)
		if err != nil {
			return nil, err
		}
		start, _ := starts.Lookup(part.Topic, part.Partition)
		list, err := p.batches(ctx, part, start.Offset)
		if err != nil {
			return nil, fmt.Errorf("read the batches of %v: %w", part, err)
		}
		out[history.Key(i)] = list
		n += len(list)
	}
	return out, nil
}

// batches are the headers of a partition's batches from an offset on.
func (p *process) batches(ctx context.Context, part history.Partition, next int64) ([]check.Batch, error) {
	adm, err := p.once()
	if err != nil {
		return nil, err
	}
	leader, err := cluster.LeaderOf(ctx, adm, part.Topic, part.Partition)
	if err != nil {
		return nil, err
	}
	var list []check.Batch
	for {
		resp, err := p.fetch(ctx, leader, part, next)
		if err != nil {
			return nil, err
		}
		got := parseBatches(resp.RecordBatches)
		for _, b := range got {
			if b.Last >= next {
				list = append(list, b)
				next = b.Last + 1
			}
		}
		if next >= resp.HighWatermark || len(got) == 0 {
			return list, nil
		}
	}
}

// Offsets of fields in the header of a batch of format 2.
const (
	batchLength     = 8
	batchEpoch      = 12
	batchMagic      = 16
	batchAttributes = 21
	batchLastDelta  = 23
	batchProducer   = 43
	batchPEpoch     = 51
	batchSequence   = 53
	batchHeader     = 61
)

// parseBatches reads the headers of whole batches.
func parseBatches(b []byte) []check.Batch {
	var list []check.Batch
	for len(b) >= batchHeader && b[batchMagic] == 2 {
		size := 12 + int(int32(binary.BigEndian.Uint32(b[batchLength:])))
		if size < batchHeader || size > len(b) {
			return list
		}
		base := int64(binary.BigEndian.Uint64(b))
		attributes := binary.BigEndian.Uint16(b[batchAttributes:])
		list = append(list, check.Batch{
			Base: base, Last: base + int64(int32(binary.BigEndian.Uint32(b[batchLastDelta:]))), Epoch: int32(binary.BigEndian.Uint32(b[batchEpoch:])),
			Producer: int64(binary.BigEndian.Uint64(b[batchProducer:])), PEpoch: int16(binary.BigEndian.Uint16(b[batchPEpoch:])),
			Sequence: int32(binary.BigEndian.Uint32(b[batchSequence:])), Txn: attributes&(1<<4) != 0, Control: attributes&(1<<5) != 0,
		})
		b = b[size:]
	}
	return list
}
