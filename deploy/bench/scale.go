package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scale is one part of 'bench -scale', on a fresh cluster of its own.
type scale struct {
	ctx context.Context
	o   options
	*system
	*kgo.Client
	wire     wire
	replicas int16 // of topics that are made; zero is the cluster's default
}

// runScale measures what many partitions, sessions and waiting consumers cost.
func runScale(ctx context.Context, o options) error {
	fmt.Fprintln(os.Stdout, machine())
	for _, part := range []struct {
		name, cache string
		run         func(*scale) error
	}{
		{"idle", "256MiB", (*scale).idle},
		{"session", "256MiB", (*scale).session},
		{"partitions", "256MiB", (*scale).many},
		// A small cache makes small packs, so that a short run has many of them and
		// what follows on them.
		{"requests", "32MiB", (*scale).requests},
	} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), part.name) {
			continue
		}
		fmt.Fprintf(os.Stdout, "\n%s\n", part.name)
		o.cache = part.cache
		if err := runPart(ctx, o, part.run); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func runPart(ctx context.Context, o options, run func(*scale) error) (err error) {
	if o.dir, err = os.MkdirTemp(o.dir, "scale-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	s := &scale{ctx: ctx, o: o}
	if s.system, err = startPonor(ctx, o); err != nil {
		return err
	}
	defer func() { s.stop() }()
	if s.Client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(s.bootstrap, ",")...), kgo.WithHooks(&s.wire)); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	defer s.Close()
	return run(s)
}

// row prints one figure.
func row(name, format string, args ...any) {
	fmt.Fprintf(os.Stdout, "  %-46s %s\n", name, fmt.Sprintf(format, args...))
}

// window is what the brokers did over some time.
type window struct {
	seconds, cpu, rss float64
	slots             int64
	entries           uint64 // of the Raft log
	requests          map[string]float64
}

// watch measures the brokers while do runs.
func (s *scale) watch(do func() error) (w window, err error) {
	slots, index := s.slots.look(), s.raftIndex()
	before, err := s.storeRequests()
	if err != nil {
		return w, err
	}
	cpu, _, err := usage(s.pids)
	if err != nil {
		return w, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return w, err
	}
	w.seconds = time.Since(begin).Seconds()
	after, rss, err := usage(s.pids)
	if err != nil {
		return w, err
	}
	w.cpu, w.rss, w.slots, w.entries = after-cpu, rss, s.slots.look()-slots, s.raftIndex()-index
	if w.requests, err = s.storeRequests(); err != nil {
		return w, err
	}
	for k, n := range before {
		w.requests[k] -= n
	}
	return w, nil
}

// rest watches the brokers while this program does nothing.
func (s *scale) rest(d time.Duration) (window, error) {
	return s.watch(func() error { pause(s.ctx, d); return s.ctx.Err() })
}

func (w window) String() string {
	return fmt.Sprintf("CPU %.2f %% of a core, RSS %.0f MB, WAL puts %d, Raft entries %d in %.0f s",
		100*w.cpu/w.seconds, w.rss/1e6, w.slots, w.entries, w.seconds)
}

// raftIndex is the newest index of the quorum's log, 0 if it does not answer.
func (s *scale) raftIndex() (index uint64) {
	out, err := exec.CommandContext(s.ctx, s.o.binary, "quorum", "status", "--controllers", strings.Join(s.quorum, ","), "--format", "json").Output()
	if err != nil {
		return 0
	}
	var view struct {
		Controllers []struct {
			Index uint64 `json:"index"`
		} `json:"controllers"`
	}
	_ = json.Unmarshal(out, &view) // none: 0
	for _, v := range view.Controllers {
		index = max(index, v.Index)
	}
	return index
}

// heap is what Go's runtime says of a node's memory, in bytes.
type heap struct {
	spare  float64 // free in the heap and not given back to the system
	stacks float64
	live   float64 // after a collection
}

// heaps asks the nodes, and has them collect garbage.
func (s *scale) heaps() (out []heap, err error) {
	for _, addr := range s.debug {
		before, err := runtimeSays(s.ctx, "http://"+addr+"/debug/pprof/heap?debug=1")
		if err != nil {
			return nil, fmt.Errorf("read heap: %w", err)
		}
		after, err := runtimeSays(s.ctx, "http://"+addr+"/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return nil, fmt.Errorf("read heap: %w", err)
		}
		out = append(out, heap{spare: before["HeapIdle"] - before["HeapReleased"], stacks: before["Stack"], live: after["HeapAlloc"]})
	}
	return out, nil
}

// runtimeSays reads the runtime's figures at the end of a heap profile.
func runtimeSays(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		name, v, ok := strings.Cut(strings.TrimPrefix(scan.Text(), "# "), " = ")
		if !ok {
			continue
		}
		v, _, _ = strings.Cut(v, " ") // "Stack = in use / from the system"
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			out[name] = n
		}
	}
	return out, scan.Err()
}

// resident is the RSS of each node.
func (s *scale) resident() (out []float64, err error) {
	for _, pid := range s.pids {
		_, rss, err := usage([]int{pid})
		if err != nil {
			return nil, err
		}
		out = append(out, rss)
	}
	return out, nil
}

// create makes topics of n partitions each, some per request, as an admin client
// does, and returns when the cluster has said that they are made.
func (s *scale) create(topics []string, n, perRequest int) error {
	for batch := range slices.Chunk(topics, perRequest) {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 60_000
		for _, name := range batch {
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(n), cmp.Or(s.replicas, -1)
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(s.ctx, s.Client)
		if err != nil {
			return fmt.Errorf("create topics: %w", err)
		}
		for _, t := range resp.Topics {
			if t.ErrorCode != 0 {
				return fmt.Errorf("create topic %s: error %d", t.Topic, t.ErrorCode)
			}
		}
	}
	return nil
}

// names are n names of topics.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return out
}
