// Command plants proves that the correctness tests find bugs: it runs a binary
// with one bug at a time (internal/plant) through 'ponor jepsen run', and fails if
// a run ends valid.
//
//	go run ./deploy/plants -ponor bin/ponor-plant [-only P1,P12] [-time 30s]
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
	flags    []string
	finds    []string
}

// quick nodes give a silent broker up after a second, so that many pauses are long
// enough for a takeover.
var quick = []string{"--node-flag=--session-timeout=1s"}

var bugs = []planted{
	{plant.AckEarly, "acknowledged before it is written", "queue", "kill-all", nil, []string{"L3", "L4"}},
	{plant.SkipFence, "a writer takes a fence for its own slot", "queue", "pause", quick, []string{"L1", "L3", "L4", "L18"}},
	{plant.NoProof, "answers without proof of ownership", "queue", "pause", quick, []string{"L20", "L23"}},
	{plant.ForgetProducers, "producers are forgotten on a move", "queue", "lost-answers,kill-all", nil, []string{"L2", "L25"}},
	{plant.OffsetZero, "success at offset 0 when the outcome is unknown", "queue", "pause", nil, []string{"L1", "L21"}},
	{plant.SweepFences, "the sweep takes fences for garbage", "queue", "pause", append([]string{"--tiny", "--interval=10s"}, quick...), []string{"L1", "L3", "L4", "S7"}},
	{plant.SweepPending, "the sweep takes what is about to be referenced", "queue", "store-slow", []string{"--tiny"}, []string{"L3", "L4", "S1", "S4"}},
	{plant.SealEarly, "a takeover counts one slot too few", "queue", "kill", nil, []string{"L1", "L3", "L4"}},
	{plant.AnswerEarly, "a coordinator answers before its records are durable", "offsets", "kill-all", nil, []string{"G4"}},
	{plant.AnyGeneration, "commits of any generation are taken", "groups", "pause", nil, []string{"G3"}},
	{plant.StaleMemory, "a stream that comes back is read from old memory", "moves", "move", nil, []string{"L1", "L3", "L20", "L25"}},
	{plant.EmptyOnError, "a fetch that fails answers nothing and no error", "queue", "move", nil, []string{"L4", "V1", "V2", "V3", "V5", "V6"}},
}

func main() {
	binary := flag.String("ponor", "bin/ponor-plant", "binary built with -tags plant")
	only := flag.String("only", "", "bugs to run, comma-separated; default all")
	span := flag.Duration("time", 30*time.Second, "budget of load for each bug")
	tries := flag.Int("tries", 3, "runs that a bug may take to be found")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if missed := try(ctx, os.Stdout, *binary, *only, *span, *tries); missed > 0 {
		os.Exit(1)
	}
}

// try plants the bugs and returns how many were not found.
func try(ctx context.Context, out io.Writer, binary, only string, span time.Duration, tries int) (missed int) {
	fmt.Fprintf(out, "%-4s %-52s %-20s %-8s %s\n", "", "planted", "run", "found", "by")
	for _, b := range bugs {
		if only != "" && !slices.Contains(strings.Split(only, ","), string(b.bug)) {
			continue
		}
		run := b.workload + "/" + b.nemesis
		found, by := false, "nothing"
		n := 0
		for n < tries && !found {
			n++
			failed, err := b.run(ctx, binary, span)
			if err != nil {
				by = err.Error()
				break
			}
			found = slices.ContainsFunc(b.finds, func(id string) bool { return slices.Contains(failed, id) })
			if len(failed) > 0 {
				by = strings.Join(failed, " ")
			}
		}
		if !found {
			missed++
		}
		fmt.Fprintf(out, "%-4s %-52s %-20s %-8s %s\n", b.bug, b.what, run, fmt.Sprintf("%t, %d", found, n), by)
	}
	if missed > 0 {
		fmt.Fprintf(out, "%d planted bugs were not found\n", missed)
	}
	return missed
}

// run does one run and returns the checks that failed.
func (b planted) run(ctx context.Context, binary string, span time.Duration) ([]string, error) {
	dir, err := os.MkdirTemp("", "ponor-plant-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "run")
	args := append([]string{"jepsen", "run", "--time", span.String(), "--workload", b.workload, "--nemesis", b.nemesis,
		"--final-timeout", "60s", "--out", out}, b.flags...)
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
		Results []struct{ ID, Verdict, Tolerated string }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	var failed []string
	for _, c := range r.Results {
		if c.Verdict == "invalid" && c.Tolerated == "" {
			failed = append(failed, c.ID)
		}
	}
	return failed, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
