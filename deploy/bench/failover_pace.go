package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// paceRecord is the size of a paced record in bytes: its number in the partition
// and padding. Other sizes are other loads.
const paceRecord = 100

// pace sends numbered records to every partition of a topic at a fixed rate,
// whatever the cluster does, and notes when each was due and when it was
// acknowledged: an idempotent producer on an open loop.
type pace struct {
	ackLog
	f      *failover
	topic  string
	client *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
	epoch  time.Time
	gap    time.Duration // between two records, of all partitions

	sent   []uint64 // per partition; with what follows, under the log's lock
	errs   []error
	flying int
}

// ack is one acknowledged record.
type ack struct {
	partition int32
	due, at   time.Time
}

// ackLog is what a producer to all partitions of a topic has had acknowledged, in
// the order of that.
type ackLog struct {
	partitions int
	mu         sync.Mutex
	acks       []ack
}

// producerOptions are the pace's: a client that tries again soon, and for ever,
// and gives a broker up that does not answer for so long. It dials for a fifth of
// that: of five produces that are queued for a broker which cannot be reached,
// franz-go lets each dial twice, one after the other, and a Metadata request that
// happens to go there waits for all of them.
func producerOptions(bootstrap string, patience time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(1 << 20), kgo.RecordRetries(1 << 30), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(maxAge(patience)),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.DisableClientMetrics(),
		kgo.ProduceRequestTimeout(patience * 4 / 5), kgo.RequestTimeoutOverhead(patience / 5), kgo.DialTimeout(patience / 5), kgo.RetryTimeout(time.Minute), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
}

// Patiences. A client learns of a broker that is dead from its connection; of one
// that hangs or is cut off only by its own timeouts. Whoever is impatient also asks
// for metadata more often: franz-go does not ask because a dial timed out.
const (
	patient   = 20 * time.Second
	impatient = 500 * time.Millisecond
)

// maxAge is how old a client's metadata gets.
func maxAge(patience time.Duration) time.Duration {
	if patience == impatient {
		return impatient / 2
	}
	return 5 * time.Minute // franz-go's
}

// newPace starts records at a rate in each partition; it sends until stop.
func (f *failover) newPace(topic string, partitions int, rate float64, patience time.Duration) (*pace, error) {
	cl, err := kgo.NewClient(producerOptions(f.bootstrap, patience)...)
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	p := &pace{ackLog: ackLog{partitions: partitions}, f: f, topic: topic, client: cl, sent: make([]uint64, partitions), epoch: time.Now(),
		gap: time.Duration(float64(time.Second) / rate / float64(partitions))}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(f.ctx)
	p.wg.Go(func() { p.run(ctx) })
	return p, nil
}

func (p *pace) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		due := p.epoch.Add(time.Duration(i) * p.gap)
		if d := time.Until(due); d > 0 {
			pause(ctx, d)
		}
		n := i % p.partitions
		p.mu.Lock()
		seq := p.sent[n]
		p.sent[n]++
		p.flying++
		p.mu.Unlock()
		value := make([]byte, paceRecord)
		binary.BigEndian.PutUint64(value, seq)
		p.client.Produce(p.f.ctx, &kgo.Record{Topic: p.topic, Partition: int32(n), Value: value}, func(_ *kgo.Record, err error) {
			at := time.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.flying--
			if err != nil {
				p.errs = append(p.errs, err)
				return
			}
			p.acks = append(p.acks, ack{int32(n), due, at})
		})
	}
}

// stop ends it and waits for what is under way. It returns how many records
// failed, and one reason.
func (p *pace) stop() (failed int, err error) {
	p.cancel()
	p.wg.Wait()
	ctx, cancel := context.WithTimeout(p.f.ctx, time.Minute)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		return 0, fmt.Errorf("wait for acknowledgements: %w", err)
	}
	p.client.Close()
	if len(p.errs) > 0 {
		return len(p.errs), p.errs[0]
	}
	return 0, nil
}

// awaitAfter returns once every partition has acknowledged a record that was due
// after t.
func (l *ackLog) awaitAfter(ctx context.Context, t time.Time) error {
	const limit = time.Minute
	for end := time.Now().Add(limit); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		seen := map[int32]bool{}
		l.mu.Lock()
		for i := len(l.acks) - 1; i >= 0 && l.acks[i].at.After(t); i-- {
			if l.acks[i].due.After(t) {
				seen[l.acks[i].partition] = true
			}
		}
		l.mu.Unlock()
		if len(seen) == l.partitions {
			return nil
		}
	}
	return fmt.Errorf("not every partition took a record within %v", limit)
}

// firsts is, per partition, how long after t the first record that was due after
// it was acknowledged.
func (l *ackLog) firsts(t time.Time) map[int32]time.Duration {
	out := map[int32]time.Duration{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if !a.due.After(t) {
			continue
		}
		if d, ok := out[a.partition]; !ok || a.at.Sub(t) < d {
			out[a.partition] = a.at.Sub(t)
		}
	}
	return out
}

// pauses is, per partition, the longest that a record waited which was due from
// one moment to another: what a client sees of whatever happened then.
func (l *ackLog) pauses(from, to time.Time) map[int32]time.Duration {
	out := map[int32]time.Duration{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if !a.due.Before(from) && a.due.Before(to) {
			out[a.partition] = max(out[a.partition], a.at.Sub(a.due))
		}
	}
	return out
}

// calm prints the pauses while nothing happens, which are the machine's: what
// follows cannot be shorter. It takes the time that a load needs to be under way.
func (p *pace) calm() {
	pause(p.f.ctx, 2*time.Second)
	from := time.Now()
	pause(p.f.ctx, 3*time.Second)
	row("longest wait in 3 s before, nothing happening", "%s", spreadOf(p.pauses(from, time.Now()), nil))
}

// verify reads the topic: in every partition the paced records are all there,
// once and in order.
func (p *pace) verify() error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(p.f.bootstrap, ",")...), kgo.ConsumeTopics(p.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(16<<20), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make consumer: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(p.f.ctx, 2*time.Minute)
	defer cancel()
	next := make([]uint64, p.partitions)
	var total, want uint64
	for _, n := range p.sent {
		want += n
	}
	for total < want {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("read back: %d of %d records after 2 minutes", total, want)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if len(r.Value) != paceRecord {
				continue
			}
			if n := binary.BigEndian.Uint64(r.Value); n != next[r.Partition] {
				return fmt.Errorf("read back: %s-%d has record %d at offset %d, record %d should be next", p.topic, r.Partition, n, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
			total++
		}
	}
	return nil
}

// finish stops, verifies and prints both.
func (p *pace) finish() error {
	failed, reason := p.stop()
	if failed == 0 && reason != nil {
		return reason
	}
	var sent uint64
	for _, n := range p.sent {
		sent += n
	}
	if failed > 0 {
		row("FAILED produces", "%d of %d: %v", failed, sent, reason)
		return nil
	}
	if err := p.verify(); err != nil {
		row("FAILED to read back", "%v", err)
		return nil
	}
	row("records", "%d sent, 0 failed, all read back once and in order", sent)
	return nil
}

// spread is a distribution of durations.
type spread []time.Duration

func spreadOf(m map[int32]time.Duration, which func(int32) bool) spread {
	var s spread
	for n, d := range m {
		if which == nil || which(n) {
			s = append(s, d)
		}
	}
	return s.sorted()
}

func (s spread) sorted() spread {
	slices.Sort(s)
	return s
}

func (s spread) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func (s spread) String() string {
	ms := func(q float64) float64 { return float64(s.at(q).Microseconds()) / 1000 }
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms (of %d)", ms(0.5), ms(0.99), ms(1), len(s))
}
