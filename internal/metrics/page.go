package metrics

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// ContentType is that of a written Page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Page gathers the samples of one scrape. Samples of one metric may come at any
// time; they are written together and in the order of the table. A Page is used
// by one goroutine.
type Page struct {
	samples [numIDs][]byte
}

// Set notes the value of a counter or gauge. labels are the values of the
// table's labels, in its order; a wrong number of them panics, as does a kind
// that does not fit: both are mistakes in the code that every run meets.
func (p *Page) Set(id ID, value float64, labels ...string) {
	if table[id].Kind == KindHistogram {
		panic("metrics: " + table[id].Name + " is a histogram")
	}
	p.sample(id, "", "", value, labels)
}

// Count notes the value of a Counter.
func (p *Page) Count(id ID, c *Counter, labels ...string) { p.Set(id, float64(c.Count()), labels...) }

// Flag notes a condition: 1 if it holds, else 0.
func (p *Page) Flag(id ID, holds bool, labels ...string) {
	v := 0.0
	if holds {
		v = 1
	}
	p.Set(id, v, labels...)
}

// Durations notes a histogram of times, in seconds.
func (p *Page) Durations(id ID, h *Durations, labels ...string) {
	p.histogram(id, durationBounds[:], h.counts[:], &h.sum, 1/float64(time.Second), labels)
}

// Sizes notes a histogram of bytes.
func (p *Page) Sizes(id ID, h *Sizes, labels ...string) {
	p.histogram(id, sizeBounds[:], h.counts[:], &h.sum, 1, labels)
}

func (p *Page) histogram(id ID, bounds []int64, counts []atomic.Int64, sum *atomic.Int64, unit float64, labels []string) {
	if table[id].Kind != KindHistogram {
		panic("metrics: " + table[id].Name + " is no histogram")
	}
	var n int64
	for i, b := range bounds {
		n += counts[i].Load()
		p.sample(id, "_bucket", strconv.FormatFloat(float64(b)*unit, 'g', 6, 64), float64(n), labels)
	}
	n += counts[len(bounds)].Load()
	p.sample(id, "_bucket", "+Inf", float64(n), labels)
	p.sample(id, "_sum", "", float64(sum.Load())*unit, labels)
	p.sample(id, "_count", "", float64(n), labels)
}

// sample appends one line. le is the bound of a bucket.
func (p *Page) sample(id ID, suffix, le string, value float64, labels []string) {
	m := &table[id]
	if len(labels) != len(m.Labels) {
		panic(fmt.Sprintf("metrics: %s has labels %v, got %v", m.Name, m.Labels, labels))
	}
	b := append(append(p.samples[id], m.Name...), suffix...)
	sep := byte('{')
	for i, v := range labels {
		b = appendLabel(append(b, sep), m.Labels[i], v)
		sep = ','
	}
	if le != "" {
		b = appendLabel(append(b, sep), "le", le)
		sep = ','
	}
	if sep == ',' {
		b = append(b, '}')
	}
	b = append(b, ' ')
	p.samples[id] = append(appendValue(b, value), '\n')
}

// appendLabel escapes what the format reserves.
func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), '=', '"')
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendValue(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// WriteTo writes the page: of each metric that has samples its help, its type
// and them.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	var out []byte
	for id, lines := range p.samples {
		if len(lines) == 0 {
			continue
		}
		m := &table[id]
		out = fmt.Appendf(out, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Kind)
		out = append(out, lines...)
	}
	n, err := w.Write(out)
	return int64(n), err
}
