package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics of a run, beside those that come and go (admin.go).
const (
	mainTopic = "main" // nothing is ever done to it
	trimTopic = "trim" // records are deleted from its beginning
	growTopic = "grow" // partitions are added to it
	oldTopic  = "old"  // retention deletes its records after seconds
)

const (
	mainPartitions = 4
	trimPartitions = 2
)

// workload is the load of a run: clients on hosts of their own.
type workload struct {
	c     *cluster
	h     *History
	rng   *rand.Rand // used before anything runs
	hosts []string
	done  chan struct{} // closed when no more is sent
	stop  func()        // closes it
	wg    sync.WaitGroup
	tails sync.WaitGroup // consumers and other watchers, who go on to the end
	ctx   context.Context
	end   context.CancelFunc

	mu struct {
		sync.Mutex
		grown   int32            // partitions of growTopic that were confirmed
		growAsk int32            // ... asked for
		topics  map[int]*churned // by slot
		names   int
		probes  int
		ops     map[string]int // administrators' operations by outcome
	}
}

func newWorkload(c *cluster, h *History, seed uint64) *workload {
	w := &workload{c: c, h: h, rng: rand.New(rand.NewPCG(seed, 4)), done: make(chan struct{})}
	w.stop = sync.OnceFunc(func() { close(w.done) })
	w.ctx, w.end = context.WithCancel(context.Background())
	w.mu.topics, w.mu.ops = map[int]*churned{}, map[string]int{}
	w.hosts = []string{"c1", "c2", "c3", "c4", operatorHost, "c6"}
	return w
}

// client is a franz-go client on a host of its own. It begins with one broker
// of a random order, as configured clients do.
func (w *workload) client(host string, opts ...kgo.Opt) *kgo.Client {
	p := newLife(host)
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(w.c.seeds()...), kgo.Dialer(w.c.net.Dialer(p)),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Duration(n)*50*time.Millisecond, time.Second) }),
		kgo.RequestTimeoutOverhead(2 * time.Second), kgo.ProduceRequestTimeout(2 * time.Second), kgo.RetryTimeout(15 * time.Second),
		kgo.DisableClientMetrics(),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		panic(err) // the options are constant
	}
	return cl
}

// producerOf says what one producer sends where, and how fast.
type producerOf struct {
	Producer
	host  string
	parts func() []TP
	every time.Duration
	opts  []kgo.Opt
}

// sendTo are the partitions of a topic as a producer knows them.
func sendTo(topic string, n int32) func() []TP {
	var list []TP
	for p := range n {
		list = append(list, TP{Topic: topic, Partition: p})
	}
	return func() []TP { return list }
}

// produce sends at an open-loop rate until the end of the load, then waits for
// what is still under way.
func (w *workload) produce(p producerOf, rng *rand.Rand) {
	opts := append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(3000),
	}, p.opts...)
	if p.Idempotent {
		opts = append(opts, kgo.UnknownTopicRetries(-1)) // and no limit on retries: every record gets through
	} else {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	cl := w.client(p.host, opts...)
	defer cl.Close()
	for {
		pause := time.Duration(rng.ExpFloat64() * float64(p.every))
		select {
		case <-time.After(pause):
		case <-w.done:
			w.flush(cl, p.Producer)
			return
		}
		for range 1 + rng.IntN(3) {
			parts := p.parts()
			w.send(cl, p.Producer, parts[rng.IntN(len(parts))])
		}
	}
}

// flushing bounds how long records may be under way after all faults ended.
const flushing = 90 * time.Second

func (w *workload) flush(cl *kgo.Client, p Producer) {
	ctx, cancel := context.WithTimeout(context.Background(), flushing)
	defer cancel()
	if err := cl.Flush(ctx); err != nil {
		w.c.time.violation("producer %d still has %d records under way %v after the last fault", p.ID, cl.BufferedProduceRecords(), flushing)
	}
}

// send hands one record to the client and notes what becomes of it.
func (w *workload) send(cl *kgo.Client, p Producer, tp TP) {
	r := w.h.Send(p, tp)
	cl.TryProduce(context.Background(), &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: body(r)}, func(k *kgo.Record, err error) {
		switch {
		case err == nil && k.Partition != tp.Partition:
			w.h.Note("record %d for %s was acknowledged in partition %d", r, tp, k.Partition)
		case err == nil:
			w.h.Ack(r, k.Offset)
		default:
			w.h.Fail(r)
			// A broker never has a reason to refuse an idempotent producer's record
			// for good; the client may give up for reasons of its own.
			var refused *kerr.Error
			if p.Idempotent && errors.As(err, &refused) {
				w.h.Note("idempotent producer %d lost record %d for %s: %v", p.ID, r, tp, err)
			}
		}
	})
}

// producers are those of every run.
func (w *workload) producers() []producerOf {
	grow := func() []TP {
		w.mu.Lock()
		defer w.mu.Unlock()
		return sendTo(growTopic, max(1, w.mu.grown))()
	}
	return []producerOf{
		{Producer: Producer{1, true}, host: "c1", parts: sendTo(mainTopic, mainPartitions), every: 100 * time.Millisecond},
		{Producer: Producer{2, true}, host: "c2", parts: sendTo(mainTopic, mainPartitions), every: 100 * time.Millisecond,
			// Not zstd: its decoder is closed by a finalizer, outside of the bubble.
			opts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.GzipCompression())}},
		{Producer: Producer{3, false}, host: "c3", parts: sendTo(mainTopic, mainPartitions), every: 150 * time.Millisecond},
		{Producer: Producer{4, true}, host: "c4", parts: sendTo(trimTopic, trimPartitions), every: 120 * time.Millisecond},
		{Producer: Producer{5, true}, host: "c3", parts: grow, every: 200 * time.Millisecond},
		{Producer: Producer{6, true}, host: "c1", parts: sendTo(oldTopic, 1), every: 150 * time.Millisecond,
			opts: []kgo.Opt{kgo.ProducerBatchMaxBytes(4 << 10)}}, // less than a segment
	}
}
