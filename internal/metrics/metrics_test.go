package metrics_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ponor/internal/metrics"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/metrics.md anew")

// text is a page as it goes out, parsed.
func text(t *testing.T, p *metrics.Page) (string, map[string]*metrics.Family) {
	t.Helper()
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	got, err := metrics.Parse(&b)
	if err != nil {
		t.Fatalf("%v in\n%s", err, s)
	}
	return s, got
}

func TestPageGroupsSamplesInTheOrderOfTheTable(t *testing.T) {
	p := new(metrics.Page)
	p.Set(metrics.StoreRequests, 3, "put", "wal")
	p.Set(metrics.BuildInfo, 1, `1"2\3`+"\n", "go")
	p.Set(metrics.StoreRequests, 1e15, "head", "wal")
	p.Set(metrics.OldestUnresolved, 0.25)
	s, got := text(t, p)
	if !strings.HasPrefix(s, "# HELP ponor_build_info Always 1; the labels say what runs.\n# TYPE ponor_build_info gauge\nponor_build_info{version=\"1\\\"2\\\\3\\n\",go_version=\"go\"} 1\n") {
		t.Errorf("page begins\n%.300s", s)
	}
	if v := got["ponor_build_info"].Samples[0].Labels["version"]; v != `1"2\3`+"\n" {
		t.Errorf("label came back as %q", v)
	}
	f := got["ponor_store_requests_total"]
	if f.Type != "counter" || f.Sum("op", "put") != 3 || f.Sum("reason", "wal") != 1e15+3 {
		t.Errorf("store requests %+v", f)
	}
	if v := got["ponor_slot_oldest_unresolved_seconds"].Sum(); v != 0.25 {
		t.Errorf("0.25 came back as %v", v)
	}
}

func TestHistogramsAreCumulativeInBaseUnits(t *testing.T) {
	var d metrics.Durations
	var z metrics.Sizes
	for _, v := range []time.Duration{0, 100 * time.Microsecond, 101 * time.Microsecond, time.Second, time.Minute} {
		d.Observe(v)
	}
	z.Observe(1000)
	p := new(metrics.Page)
	p.Durations(metrics.SlotPutSeconds, &d)
	p.Sizes(metrics.SlotBytes, &z)
	s, got := text(t, p)
	for _, line := range []string{
		`ponor_slot_put_seconds_bucket{le="0.0001"} 2`, `ponor_slot_put_seconds_bucket{le="0.00025"} 3`,
		`ponor_slot_put_seconds_bucket{le="1"} 4`, `ponor_slot_put_seconds_bucket{le="10"} 4`,
		`ponor_slot_put_seconds_bucket{le="+Inf"} 5`, `ponor_slot_put_seconds_count 5`,
		`ponor_slot_bytes_bucket{le="256"} 0`, `ponor_slot_bytes_bucket{le="1024"} 1`, `ponor_slot_bytes_sum 1000`,
	} {
		if !strings.Contains(s, line+"\n") {
			t.Errorf("no line %s in\n%s", line, s)
		}
	}
	if sum := got["ponor_slot_put_seconds"].Samples[17].Value; math.Abs(sum-61.000201) > 1e-9 {
		t.Errorf("sum %v seconds", sum)
	}
}

func TestQuantileOfWhatCameBetweenTwoLooks(t *testing.T) {
	before := []metrics.Bucket{{1, 100}, {2, 100}, {math.Inf(1), 100}}
	now := []metrics.Bucket{{1, 100}, {2, 200}, {math.Inf(1), 200}}
	if q := metrics.Quantile(0.5, before, now); q != 1.5 {
		t.Errorf("median %v, want 1.5", q)
	}
	if q := metrics.Quantile(0.5, now, now); !math.IsNaN(q) {
		t.Errorf("median of nothing is %v", q)
	}
	if q := metrics.Quantile(0.99, nil, []metrics.Bucket{{1, 0}, {2, 0}, {math.Inf(1), 5}}); q != 2 {
		t.Errorf("beyond the last bound: %v, want 2", q)
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	var c metrics.Counter
	var d metrics.Durations
	var z metrics.Sizes
	if n := testing.AllocsPerRun(100, func() { c.Inc(); d.Observe(time.Millisecond); z.Observe(5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseRefusesWhatIsNoPage(t *testing.T) {
	head := "# HELP a b\n# TYPE a gauge\n"
	for name, page := range map[string]string{
		"sample without a type": "a 1\n",
		"sample twice":          head + "a 1\na 2\n",
		"family twice":          head + "a 1\n" + head,
		"sample of another":     head + "b 1\n",
		"no number":             head + "a x\n",
		"open label":            head + "a{x=\"y} 1\n",
		"buckets that shrink":   "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_count 1\n",
		"count beside +Inf":     "# HELP a b\n# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 2\n",
	} {
		if _, err := metrics.Parse(strings.NewReader(page)); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}

// Prometheus' conventions: one prefix, base units, _total on counters alone.
func TestNamesKeepTheConventions(t *testing.T) {
	word := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	seen := map[string]bool{}
	for _, m := range metrics.Table() {
		prefix, _, _ := strings.Cut(m.Name, "_")
		switch {
		case !word.MatchString(m.Name) || seen[m.Name]:
			t.Errorf("%q is no name or comes twice", m.Name)
		case prefix != "ponor" && prefix != "process" && prefix != "go":
			t.Errorf("%s has another prefix", m.Name)
		case strings.HasSuffix(m.Name, "_total") != (m.Kind == metrics.KindCounter):
			t.Errorf("%s is a %s", m.Name, m.Kind)
		case strings.Contains(m.Name, "_ms") || strings.Contains(m.Name, "milli"):
			t.Errorf("%s is in no base unit", m.Name)
		case m.Kind == metrics.KindHistogram && !strings.HasSuffix(m.Name, "_seconds") && !strings.HasSuffix(m.Name, "_bytes"):
			t.Errorf("%s does not say its unit", m.Name)
		case !strings.HasSuffix(m.Help, ".") || strings.Contains(m.Help, "\n"):
			t.Errorf("%s: help %q is no sentence", m.Name, m.Help)
		}
		for _, l := range m.Labels {
			if l == "topic" || l == "partition" || l == "client" || !word.MatchString(l) {
				t.Errorf("%s has label %q: a hundred thousand partitions must not be a hundred thousand series", m.Name, l)
			}
		}
		seen[m.Name] = true
	}
}

const begin = "<!-- The rest is generated from internal/metrics: go test ./internal/metrics -run TestDocumentedTable -rewrite -->\n"

func TestDocumentedTable(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "metrics.md")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(old), begin)
	if !ok {
		t.Fatalf("%s has no line %s", file, begin)
	}
	var b strings.Builder
	b.WriteString(intro + begin)
	for id, m := range metrics.Table() {
		if s, ok := metrics.ID(id).Section(); ok {
			fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | |\n|---|---|---|---|\n", s)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	if b.String() == string(old) {
		return
	}
	if !*rewrite {
		t.Fatal("docs/metrics.md is out of date; run 'go test ./internal/metrics -run TestDocumentedTable -rewrite'")
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
