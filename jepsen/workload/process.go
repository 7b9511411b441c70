package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// process is a client program: a producer and a consumer that live and die
// together. One goroutine uses it.
type process struct {
	env     *Env
	id      int32
	rng     *rand.Rand
	seeds   []string
	wire    *wire
	counter int32
	born    time.Time

	producer *kgo.Client
	consumer *kgo.Client
	admin    *kgo.Client  // see once
	writes   atomic.Int32 // produce requests of the producer
	known    map[string]bool

	keys  []history.Key // assigned or subscribed
	group string        // of the consumer, if it subscribed
	pos   map[history.Key]int64

	mu struct {
		sync.Mutex
		rebalance []history.Rebalance // since the last operation
		session   int                 // of the consumer whose callbacks count
	}
}

// newProcess has no clients yet.
func (e *Env) newProcess(rng *rand.Rand, seeds []string) *process {
	return &process{
		env: e, id: e.processes.Add(1), rng: rng, seeds: seeds, wire: newWire(), born: time.Now(),
		known: make(map[string]bool), pos: make(map[history.Key]int64),
	}
}

// crash drops the process's clients as if the program had died.
func (p *process) crash() {
	p.wire.crash()
	for _, cl := range []*kgo.Client{p.producer, p.consumer, p.admin} {
		if cl != nil {
			p.env.closing.Go(cl.CloseAllowingRebalance)
		}
	}
	p.producer, p.consumer, p.admin = nil, nil, nil
}

// OnBrokerWrite implements kgo.HookBrokerWrite for the producer.
func (p *process) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 0 {
		p.writes.Add(1)
	}
}

// sendRetries bounds how often the client repeats a batch by itself.
const sendRetries = 8

func (p *process) openProducer() error {
	if p.producer != nil {
		return nil
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	opts := []kgo.Opt{
		kgo.Dialer(p.wire.dial), kgo.WithHooks(p),
		kgo.ManualFlushing(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[p.rng.IntN(len(codecs))]),
		kgo.RecordRetries(sendRetries), kgo.RecordDeliveryTimeout(p.env.OpTimeout), kgo.ProduceRequestTimeout(5 * time.Second),
		kgo.UnknownTopicRetries(sendRetries),
	}
	if p.env.Idempotent {
		// The process that gives a record up is retired, so that nobody sends after it.
		opts = append(opts, kgo.AllowIdempotentProduceCancellation())
	} else {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	var err error
	p.producer, err = cluster.Client(p.seeds, opts...)
	return err
}

// errUnanswered: the client said nothing about a record in time.
var errUnanswered = errors.New("no answer in time")

// send appends records to keys, one batch for each key, and returns the outcome.
func (p *process) send(keys []history.Key) history.Outcome {
	op := p.env.begin(p.id, history.Send)
	if err := p.openProducer(); err != nil {
		p.env.end(op, history.Fail, err)
		return history.Fail
	}
	p.writes.Store(0)
	type answer struct {
		i      int
		offset int64
		err    error
	}
	answers := make(chan answer, len(keys)) // late ones are nobody's
	var distinct int32
	for i, k := range keys {
		v := p.env.ledger.next(k)
		if !slices.Contains(keys[:i], k) {
			distinct++
		}
		op.Sends = append(op.Sends, history.Sent{Key: k, Value: v, Offset: -1})
		p.counter++
		part := p.env.partition(k)
		p.known[part.Topic] = true
		o := origin{run: p.env.Run, value: v, key: k, process: p.id, counter: p.counter, at: time.Now()}
		p.producer.Produce(context.Background(), record(o, part.Topic, part.Partition, p.filler()), func(r *kgo.Record, err error) {
			answers <- answer{i, r.Offset, err}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.env.OpTimeout+2*time.Second)
	defer cancel()
	_ = p.producer.Flush(ctx) // what it did is in the answers
	var errs []error
	acked := 0
	for range keys {
		a := answer{err: errUnanswered}
		select {
		case a = <-answers:
		case <-ctx.Done():
		}
		if a.err == nil {
			op.Sends[a.i].Offset = a.offset
			acked++
			continue
		}
		errs = append(errs, a.err)
	}
	op.Attempts = p.writes.Load()
	t, err := verdict(errs, acked, op.Attempts > distinct)
	p.env.end(op, t, err)
	if retires(t, err) {
		return history.Info
	}
	return t
}

// verdict is the outcome of an operation of several parts.
func verdict(errs []error, done int, repeated bool) (history.Outcome, error) {
	if len(errs) == 0 {
		return history.OK, nil
	}
	worst, err := history.Fail, errs[0]
	for _, e := range errs {
		if outcome(e, repeated) == history.Info {
			worst, err = history.Info, e
		}
	}
	if done > 0 {
		worst = history.Info // some of it had an effect
	}
	return worst, err
}

// filler is mostly small, now and then some pages.
func (p *process) filler() int {
	if p.rng.IntN(64) == 0 {
		return p.rng.IntN(32 << 10)
	}
	return p.rng.IntN(100)
}

// sendable leaves one record of each key whose topic the producer does not
// know yet: the client would make several batches of them.
func (p *process) sendable(keys []history.Key) []history.Key {
	var out []history.Key
	for _, k := range keys {
		if p.known[p.env.partition(k).Topic] || !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// assign replaces the consumer by one of the given keys.
func (p *process) assign(keys []history.Key, seek bool) error {
	op := p.env.begin(p.id, history.Assign)
	op.Keys, op.Seek = keys, seek
	p.closeConsumer()
	op.Rebalance = p.takeRebalance()
	pos := make(map[history.Key]int64)
	parts := make(map[string]map[int32]kgo.Offset)
	for _, k := range keys {
		at := kgo.NewOffset().AtStart()
		if next, ok := p.pos[k]; ok && !seek && slices.Contains(p.keys, k) {
			at, pos[k] = kgo.NewOffset().At(next), next
		}
		part := p.env.partition(k)
		if parts[part.Topic] == nil {
			parts[part.Topic] = make(map[int32]kgo.Offset)
		}
		parts[part.Topic][part.Partition] = at
	}
	var err error
	p.consumer, err = cluster.Client(p.seeds, kgo.Dialer(p.wire.dial), kgo.ConsumePartitions(parts), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(500*time.Millisecond))
	p.keys, p.pos, p.group = keys, pos, ""
	t := history.OK
	if err != nil {
		t = history.Fail
	}
	p.env.end(op, t, err)
	return err
}

// leaveWait is how long a member waits for its leaving.
const leaveWait = 3 * time.Second

// closeConsumer ends the consumer. A member of a group has given its partitions
// back when it returns.
func (p *process) closeConsumer() {
	if p.consumer == nil {
		return
	}
	closed := make(chan struct{})
	cl := p.consumer
	p.consumer = nil
	p.env.closing.Go(func() {
		cl.CloseAllowingRebalance()
		close(closed)
	})
	if p.group != "" {
		select {
		case <-closed:
		case <-time.After(leaveWait):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.session++
}

// subscribe replaces the consumer by a member of a group.
func (p *process) subscribe(group string, topics []string, keys []history.Key, opts ...kgo.Opt) error {
	op := p.env.begin(p.id, history.Subscribe)
	op.Keys, op.Group = keys, group
	p.closeConsumer()
	op.Rebalance = p.takeRebalance()
	opts = append([]kgo.Opt{
		kgo.Dialer(p.wire.dial), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second), kgo.RebalanceTimeout(15 * time.Second),
		kgo.OnPartitionsAssigned(p.rebalanced("assigned")), kgo.OnPartitionsRevoked(p.rebalanced("revoked")), kgo.OnPartitionsLost(p.rebalanced("lost")),
	}, opts...)
	var err error
	p.consumer, err = cluster.Client(p.seeds, opts...)
	p.keys, p.group = keys, group
	for k := range p.pos {
		if !slices.Contains(keys, k) {
			delete(p.pos, k) // an assignment after this one does not remember it
		}
	}
	t := history.OK
	if err != nil {
		t = history.Fail
	}
	p.env.end(op, t, err)
	return err
}

// rebalanced notes a callback. They come from the client's own goroutine.
func (p *process) rebalanced(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
	p.mu.Lock()
	session := p.mu.session
	p.mu.Unlock()
	return func(_ context.Context, cl *kgo.Client, parts map[string][]int32) {
		member, gen := cl.GroupMetadata()
		var keys []history.Key
		for topic, list := range parts {
			for _, n := range list {
				if k, ok := p.env.key(topic, n); ok {
					keys = append(keys, k)
				}
			}
		}
		slices.Sort(keys)
		p.mu.Lock()
		defer p.mu.Unlock()
		if session != p.mu.session {
			return // of a consumer that was closed
		}
		p.mu.rebalance = append(p.mu.rebalance, history.Rebalance{At: p.env.Now(), Kind: kind, Keys: keys, Gen: gen, Member: member})
	}
}

func (p *process) takeRebalance() []history.Rebalance {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.rebalance
	p.mu.rebalance = nil
	return r
}

// key of a partition.
func (e *Env) key(topic string, partition int32) (history.Key, bool) {
	e.keys.Do(func() {
		e.keyOf = make(map[history.Partition]history.Key)
		for i, part := range e.Header.Keys {
			e.keyOf[part] = history.Key(i)
		}
	})
	k, ok := e.keyOf[history.Partition{Topic: topic, Partition: partition}]
	return k, ok
}

// errPoll is what a poll said about partitions.
var errPoll = errors.New("poll")

// poll reads what there is within a time and returns its operation. A consumer
// that cannot go on is closed.
func (p *process) poll(wait time.Duration, most int) *history.Op {
	op := p.env.begin(p.id, history.Poll)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	fetches := p.consumer.PollRecords(ctx, most)
	cancel()
	op.Group = p.group
	if p.group != "" {
		op.Member, op.Gen = p.consumer.GroupMetadata()
	}
	notes, fatal := pollErrors(fetches)
	fetches.EachRecord(func(r *kgo.Record) {
		k, ok := p.env.key(r.Topic, r.Partition)
		if !ok {
			notes = append(notes, fmt.Sprintf("%s-%d is no key", r.Topic, r.Partition))
			return
		}
		o, damage := parse(p.env.Run, k, r)
		op.Polls = append(op.Polls, history.Polled{Key: k, Value: o.value, Offset: r.Offset, Damage: damage})
	})
	op.Rebalance = p.takeRebalance()
	t := history.OK
	if fatal && len(op.Polls) == 0 {
		t = history.Fail
	}
	var err error
	if len(notes) > 0 {
		err = fmt.Errorf("%w: %s", errPoll, strings.Join(notes, "; "))
	}
	p.env.end(op, t, err)
	if t == history.OK {
		for _, v := range op.Polls {
			p.pos[v.Key] = v.Offset + 1
		}
	}
	if fatal {
		p.closeConsumer()
	}
	return op
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

// commit writes down how far the consumer's group has polled. The polls stay
// what they are if it fails.
func (p *process) commit() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = p.consumer.CommitUncommittedOffsets(ctx) // another reads them again
}

// once is a client that sends every request once, so that an effect is of one
// request.
func (p *process) once() (*kadm.Client, error) {
	if p.admin == nil {
		cl, err := cluster.Client(p.seeds, kgo.Dialer(p.wire.dial), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(p.env.OpTimeout))
		if err != nil {
			return nil, err
		}
		p.admin = cl
	}
	return kadm.NewClient(p.admin), nil
}

// ends asks for the high watermarks of keys and notes them.
func (p *process) ends(ctx context.Context, adm *kadm.Client, keys []history.Key) (map[history.Key]int64, error) {
	return p.listOffsets(ctx, adm, keys, "latest")
}

// endsAtLast asks again until it has the high watermarks of all keys, for as long as
// a final read may take: leaders may only begin to serve.
func (p *process) endsAtLast(ctx context.Context, adm *kadm.Client, keys []history.Key) (map[history.Key]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, p.env.FinalTimeout)
	defer cancel()
	for {
		ends, err := p.ends(ctx, adm, keys)
		if err == nil || !sleep(ctx, settle/10) {
			return ends, err
		}
	}
}

// listOffsets asks for the latest or the earliest offsets of keys.
func (p *process) listOffsets(ctx context.Context, adm *kadm.Client, keys []history.Key, spec string) (map[history.Key]int64, error) {
	op := p.env.begin(p.id, history.ListOffsets)
	op.Keys, op.Spec = keys, spec
	var topics []string
	for _, k := range keys {
		if t := p.env.partition(k).Topic; !slices.Contains(topics, t) {
			topics = append(topics, t)
		}
	}
	list := adm.ListEndOffsets
	if spec == "earliest" {
		list = adm.ListStartOffsets
	}
	listed, err := list(ctx, topics...)
	out := make(map[history.Key]int64)
	var errs []error
	for _, k := range keys {
		part := p.env.partition(k)
		o, ok := listed.Lookup(part.Topic, part.Partition)
		switch {
		case ok && o.Err == nil:
			out[k] = o.Offset
			op.Offsets = append(op.Offsets, history.Offset{Key: k, Offset: o.Offset, Epoch: o.LeaderEpoch})
		case ok:
			errs = append(errs, fmt.Errorf("%v: %w", part, o.Err))
		}
	}
	if err == nil {
		err = errors.Join(errs...)
	}
	t := history.OK
	if len(op.Offsets) == 0 {
		t = history.Fail // it only reads
	}
	p.env.end(op, t, err)
	return out, err
}
