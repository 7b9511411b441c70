package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/rpc"
)

func TestProduceAtEveryVersion(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	for v := int16(3); v <= 13; v++ {
		p := cl.produce(v, "t", id, 0, batch("a", "b"))
		isCode(t, "produce", p.ErrorCode, nil)
		is(t, "base offset", p.BaseOffset, int64(v-3)*2)
		is(t, "log append time", p.LogAppendTime, -1)
	}
}

// KAFKA-18659: versions 0 to 2 are advertised but refused.
func TestProduceBelowThreeClosesTheConnection(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	if _, err := try[*kmsg.ProduceResponse](c.dial(), 2, produceRequest("t", metadata.TopicID{}, 0, batch("a"))); !errors.Is(err, rpc.ErrDisconnected) {
		t.Fatalf("version 2 was answered: %v", err)
	}
}

// Kafka 4.4: what a partition cannot take is refused with its own code, and
// nothing else in the request suffers.
func TestProduceRefusals(t *testing.T) {
	c := newCluster(t)
	good := c.topic("good", 1)
	c.topic("compacted", 1, "cleanup.policy", "compact")
	c.topic("small", 1, "max.message.bytes", "100")
	elsewhere := c.topic("elsewhere", 1)
	c.move(elsewhere, 0, 2)
	flipped := batch("x")
	flipped[len(flipped)-1] ^= 1
	old := batch("x")
	old[16] = 1
	placed := kbatch.Values(0, "x").Placed(7, -1).Bytes()
	for _, tc := range []struct {
		name    string
		topic   string
		number  int32
		records []byte
		want    *kerr.Error
	}{
		{"unknown topic", "nope", 0, batch("x"), kerr.UnknownTopicOrPartition},
		{"invalid topic name", "a/b", 0, batch("x"), kerr.InvalidTopicException},
		{"unknown partition", "good", 1, batch("x"), kerr.UnknownTopicOrPartition},
		{"negative partition", "good", -1, batch("x"), kerr.UnknownTopicOrPartition},
		{"led elsewhere", "elsewhere", 0, batch("x"), kerr.NotLeaderForPartition},
		{"null records", "good", 0, nil, kerr.InvalidRecord}, // Kafka never answers this one
		{"no records", "good", 0, []byte{}, kerr.InvalidRecord},
		{"two batches", "good", 0, append(batch("x"), batch("y")...), kerr.InvalidRecord},
		{"base offset not 0", "good", 0, placed, kerr.InvalidRecord},
		{"bad CRC", "good", 0, flipped, kerr.CorruptMessage},
		{"no key on a compacted topic", "compacted", 0, batch("x"), kerr.InvalidRecord},
		{"too large", "small", 0, batch(string(make([]byte, 200))), kerr.MessageTooLarge},
		{"transactional without id", "good", 0, kbatch.Values(0, "x").InTransaction(1, 0, 0).Bytes(), kerr.TransactionalIDAuthorizationFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := produceRequest(tc.topic, metadata.TopicID{}, tc.number, tc.records)
			addProduce(req, "good", good, 0, batch("y"))
			resp := ask[*kmsg.ProduceResponse](c.dial(), 9, req)
			p := resp.Topics[0].Partitions[0]
			isCode(t, "refused partition", p.ErrorCode, tc.want)
			is(t, "base offset", p.BaseOffset, -1)
			if p.ErrorMessage == nil || *p.ErrorMessage == "" {
				t.Error("the refusal has no message")
			}
			isCode(t, "good partition", resp.Topics[1].Partitions[0].ErrorCode, nil)
		})
	}
}

// A transactional id needs a coordinator; the code is one that a producer does
// not retry for ever.
func TestProduceWithTransactionalID(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	req := produceRequest("t", id, 0, kbatch.Values(0, "x").InTransaction(1, 0, 0).Bytes())
	req.TransactionID = kmsg.StringPtr("tx")
	resp := ask[*kmsg.ProduceResponse](c.dial(), 11, req)
	isCode(t, "produce", resp.Topics[0].Partitions[0].ErrorCode, kerr.UnsupportedVersion)
}

// KIP-467: every bad record of a batch is named (Kafka 4.4).
func TestProduceNamesBadRecords(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1, "cleanup.policy", "compact")
	p := c.dial().produce(10, "t", id, 0, kbatch.New(kbatch.KV("k", "v"), kbatch.Record{Value: []byte("x")}, kbatch.Record{Value: []byte("y")}).Bytes())
	isCode(t, "produce", p.ErrorCode, kerr.InvalidRecord)
	var at []int32
	for _, e := range p.ErrorRecords {
		at = append(at, e.RelativeOffset)
	}
	if !slices.Equal(at, []int32{1, 2}) {
		t.Errorf("bad records: %v, want [1 2]", at)
	}
}

// KIP-516: version 13 goes by topic id.
func TestProduceByUnknownTopicID(t *testing.T) {
	c := newCluster(t)
	for _, id := range []metadata.TopicID{{}, {1, 2, 3}} {
		p := c.dial().produce(13, "", id, 0, batch("x"))
		isCode(t, "produce", p.ErrorCode, kerr.UnknownTopicID)
	}
}

// KIP-951: a broker that does not lead the partition says who does, and where.
func TestProduceHintsAtTheLeader(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	c.move(id, 0, 3)
	resp := ask[*kmsg.ProduceResponse](c.dial(), 10, produceRequest("t", id, 0, batch("x")))
	p := resp.Topics[0].Partitions[0]
	isCode(t, "produce", p.ErrorCode, kerr.NotLeaderForPartition)
	is(t, "leader", p.CurrentLeader.LeaderID, 3)
	is(t, "epoch", p.CurrentLeader.LeaderEpoch, 1)
	is(t, "endpoints", len(resp.Brokers), 1)
	is(t, "endpoint", resp.Brokers[0].NodeID, 3)
}

// Kafka: acks must be 0, 1 or -1.
func TestProduceInvalidAcks(t *testing.T) {
	c := newCluster(t)
	req := produceRequest("t", c.topic("t", 1), 0, batch("x"))
	req.Acks = 2
	resp := ask[*kmsg.ProduceResponse](c.dial(), 9, req)
	isCode(t, "produce", resp.Topics[0].Partitions[0].ErrorCode, kerr.InvalidRequiredAcks)
}

// Kafka: acks=0 has no reply, and an error closes the connection.
func TestProduceAcksZero(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	cl := c.dial()
	req := produceRequest("t", metadata.TopicID{}, 0, batch("x"))
	req.Acks = 0
	if resp, err := try[*kmsg.ProduceResponse](cl, 9, req); err != nil || resp != nil {
		t.Fatalf("acks=0 was answered: %v %v", resp, err)
	}
	is(t, "next offset", cl.mustProduce("t", 0, "y"), 1)
	req = produceRequest("nope", metadata.TopicID{}, 0, batch("x"))
	req.Acks = 0
	_, _ = try[*kmsg.ProduceResponse](cl, 9, req)
	select {
	case <-cl.Done():
	case <-time.After(long):
		t.Fatal("an error with acks=0 left the connection open")
	}
}

// Kafka loses the first batch of a partition that is named twice; here both are
// appended and acknowledged.
func TestProduceSamePartitionTwice(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	req := produceRequest("t", id, 0, batch("a"))
	addProduce(req, "t", id, 0, batch("b"))
	resp := ask[*kmsg.ProduceResponse](c.dial(), 9, req)
	for i, topic := range resp.Topics {
		isCode(t, "produce", topic.Partitions[0].ErrorCode, nil)
		is(t, "base offset", topic.Partitions[0].BaseOffset, int64(i))
	}
}

// B2 and REQUEST_TIMED_OUT: nothing is acknowledged before it is durable; after
// the timeout the client is told so and the batch lives on.
func TestProduceTimesOutWhileTheMediumStalls(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	c.store.Hold()
	req := produceRequest("t", id, 0, batch("b"))
	req.TimeoutMillis = 20
	resp := ask[*kmsg.ProduceResponse](cl, 9, req)
	isCode(t, "stalled", resp.Topics[0].Partitions[0].ErrorCode, kerr.RequestTimedOut)
	c.store.Release()
	is(t, "next offset", cl.mustProduce("t", 0, "c"), 2)
}

// B2: a batch whose log was lost before it was durable is not acknowledged; the
// producer retries at whoever leads now (KIP-951 says who).
func TestProduceIsNotAcknowledgedWhenTheLogIsLost(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	c.store.Hold()
	done := make(chan *kmsg.ProduceResponse, 1)
	cl := c.dial()
	go func() { done <- ask[*kmsg.ProduceResponse](cl, 10, produceRequest("t", id, 0, batch("x"))) }()
	for part, _ := c.Get(id, 0); part.End() == 0; {
		time.Sleep(time.Millisecond)
	}
	c.store.Crash()
	p := (<-done).Topics[0].Partitions[0]
	isCode(t, "produce", p.ErrorCode, kerr.NotLeaderForPartition)
	is(t, "base offset", p.BaseOffset, -1)
	is(t, "leader", p.CurrentLeader.LeaderID, 1)
}

// A retry of a batch that is not durable yet is not acknowledged early, and then
// gets the original offset (KIP-98).
func TestProduceRetryGetsTheOriginalOffset(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	records := func() []byte { return kbatch.Values(0, "a").Idempotent(7, 0, 0).Bytes() }
	c.store.Hold()
	for range 2 {
		req := produceRequest("t", id, 0, records())
		req.TimeoutMillis = 20
		resp := ask[*kmsg.ProduceResponse](cl, 9, req)
		isCode(t, "stalled", resp.Topics[0].Partitions[0].ErrorCode, kerr.RequestTimedOut)
	}
	c.store.Release()
	p := cl.produce(9, "t", id, 0, records())
	isCode(t, "retry", p.ErrorCode, nil)
	is(t, "offset", p.BaseOffset, 0)
	gap := kbatch.Values(0, "a").Idempotent(7, 0, 5).Bytes()
	isCode(t, "gap", cl.produce(9, "t", id, 0, gap).ErrorCode, kerr.OutOfOrderSequenceNumber)
}

// B3: pipelined requests are appended while earlier ones wait, in order.
func TestProducePipelines(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "first")
	c.store.Hold()
	part, err := c.Get(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 10
	var all sync.WaitGroup
	offsets := make([]int64, n)
	for i := range n {
		end := int64(part.End())
		all.Go(func() {
			offsets[i] = ask[*kmsg.ProduceResponse](cl, 9, produceRequest("t", id, 0, batch("x"))).Topics[0].Partitions[0].BaseOffset
		})
		for int64(part.End()) == end { // appended although nothing is durable
			time.Sleep(time.Millisecond)
		}
	}
	c.store.Release()
	all.Wait()
	for i, o := range offsets {
		is(t, "offset", o, int64(i+1))
	}
}

// failingStore has logs that refuse every append.
type failingStore struct {
	commitlog.Store
	err error
}

type failingLog struct {
	commitlog.Log
	err error
}

func (s failingStore) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, o commitlog.Options) (commitlog.Log, error) {
	l, err := s.Store.Open(ctx, id, epoch, o)
	return failingLog{l, s.err}, err
}

func (l failingLog) Append(commitlog.Batch) (commitlog.Commit, error) {
	return commitlog.Commit{}, l.err
}

// What the medium cannot take is a code that clients retry, with the reason.
func TestProduceWhenTheMediumRefuses(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want *kerr.Error
	}{
		{fmt.Errorf("%w: bucket answers 503 for 4s", commitlog.ErrUnavailable), kerr.KafkaStorageError},
		{commitlog.ErrBackpressure, kerr.NotEnoughReplicas},
		{commitlog.ErrFenced, kerr.NotLeaderForPartition},
		{commitlog.ErrClosed, kerr.NotLeaderForPartition},
	} {
		t.Run(tc.want.Message, func(t *testing.T) {
			c := newCluster(t, func(c *cluster, cfg *broker.Config) {
				c.media, cfg.Park = failingStore{c.store, tc.err}, 20*time.Millisecond
			})
			id := c.topic("t", 1)
			p := c.dial().produce(9, "t", id, 0, batch("x"))
			isCode(t, "produce", p.ErrorCode, tc.want)
			is(t, "retriable", kerr.IsRetriable(kerr.ErrorForCode(p.ErrorCode)), true)
			if p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, tc.err.Error()) {
				t.Errorf("the message does not give the reason: %v", p.ErrorMessage)
			}
		})
	}
}

// A full append budget is waited for before the producer hears of it.
func TestProduceParksUntilThereIsRoom(t *testing.T) {
	store := memlog.New(memlog.Config{Budget: 100})
	c := newCluster(t, func(c *cluster, cfg *broker.Config) { c.media, cfg.Park = store, time.Minute })
	id := c.topic("t", 1)
	store.Hold()
	first, second := make(chan int16, 1), make(chan int16, 1)
	go func() { first <- c.dial().produce(9, "t", id, 0, batch("a")).ErrorCode }()
	for part, _ := c.Get(id, 0); part.End() == 0; {
		time.Sleep(time.Millisecond)
	}
	go func() { second <- c.dial().produce(9, "t", id, 0, batch("b")).ErrorCode }()
	select {
	case <-second:
		t.Fatal("answered although there is no room")
	case <-time.After(50 * time.Millisecond):
	}
	store.Release()
	isCode(t, "first", <-first, nil)
	isCode(t, "second", <-second, nil)
}

// A partition that is about to open is waited for.
func TestProduceWaitsForAnOpeningPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", 1)
		c.setOpening(id, 0, true)
		done := make(chan int16, 1)
		cl := c.dial()
		go func() { done <- cl.produce(9, "t", id, 0, batch("x")).ErrorCode }()
		synctest.Wait()
		c.setOpening(id, 0, false)
		isCode(t, "produce", <-done, nil)
		c.setOpening(id, 0, true)
		isCode(t, "never opens", cl.produce(9, "t", id, 0, batch("x")).ErrorCode, kerr.NotLeaderForPartition)
	})
}

// LogAppendTime is answered from version 2 on (KIP-32).
func TestProduceLogAppendTime(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	p := c.dial().produce(9, "t", id, 0, batch("x"))
	if p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
		t.Errorf("log append time %d is not now", p.LogAppendTime)
	}
}

// Internal topics are written by their coordinators only.
func TestProduceToAnInternalTopic(t *testing.T) {
	c := newCluster(t)
	c.topic("x", 1)
	cl := c.dial()
	create := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "__consumer_offsets", 1, 1
	create.Topics = append(create.Topics, rt)
	isCode(t, "create", ask[*kmsg.CreateTopicsResponse](cl, 7, create).Topics[0].ErrorCode, nil)
	isCode(t, "produce", cl.produce(9, "__consumer_offsets", metadata.TopicID{}, 0, batch("x")).ErrorCode, kerr.InvalidTopicException)
}

// Bytes that are no Produce request close the connection, and only it.
func TestProduceMalformed(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if _, err := cl.Call(ctx, 0, 9, []byte{1, 2, 3}); err == nil {
		t.Fatal("a malformed request was answered")
	}
	c.topic("t", 1)
	c.dial().mustProduce("t", 0, "x")
}

func BenchmarkProduce(b *testing.B) {
	c := newCluster(b)
	id := c.topic("t", 1)
	cl := c.dial()
	records := kbatch.Sized(1_700_000_000_000, 10, 1000, 1).Bytes()
	req := produceRequest("t", id, 0, records)
	b.SetBytes(int64(len(records)))
	b.ReportAllocs()
	for b.Loop() {
		resp := ask[*kmsg.ProduceResponse](cl, 13, req)
		if resp.Topics[0].Partitions[0].ErrorCode != 0 {
			b.Fatal(resp.Topics[0].Partitions[0].ErrorCode)
		}
	}
}

// BenchmarkProduceHandler is the broker's own share, without connections.
func BenchmarkProduceHandler(b *testing.B) {
	c := newCluster(b)
	id := c.topic("t", 1)
	req := produceRequest("t", id, 0, kbatch.Sized(1_700_000_000_000, 10, 1000, 1).Bytes())
	req.SetVersion(13)
	r := &rpc.Request{Key: 0, Version: 13, Raw: req.AppendTo(nil)}
	api := c.APIs("")[0]
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r.Received = time.Now()
		resp := api.Begin(ctx, r)(ctx)
		if len(resp.Buffers) != 1 {
			b.Fatal("no reply")
		}
		resp.Release()
	}
}
