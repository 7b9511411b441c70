package report

import (
	"cmp"
	"fmt"
	"slices"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// order shows a stretch of a key's log as the operations saw it: one column for
// each operation, in the order in which they ended, one row for each offset.
type order struct {
	ID, Key                  string
	Sent, Doubt, Read, Final string // paths of dots
	Marks                    []spot
	Named, Lines             string // paths of columns and of rows
	Rows, Columns            []mark
	High                     int      // CSS pixels
	Left                     int      // operations
	Anchors                  []string // of the anomalies
}

// spot is a marked dot.
type spot struct{ Path, Title string }

const (
	maxOrders  = 8
	maxColumns = 240
	maxSpread  = 120 // offsets
	margin     = 12  // offsets around those of the anomalies
)

// stretch is what anomalies of a key are about.
type stretch struct {
	key     history.Key
	offsets []int64 // sorted
	marks   []history.Value
	ops     []int64
	about   []string // anchors of the anomalies
}

// stretches joins anomalies that are near each other.
func (r *run) stretches() []stretch {
	var all []stretch
	for i := range r.results {
		c := &r.results[i]
		if c.Verdict != check.Invalid {
			continue
		}
		for k := range c.Worst {
			w := &c.Worst[k]
			if at := r.offsets(w); len(at) > 0 {
				all = append(all, stretch{w.Key, at, []history.Value{w.Mark}, w.Ops, []string{anchor(c, k)}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b stretch) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.offsets[0], b.offsets[0]))
	})
	var out []stretch
	for _, s := range all {
		if n := len(out) - 1; n >= 0 && out[n].key == s.key {
			l := &out[n]
			both := slices.Concat(l.offsets, s.offsets)
			slices.Sort(both)
			if both[len(both)-1]-both[0] <= maxSpread || slices.Equal(l.offsets, s.offsets) {
				l.offsets = slices.Compact(both)
				l.marks, l.ops, l.about = append(l.marks, s.marks...), slices.Concat(l.ops, s.ops), append(l.about, s.about...)
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// offsets are where an anomaly's value is, or the first of each operation that it
// names.
func (r *run) offsets(w *check.Anomaly) []int64 {
	var marked, firsts []int64
	for _, x := range w.Ops {
		if x < 0 || x >= int64(len(r.Ops)) {
			continue
		}
		first := int64(-1)
		dots(&r.Ops[x], w.Key, func(offset int64, v history.Value) {
			if first < 0 {
				first = offset
			}
			if w.Mark != 0 && v == w.Mark {
				marked = append(marked, offset)
			}
		})
		if first >= 0 {
			firsts = append(firsts, first)
		}
	}
	if len(marked) == 0 {
		marked = firsts
	}
	slices.Sort(marked)
	marked = slices.Compact(marked)
	return marked[:min(len(marked), maxNamed)]
}

// dots gives the records of a key in an operation whose offsets are known.
func dots(o *history.Op, k history.Key, dot func(int64, history.Value)) {
	for _, s := range o.Sends {
		if s.Key == k && s.Offset >= 0 {
			dot(s.Offset, s.Value)
		}
	}
	for _, p := range o.Polls {
		if p.Key == k {
			dot(p.Offset, p.Value)
		}
	}
}

// orders draws stretches; left is how many there was no room for.
func (r *run) orders(byKey map[history.Key][]int) (out []order, left int) {
	all := r.stretches()
	for i := range all[:min(len(all), maxOrders)] {
		out = append(out, r.order(&all[i], byKey[all[i].key]))
	}
	return out, max(0, len(all)-maxOrders)
}

// rows are the offsets around those of a stretch, with -1 where some are left out.
func (s *stretch) rows() []int64 {
	var out []int64
	last := int64(-1)
	for _, o := range s.offsets {
		from := max(0, o-margin)
		if len(out) > 0 && from > last+1 {
			out = append(out, -1)
		}
		for x := max(from, last+1); x <= o+margin; x++ {
			out = append(out, x)
		}
		last = max(last, o+margin)
	}
	return out
}

func (r *run) order(s *stretch, touching []int) order {
	rows := s.rows()
	place := make(map[int64]float64, len(rows))
	for i, o := range rows {
		if o >= 0 {
			place[o] = plotHigh * (1 - (float64(i)+0.5)/float64(len(rows)))
		}
	}
	var columns []int
	for _, x := range touching {
		hit := false
		dots(&r.Ops[x], s.key, func(o int64, _ history.Value) {
			if _, ok := place[o]; ok {
				hit = true
			}
		})
		if hit {
			columns = append(columns, x)
		}
	}
	out := order{ID: "order-" + s.about[0], Key: r.key(s.key), Anchors: s.about, High: min(max(9*len(rows), 160), 560)}
	columns, out.Left = nearest(columns, s.ops)
	out.label(rows, s.offsets)
	r.dots(&out, s, columns, place)
	return out
}

// label names the offsets of the anomalies, as many as there is room for.
func (o *order) label(rows, offsets []int64) {
	var lines pen
	last := -1
	for i, x := range rows {
		at := 1 - (float64(i)+0.5)/float64(len(rows))
		if slices.Contains(offsets, x) {
			lines.move(0, plotHigh*at)
			lines.across(plotWide)
		} else if x >= 0 {
			continue
		}
		if last >= 0 && (i-last)*o.High < 15*len(rows) {
			continue
		}
		last = i
		text := "⋮"
		if x >= 0 {
			text = count(x)
		}
		o.Rows = append(o.Rows, mark{places(100 * at), text})
	}
	o.Lines = lines.String()
}

// nearest bounds columns to those around the operations that anomalies name.
func nearest(columns []int, ops []int64) ([]int, int) {
	over := len(columns) - maxColumns
	if over <= 0 {
		return columns, 0
	}
	first, _ := slices.BinarySearch(columns, int(slices.Min(ops)))
	from := min(max(0, first-maxColumns/3), over)
	return columns[from : from+maxColumns], over
}

// dots draws the operations of an order.
func (r *run) dots(out *order, s *stretch, columns []int, place map[int64]float64) {
	var sent, doubt, read, final, named pen
	step := plotWide / float64(len(columns)+1)
	every := max(1, len(columns)/10)
	for i, x := range columns {
		o, at := &r.Ops[x], step*float64(i+1)
		if i%every == 0 {
			out.Columns = append(out.Columns, mark{places(at / plotWide * 100), fmt.Sprintf("#%d", o.Index)})
		}
		if slices.Contains(s.ops, o.Index) {
			named.move(at, 0)
			named.down(plotHigh)
		}
		d := &read
		switch {
		case o.F == history.Send && o.Type == history.OK:
			d = &sent
		case o.F == history.Send:
			d = &doubt
		case o.Phase == history.Final:
			d = &final
		}
		dots(o, s.key, func(offset int64, v history.Value) {
			y, ok := place[offset]
			if !ok {
				return
			}
			d.move(at, y)
			d.dot()
			if v != 0 && slices.Contains(s.marks, v) && len(out.Marks) < maxColumns {
				var m pen
				m.move(at, y)
				m.dot()
				out.Marks = append(out.Marks, spot{m.String(), fmt.Sprintf("#%d %s at %s: offset %d, value %d", o.Index, cut(string(o.F), 40), clock(o.Completed), offset, v)})
			}
		})
	}
	out.Sent, out.Doubt, out.Read, out.Final, out.Named = sent.String(), doubt.String(), read.String(), final.String(), named.String()
}
