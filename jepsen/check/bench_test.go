package check_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"ponor/jepsen/check"
)

// Judging a history of CHECK_OPS operations, by default 200,000. The figures
// are of the judging; history_MB is there before it.
func BenchmarkAll(b *testing.B) {
	ops := 200_000
	if s := os.Getenv("CHECK_OPS"); s != "" {
		ops, _ = strconv.Atoi(s)
	}
	h := generate(1, options{keys: 64, clients: 40, ops: ops, idempotent: true, grouped: true, batch: 2, fetch: 3})
	records, polled := 0, 0
	for i := range h.Ops {
		records += len(h.Ops[i].Sends)
		polled += len(h.Ops[i].Polls)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for range b.N {
		if s := check.All(h, nil); s.Verdict != check.Valid {
			b.Fatal(s.Verdict, s.Why)
		}
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(before.HeapAlloc)/(1<<20), "history_MB")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/(1<<20)/float64(b.N), "allocated_MB")
	b.ReportMetric(float64(records), "sent")
	b.ReportMetric(float64(polled), "polled")
}
