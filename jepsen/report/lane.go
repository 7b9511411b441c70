package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lane is a row of the time line: one fault on one target, or on all.
type lane struct {
	Name, Target string // of lanes of the same fault only the first has a name
	Label        string
	Class        string // colour
	Bars         []bar
}

// bar is from At, for Wide, in percent of the axis. Wide is 0 of what took no time.
type bar struct {
	At, Wide float64
	Class    string
	Title    string
	Link     string
}

const (
	maxTargets = 6   // lanes of one fault; one of more has one lane
	maxLanes   = 24  // of all faults
	maxBars    = 600 // of all lanes; more are drawn together
	colours    = 6   // of faults
	maxTitle   = 80  // bytes of a string in what shows under the pointer
)

// lanes has the faults in the order in which they first came.
func (r *run) lanes(a *axis) []lane {
	var names []string
	targets := map[string][]string{}
	for i := range r.faults {
		f := &r.faults[i]
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
		for _, t := range f.targets {
			if !slices.Contains(targets[f.name], t) {
				targets[f.name] = append(targets[f.name], t)
			}
		}
	}
	all := 0
	for _, n := range names {
		slices.Sort(targets[n])
		if len(targets[n]) > maxTargets {
			targets[n] = nil
		}
		all += max(1, len(targets[n]))
	}
	if all > maxLanes {
		all = len(names)
		clear(targets)
	}
	most := maxBars / max(1, all)
	var out []lane
	for i, n := range names {
		class := fmt.Sprintf("f%d", i%colours)
		if len(targets[n]) == 0 {
			out = append(out, lane{Name: n, Label: n, Class: class, Bars: r.bars(a, n, "", most)})
			continue
		}
		for k, t := range targets[n] {
			l := lane{Target: t, Label: n + " " + t, Class: class, Bars: r.bars(a, n, t, most)}
			if k == 0 {
				l.Name = n
			}
			out = append(out, l)
		}
	}
	return out
}

// bars are the faults of a name on a target, or on any. Those closer than a bucket
// are one if there are too many.
func (r *run) bars(a *axis, name, target string, most int) []bar {
	var out []bar
	var here []int
	for i := range r.faults {
		if f := &r.faults[i]; f.name == name && (target == "" || slices.Contains(f.targets, target)) {
			here = append(here, i)
		}
	}
	merge := len(here) > most
	var to int64
	joined := 0
	for _, i := range here {
		f := &r.faults[i]
		if merge && len(out) > 0 && f.from-to < a.width {
			b := &out[len(out)-1]
			joined++
			to = max(to, f.to)
			b.Wide = max(b.Wide, places(100*a.at(to)-b.At))
			b.Title = fmt.Sprintf("%s: %d faults until %s", name, joined, clock(to))
			continue
		}
		to, joined = f.to, 1
		b := bar{At: places(100 * a.at(f.from)), Wide: places(100 * (a.at(f.to) - a.at(f.from))), Title: f.title(), Link: fmt.Sprintf("#fault-%d", i+1)}
		if !f.proved() {
			b.Class = "unproved"
		}
		if f.open {
			b.Class += " open"
		}
		out = append(out, b)
	}
	return out
}

// places rounds to what a screen can show.
func places(percent float64) float64 { return float64(int64(percent*1000+0.5)) / 1000 }

// title says all of a fault.
func (f *fault) title() string {
	s := fmt.Sprintf("%s at %s", cut(f.words(), maxTitle), clock(f.from))
	if f.to > f.from {
		s += " for " + span(f.to-f.from)
	}
	switch {
	case f.err != "":
		s += "\nnot done: " + cut(f.err, maxTitle)
	case f.proof == "":
		s += "\nno proof that it happened"
	default:
		s += "\n" + cut(f.proof, maxTitle)
	}
	if f.open {
		s += "\nnot undone"
	} else if f.undone != "" {
		s += "\nundone: " + cut(f.undone, maxTitle)
	}
	return s
}

// shade is one path over all times when a fault was in force.
func (r *run) shade(a *axis) string {
	type part struct{ from, to int64 }
	var parts []part
	for i := range r.faults {
		if f := &r.faults[i]; f.err == "" {
			parts = append(parts, part{f.from, max(f.to, f.from+a.end/2000)})
		}
	}
	slices.SortFunc(parts, func(x, y part) int { return cmp.Compare(x.from, y.from) })
	var d pen
	for i := 0; i < len(parts); {
		p := parts[i]
		// What is nearer than half a bucket is not to be told apart.
		for i++; i < len(parts) && parts[i].from <= p.to+a.width/2; i++ {
			p.to = max(p.to, parts[i].to)
		}
		d.box(plotWide*a.at(p.from), plotWide*a.at(p.to), plotHigh, 0)
	}
	return d.String()
}

// ticks label the axis of time.
func (a *axis) ticks() []mark {
	const wanted = 9
	step := widths[len(widths)-1]
	for _, w := range append([]time.Duration{}, widths...) {
		if a.end <= wanted*int64(w) {
			step = w
			break
		}
	}
	for a.end > wanted*int64(step) {
		step *= 2
	}
	var out []mark
	for t := int64(0); t <= a.end; t += int64(step) {
		out = append(out, mark{places(100 * a.at(t)), tick(t, step)})
	}
	return out
}
