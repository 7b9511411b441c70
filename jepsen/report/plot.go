package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A plot is drawn in a box of 1000 by 100 that the page stretches; strokes keep
// their width.
const (
	plotWide = 1000.0
	plotHigh = 100.0
)

type plot struct {
	Title, Note, Empty string
	Lines              []line
	Ticks              []mark
	Tall               bool
}

// line is one series of a plot, and what the legend shows of it.
type line struct {
	Name, Class, Unit string
	Path              string
	Fill              bool
	Values            []any // for the reading under the pointer; nil: absent
	series            series
}

// mark is a label at a place, 0 to 100.
type mark struct {
	At    float64
	Label string
}

// plots draws everything that has an axis of time.
func (r *run) plots(a *axis, c *curves) []plot {
	load := c.polled
	if r.load < r.end {
		load = load[:a.bucket(r.load)]
	}
	acked := rate(a, "Records acknowledged", c.acked, peak(c.acked))
	acked.Tall = true
	polled := rate(a, "Records polled", c.polled, peak(load))
	if most := peak(c.polled); most > nice(peak(load)) {
		polled.Note = fmt.Sprintf("up to %s/s in the final reads, beyond the scale", digits(most))
	}
	return []plot{acked, latency(a, c), polled, r.unseenPlot(a, c), lag(a, c), failures(a, c)}
}

func rate(a *axis, title string, s series, most float64) plot {
	top := nice(most)
	return plot{Title: title, Ticks: linear(top, digits), Lines: []line{
		{Name: "per second", Class: "a", Unit: "/s", Fill: true, Path: a.area(s, top), Values: values(s)},
	}}
}

func latency(a *axis, c *curves) plot {
	p := a.logarithmic(c.slow, c.p50, []line{
		{Name: "slowest", Class: "c", series: c.slow},
		{Name: "p99", Class: "b", series: c.p99},
		{Name: "median", Class: "a", series: c.p50},
	})
	p.Title, p.Tall = "Latency of sends", true
	if len(p.Lines) == 0 {
		p.Empty = "No send was acknowledged."
	}
	return p
}

// decade is a power of ten of seconds.
func decade(v float64) string {
	if v >= 1 {
		return digits(v) + " s"
	}
	return span(int64(math.Round(v * 1e9)))
}

// logarithmic draws times in seconds. most and least bound them.
func (a *axis) logarithmic(most, least series, lines []line) plot {
	low, high := math.Inf(1), peak(most)
	for _, s := range least {
		if s > 0 {
			low = min(low, s)
		}
	}
	if high <= 0 || math.IsInf(low, 1) {
		return plot{}
	}
	lo, hi := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	hi = max(hi, lo+1)
	p := plot{Lines: lines}
	tick := func(v float64) {
		p.Ticks = append(p.Ticks, mark{places((1 - (math.Log10(v)-lo)/(hi-lo)) * 100), decade(v)})
	}
	for d := hi; d >= lo; d -= 1 + math.Floor((hi-lo)/5) {
		tick(math.Pow(10, d))
		if d > lo && hi-lo < 3 {
			tick(3 * math.Pow(10, d-1))
		}
	}
	for i := range lines {
		l := &lines[i]
		scaled := a.empty(absent)
		for k, v := range l.series {
			if v > 0 {
				scaled[k] = max(0, math.Log10(v)-lo)
			}
		}
		l.Unit, l.Path, l.Values = "s", a.path(scaled, hi-lo), values(l.series)
	}
	return p
}

func (r *run) unseenPlot(a *axis, c *curves) plot {
	top := even(peak(c.unseen))
	p := plot{Title: "Acknowledged, not yet polled", Ticks: linear(top, digits), Lines: []line{
		{Name: "records", Class: "a", Fill: true, Path: a.area(c.unseen, top), Values: values(c.unseen)},
	}}
	if r.unseen > 0 {
		p.Note = plural(int(r.unseen), "record was", "records were") + " never polled"
	}
	return p
}

func lag(a *axis, c *curves) plot {
	p := a.logarithmic(c.oldest, c.lag, []line{
		{Name: "worst", Class: "b", series: c.oldest},
		{Name: "median", Class: "a", series: c.lag},
	})
	p.Title = "Lag from the acknowledgement to the first poll"
	if len(p.Lines) == 0 {
		p.Empty = "No record was polled after it was acknowledged."
	}
	return p
}

func failures(a *axis, c *curves) plot {
	both := a.empty(0)
	for i := range both {
		both[i] = c.fail[i] + c.info[i]
	}
	p := plot{Title: "Operations that failed or whose effect is unknown"}
	if peak(both) == 0 {
		p.Empty = "None."
		return p
	}
	top := even(peak(both))
	p.Ticks = linear(top, digits)
	p.Lines = []line{
		{Name: "info", Class: "d", Fill: true, Path: a.bars(both, c.fail, top), Values: values(c.info)},
		{Name: "fail", Class: "c", Fill: true, Path: a.bars(c.fail, a.empty(0), top), Values: values(c.fail)},
	}
	return p
}

func peak(s series) float64 {
	most := 0.0
	for _, v := range s {
		most = max(most, v)
	}
	return most
}

// nice is the least round number at or above x.
func nice(x float64) float64 {
	if x <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if x <= m*unit*(1+1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// even is a round number whose half is a whole one.
func even(x float64) float64 { return 2 * math.Ceil(nice(x/2)) }

func linear(top float64, label func(float64) string) []mark {
	return []mark{{0, label(top)}, {50, label(top / 2)}, {100, "0"}}
}

// x is the middle of a bucket.
func (a *axis) x(i int) float64 {
	return plotWide * (float64(i)*float64(a.width) + float64(a.until(i))) / 2 / float64(a.end)
}

func y(v, top float64) float64 { return plotHigh * (1 - v/top) }

// path joins neighbours that both have a value; one that has none becomes a dot.
func (a *axis) path(s series, top float64) string {
	var d pen
	for i, v := range s {
		switch {
		case v == absent:
		case i == 0 || s[i-1] == absent:
			d.move(a.x(i), y(v, top))
			if i == a.n-1 || s[i+1] == absent {
				d.dot()
			}
		default:
			d.line(a.x(i), y(v, top))
		}
	}
	return d.String()
}

// area is a series of steps, filled down to 0.
func (a *axis) area(s series, top float64) string {
	var d pen
	d.move(0, plotHigh)
	for i, v := range s {
		d.down(y(v, top))
		d.across(plotWide * a.at(a.until(i)))
	}
	d.down(plotHigh)
	d.close()
	return d.String()
}

// bars reach from under to s.
func (a *axis) bars(s, under series, top float64) string {
	var d pen
	for i, v := range s {
		if v > under[i] {
			d.box(plotWide*a.at(int64(i)*a.width), plotWide*a.at(a.until(i)), y(under[i], top), y(v, top))
		}
	}
	return d.String()
}

// values are a series with three digits.
func values(s series) []any {
	out := make([]any, len(s))
	for i, v := range s {
		if v != absent {
			out[i], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
		}
	}
	return out
}

// pen writes the data of an SVG path.
type pen struct{ strings.Builder }

func (p *pen) put(op string, at ...float64) {
	for i, v := range at {
		if i > 0 {
			op += " "
		}
		op += strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	p.WriteString(op)
}

func (p *pen) move(x, y float64) { p.put("M", x, y) }
func (p *pen) line(x, y float64) { p.put("L", x, y) }
func (p *pen) across(x float64)  { p.put("H", x) }
func (p *pen) down(y float64)    { p.put("V", y) }
func (p *pen) dot()              { p.WriteString("h0") } // round caps make it one
func (p *pen) close()            { p.WriteString("Z") }
func (p *pen) box(l, r, b, t float64) {
	p.move(l, b)
	p.down(t)
	p.across(r)
	p.down(b)
	p.close()
}
