package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ponor/jepsen/history"
)

// fault is one fault from its start to when it was undone.
type fault struct {
	name    string
	targets []string
	from    int64 // ns
	to      int64 // ns; from if the fault is of a kind that is never undone
	open    bool  // it was not undone
	proof   string
	undone  string // proof of the undoing
	err     string // of the start
}

func (f *fault) target() string { return strings.Join(f.targets, ", ") }

// words name a fault: "pause n2".
func (f *fault) words() string { return strings.TrimSpace(f.name + " " + f.target()) }

// faults pairs starts with what undid them: the next stop or heal of the fault
// that names one of its targets or none. The last heal of no fault undoes what is
// left. A fault that no event names when it is undone acts at once. What
// went wrong comes as sentences, those that are alike as one.
func faults(events []history.Event, end int64) ([]fault, []string) {
	var list []fault
	var open []int // in list
	undoes := map[string]bool{}
	healed := history.Event{At: -1}
	said := &tally{}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range events {
		e.Fault, e.Target = cut(e.Fault, 40), slices.Clone(e.Target)
		for i, s := range e.Target {
			e.Target[i] = cut(s, 40)
		}
		if e.Phase == "start" {
			open = append(open, len(list))
			list = append(list, fault{name: e.Fault, targets: e.Target, from: e.At, to: end, open: true, proof: e.Proof, err: e.Err})
			switch {
			case e.Err != "":
				said.add(fmt.Sprintf("a fault could not be done: %s: %s", e.Fault, short(e.Err)))
			case e.Proof == "":
				said.add(fmt.Sprintf("a fault left no proof that it happened: %s", e.Fault))
			}
			continue
		}
		if e.Err != "" && e.Fault == e.Phase {
			said.add(strings.TrimSuffix(short("the cluster did not come back: "+e.Err), "."))
			continue
		}
		if e.Err != "" {
			said.add(fmt.Sprintf("a fault could not be undone: %s: %s", e.Fault, short(e.Err)))
			continue
		}
		undoes[e.Fault] = true
		if e.Fault == "" || e.Fault == e.Phase {
			healed = e
			continue
		}
		open = slices.DeleteFunc(open, func(i int) bool {
			f := &list[i]
			hit := e.Fault == f.name && (len(e.Target) == 0 || len(f.targets) == 0 || meet(e.Target, f.targets))
			if hit {
				f.open, f.to, f.undone = false, max(e.At, e.End), e.Proof
			}
			return hit
		})
	}
	for _, i := range open {
		f := &list[i]
		switch {
		case f.err != "" || !undoes[f.name]: // it acts at once, or did not
			f.open, f.to = false, f.from
		case healed.At >= f.from:
			f.open, f.to, f.undone = false, max(healed.At, healed.End), healed.Proof
		default:
			said.add("a fault was not undone: " + f.words())
		}
	}
	return list, said.sentences()
}

func meet(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// proved says whether the fault certainly happened.
func (f *fault) proved() bool { return f.err == "" && f.proof != "" }

// tally keeps sentences in the order in which they were first said, with how
// often.
type tally struct {
	order []string
	times map[string]int
}

func (t *tally) add(s string) {
	if t.times == nil {
		t.times = map[string]int{}
	}
	if t.times[s]++; t.times[s] == 1 {
		t.order = append(t.order, s)
	}
}

func (t *tally) sentences() []string {
	out := slices.Clone(t.order)
	for i, s := range out {
		if n := t.times[s]; n > 1 {
			out[i] = fmt.Sprintf("%s (%d times)", s, n)
		}
	}
	return out
}

// during names the faults that were in force in a time, at most three of them.
func (r *run) during(from, to int64) string {
	said := &tally{}
	for i := range r.faults {
		if f := &r.faults[i]; f.from <= to && f.to >= from {
			said.add(f.words())
		}
	}
	names := said.order
	if len(names) > 3 {
		names = append(slices.Clone(names[:3]), fmt.Sprintf("%d more", len(said.order)-3))
	}
	return list(names)
}
