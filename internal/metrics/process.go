package metrics

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"syscall"
)

// ShowProcess writes what is known of the process to a page. On systems without
// /proc some of it is left out.
func ShowProcess(p *Page) {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) == nil {
		p.Set(ProcessCPU, seconds(use.Utime)+seconds(use.Stime))
	}
	stat, _ := os.ReadFile("/proc/self/statm")
	if f := bytes.Fields(stat); len(f) > 1 {
		pages, _ := strconv.ParseFloat(string(f[1]), 64)
		p.Set(ProcessMemory, pages*float64(os.Getpagesize()))
	}
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		p.Set(ProcessFDs, float64(len(names)-1)) // without the one that reads them
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		p.Set(ProcessMaxFDs, float64(limit.Cur))
	}
	if start := startTime(); start > 0 {
		p.Set(ProcessStart, start)
	}
	samples := []metrics.Sample{
		{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(samples)
	for i, id := range []ID{Goroutines, GoHeap, GoGCs, GoGCCPU} {
		switch v := samples[i].Value; v.Kind() {
		case metrics.KindUint64:
			p.Set(id, float64(v.Uint64()))
		case metrics.KindFloat64:
			p.Set(id, v.Float64())
		case metrics.KindBad, metrics.KindFloat64Histogram: // not in this version of Go
		}
	}
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// ticks is the kernel's unit of process times, which is 100 a second on every
// system that Go supports.
const ticks = 100

// startTime is when the process started, in Unix seconds, 0 if unknown.
func startTime() float64 {
	stat, _ := os.ReadFile("/proc/self/stat")
	// The second field, the command's name, may hold anything but ends in ")".
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	f := bytes.Fields(rest)
	if !ok || len(f) < 20 {
		return 0
	}
	since, _ := strconv.ParseFloat(string(f[19]), 64)
	all, _ := os.ReadFile("/proc/stat")
	_, boot, ok := bytes.Cut(all, []byte("\nbtime "))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(boot, []byte("\n"))
	at, _ := strconv.ParseFloat(string(line), 64)
	return at + since/ticks
}
