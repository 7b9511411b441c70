package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
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
	const least = 45 * time.Second // a fault that is judged by itself needs most of it
	if *span < least {
		t.Fatalf("-sim.span %v: say %v at least", *span, least)
	}
	var sum summary
	t.Cleanup(func() { t.Log(sum.String()) })
	// Much garbage and little that lives: memory is cheaper here than time.
	old := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(old) })
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := judge(t, sim.Draw(seed, *span))
			sum.add(r)
			if r.Bad() {
				t.Errorf("%s\nrepeat with: make sim SEEDS=1 SEED=%d", r, seed)
			}
		})
	}
}

// summary adds up the reports of all seeds.
type summary struct {
	mu                                            sync.Mutex
	seeds, bad, records, takeovers, moves, deaths int
	least                                         [3]int // records, takeovers, moves of any seed
	faults                                        map[sim.Kind]int
	effects                                       map[string]int
}

func (s *summary) add(r *sim.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seeds == 0 {
		s.faults, s.effects = map[sim.Kind]int{}, map[string]int{}
		s.least = [3]int{r.Acked, r.Takeovers, r.Moves}
	}
	s.least = [3]int{min(s.least[0], r.Acked), min(s.least[1], r.Takeovers), min(s.least[2], r.Moves)}
	s.seeds, s.records, s.takeovers, s.moves, s.deaths = s.seeds+1, s.records+r.Acked, s.takeovers+r.Takeovers, s.moves+r.Moves, s.deaths+r.Deaths
	if r.Bad() {
		s.bad++
	}
	for k, n := range r.Faults {
		s.faults[k] += n
	}
	for k, n := range r.Effects {
		s.effects[k] += n
	}
}

// String is a table.
func (s *summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d bad\n%28s %10s %8s\n", s.seeds, s.bad, "", "all", "least")
	for i, v := range []struct {
		what string
		n    int
	}{{"acknowledged records", s.records}, {"takeovers", s.takeovers}, {"moves", s.moves}} {
		fmt.Fprintf(&b, "%28s %10d %8d\n", v.what, v.n, s.least[i])
	}
	fmt.Fprintf(&b, "%28s %10d\n", "deaths", s.deaths)
	for _, k := range slices.Sorted(maps.Keys(s.faults)) {
		fmt.Fprintf(&b, "%28s %10d\n", k, s.faults[k])
	}
	b.WriteString("effects\n")
	for _, k := range slices.Sorted(maps.Keys(s.effects)) {
		fmt.Fprintf(&b, "%28s %10d\n", k, s.effects[k])
	}
	return b.String()
}

// TestPlans checks that every seed draws what makes it count, the same each
// time, and that what is judged by itself is alone.
func TestPlans(t *testing.T) {
	judged := 0
	for seed := range uint64(2000) {
		p := sim.Draw(seed, time.Minute)
		if fmt.Sprint(p) != fmt.Sprint(sim.Draw(seed, time.Minute)) {
			t.Fatalf("seed %d draws two plans", seed)
		}
		takeovers, moves := 0, 0
		for i, e := range p.Events {
			switch e.Kind {
			case sim.Kill, sim.KillSilent, sim.Zombie, sim.Outcast, sim.Beheaded:
				takeovers++
			case sim.Move, sim.Shuttle, sim.MoveDeath, sim.Drain, sim.Elect, sim.Cordon, sim.Guest:
				moves++
			case sim.NoQuorum, sim.NoMetadata, sim.NoVoters, sim.StuckStore:
				if p.Alone(e) {
					judged++
				}
			}
			if e.At > p.Span || e.For <= 0 || i > 0 && e.At < p.Events[i-1].At {
				t.Errorf("seed %d: %v is out of order or time", seed, e)
			}
		}
		if takeovers < 4 || moves < 6 {
			t.Errorf("seed %d: %d takeovers, %d moves", seed, takeovers, moves)
		}
	}
	if judged < 500 {
		t.Errorf("%d faults of 2000 seeds are judged by themselves", judged)
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
	t.Logf("seed %d: %d records, %d takeovers, %d moves, %d events, %d deaths, recovery %v, effects %v, in %v", plan.Seed, r.Acked,
		r.Takeovers, r.Moves, len(plan.Events), r.Deaths, r.Recovery.Round(time.Millisecond), r.Effects, time.Since(begin).Round(time.Millisecond))
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
