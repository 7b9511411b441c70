package fault_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

var errInjected = errors.New("injected")

func TestRulesSayWhatHappens(t *testing.T) {
	for _, c := range []struct {
		name         string
		rule         fault.Rule
		want         error // of the put
		now, later   bool  // whether the object is there, at once and in the end
		virtualDelay time.Duration
	}{
		{name: "none", now: true, later: true},
		{name: "before", rule: fault.Rule{Before: errInjected}, want: errInjected},
		{name: "after", rule: fault.Rule{After: errInjected}, want: errInjected, now: true, later: true},
		{name: "late", rule: fault.Rule{After: errInjected, Late: time.Minute}, want: errInjected, later: true},
		{name: "delay", rule: fault.Rule{Delay: time.Second}, now: true, later: true, virtualDelay: time.Second},
		{name: "delay beyond the context", rule: fault.Rule{Delay: time.Hour}, want: context.DeadlineExceeded, virtualDelay: time.Minute},
		{name: "another operation", rule: fault.Rule{Ops: []fault.Op{fault.Put}, Before: errInjected}, now: true, later: true},
		{name: "another key", rule: fault.Rule{Key: "other", Before: errInjected}, now: true, later: true},
		{name: "skipped", rule: fault.Rule{Skip: 1, Before: errInjected}, now: true, later: true},
		{name: "never", rule: fault.Rule{Chance: 1e-12, Before: errInjected}, now: true, later: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New()
				b := fault.New(inner, 1)
				b.Add(c.rule)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				body := objstore.BytesBody([]byte("data"))
				err := b.PutNew(ctx, "a/key", body)
				if !errors.Is(err, c.want) || time.Since(start) != c.virtualDelay {
					t.Errorf("put: %v after %v, want %v after %v", err, time.Since(start), c.want, c.virtualDelay)
				}
				clear(body.Parts[0]) // recycled
				there := func() bool {
					got := make([]byte, 9)
					n, err := inner.GetRange(t.Context(), "a/key", 0, got)
					if err == nil && string(got[:n]) != "data" {
						t.Errorf("object is %q", got[:n])
					}
					return err == nil
				}
				if there() != c.now {
					t.Errorf("there at once: %t, want %t", !c.now, c.now)
				}
				b.Land()
				if there() != c.later {
					t.Errorf("there in the end: %t, want %t", !c.later, c.later)
				}
			})
		})
	}
}

func TestTimesAndRemoval(t *testing.T) {
	b := fault.New(mem.New(), 1)
	remove := b.Add(fault.Rule{Ops: []fault.Op{fault.Head}, Before: errInjected, Times: 2})
	head := func() bool { _, err := b.Head(t.Context(), "k"); return errors.Is(err, errInjected) }
	if got := []bool{head(), head(), head()}; !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("with Times 2 the calls failed: %v", got)
	}
	remove()
	remove = b.Add(fault.Rule{Before: errInjected})
	if !head() {
		t.Error("second rule does nothing")
	}
	remove()
	if head() {
		t.Error("a removed rule still acts")
	}
}

func TestCorruptDamagesReadsOnly(t *testing.T) {
	b := fault.New(mem.New(), 1)
	if err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("abc"))); err != nil {
		t.Fatal(err)
	}
	b.Add(fault.Rule{Corrupt: fault.FlipByte, Times: 1})
	got := make([]byte, 3)
	for _, want := range []bool{true, false} {
		if _, err := b.GetRange(t.Context(), "k", 0, got); err != nil || (string(got) != "abc") != want {
			t.Errorf("read %q, %v; damaged: want %t", got, err, want)
		}
	}
}

func TestLatencyIsLogNormal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fault.New(mem.New(), 1)
		b.Add(fault.Rule{Ops: []fault.Op{fault.Head}, Latency: fault.Latency{Median: 50 * time.Millisecond, P99: 250 * time.Millisecond}})
		took := make([]time.Duration, 10_000)
		for i := range took {
			start := time.Now()
			if _, err := b.Head(t.Context(), "none"); !errors.Is(err, objstore.ErrNotFound) {
				t.Fatal(err)
			}
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		if p50 := took[len(took)/2]; p50 < 48*time.Millisecond || p50 > 52*time.Millisecond {
			t.Errorf("median %v, want 50ms", p50)
		}
		if p99 := took[len(took)*99/100]; p99 < 230*time.Millisecond || p99 > 270*time.Millisecond {
			t.Errorf("99th percentile %v, want 250ms", p99)
		}
	})
}
