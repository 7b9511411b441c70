package model

import (
	"math/rand/v2"
	"time"
)

// Walk makes random runs of a world, each from the first state, until it has
// made so many steps. The same seed makes the same runs.
func Walk(cfg Config, mutation Mutation, seed uint64, steps int) (*Report, error) {
	m, err := New(cfg, mutation)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	report := &Report{World: cfg.Name}
	rnd := rand.New(rand.NewPCG(seed, 1))
	list := m.steps()
	for report.States < steps && report.Violation == nil {
		if len(m.images) > tableImages {
			m.fill(report)
			if m, err = New(cfg, mutation); err != nil {
				return nil, err
			}
		}
		if err := m.walk(rnd, list, report); err != nil {
			return nil, err
		}
	}
	report.Elapsed = time.Since(begun)
	m.fill(report)
	return report, nil
}

// tableImages is how many distinct images are kept before a model starts anew,
// about 5 KB each.
const tableImages = 30_000

// walkLength bounds one run; most end earlier, in a state without steps.
const walkLength = 80

// walk makes one run.
func (m *Model) walk(rnd *rand.Rand, list []Step, report *Report) error {
	st, err := m.initial()
	if err != nil {
		return err
	}
	first := st
	list = swarm(rnd, list)
	var path []Step
	for range walkLength {
		n, s, ok := m.pick(rnd, list, &st)
		if !ok {
			break
		}
		path = append(path, s)
		st = n
		report.States++
		report.Transitions++
		report.Steps[s.kind]++
		if m.bad == nil {
			m.bad = m.check(&st)
		}
		if m.bad == nil && m.cfg.Sample > 0 && rnd.IntN(m.cfg.Sample) == 0 {
			report.Rested++
			m.bad = m.rest(st)
		}
		if m.bad != nil {
			report.Violation = m.bad
			break
		}
	}
	report.Depth = max(report.Depth, len(path))
	if report.Violation != nil {
		report.Depth = len(path)
		st = first
		for _, s := range path {
			before := st
			m.do(&st, s)
			report.Trace = append(report.Trace, m.explain(s, &before, &st))
		}
	}
	return nil
}

// swarm leaves out some kinds of steps of some processes for a run: one that
// never looks, or never learns, is how a pause comes about.
func swarm(rnd *rand.Rand, list []Step) []Step {
	var out [stepKinds][maxProcs + 1]bool
	for k := range out {
		for i := range out[k] {
			out[k][i] = rnd.IntN(5) == 0
		}
	}
	var left []Step
	for _, s := range list {
		if !out[s.kind][min(s.process(), maxProcs)] {
			left = append(left, s)
		}
	}
	return left
}

// pick makes one of the possible steps of a state, by a kind first, so that
// kinds with many parameters do not crowd out others.
func (m *Model) pick(rnd *rand.Rand, list []Step, st *State) (State, Step, bool) {
	if len(list) == 0 {
		return *st, Step{}, false
	}
	kinds := rnd.Perm(int(stepKinds))
	for i, k := range kinds {
		// What ends a process or a WAL comes last most of the time, or there
		// would be little left to end.
		if rare(stepKind(k)) && rnd.IntN(8) > 0 {
			copy(kinds[i:], kinds[i+1:])
			kinds[len(kinds)-1] = k
		}
	}
	for _, k := range kinds {
		from := rnd.IntN(len(list))
		for j := range list {
			s := list[(from+j)%len(list)]
			if int(s.kind) != k {
				continue
			}
			n := *st
			if m.do(&n, s) && n != *st || m.bad != nil {
				return n, s, true
			}
		}
	}
	return *st, Step{}, false
}

func rare(k stepKind) bool {
	return k == doFence || k == doRegister || k == doLosePower || k == doSealAhead || k == doLook || k == doSealStart
}
