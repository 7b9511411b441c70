package check_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// large is a history of CHECK_OPS operations, by default 200,000.
func large() *history.History {
	ops := 200_000
	if s := os.Getenv("CHECK_OPS"); s != "" {
		ops, _ = strconv.Atoi(s)
	}
	return generate(1, options{keys: 64, clients: 40, ops: ops, idempotent: true, grouped: true, batch: 2, fetch: 3})
}

// Judging a history of CHECK_OPS operations. The figures are of the judging;
// history_MB is there before it.
func BenchmarkAll(b *testing.B) {
	h := large()
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

// Reading a history of CHECK_OPS operations from a file and judging it. With
// CHECK_FILE it is kept there, for 'ponor jepsen check'.
func BenchmarkFile(b *testing.B) {
	path := cmp.Or(os.Getenv("CHECK_FILE"), filepath.Join(b.TempDir(), "history.jsonl"))
	if err := save(path, large()); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		h, err := history.Read(f)
		if err != nil {
			b.Fatal(err)
		}
		if s := check.All(h, nil); s.Verdict != check.Valid {
			b.Fatal(s.Verdict, s.Why)
		}
		if st, err := f.Stat(); err == nil {
			b.SetBytes(st.Size())
		}
		_ = f.Close()
	}
}

func save(path string, h *history.History) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := history.NewWriter(f, h.Header)
	for i := range h.Ops {
		w.Op(&h.Ops[i])
	}
	for i := range h.Events {
		w.Event(&h.Events[i])
	}
	return errors.Join(w.Flush(), f.Close())
}
