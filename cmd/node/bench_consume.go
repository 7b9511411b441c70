package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newBenchConsume() *cobra.Command {
	var f benchFlags
	var consumers int
	var once bool
	cmd := &cobra.Command{
		Use: "consume", Short: "Read a topic from its start, again and again", Args: takes(0, 0),
		Long: `Reads a topic from its start, again and again, for --duration. With --once it
reads every record once, from the first request to the last record, without
warm-up, which is what a consumer sees that catches up.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := consumeBench{flags: &f, consumers: consumers}
			if once {
				b.all = make(chan struct{})
			}
			if err := f.withAdmin(cmd, b.findEnds); err != nil {
				return err
			}
			stop := progress(cmd.ErrOrStderr(), "consume", f.warmup+f.duration, &b.records)
			res, err := b.run(cmd.Context())
			stop()
			if err != nil {
				return err
			}
			return render(cmd, f.format, res, res.print)
		},
	}
	f.register(cmd)
	cmd.Flags().IntVar(&consumers, "consumers", 2, "consumers, each reads its share of the partitions")
	cmd.Flags().BoolVar(&once, "once", false, "read every record once and stop, whatever --warmup and --duration say")
	return cmd
}

// consumeBench reads every partition from start to end; a partition that is
// at its end starts again.
type consumeBench struct {
	flags     *benchFlags
	consumers int
	all       chan struct{} // closed once every record was read; nil: again and again
	unread    atomic.Int64  // partitions that are not at their end
	parts     []int32
	ends      map[int32]int64
	records   atomic.Int64
	bytes     atomic.Int64
}

func (b *consumeBench) findEnds(ctx context.Context, adm *kadm.Client) error {
	if err := topicsExist(ctx, adm, []string{b.flags.topic}); err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, b.flags.topic)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	starts, err := adm.ListStartOffsets(ctx, b.flags.topic)
	if err != nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	b.ends = make(map[int32]int64)
	for _, o := range ends.Offsets().Sorted() {
		if s, ok := starts.Lookup(o.Topic, o.Partition); ok && s.Offset < o.At {
			b.ends[o.Partition] = o.At
			b.parts = append(b.parts, o.Partition)
		}
	}
	if len(b.parts) == 0 {
		return fmt.Errorf("topic %s holds nothing to read; run 'ponor bench produce --topic %s' first", b.flags.topic, b.flags.topic)
	}
	return nil
}

func (b *consumeBench) run(ctx context.Context) (*benchResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	b.unread.Store(int64(len(b.parts)))
	before, start, err := b.mark()
	if err != nil {
		return nil, err
	}
	errs := make(chan error, b.consumers)
	for c := range b.consumers {
		mine := map[int32]kgo.Offset{}
		for i, p := range b.parts {
			if i%b.consumers == c {
				mine[p] = kgo.NewOffset().AtStart()
			}
		}
		if len(mine) == 0 {
			continue
		}
		cl, err := b.flags.connect(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.flags.topic: mine}),
			kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchMaxPartitionBytes(8<<20))
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			defer cl.Close()
			errs <- b.read(ctx, cl)
		})
	}
	var end <-chan time.Time // nil: when all is read
	if b.all == nil {
		if !sleep(ctx, b.flags.warmup) {
			return nil, ctx.Err()
		}
		if before, start, err = b.mark(); err != nil {
			return nil, err
		}
		end = time.After(b.flags.duration)
	}
	select {
	case err := <-errs:
		return nil, err
	case <-b.all:
	case <-end:
	}
	after, now, err := b.mark()
	if err != nil {
		return nil, err
	}
	res := &benchResult{Bench: "consume", Records: now.records - start.records}
	res.finish(now.bytes-start.bytes, now.at.Sub(start.at), after.since(before))
	return res, nil
}

// consumeMark is how far a benchmark was at a time.
type consumeMark struct {
	at             time.Time
	records, bytes int64
}

func (b *consumeBench) mark() (*processUsage, consumeMark, error) {
	u, err := readUsage(b.flags.pids)
	return u, consumeMark{time.Now(), b.records.Load(), b.bytes.Load()}, err
}

// read polls until ctx ends and rewinds partitions at their end. Without a rewind
// nothing comes behind the end, as nobody produces.
func (b *consumeBench) read(ctx context.Context, cl *kgo.Client) error {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("consume partition %d of %s: %w", e.Partition, e.Topic, e.Err)
		}
		rewind := map[int32]kgo.EpochOffset{}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			var n int64
			for _, r := range p.Records {
				n += int64(len(r.Value))
			}
			b.records.Add(int64(len(p.Records)))
			b.bytes.Add(n)
			if last := len(p.Records) - 1; last < 0 || p.Records[last].Offset+1 < b.ends[p.Partition] {
				return
			}
			if b.all == nil {
				rewind[p.Partition] = kgo.EpochOffset{Epoch: -1, Offset: 0}
			} else if b.unread.Add(-1) == 0 {
				close(b.all)
			}
		})
		if len(rewind) > 0 {
			cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{b.flags.topic: rewind})
		}
	}
}
