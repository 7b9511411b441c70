package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/kbatch"
)

// wire counts the bytes of requests and responses by API key.
type wire struct {
	mu        sync.Mutex
	out, in   map[int16]int
	exchanges map[int16]int
}

var _ kgo.HookBrokerE2E = (*wire)(nil)

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (w *wire) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil {
		w.out, w.in, w.exchanges = map[int16]int{}, map[int16]int{}, map[int16]int{}
	}
	w.out[key] += e.BytesWritten
	w.in[key] += e.BytesRead
	w.exchanges[key]++
}

// take returns the counts of a key and begins anew.
func (w *wire) take(key int16) (exchanges, out, in int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	exchanges, out, in = w.exchanges[key], w.out[key], w.in[key]
	delete(w.exchanges, key)
	delete(w.out, key)
	delete(w.in, key)
	return exchanges, out, in
}

// led is the partitions of one topic that one broker leads.
type led struct {
	topic   string
	id      [16]byte
	numbers []int32
}

// leaders asks for topics, nil being all, and returns who leads what.
func (s *scale) leaders(topics []string) (map[int32][]led, error) {
	return leadersFrom(s.ctx, s.Client, topics)
}

// leadersFrom is leaders, of a client or of one broker.
func leadersFrom(ctx context.Context, from kmsg.Requestor, topics []string) (map[int32][]led, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("ask for metadata: %w", err)
	}
	out := map[int32][]led{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode != 0 {
			return nil, fmt.Errorf("metadata of %s: error %d", *t.Topic, t.ErrorCode)
		}
		for _, p := range t.Partitions {
			list := out[p.Leader]
			if n := len(list); n == 0 || list[n-1].topic != *t.Topic {
				list = append(list, led{topic: *t.Topic, id: t.TopicID})
			}
			l := &list[len(list)-1]
			l.numbers = append(l.numbers, p.Partition)
			out[p.Leader] = list
		}
	}
	return out, nil
}

// serving asks a broker about the ends of partitions and returns those that it
// does not serve.
func (s *scale) serving(broker int32, parts []led) (missing []led, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, l := range parts {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = l.topic
		for _, n := range l.numbers {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = n, -1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	kresp, err := s.Broker(int(broker)).Request(s.ctx, req)
	if err != nil {
		return parts, fmt.Errorf("list offsets: %w", err)
	}
	resp, ok := kresp.(*kmsg.ListOffsetsResponse)
	if !ok {
		return parts, fmt.Errorf("list offsets: answered with %T", kresp)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		l := led{topic: t.Topic}
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				l.numbers = append(l.numbers, p.Partition)
			}
		}
		if len(l.numbers) > 0 {
			missing = append(missing, l)
		}
	}
	return missing, nil
}

// awaitAll returns once every partition of the topics is served by its leader.
func (s *scale) awaitAll(topics []string) error {
	pending, want := map[int32][]led{}, true
	for s.ctx.Err() == nil {
		if want {
			now, err := s.leaders(topics)
			if err != nil {
				pause(s.ctx, 50*time.Millisecond)
				continue
			}
			pending, want = now, false
		}
		left := 0
		for broker, parts := range pending {
			missing, err := s.serving(broker, parts)
			if err != nil || broker < 0 {
				want = true
			}
			pending[broker] = missing
			left += len(missing)
		}
		if left == 0 && !want {
			return nil
		}
		pause(s.ctx, 50*time.Millisecond)
	}
	return s.ctx.Err()
}

// producer writes batches as an idempotent producer does.
type producer struct {
	s     *scale
	id    int64
	epoch int16
	mu    sync.Mutex
	next  map[string]map[int32]int32 // sequences
}

func (s *scale) newProducer() (*producer, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	resp, err := req.RequestWith(s.ctx, s.Client)
	if err != nil {
		return nil, fmt.Errorf("get a producer id: %w", err)
	}
	return &producer{s: s, id: resp.ProducerID, epoch: resp.ProducerEpoch, next: map[string]map[int32]int32{}}, nil
}

// batch is the next batch of some records for a partition.
func (p *producer) batch(topic string, number int32, count int, value []byte) kmsg.ProduceRequestTopicPartition {
	records := make([]kbatch.Record, count)
	for i := range records {
		records[i] = kbatch.Record{Timestamp: time.Now().UnixMilli(), Value: value}
	}
	p.mu.Lock()
	if p.next[topic] == nil {
		p.next[topic] = map[int32]int32{}
	}
	sequence := p.next[topic][number]
	p.next[topic][number] += int32(count)
	p.mu.Unlock()
	tp := kmsg.NewProduceRequestTopicPartition()
	tp.Partition, tp.Records = number, kbatch.New(records...).Idempotent(p.id, p.epoch, sequence).Bytes()
	return tp
}

// send writes one batch of count records of the value to each partition and
// waits for the acknowledgement.
func (p *producer) send(broker int32, parts []led, count int, value []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	for _, l := range parts {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = l.topic, l.id
		for _, n := range l.numbers {
			t.Partitions = append(t.Partitions, p.batch(l.topic, n, count, value))
		}
		req.Topics = append(req.Topics, t)
	}
	return p.produce(broker, req)
}

func (p *producer) produce(broker int32, req *kmsg.ProduceRequest) error {
	kresp, err := p.s.Broker(int(broker)).Request(p.s.ctx, req)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	resp, ok := kresp.(*kmsg.ProduceResponse)
	if !ok {
		return fmt.Errorf("produce: answered with %T", kresp)
	}
	for i := range resp.Topics {
		for _, tp := range resp.Topics[i].Partitions {
			if tp.ErrorCode != 0 {
				return fmt.Errorf("produce to %s-%d: error %d", resp.Topics[i].Topic, tp.Partition, tp.ErrorCode)
			}
		}
	}
	return nil
}
