// Package check judges histories. A check is a pure function of a history, and of
// what was seen inside the cluster (White): the same again on an old file.
// docs/jepsen.md has the table of all checks.
//
// One pass over a history numbers its values and builds the log of every key
// from what was acknowledged and polled (index.go). A second one walks the
// processes (walk.go). Both and all checks on them take linear time, but for
// cycles (cycle.go) and linearizability (linear.go), which are bounded.
package check

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"ponor/jepsen/history"
)

// Verdict on a run or on one check.
type Verdict string

// Verdicts. Unknown is not a pass: the run could not show what was asked.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
	Unknown Verdict = "unknown"
)

// Anomaly is one violation, with the operations that show it.
type Anomaly struct {
	Text string        `json:"text"`
	Key  history.Key   `json:"key"` // -1: of no key
	At   int64         `json:"at"`  // ns, of the op that shows it
	Ops  []int64       `json:"ops"` // indices of operations, the most telling first
	Mark history.Value `json:"value,omitempty"`
}

// Result is what one check says.
type Result struct {
	ID      string  `json:"id"`   // "L3", as in docs/jepsen.md
	Name    string  `json:"name"` // "lost-write"
	Verdict Verdict `json:"verdict"`
	// Tolerated says why some anomalies, or all, are counted and do not make a
	// run invalid.
	Tolerated string `json:"tolerated,omitempty"`
	// Optional: being unknown does not make the run unknown. Either other checks
	// show the same, or what was needed lies inside the cluster.
	Optional bool  `json:"optional,omitempty"`
	Count    int   `json:"count"`   // of anomalies
	Checked  int64 `json:"checked"` // operations, records or pairs looked at; 0 makes a check unknown or absent
	// Worst has at most MaxWorst of them.
	Worst  []Anomaly          `json:"worst,omitempty"`
	Note   string             `json:"note,omitempty"`
	Figure map[string]float64 `json:"figure,omitempty"` // name with unit: value
}

// Judged is a result with its verdict: any anomaly makes it invalid, and where nothing was
// looked at it is unknown.
func (r Result) Judged() Result {
	r.Verdict = Valid
	switch {
	case r.Count > 0:
		r.Verdict = Invalid
	case r.Checked == 0:
		r.Verdict = Unknown
	}
	return r
}

// MaxWorst bounds the anomalies kept of one check.
const MaxWorst = 16

// Summary is the judgement of a run.
type Summary struct {
	Verdict Verdict `json:"verdict"`
	// Why names the checks that decide a verdict other than Valid, or says what
	// is wrong with the history itself.
	Why     string   `json:"why,omitempty"`
	Results []Result `json:"results"` // by id
}

// All runs every check that a history has something for. White may be nil. It
// takes some seconds and about 300 bytes an operation and 100 a record for
// millions of them.
func All(h *history.History, w *White) Summary {
	if w == nil {
		w = &White{}
	}
	if len(h.Ops) > 1<<20 {
		// Most of the heap is the history, and none of that is garbage.
		defer debug.SetGCPercent(debug.SetGCPercent(10))
	}
	r, err := newRun(h, w)
	if err != nil {
		return Summary{Verdict: Unknown, Why: "the history contradicts itself: " + err.Error()}
	}
	r.sends()
	r.walk()
	r.values()
	r.listed()
	r.cycles()
	r.linear()
	r.groups()
	r.metadata()
	r.store()
	r.headers()
	r.compaction()
	r.guards()
	return r.summary()
}

// summary puts the results together.
func (r *run) summary() Summary {
	s := Summary{Verdict: Valid}
	var bad, open []string
	for _, f := range r.found {
		res, ok := f.result()
		if !ok {
			continue
		}
		s.Results = append(s.Results, res)
	}
	slices.SortFunc(s.Results, func(a, b Result) int { return compareID(a.ID, b.ID) })
	for _, res := range s.Results {
		switch {
		case res.Verdict == Invalid:
			bad = append(bad, res.ID+" "+res.Name)
		case res.Verdict == Unknown && !res.Optional:
			open = append(open, res.ID+" "+res.Name)
		}
	}
	switch {
	case len(bad) > 0:
		s.Verdict, s.Why = Invalid, strings.Join(bad, ", ")
	case len(open) > 0:
		s.Verdict, s.Why = Unknown, strings.Join(open, ", ")
	}
	return s
}

// compareID orders L2 before L10.
func compareID(a, b string) int {
	na, _ := strconv.Atoi(a[1:])
	nb, _ := strconv.Atoi(b[1:])
	return cmp.Or(cmp.Compare(a[:1], b[:1]), cmp.Compare(na, nb))
}

// found collects what one check finds.
type found struct {
	Result
	required bool // in the results also when nothing was looked at
	open     bool // unknown, Note says why
	bad      int  // anomalies that are not tolerated
	sizes    []int64
}

// check begins a check; it is one of the results if it looks at something.
func (r *run) check(id, name string) *found {
	f := &found{Result: Result{ID: id, Name: name}}
	r.found = append(r.found, f)
	return f
}

// badSize puts what is not tolerated before what is.
const badSize = int64(1) << 62

// add counts an anomaly. The largest are kept, the first of equals; text is
// asked for only then.
func (f *found) add(size int64, text func() Anomaly) {
	f.bad++
	f.keep(min(size, badSize-1)+badSize, text)
}

// tolerate counts an anomaly that the protocol allows, and says why.
func (f *found) tolerate(why string, size int64, text func() Anomaly) {
	f.Tolerated = why
	f.keep(min(size, badSize-1), text)
}

func (f *found) keep(size int64, text func() Anomaly) {
	f.Count++
	at := len(f.sizes)
	for at > 0 && f.sizes[at-1] < size {
		at--
	}
	if at == MaxWorst {
		return
	}
	if len(f.sizes) == MaxWorst {
		f.sizes, f.Worst = f.sizes[:MaxWorst-1], f.Worst[:MaxWorst-1]
	}
	f.sizes = slices.Insert(f.sizes, at, size)
	f.Worst = slices.Insert(f.Worst, at, text())
}

// unknown says why the check cannot tell.
func (f *found) unknown(format string, args ...any) {
	f.open = true
	f.note(format, args...)
}

func (f *found) note(format string, args ...any) {
	if f.Note != "" {
		f.Note += "; "
	}
	f.Note += fmt.Sprintf(format, args...)
}

func (f *found) figure(name string, v float64) {
	if f.Figure == nil {
		f.Figure = map[string]float64{}
	}
	f.Figure[name] = v
}

// result is absent if the check had nothing to look at and need not have.
func (f *found) result() (Result, bool) {
	f.Verdict = Valid
	switch {
	case f.bad > 0:
		f.Verdict = Invalid
	case f.open:
		f.Verdict = Unknown
	case f.Checked == 0 && f.Count == 0:
		if !f.required {
			return Result{}, false
		}
		f.Verdict = Unknown
		if f.Note == "" {
			f.Note = "there was nothing to look at"
		}
	}
	return f.Result, true
}
