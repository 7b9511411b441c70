package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// franz is franz-go in this process, as a client.
type franz struct {
	wire       *wire
	seeds      []string
	rng        *rand.Rand
	idempotent bool
	opTimeout  time.Duration
	closing    *sync.WaitGroup // of clients that were left alone

	producer *kgo.Client
	consumer *kgo.Client
	grouped  bool         // the consumer is a member
	writes   atomic.Int32 // produce requests of the producer
}

var _ client = (*franz)(nil)

// OnBrokerWrite implements kgo.HookBrokerWrite for the producer.
func (c *franz) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 0 {
		c.writes.Add(1)
	}
}

// sendRetries bounds how often the client repeats a batch by itself.
const sendRetries = 8

func (c *franz) open() error {
	if c.producer != nil {
		return nil
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	opts := []kgo.Opt{
		kgo.Dialer(c.wire.dial), kgo.WithHooks(c),
		kgo.ManualFlushing(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[c.rng.IntN(len(codecs))]),
		kgo.RecordRetries(sendRetries), kgo.RecordDeliveryTimeout(c.opTimeout), kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(sendRetries),
	}
	if c.idempotent {
		// The process that gives a record up is retired, so that nobody sends after it.
		opts = append(opts, kgo.AllowIdempotentProduceCancellation())
	} else {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	var err error
	c.producer, err = cluster.Client(c.seeds, opts...)
	return err
}

func (c *franz) send(records []*kgo.Record) ([]answer, int32) {
	c.writes.Store(0)
	type late struct {
		i int
		answer
	}
	ch := make(chan late, len(records)) // late ones are nobody's
	for i, r := range records {
		c.producer.Produce(context.Background(), r, func(r *kgo.Record, err error) {
			ch <- late{i, answer{r.Offset, err}}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.opTimeout+2*time.Second)
	defer cancel()
	_ = c.producer.Flush(ctx) // what it did is in the answers
	answers := make([]answer, len(records))
	for i := range answers {
		answers[i].err = errUnanswered
	}
	for range records {
		select {
		case a := <-ch:
			answers[a.i] = a.answer
		case <-ctx.Done():
		}
	}
	return answers, c.writes.Load()
}

func (*franz) repeats() bool { return false } // attempts say it

func (c *franz) assign(from map[history.Partition]int64) error {
	parts := make(map[string]map[int32]kgo.Offset)
	for part, offset := range from {
		at := kgo.NewOffset().AtStart()
		if offset != startOfLog {
			at = kgo.NewOffset().At(offset)
		}
		if parts[part.Topic] == nil {
			parts[part.Topic] = make(map[int32]kgo.Offset)
		}
		parts[part.Topic][part.Partition] = at
	}
	var err error
	c.consumer, err = cluster.Client(c.seeds, kgo.Dialer(c.wire.dial), kgo.ConsumePartitions(parts), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(fetchWait))
	c.grouped = false
	return err
}

func (c *franz) subscribe(m member, told rebalanced) error {
	on := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, cl *kgo.Client, parts map[string][]int32) {
			id, gen := cl.GroupMetadata()
			var list []history.Partition
			for topic, ns := range parts {
				for _, n := range ns {
					list = append(list, history.Partition{Topic: topic, Partition: n})
				}
			}
			told(kind, list, id, gen)
		}
	}
	opts := []kgo.Opt{
		kgo.Dialer(c.wire.dial), kgo.ConsumerGroup(m.group), kgo.ConsumeTopics(m.topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(fetchWait),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval), kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.OnPartitionsAssigned(on("assigned")), kgo.OnPartitionsRevoked(on("revoked")), kgo.OnPartitionsLost(on("lost")),
	}
	switch m.assignor {
	case assignRange:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case assignCooperative:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case assignServer:
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if m.instance != "" {
		opts = append(opts, kgo.InstanceID(m.instance))
	}
	var err error
	c.consumer, err = cluster.Client(c.seeds, opts...)
	c.grouped = true
	return err
}

func (c *franz) poll(wait time.Duration, most int) polled {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := c.consumer.PollRecords(ctx, most)
	notes, fatal := pollErrors(fetches)
	return polled{fetches.Records(), notes, fatal}
}

// pollErrors are the errors in fetches, without the end of the wait. Fatal: the
// client stops reading a partition. After a loss of data that it sees itself it
// goes on.
func pollErrors(fetches kgo.Fetches) (notes []string, fatal bool) {
	fetches.EachError(func(topic string, partition int32, err error) {
		if errors.Is(err, context.DeadlineExceeded) && topic == "" {
			return
		}
		var loss *kgo.ErrDataLoss
		if !errors.As(err, &loss) {
			fatal = true
		}
		notes = append(notes, fmt.Sprintf("%s-%d: %v", topic, partition, err))
	})
	return notes, fatal
}

func (c *franz) proceed() { c.consumer.AllowRebalance() }

func (c *franz) commit(upTo map[history.Partition]int64, within time.Duration) (map[history.Partition]error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if len(upTo) == 0 {
		return nil, c.consumer.CommitUncommittedOffsets(ctx)
	}
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	for part, offset := range upTo {
		if offsets[part.Topic] == nil {
			offsets[part.Topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[part.Topic][part.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	var answers map[history.Partition]error
	err := errUnanswered
	c.consumer.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, cerr error) {
		if err = cerr; err != nil {
			return
		}
		answers = make(map[history.Partition]error)
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answers[history.Partition{Topic: t.Topic, Partition: p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
			}
		}
	})
	return answers, err
}

func (c *franz) identity() (string, int32) { return c.consumer.GroupMetadata() }

func (c *franz) leave() {
	if c.consumer == nil {
		return
	}
	closed := make(chan struct{})
	cl := c.consumer
	c.consumer = nil
	c.closing.Go(func() {
		cl.CloseAllowingRebalance()
		close(closed)
	})
	if c.grouped {
		select {
		case <-closed:
		case <-time.After(leaveWait):
		}
	}
}

func (c *franz) stall() (func(), bool) { return c.wire.stall(), true }

func (c *franz) crash() {
	c.wire.crash()
	for _, cl := range []*kgo.Client{c.producer, c.consumer} {
		if cl != nil {
			c.closing.Go(cl.CloseAllowingRebalance)
		}
	}
	c.producer, c.consumer = nil, nil
}
