package model

import (
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"time"
)

// Report is what came of an exploration or of walks.
type Report struct {
	World       string
	States      int // distinct ones; of walks: steps made
	Transitions int
	Depth       int // steps to the farthest state, or to the violation
	Images      int // distinct images
	Applied     int // distinct (image, command) pairs given to Apply
	Complete    bool
	Elapsed     time.Duration
	Checks      [propertyCount]int // how often each property had something to check
	Steps       [stepKinds]int     // how often each kind of step was made
	Rested      int                // states brought to rest
	Violation   *Violation
	Trace       []string
}

// String is the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	how := "cut off"
	if r.Complete {
		how = "exhausted"
	} else if r.Transitions == r.States {
		how = "walked"
	}
	fmt.Fprintf(&b, "%-12s %9d states, %10d steps, depth %2d, %6d images, %7d applied, %5d rested, %s in %s", r.World, r.States, r.Transitions, r.Depth, r.Images, r.Applied, r.Rested, how, r.Elapsed.Round(time.Millisecond))
	if r.Violation != nil {
		fmt.Fprintf(&b, "\n  VIOLATION %s", r.Violation)
		for i, s := range r.Trace {
			fmt.Fprintf(&b, "\n  %3d  %s", i+1, s)
		}
	}
	return b.String()
}

// seenSet is a set of hashes of states, open addressing.
type seenSet struct {
	table []uint64
	n     int
}

// add says whether h is new.
func (s *seenSet) add(h uint64) bool {
	if 4*s.n >= 3*len(s.table) {
		old := s.table
		s.table = make([]uint64, max(1<<12, 2*len(old)))
		s.n = 0
		for _, o := range old {
			if o != 0 {
				s.add(o)
			}
		}
	}
	h = max(h, 1)
	for i := h & uint64(len(s.table)-1); ; i = (i + 1) & uint64(len(s.table)-1) {
		switch s.table[i] {
		case h:
			return false
		case 0:
			s.table[i] = h
			s.n++
			return true
		}
	}
}

// queue holds the states of one level, in pieces that are let go as they are
// read.
type queue struct {
	pieces [][]State
	n      int
}

const pieceStates = 4096

func (q *queue) push(st *State) {
	if q.n%pieceStates == 0 {
		q.pieces = append(q.pieces, make([]State, 0, pieceStates))
	}
	last := &q.pieces[len(q.pieces)-1]
	*last = append(*last, *st)
	q.n++
}

// drain yields the states in order, once.
func (q *queue) drain() iter.Seq[*State] {
	return func(yield func(*State) bool) {
		for i, piece := range q.pieces {
			for j := range piece {
				if !yield(&piece[j]) {
					return
				}
			}
			q.pieces[i] = nil
		}
	}
}

// explorer is one breadth-first exploration.
type explorer struct {
	m     *Model
	steps []Step
	seed  maphash.Seed
	seen  seenSet
	// How every state was first reached: from which one and by which step.
	parent []uint32
	via    []uint16
	report Report
}

// Explore visits the states of a world breadth first, so that a violation is
// found in the fewest steps. States are told apart by a 64-bit hash: among 10
// million the chance that two share one is below one in 100,000.
func Explore(cfg Config, mutation Mutation) (*Report, error) {
	m, err := New(cfg, mutation)
	if err != nil {
		return nil, err
	}
	first, err := m.initial()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	e := &explorer{m: m, steps: m.steps(), seed: maphash.MakeSeed()}
	e.report.World = cfg.Name
	e.seen.add(maphash.Comparable(e.seed, first))
	e.parent, e.via = append(e.parent, 0), append(e.via, 0)
	level, from := new(queue), 0
	level.push(&first)
	for level.n > 0 && e.report.Violation == nil {
		if cfg.DepthLimit > 0 && e.report.Depth >= cfg.DepthLimit || cfg.StateLimit > 0 && len(e.parent) >= cfg.StateLimit {
			break
		}
		next := new(queue)
		id := from
		for st := range level.drain() {
			if err := e.expand(st, id, next); err != nil {
				return nil, err
			}
			if e.report.Violation != nil {
				break
			}
			id++
		}
		from, level = id, next
		if level.n > 0 {
			e.report.Depth++
		}
	}
	e.report.Complete = level.n == 0 && e.report.Violation == nil
	e.report.Elapsed = time.Since(begun)
	m.fill(&e.report)
	e.report.States = len(e.parent)
	return &e.report, nil
}

// expand makes every step from a state.
func (e *explorer) expand(st *State, id int, next *queue) error {
	m := e.m
	if m.cfg.Sample > 0 && id%m.cfg.Sample == 0 {
		e.report.Rested++
		if v := m.rest(*st); v != nil {
			return e.violate(v, id, 0, false)
		}
	}
	for i, s := range e.steps {
		n := *st
		if !m.do(&n, s) && m.bad == nil || n == *st && m.bad == nil {
			continue
		}
		e.report.Transitions++
		e.report.Steps[s.kind]++
		if m.bad == nil && !e.seen.add(maphash.Comparable(e.seed, n)) {
			continue
		}
		if m.bad == nil {
			m.bad = m.check(&n)
		}
		if m.bad != nil {
			return e.violate(m.bad, id, i, true)
		}
		e.parent, e.via = append(e.parent, uint32(id)), append(e.via, uint16(i))
		next.push(&n)
	}
	return nil
}

// violate makes the trace of a violation in a state, or in a step from it.
func (e *explorer) violate(v *Violation, id, step int, stepped bool) error {
	e.report.Violation = v
	var path []Step
	if stepped {
		path = append(path, e.steps[step])
	}
	for ; id != 0; id = int(e.parent[id]) {
		path = append(path, e.steps[e.via[id]])
	}
	st, err := e.m.initial()
	if err != nil {
		return err
	}
	for i := len(path) - 1; i >= 0; i-- {
		before := st
		e.m.do(&st, path[i])
		e.report.Trace = append(e.report.Trace, e.m.explain(path[i], &before, &st))
	}
	e.report.Depth = len(path)
	return nil
}

// fill adds the model's counts to a report.
func (m *Model) fill(r *Report) {
	r.Images += len(m.images)
	r.Applied += m.applied
	for p, n := range m.checks {
		r.Checks[p] += n
	}
}

// Coverage is a table of what reports have checked and which steps they made.
func Coverage(reports []*Report) string {
	var b strings.Builder
	for p := range propertyCount {
		fmt.Fprintf(&b, "  checked %-24s %12d times\n", p, total(reports, func(r *Report) int { return r.Checks[p] }))
	}
	for k := range stepKinds {
		fmt.Fprintf(&b, "  step    %-24s %12d times\n", stepNames[k], total(reports, func(r *Report) int { return r.Steps[k] }))
	}
	return b.String()
}

// Missing lists properties that never had anything to check, and steps that
// were never made.
func Missing(reports []*Report) []string {
	var out []string
	for p := range propertyCount {
		if total(reports, func(r *Report) int { return r.Checks[p] }) == 0 {
			out = append(out, p.String())
		}
	}
	for k := range stepKinds {
		if total(reports, func(r *Report) int { return r.Steps[k] }) == 0 {
			out = append(out, stepNames[k])
		}
	}
	return out
}

func total(reports []*Report, of func(*Report) int) int {
	n := 0
	for _, r := range reports {
		n += of(r)
	}
	return n
}
