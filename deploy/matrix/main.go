// Command matrix runs the correctness tests over all workloads and faults, for as
// long as one likes and several at a time, and ends with tables of what was run and
// seen. It goes over the matrix round by round; each round pairs the faults anew.
//
//	go run ./deploy/matrix [-hours 4] [-time 1m] [-parallel 3] [-seed 1] [-out jepsen-runs/matrix]
//	go run ./deploy/matrix -table [-out jepsen-runs/matrix]
//
// Directories of runs that are not valid are kept; of every run there is a line in
// runs.jsonl. A second call goes on behind the last run of the first.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ponor/jepsen/history"
)

// runsFile has a line for each run.
const runsFile = "runs.jsonl"

func main() {
	m := matrix{out: os.Stdout}
	flag.StringVar(&m.binary, "ponor", "bin/ponor", "binary to test")
	flag.StringVar(&m.dir, "out", "jepsen-runs/matrix", "directory for bad runs and the list of all")
	flag.DurationVar(&m.time, "time", time.Minute, "load of a run with one fault; each further one has a quarter more")
	flag.IntVar(&m.parallel, "parallel", 3, "runs at a time")
	flag.Uint64Var(&m.seed, "seed", 1, "of the pairing of faults and of all runs")
	hours := flag.Float64("hours", 4, "begin runs for so long")
	table := flag.Bool("table", false, "print the tables of what was run and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done, err := m.earlier()
	if err == nil && !*table {
		done, err = m.run(ctx, done, time.Duration(*hours*float64(time.Hour)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if tables(m.out, done) > 0 {
		os.Exit(1)
	}
}

// matrix is the command.
type matrix struct {
	binary, dir string
	time        time.Duration
	parallel    int
	seed        uint64
	out         io.Writer
}

// outcome is what a run gave, a line of runsFile.
type outcome struct {
	Number  int     `json:"number"`
	Cell    cell    `json:"cell"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"` // with start, final reads and judgement
	Verdict string  `json:"verdict"` // valid, invalid, unknown, or "not run"
	Why     string  `json:"why,omitempty"`
	Dir     string  `json:"dir,omitempty"` // if it is kept
	// Ops are in the history; Acked and Polled records, also those beside it.
	Ops       int64          `json:"ops"`
	Acked     int64          `json:"acked"`
	Polled    int64          `json:"polled"`
	Faults    map[string]int `json:"faults"`              // begun, with a proof
	Anomalies map[string]int `json:"anomalies,omitempty"` // that are not tolerated, by check
}

// earlier reads what earlier calls did.
func (m *matrix) earlier() ([]outcome, error) {
	f, err := os.Open(filepath.Join(m.dir, runsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []outcome
	for dec := json.NewDecoder(bufio.NewReader(f)); ; {
		var o outcome
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		list = append(list, o)
	}
}

// run does runs until the time is over or the context ends.
func (m *matrix) run(ctx context.Context, done []outcome, span time.Duration) ([]outcome, error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return done, err
	}
	f, err := os.OpenFile(filepath.Join(m.dir, runsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return done, err
	}
	defer f.Close()
	cells := make(chan func() outcome)
	results := make(chan outcome)
	var workers sync.WaitGroup
	for range m.parallel {
		workers.Go(func() {
			for do := range cells {
				results <- do()
			}
		})
	}
	next := 0
	for _, o := range done {
		next = max(next, o.Number)
	}
	go func() {
		begun := time.Now()
		for n := next + 1; ctx.Err() == nil && time.Since(begun) < span; n++ {
			cells <- func() outcome { return m.one(ctx, n, nth(m.seed, n-1)) }
		}
		close(cells)
		workers.Wait()
		close(results)
	}()
	enc := json.NewEncoder(f)
	for o := range results {
		done = append(done, o)
		err = errors.Join(err, enc.Encode(o))
		fmt.Fprintf(m.out, "%4d %-60s %4.0f s %8d ops  %-8s %s\n", o.Number, o.Cell, o.Seconds, o.Ops, o.Verdict, o.Why)
	}
	return done, err
}

// late is how much longer than its load a run may take.
const late = 15 * time.Minute

// one does a run.
func (m *matrix) one(ctx context.Context, number int, c cell) outcome {
	o := outcome{Number: number, Cell: c, Seed: m.seed<<20 + uint64(number)}
	span := m.time + m.time/4*time.Duration(len(c.Faults)-1)
	o.Dir = filepath.Join(m.dir, fmt.Sprintf("%04d-%s", number, strings.NewReplacer("/", "-", " ", "-").Replace(c.String())))
	args := append(c.args(), "--time", span.String(), "--seed", fmt.Sprint(o.Seed), "--out", o.Dir)
	// A run that has begun is done, also if no other one is begun any more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), span+late)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.binary, append([]string{"jepsen", "run"}, args...)...)
	begun := time.Now()
	text, err := cmd.CombinedOutput()
	o.Seconds = time.Since(begun).Seconds()
	if code := cmd.ProcessState.ExitCode(); code < 0 || code > 2 {
		o.Verdict, o.Why = notRun, fmt.Sprint(err, ": ", lastLine(string(text)))
		return o
	}
	if err := o.read(); err != nil {
		o.Verdict, o.Why = notRun, err.Error()
		return o
	}
	if o.Verdict == valid {
		_ = os.RemoveAll(o.Dir)
		o.Dir = ""
	}
	return o
}

// Verdicts, beside invalid and unknown.
const (
	valid  = "valid"
	notRun = "not run"
)

// read takes an outcome from the directory of a run.
func (o *outcome) read() error {
	text, err := os.ReadFile(filepath.Join(o.Dir, "results.json"))
	if err != nil {
		return err
	}
	var r struct {
		Verdict, Why string
		Results      []struct {
			ID, Verdict, Note string
			Count             int
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	o.Verdict, o.Why = r.Verdict, r.Why
	o.Faults, o.Anomalies = map[string]int{}, map[string]int{}
	for _, c := range r.Results {
		if c.Verdict == "invalid" {
			o.Anomalies[c.ID] = c.Count
		}
		if r.Verdict == "unknown" && c.Verdict == "unknown" && c.Note != "" && strings.Contains(r.Why, c.ID+" ") {
			o.Why += " (" + c.Note + ")"
		}
	}
	f, err := os.Open(filepath.Join(o.Dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		return err
	}
	o.Ops = int64(len(h.Ops))
	for _, e := range h.Events {
		if e.Phase == "start" && e.Err == "" && strings.TrimSpace(e.Proof) != "" {
			o.Faults[e.Fault]++
		}
	}
	if n := len(h.Samples); n > 0 {
		o.Acked, o.Polled = h.Samples[n-1].Acked, h.Samples[n-1].Polled
	}
	return nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
