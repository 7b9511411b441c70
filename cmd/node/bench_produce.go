package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newBenchProduce() *cobra.Command {
	var f benchFlags
	var pf produceFlags
	var producers int
	cmd := &cobra.Command{
		Use: "produce", Short: "Produce as fast as the cluster takes it", Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := pf.options()
			if err != nil {
				return err
			}
			if err := f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error { return f.ensureTopic(ctx, adm) }); err != nil {
				return err
			}
			b := produceBench{flags: &f, values: payloads(f.size)}
			for range producers {
				cl, err := f.connect(cmd.Context(), append(opts, kgo.MaxBufferedRecords(100_000), kgo.DefaultProduceTopic(f.topic))...)
				if err != nil {
					return err
				}
				defer cl.Close()
				b.clients = append(b.clients, cl)
			}
			stop := progress(cmd.ErrOrStderr(), "produce", f.warmup+f.duration, &b.acked)
			res, err := b.run(cmd.Context())
			stop()
			if err != nil {
				return err
			}
			return render(cmd, f.format, res, res.print)
		},
	}
	f.register(cmd)
	pf.register(cmd)
	cmd.Flags().IntVar(&producers, "producers", 2, "producers, each with its own connections")
	return cmd
}

// produceBench drives closed-loop producers whose buffers are always full.
type produceBench struct {
	flags   *benchFlags
	values  [][]byte
	clients []*kgo.Client
	acked   atomic.Int64
	failed  atomic.Int64
	first   atomic.Pointer[error] // the first failure
}

func (b *produceBench) run(ctx context.Context) (*benchResult, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, cl := range b.clients {
		wg.Go(func() { b.load(ctx, cl) })
	}
	defer wg.Wait()
	defer cancel()
	if !sleep(ctx, b.flags.warmup) {
		return nil, ctx.Err()
	}
	before, err := readUsage(b.flags.pids)
	if err != nil {
		return nil, err
	}
	startAcked, startFailed, start := b.acked.Load(), b.failed.Load(), time.Now()
	if !sleep(ctx, b.flags.duration) {
		return nil, ctx.Err()
	}
	elapsed := time.Since(start)
	res := &benchResult{Bench: "produce", Records: b.acked.Load() - startAcked, Errors: b.failed.Load() - startFailed}
	if first := b.first.Load(); first != nil {
		res.FirstError = (*first).Error()
	}
	if res.Records == 0 {
		return nil, fmt.Errorf("nothing was acknowledged in %v: %s", b.flags.duration, cmp.Or(res.FirstError, "no answer"))
	}
	after, err := readUsage(b.flags.pids)
	if err != nil {
		return nil, err
	}
	res.finish(res.Records*int64(b.flags.size), elapsed, after.since(before))
	return res, nil
}

// load produces without end. It shares the machine with what it measures, so it uses
// records again and collects garbage seldom.
func (b *produceBench) load(ctx context.Context, cl *kgo.Client) {
	pool := sync.Pool{New: func() any { return new(kgo.Record) }}
	promise := func(r *kgo.Record, err error) {
		pool.Put(r)
		if err == nil {
			b.acked.Add(1)
		} else if ctx.Err() == nil {
			b.failed.Add(1)
			b.first.CompareAndSwap(nil, &err)
		}
	}
	for i := 0; ctx.Err() == nil; i++ {
		r := pool.Get().(*kgo.Record)
		*r = kgo.Record{Value: b.values[i%len(b.values)]}
		cl.Produce(ctx, r, promise)
	}
}

// sleep waits and says whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
