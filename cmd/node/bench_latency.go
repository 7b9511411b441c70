package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newBenchLatency() *cobra.Command {
	var f benchFlags
	var pf produceFlags
	var rate float64
	var endToEnd bool
	cmd := &cobra.Command{
		Use: "latency", Short: "Latency at a fixed rate, from the moment a record was due", Args: takes(0, 0),
		Long: `Sends records at a fixed rate, whatever the cluster does, and counts their
latency from the moment they were due. With --rate 0 one record is in flight: the
next one is due when the one before was acknowledged.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := pf.options()
			if err != nil {
				return err
			}
			if rate < 0 || f.size < 8 {
				return usagef("--rate must not be below 0 and --record-size at least 8")
			}
			endToEnd = endToEnd && rate > 0 // without a rate, when a record was due is known at the sender only
			b := latencyBench{flags: &f, rate: rate, value: payloads(f.size)[0], ack: newHistogram(), e2e: newHistogram()}
			if err := f.withAdmin(cmd, b.prepare); err != nil {
				return err
			}
			cl, err := f.connect(cmd.Context(), append(opts, kgo.DefaultProduceTopic(f.topic),
				kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
			if err != nil {
				return err
			}
			defer cl.Close()
			stop := progress(cmd.ErrOrStderr(), "latency", f.warmup+f.duration, &b.acked)
			res, err := b.run(cmd.Context(), cl, endToEnd)
			stop()
			if err != nil {
				return err
			}
			return render(cmd, f.format, res, res.print)
		},
	}
	f.register(cmd)
	pf.register(cmd)
	cmd.Flags().Float64Var(&rate, "rate", 1000, "records per second; 0 has one record in flight")
	cmd.Flags().BoolVar(&endToEnd, "end-to-end", true, "measure until a consumer has the record, too")
	return cmd
}

// latencyBench sends on an open-loop schedule: a record that is late because
// the cluster was slow counts its wait (no coordinated omission).
type latencyBench struct {
	flags  *benchFlags
	rate   float64
	value  []byte
	ends   map[int32]kgo.Offset
	acked  atomic.Int64
	failed atomic.Int64

	// Intended send times in [measureFrom, measureTo) count; set before load starts.
	measureFrom, measureTo time.Time

	histMu   sync.Mutex // guards the two below
	ack, e2e *hdrhistogram.Histogram
}

func (b *latencyBench) prepare(ctx context.Context, adm *kadm.Client) error {
	if err := b.flags.ensureTopic(ctx, adm); err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, b.flags.topic)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	b.ends = map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) { b.ends[o.Partition] = kgo.NewOffset().At(o.Offset) })
	return nil
}

func (b *latencyBench) run(ctx context.Context, cl *kgo.Client, endToEnd bool) (*benchResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	epoch := time.Now()
	b.measureFrom = epoch.Add(b.flags.warmup)
	b.measureTo = b.measureFrom.Add(b.flags.duration)
	if endToEnd {
		consumer, err := b.flags.connect(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.flags.topic: b.ends}), kgo.FetchMinBytes(1))
		if err != nil {
			return nil, err
		}
		wg.Go(func() { defer consumer.Close(); b.receive(ctx, consumer, epoch) })
	}
	wg.Go(func() {
		if b.rate == 0 {
			b.sendInTurn(ctx, cl)
		} else {
			b.send(ctx, cl, epoch)
		}
	})
	if !sleep(ctx, b.flags.warmup) {
		return nil, ctx.Err()
	}
	before, err := readUsage(b.flags.pids)
	if err != nil {
		return nil, err
	}
	if !sleep(ctx, time.Until(b.measureTo)) {
		return nil, ctx.Err()
	}
	after, err := readUsage(b.flags.pids)
	if err != nil {
		return nil, err
	}
	flushCtx, stop := context.WithTimeout(ctx, b.flags.timeout)
	defer stop()
	if err := cl.Flush(flushCtx); err != nil {
		return nil, fmt.Errorf("wait for acknowledgements: %w", err)
	}
	if endToEnd { // the consumer is at most a moment behind the last ack
		sleep(ctx, 500*time.Millisecond)
	}
	b.histMu.Lock()
	defer b.histMu.Unlock()
	res := &benchResult{Bench: "latency", Records: b.ack.TotalCount(), Errors: b.failed.Load(), Ack: percentilesOf(b.ack), EndToEnd: percentilesOf(b.e2e)}
	res.finish(res.Records*int64(b.flags.size), b.flags.duration, after.since(before))
	return res, nil
}

// due is the intended send time of record i.
func (b *latencyBench) due(epoch time.Time, i int64) time.Time {
	return epoch.Add(time.Duration(float64(i) / b.rate * float64(time.Second)))
}

func (b *latencyBench) counts(due time.Time) bool {
	return !due.Before(b.measureFrom) && due.Before(b.measureTo)
}

func (b *latencyBench) record(h *hdrhistogram.Histogram, due time.Time) {
	d := time.Since(due).Microseconds()
	b.histMu.Lock()
	_ = h.RecordValue(max(1, d))
	b.histMu.Unlock()
}

func (b *latencyBench) send(ctx context.Context, cl *kgo.Client, epoch time.Time) {
	runtime.LockOSThread() // for sleepUntil
	defer runtime.UnlockOSThread()
	for i := int64(0); ctx.Err() == nil; i++ {
		due := b.due(epoch, i)
		if due.After(b.measureTo) {
			return
		}
		if !sleepUntil(ctx, due) {
			return
		}
		value := make([]byte, len(b.value))
		copy(value, b.value)
		binary.BigEndian.PutUint64(value, uint64(i))
		cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) { b.done(ctx, due, err) })
	}
}

// sendInTurn is the closed loop: one record in flight.
func (b *latencyBench) sendInTurn(ctx context.Context, cl *kgo.Client) {
	for due := time.Now(); ctx.Err() == nil && !due.After(b.measureTo); due = time.Now() {
		b.done(ctx, due, cl.ProduceSync(ctx, &kgo.Record{Value: b.value}).FirstErr())
	}
}

// done notes what became of a record.
func (b *latencyBench) done(ctx context.Context, due time.Time, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		b.failed.Add(1)
	case err == nil && b.counts(due):
		b.acked.Add(1)
		b.record(b.ack, due)
	}
}

func (b *latencyBench) receive(ctx context.Context, cl *kgo.Client, epoch time.Time) {
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if len(r.Value) < 8 || r.Timestamp.Before(epoch.Truncate(time.Millisecond)) {
				continue
			}
			if due := b.due(epoch, int64(binary.BigEndian.Uint64(r.Value))); b.counts(due) {
				b.record(b.e2e, due)
			}
		}
	}
}
