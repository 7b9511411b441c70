package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// load is one row of the table.
type load struct {
	name    string
	prepare []string // 'ponor bench' before it, on the same topic
	cold    bool     // then nothing is in memory any more
	args    []string // 'ponor bench'; none: the cluster is left alone
}

func loads() []load {
	return []load{
		{name: "idle"},
		{name: "produce-1k", args: []string{"produce"}},
		{name: "produce-100", args: []string{"produce", "--record-size", "100"}},
		{name: "consume", prepare: []string{"produce", "--warmup", "0s", "--duration", "1s"}, args: []string{"consume"}},
		{name: "consume-cold", prepare: []string{"produce", "--warmup", "0s", "--duration", "6s"}, cold: true, args: []string{"consume", "--once"}},
		{name: "closed-loop", args: []string{"latency", "--rate", "0", "--partitions", "1", "--record-size", "100"}},
		{name: "latency-200", args: []string{"latency", "--rate", "200", "--partitions", "1"}},
		{name: "latency-1000", args: []string{"latency", "--rate", "1000"}},
		{name: "latency-100p", args: []string{"latency", "--rate", "2000", "--partitions", "100", "--linger", "5ms"}},
	}
}

// measurement is what 'ponor bench --format json' prints, and the WAL's puts.
type measurement struct {
	Errors        int64        `json:"errors"`
	Seconds       float64      `json:"seconds"`
	RecordsPerSec float64      `json:"records_per_second"`
	MBPerSec      float64      `json:"mb_per_second"`
	Ack           *percentiles `json:"ack_ms"`
	EndToEnd      *percentiles `json:"end_to_end_ms"`
	Brokers       struct {
		CPUSeconds float64 `json:"cpu_seconds"`
		RSS        float64 `json:"rss_bytes"`
	} `json:"brokers"`
	CPUPerGB float64 `json:"cpu_seconds_per_gb"`
	puts     float64 // per second
	disk     float64 // what direct reads of the same files gave, MB/s
}

type percentiles struct{ P50, P99 float64 }

func (m *measurement) String() string {
	var b strings.Builder
	for _, f := range figures() {
		if v, ok := f.of(m); ok {
			fmt.Fprintf(&b, "%s %.*f  ", f.name, f.digits, v)
		}
	}
	if m.Errors > 0 {
		fmt.Fprintf(&b, "ERRORS %d", m.Errors)
	}
	return b.String()
}

// measure puts the load on a system.
func (l load) measure(ctx context.Context, o options, s *system) (*measurement, error) {
	if l.args == nil {
		return idle(ctx, o, s)
	}
	topic := l.name
	defer func() {
		// The next load does not pay for this one: its topic goes, and what is
		// dirty is on disk.
		_ = s.ponor(ctx, o, nil, "topic", "delete", topic)
		syscall.Sync()
	}()
	if l.prepare != nil {
		if err := s.ponor(ctx, o, nil, append(append([]string{"bench"}, l.prepare...), "--topic", topic)...); err != nil {
			return nil, err
		}
	}
	var disk float64
	if l.cold {
		var err error
		if disk, err = s.cool(ctx, o); err != nil {
			return nil, err
		}
	}
	var before int64
	if s.slots != nil {
		before = s.slots.look()
	}
	var pids []string
	for _, p := range s.pids {
		pids = append(pids, strconv.Itoa(p))
	}
	args := append([]string{"bench"}, l.args...)
	args = append(args, "--topic", topic, "--pid", strings.Join(pids, ","), "--format", "json",
		"--warmup", o.warmup.String(), "--duration", o.duration.String())
	var out []byte
	if err := s.ponor(ctx, o, &out, args...); err != nil {
		return nil, err
	}
	m := new(measurement)
	if err := json.Unmarshal(out, m); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if s.slots != nil {
		m.puts = float64(s.slots.look()-before) / (o.warmup + o.duration).Seconds()
	}
	m.disk = disk / 1e6
	return m, nil
}

// idle watches a cluster that nobody uses.
func idle(ctx context.Context, o options, s *system) (*measurement, error) {
	pause(ctx, o.warmup)
	var before int64
	if s.slots != nil {
		before = s.slots.look()
	}
	cpu, _, err := usage(s.pids)
	if err != nil {
		return nil, err
	}
	pause(ctx, o.duration)
	after, rss, err := usage(s.pids)
	if err != nil {
		return nil, err
	}
	m := &measurement{Seconds: o.duration.Seconds()}
	m.Brokers.CPUSeconds, m.Brokers.RSS = after-cpu, rss
	if s.slots != nil {
		m.puts = float64(s.slots.look()-before) / m.Seconds
	}
	return m, nil
}

// usage is the CPU seconds and resident bytes of processes (Linux, where /proc
// counts in ticks of 10 ms).
func usage(pids []int) (cpu, rss float64, err error) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, 0, fmt.Errorf("measure process: %w", err)
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, i := range []int{11, 12} { // utime, stime
			n, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return 0, 0, fmt.Errorf("measure process: %w", err)
			}
			cpu += n / 100
		}
		pages, err := strconv.ParseFloat(f[21], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("measure process: %w", err)
		}
		rss += pages * float64(os.Getpagesize())
	}
	return cpu, rss, nil
}

// figure is one column.
type figure struct {
	name   string
	digits int
	of     func(*measurement) (float64, bool)
}

func figures() []figure {
	return []figure{
		{"records/s", 0, func(m *measurement) (float64, bool) { return m.RecordsPerSec, m.RecordsPerSec > 0 }},
		{"MB/s", 1, func(m *measurement) (float64, bool) { return m.MBPerSec, m.MBPerSec > 0 && m.Ack == nil }},
		{"of disk", 2, func(m *measurement) (float64, bool) { return m.MBPerSec / m.disk, m.disk > 0 }},
		{"CPU-s/GB", 2, func(m *measurement) (float64, bool) { return m.CPUPerGB, m.CPUPerGB > 0 && m.Ack == nil }},
		{"CPU %", 1, func(m *measurement) (float64, bool) { return 100 * m.Brokers.CPUSeconds / m.Seconds, m.Seconds > 0 }},
		{"ack p50 ms", 2, func(m *measurement) (float64, bool) { return of(m.Ack, func(p *percentiles) float64 { return p.P50 }) }},
		{"ack p99 ms", 2, func(m *measurement) (float64, bool) { return of(m.Ack, func(p *percentiles) float64 { return p.P99 }) }},
		{"read p50 ms", 2, func(m *measurement) (float64, bool) {
			return of(m.EndToEnd, func(p *percentiles) float64 { return p.P50 })
		}},
		{"read p99 ms", 2, func(m *measurement) (float64, bool) {
			return of(m.EndToEnd, func(p *percentiles) float64 { return p.P99 })
		}},
		{"RSS MB", 0, func(m *measurement) (float64, bool) { return m.Brokers.RSS / 1e6, true }},
		{"puts/s", 1, func(m *measurement) (float64, bool) { return m.puts, true }},
	}
}

func of(p *percentiles, pick func(*percentiles) float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return pick(p), true
}

// results has the measurements of each load and system, in order.
type results struct {
	order []string
	by    map[[2]string][]*measurement
}

func (r *results) add(load, system string, m *measurement) {
	if r.by == nil {
		r.by = map[[2]string][]*measurement{}
	}
	if !slices.Contains(r.order, load) {
		r.order = append(r.order, load)
	}
	k := [2]string{load, system}
	r.by[k] = append(r.by[k], m)
}

// median of one figure over the rounds.
func (r *results) median(load, system string, f figure) (float64, bool) {
	var all []float64
	for _, m := range r.by[[2]string{load, system}] {
		if v, ok := f.of(m); ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// print writes the medians, and the first system's as a multiple of the second's.
func (r *results) print(w io.Writer, systems []*system) {
	fmt.Fprintf(w, "%s\n", machine())
	for _, s := range systems {
		fmt.Fprintf(w, "%s: start to first acknowledged record %.2f s\n", s.name, s.started.Seconds())
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "load\t\t")
	for _, f := range figures() {
		fmt.Fprintf(tw, "%s\t", f.name)
	}
	fmt.Fprintln(tw)
	for _, l := range r.order {
		for _, s := range systems {
			fmt.Fprintf(tw, "%s\t%s\t", l, s.name)
			for _, f := range figures() {
				cell := ""
				if v, ok := r.median(l, s.name, f); ok {
					cell = strconv.FormatFloat(v, 'f', f.digits, 64)
				}
				fmt.Fprintf(tw, "%s\t", cell)
			}
			fmt.Fprintln(tw)
		}
		if len(systems) < 2 {
			continue
		}
		fmt.Fprintf(tw, "%s\tratio\t", l)
		for _, f := range figures() {
			cell := ""
			a, ok := r.median(l, systems[0].name, f)
			if b, ok2 := r.median(l, systems[1].name, f); ok && ok2 && b > 0 {
				cell = strconv.FormatFloat(a/b, 'f', 3, 64)
			}
			fmt.Fprintf(tw, "%s\t", cell)
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush()
}

// machine says what was measured on.
func machine() string {
	load, _ := os.ReadFile("/proc/loadavg") // "" elsewhere
	kernel, _ := exec.Command("uname", "-sr").Output()
	return fmt.Sprintf("%s, %d cores, %s, load average %s", time.Now().UTC().Format(time.DateTime), runtime.NumCPU(), bytes.TrimSpace(kernel), bytes.TrimSpace(load))
}
