package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	perTopic      = 1000 // partitions
	topicsAtOnce  = 10   // in one request
	latencyTopic  = "latency"
	latencyWindow = 10 * time.Second
)

// many makes very many partitions, and measures what they cost in memory, in
// the latency of others, and when the whole cluster starts anew.
func (s *scale) many() error {
	if err := s.create([]string{latencyTopic}, 1, 1); err != nil {
		return err
	}
	if err := s.latency("empty cluster"); err != nil {
		return err
	}
	before, err := s.memory("empty cluster")
	if err != nil {
		return err
	}
	topics := names("many", s.o.partitions/perTopic)
	begin := time.Now()
	w, err := s.watch(func() error { return s.create(topics, perTopic, topicsAtOnce) })
	if err != nil {
		return err
	}
	n := len(topics) * perTopic
	row(fmt.Sprintf("create %d partitions", n), "%.2f s, %s", w.seconds, w)
	if err := s.awaitAll(topics); err != nil {
		return err
	}
	row("all of them serve", "%.2f s after the first request", time.Since(begin).Seconds())
	if err := s.perPartition("after creation", n, before); err != nil {
		return err
	}
	pause(s.ctx, settle)
	w, err = s.rest(watch)
	if err != nil {
		return err
	}
	row("idle", "%s", w)
	if _, err := s.memory("when idle"); err != nil {
		return err
	}
	if err := s.latency(fmt.Sprintf("%d partitions", n)); err != nil {
		return err
	}
	if err := s.describe(); err != nil {
		return err
	}
	if err := s.restart(topics); err != nil {
		return err
	}
	if err := s.perPartition("after the restart", n, before); err != nil {
		return err
	}
	return s.latency("after the restart")
}

// latency is the load latency-200 on a topic that stays.
func (s *scale) latency(name string) error {
	var out []byte
	if err := s.ponor(s.ctx, s.o, &out, "bench", "latency", "--topic", latencyTopic, "--rate", "200", "--partitions", "1",
		"--warmup", "3s", "--duration", latencyWindow.String(), "--format", "json"); err != nil {
		return err
	}
	var m measurement
	if err := json.Unmarshal(out, &m); err != nil {
		return fmt.Errorf("read result: %w", err)
	}
	if m.Ack == nil {
		return fmt.Errorf("latency of %s: nothing was acknowledged", name)
	}
	row("latency-200, "+name, "ack p50 %.2f ms, p99 %.2f ms, %d errors", m.Ack.P50, m.Ack.P99, m.Errors)
	return nil
}

// memory prints what every node takes, and returns its live heap.
func (s *scale) memory(name string) (live []float64, err error) {
	rss, err := s.resident()
	if err != nil {
		return nil, err
	}
	heaps, err := s.heaps()
	if err != nil {
		return nil, err
	}
	text := ""
	for i, h := range heaps {
		text += fmt.Sprintf("%.0f = %.1f live + %.1f spare + %.1f stacks + ..; ", rss[i]/1e6, h.live/1e6, h.spare/1e6, h.stacks/1e6)
		live = append(live, h.live)
	}
	row("RSS of each node, MB, "+name, "%s", text)
	return live, nil
}

// perPartition prints what the partitions added to the nodes' live heaps. Each
// node owns a third, and has the image of all.
func (s *scale) perPartition(name string, n int, before []float64) error {
	live, err := s.memory(name)
	if err != nil {
		return err
	}
	var added float64
	for i := range live {
		added += live[i] - before[i]
	}
	row("live heap a partition, "+name, "%.0f B in the cluster (one owner and %d images)", added/float64(n), nodes)
	return nil
}

// describe asks for the metadata of everything, as 'kafka-topics --describe'
// does, while records are produced.
func (s *scale) describe() error {
	const times = 10
	var wg sync.WaitGroup
	var lerr error
	wg.Go(func() { lerr = s.latency(fmt.Sprintf("while %d clients ask for all metadata", 4)) })
	begin := time.Now()
	var took []time.Duration
	var mu sync.Mutex
	var asks sync.WaitGroup
	var failed error
	for range 4 {
		asks.Go(func() {
			for i := 0; i < times && s.ctx.Err() == nil; i++ {
				from := time.Now()
				req := kmsg.NewPtrMetadataRequest()
				req.Topics = nil
				_, err := req.RequestWith(s.ctx, s.Client)
				mu.Lock()
				took = append(took, time.Since(from))
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	asks.Wait()
	total := time.Since(begin)
	wg.Wait()
	if failed != nil || lerr != nil {
		return fmt.Errorf("ask for all metadata: %w, %w", failed, lerr)
	}
	n, _, in := s.wire.take(3)
	var worst time.Duration
	for _, d := range took {
		worst = max(worst, d)
	}
	row("metadata of everything", "%d answers in %.2f s, the slowest in %.2f s, %.1f MB each", len(took), total.Seconds(), worst.Seconds(), float64(in)/1e6/float64(max(n, 1)))
	_, err := s.memory("after it")
	return err
}

// restart kills every node and measures the way back.
func (s *scale) restart(topics []string) error {
	s.end(syscall.SIGKILL)
	begin := time.Now()
	if err := s.launch(s.o); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for s.ctx.Err() == nil {
			if s.ponor(s.ctx, s.o, nil, "bench", "latency", "--topic", "first", "--rate", "100", "--warmup", "1ms", "--duration", "20ms", "--end-to-end=false") == nil {
				row("kill -9 of all, first acknowledged record", "%.2f s after the start", time.Since(begin).Seconds())
				return
			}
			pause(s.ctx, 50*time.Millisecond)
		}
	})
	err := s.awaitAll(topics)
	row("kill -9 of all, every partition serves", "%.2f s after the start", time.Since(begin).Seconds())
	wg.Wait()
	cpu, _, uerr := usage(s.pids)
	if err == nil && uerr == nil {
		row("kill -9 of all, CPU of the start", "%.2f s, %.0f us a partition", cpu, 1e6*cpu/float64(len(topics)*perTopic))
	}

	return err
}
