package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/term"
)

func newBench() *cobra.Command {
	cmd := family("bench", "Measure any Kafka-protocol cluster", newBenchProduce(), newBenchConsume(), newBenchLatency())
	cmd.Long = `Measure any Kafka-protocol cluster: throughput of producing and consuming, and
latency at a fixed rate, counted from the moment a record was due to be sent.
With --pid the brokers' CPU and memory are measured too (Linux).`
	return cmd
}

// benchFlags are what every benchmark takes.
type benchFlags struct {
	clientFlags
	topic      string
	partitions int32
	replicas   int16
	size       int
	duration   time.Duration
	warmup     time.Duration
	pids       []int
	format     string
}

func (f *benchFlags) register(cmd *cobra.Command) {
	f.clientFlags.register(cmd)
	cmd.Flags().StringVar(&f.topic, "topic", "ponor-bench", "topic to use; created if it does not exist")
	cmd.Flags().Int32Var(&f.partitions, "partitions", 6, "partitions, if the topic is created")
	cmd.Flags().Int16Var(&f.replicas, "replication-factor", -1, "replication factor, if the topic is created; -1 is the cluster's default")
	cmd.Flags().IntVar(&f.size, "record-size", 1024, "bytes of each record's value, random")
	cmd.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	cmd.Flags().DurationVar(&f.warmup, "warmup", 2*time.Second, "load before measuring starts")
	cmd.Flags().IntSliceVar(&f.pids, "pid", nil, "process ids of the brokers, to measure their CPU and memory")
	formatFlag(cmd, &f.format)
}

// ensureTopic creates the topic if it is missing.
func (f *benchFlags) ensureTopic(ctx context.Context, adm *kadm.Client) error {
	for created := false; ; { // until every partition has a leader
		topics, err := adm.ListTopics(ctx, f.topic)
		if err != nil {
			return fmt.Errorf("describe topic %s: %w", f.topic, err)
		}
		t := topics[f.topic]
		if t.Err == nil && len(t.Partitions) > 0 && len(t.Partitions.Numbers()) == countLed(t) {
			return nil
		}
		if !created && (t.Err == nil && len(t.Partitions) == 0 || errors.Is(t.Err, kerr.UnknownTopicOrPartition)) {
			_, err := adm.CreateTopic(ctx, f.partitions, f.replicas, nil, f.topic)
			if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
				return fmt.Errorf("create topic %s: %w", f.topic, err)
			}
			created = true
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s: partitions without leader: %w", f.topic, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func countLed(t kadm.TopicDetail) int {
	n := 0
	for _, p := range t.Partitions {
		if p.Leader >= 0 && p.Err == nil {
			n++
		}
	}
	return n
}

// payloads are incompressible values to choose from, so that neither codecs
// nor the memory of one value flatter the result.
func payloads(size int) [][]byte {
	rng := rand.NewChaCha8([32]byte{1})
	out := make([][]byte, 64)
	for i := range out {
		out[i] = make([]byte, size)
		_, _ = rng.Read(out[i])
	}
	return out
}

// benchResult is what a benchmark prints. Sizes are bytes of values, MB are
// 10^6 bytes.
type benchResult struct {
	Bench         string        `json:"bench"`
	Records       int64         `json:"records"`
	Errors        int64         `json:"errors"`
	FirstError    string        `json:"first_error,omitempty"`
	Seconds       float64       `json:"seconds"`
	RecordsPerSec float64       `json:"records_per_second"`
	MBPerSec      float64       `json:"mb_per_second"`
	Ack           *percentiles  `json:"ack_ms,omitempty"`
	EndToEnd      *percentiles  `json:"end_to_end_ms,omitempty"`
	Brokers       *processUsage `json:"brokers,omitempty"`
	CPUPerGB      float64       `json:"cpu_seconds_per_gb,omitempty"`
}

// percentiles are latencies in milliseconds.
type percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// newHistogram counts microseconds up to ten minutes.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(10*time.Minute/time.Microsecond), 3)
}

func percentilesOf(h *hdrhistogram.Histogram) *percentiles {
	if h.TotalCount() == 0 {
		return nil
	}
	ms := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return &percentiles{P50: ms(50), P90: ms(90), P99: ms(99), P999: ms(99.9), Max: float64(h.Max()) / 1000}
}

// finish computes the rates from counts.
func (r *benchResult) finish(bytes int64, elapsed time.Duration, usage *processUsage) {
	r.Seconds = elapsed.Seconds()
	r.RecordsPerSec = float64(r.Records) / r.Seconds
	r.MBPerSec = float64(bytes) / 1e6 / r.Seconds
	r.Brokers = usage
	if usage != nil && bytes > 0 {
		r.CPUPerGB = usage.CPUSeconds / (float64(bytes) / 1e9)
	}
}

func (r *benchResult) print(p *printer) {
	p.line("%s: %d records in %.1f s, %d errors", r.Bench, r.Records, r.Seconds, r.Errors)
	if r.FirstError != "" {
		p.line("  first error\t%s", r.FirstError)
	}
	p.line("  rate\t%.0f records/s\t%.1f MB/s", r.RecordsPerSec, r.MBPerSec)
	for _, l := range []struct {
		name string
		p    *percentiles
	}{{"ack", r.Ack}, {"end to end", r.EndToEnd}} {
		if l.p != nil {
			p.line("  %s ms\tp50 %.2f\tp90 %.2f\tp99 %.2f\tp99.9 %.2f\tmax %.2f", l.name, l.p.P50, l.p.P90, l.p.P99, l.p.P999, l.p.Max)
		}
	}
	if r.Brokers != nil {
		p.line("  brokers\tCPU %.2f s (%.1f %% of a core)\tRSS %s\t%.2f CPU-s per GB",
			r.Brokers.CPUSeconds, 100*r.Brokers.CPUSeconds/r.Seconds, bytesText(r.Brokers.RSS), r.CPUPerGB)
	}
}

// progress draws one line on a terminal, once a second, until stop is called.
func progress(errOut io.Writer, name string, total time.Duration, records *atomic.Int64) (stop func()) {
	f, ok := errOut.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		start, last := time.Now(), int64(0)
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-done:
				tick.Stop()
				_, _ = fmt.Fprint(f, "\r\033[K")
				return
			case <-tick.C:
			}
			n := records.Load()
			part := min(1, time.Since(start).Seconds()/total.Seconds())
			bar := make([]byte, 30)
			for i := range bar {
				bar[i] = ' '
				if float64(i) < part*float64(len(bar)) {
					bar[i] = '#'
				}
			}
			_, _ = fmt.Fprintf(f, "\r\033[K%s [%s] %3.0f %%  %d records/s", name, bar, part*100, n-last)
			last = n
		}
	}()
	return func() { close(done); <-ended }
}
