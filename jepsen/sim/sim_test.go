package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"ponor/jepsen/sim"
)

var (
	first = flag.Uint64("sim.seed", 1, "first seed")
	seeds = flag.Int("sim.seeds", 4, "how many seeds")
	span  = flag.Duration("sim.span", 60*time.Second, "virtual time under load per seed")
	tell  = flag.Bool("sim.v", false, "tell the timeline of every seed")
)

// memory is a directory in memory where there is one: the quorum's logs are
// synced often.
func memory(t *testing.T) string {
	t.Helper()
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		dir, err := os.MkdirTemp("/dev/shm", "ponor-sim-")
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// simulate runs a plan in a bubble.
func simulate(t *testing.T, plan sim.Plan, opts sim.Options) (r *sim.Report) {
	t.Helper()
	if !tagged {
		t.Skip("run by TestWithTheTag")
	}
	opts.Base = memory(t)
	synctest.Test(t, func(*testing.T) { r = sim.Run(plan, opts) })
	return r
}

func TestSeeds(t *testing.T) {
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := judge(t, sim.Draw(seed, *span))
			if r.Bad() {
				t.Errorf("%s\nrepeat with: make sim SEEDS=1 SEED=%d", r, seed)
			}
		})
	}
}

// TestKeptPlans runs the plans that once found a bug. They are kept as files,
// because what a seed draws changes with every new kind of fault.
func TestKeptPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no plans", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var plan sim.Plan
			if err := json.Unmarshal(text, &plan); err != nil {
				t.Fatal(err)
			}
			if r := judge(t, plan); len(r.Violations) > 0 {
				t.Error(r)
			}
		})
	}
}

// judge runs a plan and tells the outcome in a line.
func judge(t *testing.T, plan sim.Plan) *sim.Report {
	t.Helper()
	begin := time.Now()
	r := simulate(t, plan, sim.Options{})
	if *tell {
		t.Log(r)
	}
	t.Logf("seed %d: %d records, %d faults, %d deaths, recovery %v, effects %v, in %v", plan.Seed, r.Acked, len(plan.Events), r.Deaths,
		r.Recovery.Round(time.Millisecond), r.Effects, time.Since(begin).Round(time.Millisecond))
	if r.Bad() {
		keep(t, r)
	}
	return r
}

// keep writes the logs of a failed run where they can be read.
func keep(t *testing.T, r *sim.Report) {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("ponor-sim-%d-", r.Plan.Seed))
	if err != nil {
		t.Log(err)
		return
	}
	for name, log := range r.Logs {
		if err := os.WriteFile(filepath.Join(dir, name+".log"), []byte(log), 0o644); err != nil {
			t.Log(err)
		}
	}
	t.Logf("logs are in %s", dir)
}
