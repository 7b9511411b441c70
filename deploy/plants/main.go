// Command plants proves that the correctness tests find bugs: it runs a binary
// with one bug at a time (internal/plant) through 'ponor jepsen run', and fails if
// one is not found by one of its checks in most of its tries.
//
//	go run ./deploy/plants [-ponor bin/ponor-plant] [-only P1,P12] [-time 30s] [-tries 3]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ponor/internal/plant"
)

// planted says how a bug is found: what to run, and checks of which at least one
// must fail.
type planted struct {
	bug      plant.Bug
	what     string
	workload string
	nemesis  string
	flags    []string // {dir} is the directory of a try
	finds    []string
}

// quick nodes give a silent broker up after a second, so that many pauses are long
// enough for a takeover.
var quick = []string{"--node-flag=--session-timeout=1s"}

var bugs = []planted{
	{plant.AckEarly, "acknowledged before it is written", "queue", "kill-all", nil, []string{"L3", "L4"}},
	{plant.SkipFence, "a writer takes a fence for its own slot", "queue", "isolate", quick, []string{"L1", "L3", "L4", "L18"}},
	{plant.NoProof, "answers without proof of ownership", "register", "pause", append([]string{"--op-timeout=2s", "--time=150s"}, quick...), []string{"L20", "L23", "L24"}},
	{plant.ForgetProducers, "producers are forgotten on a move", "queue", "lost-answers,move", []string{"--interval=2s", "--time=1m"}, []string{"L2", "L25"}},
	{plant.OffsetZero, "success at offset 0 when the outcome is unknown", "queue", "pause", nil, []string{"L1", "L21"}},
	{plant.SweepFences, "the sweep takes fences for garbage", "queue", "isolate", append([]string{"--tiny", "--time=1m", "--interval=6s"}, quick...), []string{"L1", "L3", "L4", "S6", "S7"}},
	{plant.SweepPending, "the sweep takes what is about to be referenced", "queue", "store-slow", []string{"--tiny", "--time=1m", "--interval=10s"}, []string{"L3", "L4", "S1", "S3", "S4"}},
	{plant.OwnIsForeign, "a writer takes its own slot for a foreign one", "queue", "store-lost", nil, []string{"V9"}},
	{plant.SealEarly, "a takeover counts one slot too few", "queue", "kill", nil, []string{"L1", "L3", "L4"}},
	{plant.AnswerEarly, "a coordinator answers before its records are durable", "offsets", "kill-all", []string{"--store=dir://{dir}/store?latency=s3"}, []string{"G4"}},
	{plant.AnyGeneration, "commits of any generation are taken", "groups", "pause", []string{"--time=2m"}, []string{"G3"}},
	{plant.TornPut, "some slots are stored without their end", "queue", "kill-all", nil, []string{"L3", "L4", "S3", "V1"}},
	{plant.StaleMemory, "a stream that comes back is read from old memory", "moves", "move", nil, []string{"L1", "L3", "L20", "L25"}},
	{plant.MapOrder, "a command is applied in an order that nodes do not share", "retention", "none", []string{"--keys=32"}, []string{"M4"}},
	{plant.EmptyOnError, "a fetch that fails answers nothing and no error", "register", "move", []string{"--interval=2s"}, []string{"L20", "L24"}},
}

func main() {
	binary := flag.String("ponor", "bin/ponor-plant", "binary built with -tags plant")
	only := flag.String("only", "", "bugs to run, comma-separated; default all")
	span := flag.Duration("time", 30*time.Second, "budget of load for each bug")
	tries := flag.Int("tries", 3, "runs of a bug, in most of which it must be found")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if missed := try(ctx, os.Stdout, *binary, *only, *span, *tries); missed > 0 {
		os.Exit(1)
	}
}

// try plants the bugs and returns how many were not found. A bug has no more runs
// than it takes to tell.
func try(ctx context.Context, out io.Writer, binary, only string, span time.Duration, tries int) (missed int) {
	const row = "%-4s %-52s %-24s %-8s %-9s %s\n"
	fmt.Fprintf(out, row, "", "planted", "run", "found", "first at", "by")
	for _, b := range bugs {
		if only != "" && !slices.Contains(strings.Split(only, ","), string(b.bug)) {
			continue
		}
		most := tries/2 + 1
		n, found := 0, 0
		first := time.Duration(0)
		var by []string
		for found < most && n-found <= tries-most {
			n++
			failed, err := b.run(ctx, binary, span)
			if err != nil {
				by = []string{err.Error()}
				break
			}
			if at, ok := b.foundBy(failed); ok {
				found, first = found+1, max(first, at)
			}
			for id := range failed {
				if !slices.Contains(by, id) {
					by = append(by, id)
				}
			}
		}
		if found < most {
			missed++
		}
		slices.Sort(by)
		fmt.Fprintf(out, row, b.bug, b.what, b.workload+"/"+b.nemesis, fmt.Sprintf("%d of %d", found, n), first.Round(100*time.Millisecond), strings.Join(by, " "))
	}
	if missed > 0 {
		fmt.Fprintf(out, "%d planted bugs were not found\n", missed)
	}
	return missed
}

// foundBy says whether one of the checks that are to find the bug failed, and the
// time of the first anomaly that they kept, from the begin of the run. 0: they are of
// no time.
func (b planted) foundBy(failed map[string]time.Duration) (first time.Duration, ok bool) {
	for _, id := range b.finds {
		at, bad := failed[id]
		ok = ok || bad
		if at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first, ok
}

// run does one run and returns the checks that failed, with the time of their first
// anomaly.
func (b planted) run(ctx context.Context, binary string, span time.Duration) (map[string]time.Duration, error) {
	dir, err := os.MkdirTemp("", "ponor-plant-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "run")
	args := append([]string{"jepsen", "run", "--time", span.String(), "--workload", b.workload, "--nemesis", b.nemesis,
		"--final-timeout", "60s", "--out", out}, b.flags...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{dir}", dir)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "PONOR_PLANT="+string(b.bug))
	log, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if code != 0 && code != 1 && code != 2 {
		return nil, fmt.Errorf("%s %s: %w: %s", binary, strings.Join(args, " "), err, lastLine(string(log)))
	}
	text, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		return nil, err
	}
	var r struct {
		Results []struct {
			ID, Verdict string
			Worst       []struct{ At int64 }
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	failed := map[string]time.Duration{}
	for _, c := range r.Results {
		if c.Verdict != "invalid" {
			continue
		}
		failed[c.ID] = 0
		for _, a := range c.Worst {
			if at := time.Duration(a.At); at > 0 && (failed[c.ID] == 0 || at < failed[c.ID]) {
				failed[c.ID] = at
			}
		}
	}
	return failed, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
