package report

import (
	"fmt"
	"slices"
	"strings"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

const (
	maxAnomalies = 200 // on the page
	maxTables    = 36  // of operations around anomalies on the page
	maxRows      = 20  // of each
	maxOfCheck   = 6   // of them of one check
	maxOpen      = 1   // that a reader need not open
	maxNamed     = 6   // operations of an anomaly that are shown
	around       = 2   // operations before and after each of them
	maxRecords   = 8   // of one operation
)

// anomaly is one with the operations around it.
type anomaly struct {
	ID, Text, Key, At string
	Rows              []row
	More              int    // operations named and not shown
	Order             string // link to the order view
	Open              bool
}

// row is an operation, or how many were left out.
type row struct {
	Left                                        int
	Index                                       int64
	Named                                       bool
	At, Took, Process, Node, What, Outcome, Err string
	Records                                     []cell
	More                                        int // records
}

// cell is a record of the anomaly's key, or another thing that an operation said.
type cell struct {
	Text string
	Mark bool
}

// byKey has the operations that touch each key with an anomaly, as places in Ops.
func (r *run) byKey() map[history.Key][]int {
	out := map[history.Key][]int{}
	for i := range r.results {
		for _, a := range r.results[i].Worst {
			out[a.Key] = nil
		}
	}
	if len(out) == 0 {
		return out
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		said := func(k history.Key) {
			list, ok := out[k]
			if ok && (len(list) == 0 || list[len(list)-1] != i) {
				out[k] = append(list, i)
			}
		}
		for k := range o.Sends {
			said(o.Sends[k].Key)
		}
		for k := range o.Polls {
			said(o.Polls[k].Key)
		}
		for k := range o.Offsets {
			said(o.Offsets[k].Key)
		}
		for _, k := range o.Keys {
			said(k)
		}
	}
	delete(out, -1)
	return out
}

// key names a key.
func (r *run) key(k history.Key) string {
	if k < 0 || int(k) >= len(r.Header.Keys) {
		return ""
	}
	return short(r.Header.Keys[k].String())
}

// anomalies are those of a check. tables is how many the page has room for.
func (r *run) anomalies(c *check.Result, byKey map[history.Key][]int, tables *int) []anomaly {
	out := make([]anomaly, 0, len(c.Worst))
	for i := range c.Worst {
		w := &c.Worst[i]
		a := anomaly{ID: anchor(c, i), Text: short(w.Text), Key: r.key(w.Key), At: clock(w.At), Open: i < maxOpen}
		if i < maxOfCheck && *tables > 0 && len(w.Ops) > 0 {
			*tables--
			a.Rows = r.rows(w, byKey[w.Key])
			a.More = max(0, len(w.Ops)-maxNamed)
		}
		out = append(out, a)
	}
	return out
}

func anchor(c *check.Result, i int) string { return fmt.Sprintf("%s-%d", c.ID, i+1) }

// rows are the operations that an anomaly names and the neighbours of the same key.
func (r *run) rows(w *check.Anomaly, touching []int) []row {
	var shown, named []int
	for _, x := range w.Ops {
		if x < 0 || x >= int64(len(r.Ops)) || len(named) == maxNamed || len(shown) > maxRows {
			continue
		}
		named = append(named, int(x))
		shown = append(shown, int(x))
		if at, _ := slices.BinarySearch(touching, int(x)); len(touching) > 0 {
			shown = append(shown, touching[max(0, at-around):min(len(touching), at+around+1)]...)
		}
	}
	slices.Sort(shown)
	shown = slices.Compact(shown)
	var out []row
	for i, x := range shown {
		if i > 0 {
			if left := between(touching, shown[i-1], x); left > 0 {
				out = append(out, row{Left: left})
			}
		}
		out = append(out, r.row(x, w, slices.Contains(named, x)))
	}
	return out
}

// between is how many operations of a key lie between two.
func between(touching []int, a, b int) int {
	from, found := slices.BinarySearch(touching, a)
	if found {
		from++
	}
	to, _ := slices.BinarySearch(touching, b)
	return max(0, to-from)
}

func (r *run) row(x int, w *check.Anomaly, named bool) row {
	o := &r.Ops[x]
	out := row{
		Index: o.Index, Named: named, At: clock(o.Invoked), Took: span(o.Completed - o.Invoked),
		Process: fmt.Sprint(o.Process), What: cut(string(o.F), 40), Outcome: cut(string(o.Type), 40), Err: cut(o.Err, 2*maxTitle),
	}
	if o.Node != 0 {
		out.Node = fmt.Sprint(o.Node)
	}
	if o.Spec != "" {
		out.What += " " + cut(o.Spec, 40)
	}
	if o.Phase == history.Final {
		out.What += ", final"
	}
	out.Records, out.More = around8(r.cells(o, w))
	return out
}

// cells say what an operation had to do with the key of an anomaly, or with all
// keys if it has none.
func (r *run) cells(o *history.Op, w *check.Anomaly) []cell {
	var out []cell
	add := func(k history.Key, offset int64, v history.Value, note string) {
		if w.Key >= 0 && k != w.Key {
			return
		}
		s := fmt.Sprintf("%d: %d", offset, v)
		if offset < 0 {
			s = fmt.Sprintf("?: %d", v)
		}
		if w.Key < 0 {
			s = strings.TrimSpace(r.key(k) + " " + s)
		}
		if note != "" {
			s += " " + cut(note, maxTitle)
		}
		out = append(out, cell{s, w.Mark != 0 && v == w.Mark})
	}
	for _, s := range o.Sends {
		add(s.Key, s.Offset, s.Value, "")
	}
	for _, p := range o.Polls {
		add(p.Key, p.Offset, p.Value, p.Damage)
	}
	for _, x := range o.Offsets {
		if w.Key < 0 || x.Key == w.Key {
			s := fmt.Sprintf("offset %d", x.Offset)
			if x.Asked != 0 {
				s += fmt.Sprintf(" (asked for %d)", x.Asked)
			}
			if x.Epoch != 0 {
				s += fmt.Sprintf(", epoch %d", x.Epoch)
			}
			if x.Err != "" {
				s += ", " + cut(x.Err, maxTitle)
			}
			out = append(out, cell{Text: s})
		}
	}
	if o.Group != "" {
		out = append(out, cell{Text: cut(fmt.Sprintf("group %s, generation %d", o.Group, o.Gen), maxTitle)})
	}
	if o.Producer != nil {
		out = append(out, cell{Text: fmt.Sprintf("producer %d, epoch %d", o.Producer.ID, o.Producer.Epoch)})
	}
	if o.Topic != nil {
		out = append(out, cell{Text: cut("topic "+o.Topic.Name+" "+o.Topic.ID, maxTitle)})
	}
	return out
}

// around8 keeps maxRecords cells, those around the first that is marked.
func around8(cells []cell) ([]cell, int) {
	if len(cells) <= maxRecords {
		return cells, 0
	}
	at := max(0, slices.IndexFunc(cells, func(c cell) bool { return c.Mark })-maxRecords/2)
	at = min(at, len(cells)-maxRecords)
	return cells[at : at+maxRecords], len(cells) - maxRecords
}
