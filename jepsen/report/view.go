package report

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"ponor/jepsen/check"
)

// view is the page as its template sees it: words and places, nothing to work out.
type view struct {
	Title, Verdict, Sentence string // Verdict is valid, invalid or unknown
	Facts                    []fact
	Command                  []string // its words, each on one line if there is room
	Tiles                    []tile
	Failed                   []failed
	Missing                  []string

	Ticks     []mark
	Lanes     []lane
	Gaps      []bar
	Longest   string
	Anomalies []bar
	Final     float64 // percent where the final reads begin; 100: there were none
	Shade     string
	Plots     []plot
	Data      data

	Checks     []checked
	Skipped    []checked
	Orders     []order
	OrdersLeft int
	Faults     []faultRow
	FaultsLeft int
	Embedded   []embedded
}

type (
	fact struct{ Name, Text string }
	tile struct{ Name, Number, Text string }
	// failed is a check of the short list at the top.
	failed struct{ ID, Name, Count, First string }
	// data is what the script shows of the bucket under the pointer.
	data struct {
		End   int64   `json:"end"` // ms
		Width int64   `json:"width"`
		N     int     `json:"n"`
		Lines [][]any `json:"lines"`
	}
	checked struct {
		ID, Name, Verdict, Class, Word, Checked, Count, Note, Tolerated string
		Figures                                                         []fact
		Anomalies                                                       []anomaly
		Open                                                            bool
		Shown                                                           string
	}
	faultRow struct {
		N                                            int
		Name, Target, From, Took, Proof, Undone, Err string
		Proved, Open                                 bool
	}
	embedded struct {
		Title, Path string
		Page        template.HTMLAttr // srcdoc
	}
)

// maxFaults bounds the table of faults.
const maxFaults = 300

func newView(r *run) *view {
	a := newAxis(r.end)
	v := &view{
		Title: r.Header.Workload + " " + r.Header.Run, Verdict: string(r.verdict), Sentence: r.sentence(),
		Facts: r.facts(), Command: strings.Fields(r.command()), Tiles: r.tiles(), Missing: r.missing(),
		Ticks: a.ticks(), Lanes: r.lanes(&a), Shade: r.shade(&a), Final: places(100 * a.at(r.load)),
		Plots: r.plots(&a, r.curves(&a)), Embedded: r.embedded(),
	}
	v.Data = data{End: a.end / 1e6, Width: a.width / 1e6, N: a.n}
	for _, p := range v.Plots {
		for _, l := range p.Lines {
			v.Data.Lines = append(v.Data.Lines, l.Values)
		}
	}
	for i, g := range r.gaps {
		b := bar{At: places(100 * a.at(g.from)), Wide: places(100 * (a.at(g.to) - a.at(g.from))), Title: capital(r.gapWords(g))}
		if i == 0 {
			b.Class, v.Longest = "longest", span(g.length())
		}
		v.Gaps = append(v.Gaps, b)
	}
	byKey := r.byKey()
	v.Orders, v.OrdersLeft = r.orders(byKey)
	drawn := map[string]string{}
	for i := range v.Orders {
		for _, id := range v.Orders[i].Anchors {
			drawn[id] = v.Orders[i].ID
		}
	}
	tables, room := maxTables, maxAnomalies
	for i := range r.results {
		c := &r.results[i]
		c.Worst = c.Worst[:min(len(c.Worst), room)]
		room -= len(c.Worst)
		list := r.anomalies(c, byKey, &tables)
		for k := range list {
			list[k].Order = drawn[list[k].ID]
			if c.Verdict == check.Invalid {
				v.Anomalies = append(v.Anomalies, bar{At: places(100 * a.at(c.Worst[k].At)), Title: fmt.Sprintf("%s at %s\n%s", c.Name, list[k].At, cut(list[k].Text, maxTitle)), Link: "#" + list[k].ID})
			}
		}
		if skipped(*c) {
			v.Skipped = append(v.Skipped, newChecked(c, list))
			continue
		}
		v.Checks = append(v.Checks, newChecked(c, list))
		if c.Verdict == check.Invalid {
			f := failed{ID: c.ID, Name: c.Name, Count: plural(c.Count, "anomaly", "anomalies")}
			if len(list) > 0 {
				f.First = list[0].Text
			}
			v.Failed = append(v.Failed, f)
		}
	}
	v.faults(r)
	return v
}

func newChecked(c *check.Result, list []anomaly) checked {
	out := checked{
		ID: c.ID, Name: c.Name, Verdict: string(c.Verdict), Word: string(c.Verdict), Checked: count(c.Checked),
		Count: count(c.Count), Note: c.Note, Tolerated: c.Tolerated, Anomalies: list,
		Class: string(c.Verdict), Open: c.Verdict == check.Invalid,
	}
	switch {
	case c.Verdict == check.Valid && c.Count > 0:
		out.Verdict, out.Word, out.Class = "tolerated", "tolerated", "dimmed"
	case skipped(*c):
		out.Class = "dimmed"
	}
	for _, k := range sortedKeys(c.Figure) {
		out.Figures = append(out.Figures, figure(k, c.Figure[k]))
	}
	if n := len(list); n > 0 && n < c.Count {
		out.Shown = fmt.Sprintf("The worst %d of %s", n, count(c.Count))
	}
	return out
}

func (v *view) faults(r *run) {
	for i := range r.faults {
		if i == maxFaults {
			v.FaultsLeft = len(r.faults) - maxFaults
			return
		}
		f := &r.faults[i]
		row := faultRow{
			N: i + 1, Name: f.name, Target: cut(f.target(), maxTitle), From: clock(f.from), Took: "at once",
			Proof: cut(f.proof, 2*maxTitle), Undone: cut(f.undone, maxTitle), Err: cut(f.err, 2*maxTitle), Proved: f.proved(), Open: f.open,
		}
		if f.to > f.from {
			row.Took = span(f.to - f.from)
		}
		v.Faults = append(v.Faults, row)
	}
}

// facts are what was run.
func (r *run) facts() []fact {
	h := &r.Header
	began := h.Began
	if t, err := time.Parse(time.RFC3339, h.Began); err == nil {
		began = t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	nemesis := "none"
	if len(h.Nemesis) > 0 {
		nemesis = strings.Join(h.Nemesis, ", ")
	}
	clients := "producers without idempotence"
	if h.Idempotent {
		clients = "idempotent producers"
	}
	if h.Group {
		clients += ", consumer groups"
	}
	out := []fact{
		{"Workload", h.Workload + ", " + clients},
		{"Faults", nemesis},
		{"Cluster", strings.TrimPrefix(h.Product+", "+plural(h.Nodes, "node", "nodes")+", "+plural(len(h.Keys), "partition", "partitions"), ", ")},
		{"Client", h.Client},
		{"Time", began + ", " + span(r.end)},
		{"Seed", fmt.Sprint(h.Seed)},
	}
	if h.Run != "" {
		out = append(out, fact{"Run", h.Run})
	}
	return out
}

// tiles are the numbers of the run.
func (r *run) tiles() []tile {
	out := []tile{
		{"Operations", count(len(r.Ops)), fmt.Sprintf("%s ok, %s failed, %s unknown", count(r.ok), count(r.fail), count(r.info))},
		{"Records acknowledged", count(len(r.records)), r.unseenWords()},
		{"Records polled", count(r.polled), "every read of a record counts"},
		{"Faults", count(len(r.faults)), r.faultWords()},
		{"Longest gap", "–", "no acknowledgement was awaited"},
	}
	if len(r.gaps) > 0 {
		out[4].Number = span(r.gaps[0].length())
		out[4].Text = "without an acknowledgement, at " + clock(r.gaps[0].from)
	}
	return out
}

func (r *run) unseenWords() string {
	switch {
	case len(r.records) == 0:
		return "none"
	case r.unseen == 0:
		return "all were polled"
	}
	return count(r.unseen) + " never polled"
}

// faultWords say whether the faults happened.
func (r *run) faultWords() string {
	var proved, open int
	for i := range r.faults {
		if r.faults[i].proved() {
			proved++
		}
		if r.faults[i].open {
			open++
		}
	}
	switch {
	case len(r.faults) == 0:
		return "none was injected"
	case open > 0:
		return fmt.Sprintf("%s proved, %s not undone", count(proved), count(open))
	case proved == len(r.faults):
		return "all proved and undone"
	}
	return fmt.Sprintf("%s proved, %s not", count(proved), count(len(r.faults)-proved))
}

// gapWords say when a gap was and what was done meanwhile.
func (r *run) gapWords(g gap) string {
	s := fmt.Sprintf("%s without an acknowledgement, at %s", span(g.length()), clock(g.from))
	if d := r.during(g.from, g.to); d != "" {
		s += ", during " + d
	}
	return s
}

// embedded has the views that the page has room for, and links to the others.
func (r *run) embedded() []embedded {
	var out []embedded
	room := maxViews
	for _, x := range r.extra.Views {
		e := embedded{Title: short(x.Title), Path: clean(x.Path)}
		// Quotes and ampersands grow fivefold in an attribute.
		doc := template.HTMLEscapeString(string(x.Page))
		if doc != "" && len(x.Page) <= maxView && len(doc) <= room {
			e.Page = template.HTMLAttr(`srcdoc="` + doc + `"`)
			room -= len(doc)
		}
		if e.Page != "" || e.Path != "" {
			out = append(out, e)
		}
	}
	return out
}

// figure has its unit, with which a name ends, behind the number.
func figure(name string, v float64) fact {
	name, text := strings.ReplaceAll(name, "_", " "), digits(v)
	for _, unit := range []string{" ms", " s", " %", " bytes"} {
		if rest, ok := strings.CutSuffix(name, unit); ok {
			name, text = rest, text+unit
		}
	}
	return fact{cut(name, 40), text}
}
