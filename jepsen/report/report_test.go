package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
	"ponor/jepsen/report"
)

var pages = flag.String("pages", "", "a folder that gets the sample pages, to look at them")

func write(t *testing.T, h *history.History, list []check.Result, v check.Verdict, extra report.Extra) (page, text string) {
	t.Helper()
	var p, s bytes.Buffer
	if err := report.Write(&p, h, list, v, extra); err != nil {
		t.Fatal(err)
	}
	if err := report.Text(&s, h, list, v, extra); err != nil {
		t.Fatal(err)
	}
	return p.String(), s.String()
}

func wants(t *testing.T, where, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s lacks %q", where, w)
		}
	}
}

// The pages of all samples are small, name nothing outside them and show their
// numbers.
func TestPages(t *testing.T) {
	want := map[string][]string{
		"valid":   {"21 checks looked at 21,821 operations through 18 faults and found nothing wrong.", "412 anomalies of a kind that a log allows were counted.", "all proved and undone"},
		"calm":    {"21 checks looked at 5,061 operations of a run without faults and found nothing wrong."},
		"invalid": {"3 of 21 checks failed: duplicate (2 anomalies), lost-write (5 anomalies) and unseen (5 anomalies).", "5 never polled"},
		"unknown": {
			"Nothing wrong was found, but the run could not show what was asked, for 4 reasons.",
			"node n2 did not answer for 31 s after the last fault was undone", "L23 high-watermark-regress: it had nothing to look at",
			"L24 order-linearizability: no answer for t1-0 in 60 s", "9 proved, 3 not", "a fault left no proof that it happened: pause (3 times)",
		},
		"long": {"through 200 faults and found nothing wrong.", "4 h 24 s"},
	}
	outside := regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|<link|<base`)
	source := regexp.MustCompile(`(?i)(?:src|href|action|data)="([^"]*)"`)
	for name, of := range samples() {
		t.Run(name, func(t *testing.T) {
			h, list, verdict, extra := of()
			page, text := write(t, h, list, verdict, extra)
			wants(t, "the page", page, append(want[name], `<h1><svg class="icon"><use href="#i-`+string(verdict))...)
			wants(t, "the text", text, append(want[name], strings.ToUpper(string(verdict)))...)
			wants(t, "the page", page, "/s in the final reads, beyond the scale")
			if len(page) > 200_000 {
				t.Errorf("the page has %d bytes", len(page))
			}
			if at := outside.FindString(page); at != "" {
				t.Errorf("the page names something outside it: %s", at)
			}
			for _, m := range source.FindAllStringSubmatch(page, -1) {
				if !strings.HasPrefix(m[1], "#") && m[1] != "porcupine-t1-0.html" {
					t.Errorf("the page loads or links %q", m[1])
				}
			}
			for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
				if !strings.Contains(page, `id="`+m[1]+`"`) {
					t.Errorf("the page has nothing named %q", m[1])
				}
			}
			if n := strings.Count(text, "\n"); n > 40 {
				t.Errorf("the text has %d lines", n)
			}
			if *pages != "" {
				for file, data := range map[string]string{name + ".html": page, name + ".txt": text} {
					if err := os.WriteFile(filepath.Join(*pages, file), []byte(data), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

const hostile = `</script></style></title>"'><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x1b[2J\n`&{{.}}"

// No string of a history or a check becomes markup, a script or a terminal's
// command, wherever it is shown.
func TestHostileStrings(t *testing.T) {
	x := hostile
	h := &history.History{
		Header: history.Header{
			Run: x, Began: x, Workload: x, Nemesis: []string{x}, Product: x, Client: x, Nodes: 3,
			Keys: []history.Partition{{Topic: x}}, Settings: map[string]string{x: x},
		},
		Ops: []history.Op{
			{Index: 0, F: history.Send, Completed: sec, Type: history.OK, Err: x, Sends: []history.Sent{{Value: 1, Offset: 1}}},
			{Index: 1, F: history.Func(x), Invoked: sec, Completed: 2 * sec, Type: history.Outcome(x), Err: x, Group: x, Spec: x,
				Polls:   []history.Polled{{Value: 1, Offset: 2, Damage: x}},
				Offsets: []history.Offset{{Err: x}}, Topic: &history.Topic{Name: x, ID: x}},
		},
		Events: []history.Event{
			{At: 1, End: 1, Fault: x, Phase: "start", Target: []string{x}, Proof: x},
			{At: 2, End: 2, Fault: x, Phase: "stop", Target: []string{x}, Proof: x},
			{At: 3, End: 3, Fault: x, Phase: "start", Target: []string{x}, Err: x},
		},
	}
	list := []check.Result{
		{ID: "L1", Name: x, Verdict: check.Invalid, Count: 1, Checked: 1, Note: x, Tolerated: x, Figure: map[string]float64{x: 1},
			Worst: []check.Anomaly{{Text: x, Ops: []int64{0, 1, 99, -3}, Mark: 1}}},
		{ID: "L2", Name: x, Verdict: check.Unknown, Note: x},
	}
	views := []report.View{{Title: x, Path: "javascript:alert(1)", Page: []byte(strings.ReplaceAll(x, "\x1b", ""))}}
	page, text := write(t, h, list, check.Invalid, report.Extra{Command: x, Why: []string{x}, Views: views})
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("the page has %d scripts", n)
	}
	for _, bad := range []string{"<img", `="javascript:`, "\x1b", "</script></style>"} {
		if strings.Contains(page, bad) {
			at := strings.Index(page, bad)
			t.Errorf("the page has %q: %q", bad, page[max(0, at-60):at+20])
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("the text has an escape")
	}
	wants(t, "the page", page, `srcdoc="&lt;/script&gt;`)
}

// lines are the values of the plots, in their order on the page.
func lines(t *testing.T, page string) (width, n int, lines [][]float64) {
	t.Helper()
	m := regexp.MustCompile(`const data = (\{.*\});`).FindStringSubmatch(page)
	if m == nil {
		t.Fatal("the page has no data")
	}
	var data struct {
		Width, N int
		Lines    [][]*float64
	}
	if err := json.Unmarshal([]byte(m[1]), &data); err != nil {
		t.Fatal(err)
	}
	for _, l := range data.Lines {
		out := make([]float64, len(l))
		for i, v := range l {
			if out[i] = math.NaN(); v != nil {
				out[i] = *v
			}
		}
		lines = append(lines, out)
	}
	return data.Width, data.N, lines
}

// The numbers behind the plots are those of the operations.
func TestSeries(t *testing.T) {
	h := &history.History{Header: history.Header{Keys: []history.Partition{{Topic: "t"}}}}
	add := func(o history.Op) {
		o.Index = int64(len(h.Ops))
		h.Ops = append(h.Ops, o)
	}
	// In the first second two records, seen in the second and never.
	add(history.Op{F: history.Send, Invoked: 200 * ms, Completed: 500 * ms, Type: history.OK, Sends: []history.Sent{{Value: 1}, {Value: 2, Offset: 1}}})
	add(history.Op{F: history.Send, Invoked: 500 * ms, Completed: 600 * ms, Type: history.Fail, Sends: []history.Sent{{Value: 3}}})
	add(history.Op{F: history.Poll, Invoked: 1400 * ms, Completed: 1500 * ms, Type: history.OK, Polls: []history.Polled{{Value: 1}}})
	add(history.Op{F: history.Poll, Invoked: 1600 * ms, Completed: 1700 * ms, Type: history.OK, Polls: []history.Polled{{Value: 1}}})
	add(history.Op{F: history.Send, Invoked: 3400 * ms, Completed: 3500 * ms, Type: history.OK, Sends: []history.Sent{{Value: 4, Offset: 2}}})
	add(history.Op{F: history.Poll, Phase: history.Final, Invoked: 399 * sec, Completed: 400 * sec, Type: history.Info, Polls: []history.Polled{{Value: 4, Offset: 2}}})
	add(history.Op{F: history.Send, Phase: history.Final, Invoked: 399 * sec, Completed: 400 * sec, Type: history.Fail})
	page, text := write(t, h, nil, check.Unknown, report.Extra{})
	width, n, l := lines(t, page)
	if width != 1000 || n != 400 || len(l) != 10 {
		t.Fatalf("%d lines of %d buckets of %d ms", len(l), n, width)
	}
	none := math.NaN()
	for i, want := range [][4]float64{
		{2, 0, 0, 1},           // acknowledged/s
		{0.3, none, none, 0.1}, // slowest
		{0.3, none, none, 0.1}, // p99
		{0.3, none, none, 0.1}, // median
		{0, 2, 0, 0},           // polled/s
		{2, 1, 1, 2},           // unseen
		{0.5, 1, none, 0.5},    // worst lag; that of record 2 is not shown
		{none, 1, none, none},  // median lag
		{0, 0, 0, 0},           // info
		{1, 0, 0, 0},           // fail
	} {
		for b, w := range want {
			if got := l[i][b]; got != w && !(math.IsNaN(got) && math.IsNaN(w)) {
				t.Errorf("line %d has %v in second %d, want %v", i, got, b, w)
			}
		}
	}
	if l[8][399] != 1 || l[5][399] != 1 {
		t.Errorf("at the end %v operations are unknown and %v records unseen", l[8][399], l[5][399])
	}
	wants(t, "the text", text, "7 operations: 4 ok, 2 failed, 1 unknown", "3 acknowledged, 1 never polled; 3 polled", "3 s without an acknowledgement, at 0:00.500")
	wants(t, "the page", page, `no acks <em>3 s</em></span><div><a class="longest" title="3 s without an acknowledgement, at 0:00.500" style="left:0.125%;width:0.75%">`)
}

// Of a send of unknown effect, the records that were told an offset were
// acknowledged.
func TestAcknowledgedInPart(t *testing.T) {
	h := &history.History{Header: history.Header{Keys: []history.Partition{{Topic: "t"}, {Topic: "t", Partition: 1}}}, Ops: []history.Op{
		{Index: 0, F: history.Send, Invoked: 100 * ms, Completed: 500 * ms, Type: history.Info, Sends: []history.Sent{{Value: 1, Offset: 0}, {Key: 1, Value: 2, Offset: -1}}},
		{Index: 1, F: history.Send, Invoked: 600 * ms, Completed: 399 * sec, Type: history.Fail, Sends: []history.Sent{{Value: 3, Offset: 1}}},
	}}
	page, text := write(t, h, nil, check.Unknown, report.Extra{})
	wants(t, "the text", text, "1 acknowledged, 1 never polled; 0 polled")
	if _, _, l := lines(t, page); l[0][0] != 1 || l[0][398] != 0 {
		t.Errorf("%v and %v records a second are acknowledged", l[0][0], l[0][398])
	}
}

// However long a run is, it has few buckets and they cover it.
func TestBucketsAreBounded(t *testing.T) {
	for _, end := range []int64{0, 1, 9 * ms, sec, 400 * sec, 401 * sec, 3599 * sec, 4 * 3600 * sec, 400 * 3600 * sec, 5000 * 3600 * sec} {
		h := &history.History{Ops: []history.Op{
			{Index: 0, F: history.Send, Completed: end / 2, Type: history.Fail},
			{Index: 1, F: history.Send, Completed: end, Type: history.Fail},
			{Index: 2, F: history.Send, Completed: end, Type: history.OK, Sends: []history.Sent{{Value: 1}}},
		}}
		page, _ := write(t, h, nil, check.Unknown, report.Extra{})
		width, n, l := lines(t, page)
		if n < 1 || n > 600 {
			t.Errorf("a run of %d ns has %d buckets", end, n)
		}
		if covered := int64(width) * int64(n) * ms; end > 20*ms && (covered < end*2/3 || covered > end*3/2) {
			t.Errorf("%d buckets of %d ms are of a run of %d ms", n, width, end/ms)
		}
		// The last bucket is as long as what is left.
		if last := float64(max(end, 1))/1e9 - float64(width)*float64(n-1)/1e3; width > 0 && math.Abs(l[0][n-1]*last-1) > 0.01 {
			t.Errorf("a run of %d ns shows %v records/s in its last %v s, want 1 record", end, l[0][n-1], last)
		}
		sum := 0.0
		for _, v := range l[len(l)-1] {
			sum += v
		}
		if sum != 2 {
			t.Errorf("a run of %d ns shows %v failed operations of 2", end, sum)
		}
	}
}

// Faults end with what undoes them, and what went wrong with them is said.
func TestFaults(t *testing.T) {
	n1, n2 := []string{"n1"}, []string{"n2"}
	h := &history.History{
		Ops: []history.Op{{F: history.Send, Completed: 100 * sec, Type: history.OK, Sends: []history.Sent{{Value: 1}}}},
		Events: []history.Event{
			{At: 10 * sec, End: 11 * sec, Fault: "kill", Phase: "start", Target: n1, Proof: "pid 1 is gone"},
			{At: 12 * sec, End: 12 * sec, Fault: "kill", Phase: "start", Target: n2, Proof: "pid 2 is gone"},
			{At: 20 * sec, End: 23 * sec, Fault: "kill", Phase: "stop", Target: n1, Proof: "pid 3 is ready"},
			{At: 30 * sec, End: 30 * sec, Fault: "move", Phase: "start", Target: n1, Proof: "epoch 4"},
			{At: 40 * sec, End: 40 * sec, Fault: "pause", Phase: "start", Target: n2},
			{At: 45 * sec, End: 45 * sec, Fault: "pause", Phase: "stop"},
			{At: 50 * sec, End: 50 * sec, Fault: "pause", Phase: "start", Target: n1, Proof: "state T"},
			{At: 60 * sec, End: 60 * sec, Fault: "cut", Phase: "start", Target: n1, Err: "no such link"},
			{At: 70 * sec, End: 70 * sec, Fault: "kill", Phase: "heal", Target: n2, Proof: "pid 4 is ready"},
			{At: 71 * sec, End: 71 * sec, Fault: "pause", Phase: "heal", Target: n1, Err: "no such process"},
		},
	}
	page, text := write(t, h, nil, check.Unknown, report.Extra{})
	row := func(at, took, name, target, proof, undone string) string {
		return fmt.Sprintf(`<td class="n">%s</td><td class="n">%s</td><th scope="row">%s</th><td>%s</td><td>%s</td><td>%s</td>`, at, took, name, target, proof, undone)
	}
	wants(t, "the table", page,
		row("0:10.000", "13 s", "kill", "n1", "pid 1 is gone", "pid 3 is ready"),
		row("0:12.000", "58 s", "kill", "n2", "pid 2 is gone", "pid 4 is ready"),
		row("0:30.000", "at once", "move", "n1", "epoch 4", ""),
		row("0:40.000", "5 s", "pause", "n2", "<strong>none</strong>", ""),
		row("0:50.000", "50 s", "pause", "n1", "state T", "<strong>not undone</strong>"),
		row("1:00.000", "at once", "cut", "n1", "<strong>not done:</strong> no such link", ""),
	)
	if n := strings.Count(page, `class="unproved`); n != 2 {
		t.Errorf("%d bars are drawn as unproved, want 2", n)
	}
	wants(t, "the text", text, "6 faults, 4 proved, 1 not undone",
		"a fault left no proof that it happened: pause", "a fault could not be done: cut: no such link",
		"a fault could not be undone: pause: no such process", "a fault was not undone: pause n1")
	// A heal of no fault undoes the rest.
	for _, name := range []string{"", "heal"} {
		h.Events[len(h.Events)-1] = history.Event{At: 71 * sec, End: 71 * sec, Fault: name, Phase: "heal"}
		page, _ = write(t, h, nil, check.Unknown, report.Extra{})
		wants(t, "the table", page, row("0:50.000", "21 s", "pause", "n1", "state T", ""))
	}
}

// A fault has a lane for each target, or one if they are many; so many faults that
// they cannot be told apart are drawn as one bar.
func TestLanes(t *testing.T) {
	h := &history.History{Ops: []history.Op{{F: history.Send, Completed: 1000 * sec, Type: history.Fail}}}
	add := func(name, target string, from, to int64) {
		h.Events = append(h.Events,
			history.Event{At: from, End: from, Fault: name, Phase: "start", Target: []string{target}, Proof: "seen"},
			history.Event{At: to, End: to, Fault: name, Phase: "stop", Target: []string{target}})
	}
	add("kill", "n1", 100*sec, 150*sec)
	add("kill", "n2", 200*sec, 201*sec)
	for i := range int64(8) {
		add("cut", fmt.Sprintf("link %d", i), 300*sec+i*sec, 310*sec)
	}
	page, _ := write(t, h, nil, check.Unknown, report.Extra{})
	wants(t, "the page", page,
		`<div class="r lane f0 first"><span title="kill n1">kill <em>n1</em></span>`, `style="left:10%;width:5%"></a></div>`,
		`<div class="r lane f0"><span title="kill n2"> <em>n2</em></span>`, `style="left:20%;width:0.1%"></a></div>`,
		`<div class="r lane f1 first"><span title="cut">cut</span>`,
		// Shaded is what the lanes have, at most half a bucket more.
		`<path class="shade" d="M100 100V0H150V100ZM200 100V0H201V100ZM300 100V0H310V100Z"/>`)
	if n := strings.Count(page, `href="#fault-`); n != 10 {
		t.Errorf("%d bars, want 10", n)
	}
	for i := range int64(2000) {
		add("pause", "n1", 400*sec+i*100*ms, 400*sec+i*100*ms+50*ms)
	}
	add("pause", "n1", 900*sec, 901*sec)
	page, _ = write(t, h, nil, check.Unknown, report.Extra{})
	wants(t, "the page", page, `title="pause: 2000 faults until 9:59.950" style="left:40%;width:19.995%"`, `style="left:90%;width:0.1%"`)
	if n := strings.Count(page, `href="#fault-`); n != 12 {
		t.Errorf("%d bars, want 12", n)
	}
}

// An anomaly shows the operations that it names, their neighbours of the same
// key, and the log's order there.
func TestAnomaly(t *testing.T) {
	h := &history.History{Header: history.Header{Keys: []history.Partition{{Topic: "a"}, {Topic: "b"}}}}
	for i := range int64(40) {
		h.Ops = append(h.Ops, history.Op{Index: i, F: history.Send, Invoked: i * sec, Completed: i*sec + ms, Type: history.OK,
			Sends: []history.Sent{{Key: history.Key(i % 2), Value: history.Value(100 + i), Offset: i / 2}}})
	}
	h.Ops = append(h.Ops, history.Op{Index: 40, F: history.Poll, Phase: history.Final, Invoked: 50 * sec, Completed: 51 * sec, Type: history.OK, Polls: []history.Polled{{Value: 108, Offset: 4}}})
	list := []check.Result{{ID: "L3", Name: "lost-write", Verdict: check.Invalid, Count: 70, Checked: 40, Figure: map[string]float64{"max_after_heal_ms": 5, "ok_%": 99.5, "objects": 7},
		Worst: []check.Anomaly{{Text: "value 110 is lost", Key: 0, At: 10 * sec, Ops: []int64{10, 30}, Mark: 110}}}}
	page, _ := write(t, h, list, check.Invalid, report.Extra{})
	cell := func(named bool, index int64) string {
		class := map[bool]string{true: ` class="named"`}[named]
		return fmt.Sprintf(`<tr%s><td class="n">%d</td><td class="n">0:%06.3f</td>`, class, index, float64(index))
	}
	wants(t, "the page", page, cell(false, 6), cell(false, 8), cell(true, 10), cell(false, 12), cell(false, 14), "5 more operations of this partition",
		cell(true, 30), cell(false, 34), `<span class="mark">5: 110</span>`, "The worst 1 of 70<",
		"max after heal <b>5 ms</b>", "ok <b>99.5 %</b>", "objects <b>7</b>",
		`id="order-L3-1"`, `<path class="final" d="M950 75h0"/>`, "<title>#10 send at 0:10.001: offset 5, value 110</title>", `<i style="top:`)
	if n := strings.Count(page, "value 110 is lost"); n != 3 {
		t.Errorf("the anomaly is told %d times; want the head, the time line and the check", n)
	}
	for _, other := range []int64{5, 11, 16, 36} {
		if strings.Contains(page, cell(false, other)) {
			t.Errorf("operation %d is shown", other)
		}
	}
}

// What a page holds is bounded, whatever there is.
func TestSizesAreBounded(t *testing.T) {
	s := sample{length: 600 * sec, faults: 3000, every: 60 * ms, lose: 3000, twice: 2000}
	h := s.history()
	long := strings.Repeat("<&\"é", 2000)
	for i := range h.Ops {
		h.Ops[i].Err = long
	}
	for i := range h.Events {
		if h.Events[i].Proof != "" {
			h.Events[i].Proof = long
		}
	}
	l := results(h)
	judge(h, l)
	var list []check.Result
	for i := range 60 {
		c := l[1+i%3]
		c.ID, c.Note, c.Tolerated = fmt.Sprintf("L%d", 100+i), long, long
		c.Worst = slices.Clone(c.Worst)
		for k := range c.Worst {
			c.Worst[k].Text = long
		}
		list = append(list, c)
	}
	big := report.View{Title: "large", Path: "large.html", Page: bytes.Repeat([]byte("a"), 500<<10)}
	small := report.View{Title: "small", Path: "small.html", Page: bytes.Repeat([]byte("b"), 300<<10)}
	page, text := write(t, h, list, check.Invalid, report.Extra{Why: []string{long, long}, Views: []report.View{big, small, small, small, small}})
	t.Logf("%d bytes", len(page))
	if len(page) > 2<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if n := strings.Count(page, "<iframe"); n != 2 {
		t.Errorf("%d views are embedded, want the 2 there is room for", n)
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("the text has %d lines", n)
	}
}

// A history of nothing has a report.
func TestNothing(t *testing.T) {
	page, text := write(t, &history.History{}, nil, check.Unknown, report.Extra{})
	wants(t, "the page", page, "no check ran", "none was injected", "No send was acknowledged.")
	wants(t, "the text", text, "UNKNOWN  Nothing wrong was found, but the run could not show what was asked.\n")
	if n := strings.Count(text, "no check ran"); n != 1 {
		t.Errorf("the reason is there %d times", n)
	}
	_, text = write(t, &history.History{}, nil, check.Invalid, report.Extra{Why: []string{"node n1 panicked"}})
	wants(t, "the text", text, "INVALID  A promise was broken, though no check says so.", "node n1 panicked")
}

// A check that need not decide is no reason for anything.
func TestOptionalCheck(t *testing.T) {
	h := sample{length: 5 * sec, every: 60 * ms}.history()
	list := []check.Result{{ID: "S1", Name: "objects", Verdict: check.Unknown, Optional: true, Note: "the store was not read"}}
	page, text := write(t, h, list, check.Valid, report.Extra{})
	wants(t, "the page", page, `<tbody class="dimmed" id="check-S1">`, "<p>the store was not read</p>")
	wants(t, "the text", text, "1 optional check stays unknown.")
	if strings.Contains(page, "What else to know") || strings.Contains(text, "the store was not read") {
		t.Error("an optional check is among the reasons")
	}
}

// The command repeats the run in a shell, whatever the settings are.
func TestCommand(t *testing.T) {
	h := &history.History{Header: history.Header{Workload: "queue", Nemesis: []string{"kill", "pause"}, Seed: 7,
		Settings: map[string]string{"store": "s3://a?b=c&d", "note": "it's", "rate": "500"}}}
	_, text := write(t, h, nil, check.Unknown, report.Extra{})
	wants(t, "the text", text, `ponor jepsen run --workload queue --nemesis kill,pause --seed 7 --note 'it'\''s' --rate 500 --store 's3://a?b=c&d'`)
	_, text = write(t, h, nil, check.Unknown, report.Extra{Command: "make jepsen"})
	wants(t, "the text", text, "again     make jepsen")
}
