package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// tally is a row of a table.
type tally struct {
	runs, valid, invalid, unknown, notRun int
	seconds                               float64
	ops, acked, polled                    int64
	faults                                int
}

func (t *tally) add(o *outcome) {
	t.runs++
	t.seconds += o.Seconds
	t.ops += o.Ops
	t.acked += o.Acked
	t.polled += o.Polled
	for _, n := range o.Faults {
		t.faults += n
	}
	switch o.Verdict {
	case valid:
		t.valid++
	case "invalid":
		t.invalid++
	case "unknown":
		t.unknown++
	default:
		t.notRun++
	}
}

// tables prints what was run, and returns how many runs were invalid.
func tables(out io.Writer, list []outcome) int {
	var total tally
	workloads, faults := map[string]*tally{}, map[string]*tally{}
	row := func(m map[string]*tally, name string) *tally {
		if m[name] == nil {
			m[name] = &tally{}
		}
		return m[name]
	}
	for i := range list {
		o := &list[i]
		total.add(o)
		row(workloads, o.Cell.Workload).add(o)
		bare := *o
		bare.Faults = nil
		names := slices.Clone(o.Cell.Faults)
		for name, n := range o.Faults {
			if row(faults, name).faults += n; !slices.Contains(names, name) {
				names = append(names, name) // chaos brings its own
			}
		}
		for _, name := range names {
			row(faults, name).add(&bare)
		}
	}
	fmt.Fprintf(out, "\n| workload | runs | hours | operations | acknowledged | polled | faults | valid | invalid | unknown | not run |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	line := func(name string, t *tally) {
		fmt.Fprintf(out, "| %s | %d | %.2f | %d | %d | %d | %d | %d | %d | %d | %d |\n",
			name, t.runs, t.seconds/3600, t.ops, t.acked, t.polled, t.faults, t.valid, t.invalid, t.unknown, t.notRun)
	}
	for _, name := range slices.Sorted(maps.Keys(workloads)) {
		line(name, workloads[name])
	}
	line("all", &total)
	fmt.Fprintf(out, "\n| fault | runs | times | valid | invalid | unknown |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t := faults[name]
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d |\n", name, t.runs, t.faults, t.valid, t.invalid, t.unknown)
	}
	fmt.Fprintln(out)
	for i := range list {
		o := &list[i]
		if o.Verdict == valid {
			continue
		}
		var found []string
		for _, id := range slices.Sorted(maps.Keys(o.Anomalies)) {
			found = append(found, fmt.Sprintf("%s: %d", id, o.Anomalies[id]))
		}
		fmt.Fprintf(out, "%s: %s, seed %d: %s %s\n  %s\n", o.Verdict, o.Cell, o.Seed, o.Why, strings.Join(found, ", "), o.Dir)
	}
	return total.invalid
}
