package main

import (
	"slices"
	"strings"
	"testing"

	"ponor/jepsen/workload"
)

// TestRoundHasEveryPairOnce proves that a round of any seed has each workload with
// each fault once, so that a whole round leaves nothing out.
func TestRoundHasEveryPairOnce(t *testing.T) {
	for seed := range uint64(5) {
		for n := range 3 {
			seen := map[string]int{}
			for _, c := range round(seed, n) {
				for _, f := range c.Faults {
					seen[c.Workload+"/"+f]++
				}
			}
			for _, k := range workload.Kinds() {
				for _, f := range append(faults(), "none", "chaos") {
					want := 1
					if k.New == nil {
						want = 0
					}
					if got := seen[k.Name+"/"+f]; got != want {
						t.Errorf("seed %d, round %d: %s with %s is there %d times, want %d", seed, n, k.Name, f, got, want)
					}
				}
			}
		}
	}
}

// TestRunsGoOnWhereTheyEnded proves that cells are numbered through all rounds.
func TestRunsGoOnWhereTheyEnded(t *testing.T) {
	all := slices.Concat(round(3, 0), round(3, 1))
	for _, n := range []int{0, len(all)/2 - 1, len(all) / 2, len(all) - 1} {
		if got, want := nth(3, n).String(), all[n].String(); got != want {
			t.Errorf("cell %d is %s, want %s", n, got, want)
		}
	}
}

// TestTablesCountFaultsOnce proves that a fault of chaos is counted for itself, and
// that only invalid runs count as such.
func TestTablesCountFaultsOnce(t *testing.T) {
	var out strings.Builder
	bad := tables(&out, []outcome{
		{Number: 1, Cell: cell{Workload: "queue", Faults: []string{"kill", "move"}}, Seconds: 1800, Verdict: "valid", Ops: 10, Acked: 5, Polled: 4, Faults: map[string]int{"kill": 2, "move": 3}},
		{Number: 2, Cell: cell{Workload: "queue", Faults: []string{"chaos"}}, Seconds: 1800, Verdict: "unknown", Why: "V3", Ops: 1, Faults: map[string]int{"kill": 1}},
		{Number: 3, Cell: cell{Workload: "verify", Faults: []string{"none"}}, Seconds: 900, Verdict: "invalid", Anomalies: map[string]int{"L3": 7}},
	})
	if bad != 1 {
		t.Errorf("%d runs are invalid, want 1", bad)
	}
	for _, want := range []string{
		"| queue | 2 | 1.00 | 11 | 5 | 4 | 6 | 1 | 0 | 1 | 0 |",
		"| all | 3 | 1.25 | 11 | 5 | 4 | 6 | 1 | 1 | 1 | 0 |",
		"| kill | 2 | 3 | 1 | 0 | 1 |",
		"| chaos | 1 | 0 | 0 | 0 | 1 |",
		"L3: 7",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, &out)
		}
	}
}
