package sim_test

import (
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
	opts.Base = memory(t)
	synctest.Test(t, func(*testing.T) { r = sim.Run(plan, opts) })
	return r
}

func TestSeeds(t *testing.T) {
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			begin := time.Now()
			r := simulate(t, sim.Draw(seed, *span), sim.Options{})
			if *tell {
				t.Log(r)
			}
			t.Logf("seed %d: %d records, %d faults, %d deaths, recovery %v, in %v", seed, r.Acked, len(r.Plan.Events), r.Deaths, r.Recovery, time.Since(begin).Round(time.Millisecond))
			if r.Bad() {
				keep(t, r)
				t.Errorf("%s\nrepeat with: make sim SEEDS=1 SEED=%d", r, seed)
			}
		})
	}
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
