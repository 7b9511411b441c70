package logtest_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/logtest"
	"ponor/commitlog/memlog"
)

// Every fault is caught by the clauses it breaks. Virtual time makes waiting
// for what a broken log never does cost nothing.
func TestBrokenLogsAreCaught(t *testing.T) {
	clauses := map[string]logtest.Clause{}
	for _, c := range logtest.Clauses() {
		clauses[c.Name] = c
	}
	for _, m := range mutants() {
		for _, name := range m.caught {
			t.Run(m.fault+"/"+name, func(t *testing.T) {
				c, ok := clauses[name]
				if !ok {
					t.Fatal("there is no such clause")
				}
				synctest.Test(t, func(t *testing.T) {
					// With a latency, nothing becomes durable before the clause waits.
					store := memlog.New(memlog.Config{Latency: time.Millisecond})
					r := record(t, func(tb testing.TB) { c.Test(tb, m.breakIt(store)) })
					if !r.Failed() {
						t.Error("the fault was not noticed")
					}
					time.Sleep(time.Hour) // what the fault left running ends
				})
			})
		}
	}
}

// A clause that no fault breaks may test nothing.
func TestEveryClauseHasAFaultItCatches(t *testing.T) {
	var caught []string
	for _, m := range mutants() {
		caught = append(caught, m.caught...)
	}
	for _, c := range logtest.Clauses() {
		if !slices.Contains(caught, c.Name) {
			t.Errorf("no mutant is caught by %q", c.Name)
		}
	}
}

// The decorator without a fault is a good log, so the faults are what fails.
func TestDecoratorIsTransparent(t *testing.T) {
	logtest.Run(t, func(testing.TB) logtest.World { return &broken{Store: memlog.New(memlog.Config{})} })
}

// Histories find faults too, without being told where to look.
func TestHistoriesFindFaults(t *testing.T) {
	for _, m := range mutants() {
		if !slices.Contains([]string{"offsets with a gap", "acknowledges before it is durable", "one read of seven skips a batch",
			"trim is forgotten by the next owner", "recovery misses the checkpoint", "open starts afresh", "segments have gaps"}, m.fault) {
			continue
		}
		t.Run(m.fault, func(t *testing.T) {
			for seed := range uint64(10) {
				noticed := false
				synctest.Test(t, func(t *testing.T) {
					noticed = record(t, func(tb testing.TB) {
						logtest.History(tb, m.breakIt(memlog.New(memlog.Config{})), seed, 150)
					}).Failed()
					time.Sleep(time.Hour)
				})
				if noticed {
					return
				}
			}
			t.Error("ten histories did not notice")
		})
	}
}

// bare has no powers beyond a Store.
type bare struct{ commitlog.Store }

func TestAWorldWithoutPowersIsTestedAsFarAsItGoes(t *testing.T) {
	skipped := 0
	for _, c := range logtest.Clauses() {
		if len(c.Needs) > 0 {
			skipped++
		}
	}
	if skipped == 0 || skipped == len(logtest.Clauses()) {
		t.Fatalf("%d of %d clauses need powers", skipped, len(logtest.Clauses()))
	}
	logtest.Run(t, func(testing.TB) logtest.World { return bare{memlog.New(memlog.Config{})} })
}
