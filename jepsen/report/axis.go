package report

import (
	"cmp"
	"slices"
	"time"

	"ponor/jepsen/history"
)

// maxBuckets bounds what is drawn of a run, however long it was.
const maxBuckets = 600

// axis parts the time of a run into buckets of one width. The last is up to half
// as wide again, or half as wide.
type axis struct {
	end   int64 // ns
	width int64 // ns of a bucket
	n     int   // buckets
}

var widths = []time.Duration{
	10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
}

func newAxis(end int64) axis {
	const wanted = 400 // buckets at most, while a width gives it
	a := axis{end: max(end, 1)}
	for _, w := range widths {
		if a.width = int64(w); a.end <= wanted*a.width {
			break
		}
	}
	a.width = max(a.width, a.end/(maxBuckets-1))
	a.n = max(1, int((a.end+a.width/2)/a.width))
	return a
}

func (a *axis) bucket(t int64) int { return min(max(int(t/a.width), 0), a.n-1) }

// seconds is how long a bucket is.
func (a *axis) seconds(i int) float64 { return float64(a.until(i)-int64(i)*a.width) / 1e9 }

// until is when a bucket ends.
func (a *axis) until(i int) int64 {
	if i == a.n-1 {
		return a.end
	}
	return int64(i+1) * a.width
}

// at is where a time lies on the axis, 0 to 1.
func (a *axis) at(t int64) float64 { return float64(min(max(t, 0), a.end)) / float64(a.end) }

// series are the values of every bucket; absent where there is none.
type series []float64

const absent = -1

func (a *axis) empty(fill float64) series {
	s := make(series, a.n)
	for i := range s {
		s[i] = fill
	}
	return s
}

// curves are all that is drawn over time.
type curves struct {
	acked, polled  series // records/s
	p50, p99, slow series // seconds, of sends that were acknowledged
	unseen         series // records, at the end of the bucket
	oldest, lag    series // seconds: age of the oldest record not yet polled; median age at the first poll
	fail, info     series // operations
}

func (r *run) curves(a *axis) *curves {
	c := &curves{
		acked: a.empty(0), polled: a.empty(0), fail: a.empty(0), info: a.empty(0),
		p50: a.empty(absent), p99: a.empty(absent), slow: a.empty(absent),
		unseen: a.empty(0), oldest: a.empty(absent), lag: a.empty(absent),
	}
	took := make([][]int64, a.n)
	for i := range r.Ops {
		o := &r.Ops[i]
		b := a.bucket(o.Completed)
		switch o.Type {
		case history.Fail:
			c.fail[b]++
		case history.Info:
			c.info[b]++
		case history.OK:
			if o.F == history.Send {
				took[b] = append(took[b], o.Completed-o.Invoked)
			}
		}
		for _, s := range o.Sends {
			if acked(o, s) {
				c.acked[b]++
			}
		}
		c.polled[b] += float64(len(o.Polls))
	}
	for i := range took {
		c.acked[i] /= a.seconds(i)
		c.polled[i] /= a.seconds(i)
		if t := took[i]; len(t) > 0 {
			slices.Sort(t)
			c.p50[i], c.p99[i], c.slow[i] = quantile(t, 0.5), quantile(t, 0.99), quantile(t, 1)
		}
	}
	r.reading(a, c)
	return c
}

// quantile is of sorted times, in seconds.
func quantile(sorted []int64, q float64) float64 {
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / 1e9
}

// reading fills what is known of records on their way from the acknowledgement to
// the first poll. The age of records that are never polled is not drawn: it would
// hide all others.
func (r *run) reading(a *axis, c *curves) {
	byAck := slices.Clone(r.records)
	slices.SortFunc(byAck, func(x, y record) int { return cmp.Compare(x.acked, y.acked) })
	ages := make([][]int64, a.n)
	delta := make([]float64, a.n)
	for _, x := range byAck {
		delta[a.bucket(x.acked)]++
		if x.seen != never {
			b := a.bucket(x.seen)
			delta[b]--
			ages[b] = append(ages[b], x.seen-x.acked)
		}
	}
	open, next := 0.0, 0
	for i := range a.n {
		open += delta[i]
		c.unseen[i] = open
		now := a.until(i)
		for next < len(byAck) && (byAck[next].seen <= now || byAck[next].seen == never) {
			next++
		}
		if next < len(byAck) && byAck[next].acked < now {
			c.oldest[i] = float64(now-byAck[next].acked) / 1e9
		}
		if t := ages[i]; len(t) > 0 {
			slices.Sort(t)
			c.lag[i] = quantile(t, 0.5)
			c.oldest[i] = max(c.oldest[i], float64(t[len(t)-1])/1e9)
		}
	}
}
