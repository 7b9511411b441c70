package metrics

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Family is one metric of a page: what is known of it and its samples.
type Family struct {
	Name, Help, Type string
	Samples          []Sample
}

// Sample is one line. Name is the family's, or that with _bucket, _sum or _count.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Parse reads a page as this package writes it. It is strict: each family comes
// once, with its help and type before its samples, no sample comes twice, and
// the buckets of a histogram add up.
func Parse(r io.Reader) (map[string]*Family, error) {
	p := parser{families: map[string]*Family{}, seen: map[string]bool{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("parse metrics: line %d: %w: %q", n, err, lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	for _, f := range p.families {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("parse metrics: %s: %w", f.Name, err)
		}
	}
	return p.families, nil
}

type parser struct {
	families map[string]*Family
	seen     map[string]bool // name and labels of every sample
	now      *Family
}

func (p *parser) line(s string) error {
	if help, ok := strings.CutPrefix(s, "# HELP "); ok {
		name, text, _ := strings.Cut(help, " ")
		if p.families[name] != nil {
			return fmt.Errorf("a second family %s", name)
		}
		p.now = &Family{Name: name, Help: text}
		p.families[name] = p.now
		return nil
	}
	if kind, ok := strings.CutPrefix(s, "# TYPE "); ok {
		name, text, _ := strings.Cut(kind, " ")
		if p.now == nil || p.now.Name != name || p.now.Type != "" || len(p.now.Samples) > 0 {
			return fmt.Errorf("type out of place")
		}
		p.now.Type = text
		return nil
	}
	if p.now == nil || p.now.Type == "" {
		return fmt.Errorf("sample without a type")
	}
	sample, err := parseSample(s)
	if err != nil {
		return err
	}
	of := sample.Name
	if p.now.Type == KindHistogram.String() {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			of = strings.TrimSuffix(of, suffix)
		}
	}
	if of != p.now.Name {
		return fmt.Errorf("sample of %s among those of %s", of, p.now.Name)
	}
	key := s[:strings.LastIndexByte(s, ' ')]
	if p.seen[key] {
		return fmt.Errorf("sample comes twice")
	}
	p.seen[key] = true
	p.now.Samples = append(p.now.Samples, sample)
	return nil
}

// parseSample reads name{label="value",...} value.
func parseSample(s string) (Sample, error) {
	out := Sample{Labels: map[string]string{}}
	i := strings.IndexAny(s, "{ ")
	if i < 1 {
		return out, fmt.Errorf("no name")
	}
	out.Name, s = s[:i], s[i:]
	for s[0] != ' ' { // "{" or ","
		name, rest, ok := strings.Cut(s[1:], "=\"")
		if !ok {
			return out, fmt.Errorf("label without a value")
		}
		var value strings.Builder
		end := -1
		for i := 0; i < len(rest) && end < 0; i++ {
			switch {
			case rest[i] == '"':
				end = i
			case rest[i] == '\\' && i+1 < len(rest):
				i++
				value.WriteByte(map[byte]byte{'n': '\n', '"': '"', '\\': '\\'}[rest[i]])
			default:
				value.WriteByte(rest[i])
			}
		}
		if end < 0 || end+1 >= len(rest) {
			return out, fmt.Errorf("label without an end")
		}
		out.Labels[name] = value.String()
		if s = rest[end+1:]; s[0] == '}' {
			s = s[1:]
			break
		}
		if s[0] != ',' {
			return out, fmt.Errorf("neither a label nor the end of them")
		}
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(s, " "), 64)
	if err != nil {
		return out, fmt.Errorf("no number")
	}
	out.Value = v
	return out, nil
}

// check makes sure that the buckets of histograms grow up to the count.
func (f *Family) check() error {
	if f.Type != KindHistogram.String() {
		return nil
	}
	last := map[string]Sample{}
	for _, s := range f.Samples {
		key := labelsBut(s.Labels, "le")
		switch {
		case s.Name == f.Name+"_bucket":
			if s.Value < last[key].Value {
				return fmt.Errorf("bucket %v is smaller than the one before", s.Labels)
			}
			last[key] = s
		case s.Name == f.Name+"_count" && (last[key].Labels["le"] != "+Inf" || last[key].Value != s.Value):
			return fmt.Errorf("%v: the last bucket is not the count", s.Labels)
		}
	}
	return nil
}

func labelsBut(labels map[string]string, but string) string {
	var list []string
	for k, v := range labels {
		if k != but {
			list = append(list, k+"="+v)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// Sum adds up the samples of a family whose labels are as wanted; pairs of name
// and value. nil has none.
func (f *Family) Sum(labels ...string) float64 {
	var sum float64
	if f != nil {
		for _, s := range f.Samples {
			if s.Name == f.Name && s.has(labels) {
				sum += s.Value
			}
		}
	}
	return sum
}

func (s Sample) has(labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if s.Labels[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// Bucket is the number of observations up to a bound.
type Bucket struct{ UpTo, Count float64 }

// Buckets are those of a histogram, added up over all samples whose labels are
// as wanted.
func (f *Family) Buckets(labels ...string) []Bucket {
	if f == nil {
		return nil
	}
	var out []Bucket
	for _, s := range f.Samples {
		if s.Name != f.Name+"_bucket" || !s.has(labels) {
			continue
		}
		le, err := strconv.ParseFloat(s.Labels["le"], 64)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(out, func(b Bucket) bool { return b.UpTo == le })
		if i < 0 {
			out, i = append(out, Bucket{UpTo: le}), len(out)
		}
		out[i].Count += s.Value
	}
	return out
}

// Quantile estimates a quantile, such as 0.99, of what was observed between two
// looks at one histogram, as Prometheus does: evenly spread within a bucket. NaN
// if there was nothing.
func Quantile(q float64, before, now []Bucket) float64 {
	count := func(i int) float64 {
		if i < len(before) {
			return now[i].Count - before[i].Count
		}
		return now[i].Count
	}
	if len(now) == 0 || count(len(now)-1) <= 0 {
		return math.NaN()
	}
	rank, low := q*count(len(now)-1), 0.0
	for i, b := range now {
		n := count(i)
		if n < rank {
			low = b.UpTo
			continue
		}
		if math.IsInf(b.UpTo, 1) {
			return low
		}
		below := 0.0
		if i > 0 {
			below = count(i - 1)
		}
		if n == below {
			return b.UpTo
		}
		return low + (b.UpTo-low)*(rank-below)/(n-below)
	}
	return low
}
