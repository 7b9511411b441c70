package model_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"ponor/metadata/model"
)

var (
	full = flag.Bool("model.full", false, "explore the full bounds; takes minutes")
	seed = flag.Uint64("model.seed", 0, "seed of the random walks; 0 takes the clock's in full, 1 otherwise")
)

// TestMutations leaves out one rule after the other; each must be missed by the
// property that stands for it.
func TestMutations(t *testing.T) {
	var table strings.Builder
	for _, c := range model.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if testing.Short() && c.Mutation == model.TrimPastCheckpoint {
				t.Skip("half a million states")
			}
			r, err := model.Explore(c.World, c.Mutation)
			if err != nil {
				t.Fatal(err)
			}
			if r.Violation == nil {
				t.Fatalf("not found: %s", r)
			}
			if r.Violation.Property != c.Caught {
				t.Errorf("caught by %q, want %q", r.Violation.Property, c.Caught)
			}
			fmt.Fprintf(&table, "%-44s %-24s %2d steps, %7d states\n", c.Name, r.Violation.Property, len(r.Trace), r.States)
			if *full || t.Failed() {
				t.Log(r)
			}
		})
	}
	t.Logf("mutations, caught by, after:\n%s", &table)
}

// TestWorlds visits every state of the worlds with two incarnations.
func TestWorlds(t *testing.T) {
	var reports []*model.Report
	for _, c := range model.Worlds(!*full) {
		t.Run(c.Name, func(t *testing.T) {
			if testing.Short() {
				c.StateLimit = 20_000
			}
			r, err := model.Explore(c, model.None)
			if err != nil {
				t.Fatal(err)
			}
			if r.Violation != nil || *full && !r.Complete {
				t.Error(r)
			}
			if *full {
				t.Log(r)
			}
			reports = append(reports, r)
		})
	}
	coverage(t, reports)
}

// TestWalks makes seeded random runs with three incarnations.
func TestWalks(t *testing.T) {
	steps, s := 40_000, *seed
	switch {
	case *full:
		steps = 1_000_000
	case testing.Short():
		steps = 8_000
	}
	if s == 0 {
		if s = 1; *full {
			s = uint64(time.Now().UnixNano())
		}
	}
	var reports []*model.Report
	for _, c := range model.WalkWorlds() {
		t.Run(c.Name, func(t *testing.T) {
			r, err := model.Walk(c, model.None, s, steps)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("seed %d: %s", s, r)
			if r.Violation != nil {
				t.Error("violation")
			}
			reports = append(reports, r)
		})
	}
	coverage(t, reports)
}

// coverage prints what was explored, and demands that every kind of step was
// made and every property had something to check.
func coverage(t *testing.T, reports []*model.Report) {
	t.Helper()
	var b strings.Builder
	for _, r := range reports {
		fmt.Fprintln(&b, r)
	}
	fmt.Fprint(&b, model.Coverage(reports))
	t.Log("\n" + b.String())
	if missing := model.Missing(reports); len(missing) > 0 && !testing.Short() {
		t.Errorf("nothing ever tested %q", missing)
	}
}
