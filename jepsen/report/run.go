package report

import (
	"cmp"
	"slices"
	"time"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// run is what one pass over a history gives to both reports.
type run struct {
	*history.History
	results []check.Result // worst first, see rank
	verdict check.Verdict
	extra   Extra

	end  int64 // ns: when the last operation or event ended
	load int64 // ns: when the final reads began; end if there were none

	ok, fail, info int   // operations
	polled         int64 // records, each time that one was
	records        []record
	unseen         int64 // records acknowledged and never polled
	faults         []fault
	troubles       []string // of the faults
	gaps           []gap    // the longest first
}

// record is an acknowledged record.
type record struct {
	acked int64 // ns
	seen  int64 // ns, of the end of the first poll that gave it; never if none did
}

const never = int64(1<<63 - 1)

// gap is a time without an acknowledgement before the final reads.
type gap struct{ from, to int64 }

func (g gap) length() int64 { return g.to - g.from }

const (
	maxGaps = 100
	minGap  = int64(500 * time.Millisecond)
)

func newRun(h *history.History, results []check.Result, verdict check.Verdict, extra Extra) *run {
	r := &run{History: tidy(h), results: slices.Clone(results), verdict: verdict, extra: extra}
	for i := range r.results {
		c := &r.results[i]
		c.ID, c.Name, c.Note, c.Tolerated = cut(c.ID, 20), cut(c.Name, 60), short(c.Note), short(c.Tolerated)
	}
	slices.SortStableFunc(r.results, func(a, b check.Result) int { return cmp.Compare(rank(a), rank(b)) })
	r.measure()
	r.faults, r.troubles = faults(h.Events, r.end)
	r.join()
	r.pause()
	return r
}

// tidy is a history whose names are shown as they are.
func tidy(h *history.History) *history.History {
	out := *h
	e := &out.Header
	for _, s := range []*string{&e.Run, &e.Began, &e.Workload, &e.Product, &e.Client} {
		*s = short(*s)
	}
	e.Nemesis = slices.Clone(e.Nemesis)
	for i, s := range e.Nemesis {
		e.Nemesis[i] = short(s)
	}
	return &out
}

// rank orders checks by how much a reader wants to see them.
func rank(c check.Result) int {
	switch {
	case c.Verdict == check.Invalid:
		return 0
	case skipped(c):
		return 4
	case c.Verdict == check.Unknown:
		return 1
	case c.Count > 0:
		return 2
	default:
		return 3
	}
}

// skipped says whether a check had nothing to say and need not have.
func skipped(c check.Result) bool { return c.Verdict == check.Unknown && c.Optional }

// measure counts operations and finds the ends of the run.
func (r *run) measure() {
	r.load = never
	for i := range r.Ops {
		o := &r.Ops[i]
		r.end = max(r.end, o.Completed)
		if o.Phase == history.Final {
			r.load = min(r.load, o.Invoked)
		}
		switch o.Type {
		case history.OK:
			r.ok++
		case history.Fail:
			r.fail++
		default:
			r.info++
		}
		r.polled += int64(len(o.Polls))
	}
	for i := range r.Events {
		r.end = max(r.end, r.Events[i].At, r.Events[i].End)
	}
	r.load = min(r.load, r.end)
}

// acked says whether a record was acknowledged. Of an operation of unknown effect
// some can be: those that were told an offset.
func acked(o *history.Op, s history.Sent) bool {
	return o.F == history.Send && (o.Type == history.OK || o.Type == history.Info && s.Offset >= 0)
}

// join finds when each acknowledged record was first polled. A value that is
// acknowledged twice, which is an anomaly, counts twice and is seen with the last.
func (r *run) join() {
	sent := 0
	for i := range r.Ops {
		if o := &r.Ops[i]; o.F == history.Send {
			sent += len(o.Sends)
		}
	}
	r.records = make([]record, 0, sent)
	at := make(map[history.Value]int32, sent)
	for i := range r.Ops {
		o := &r.Ops[i]
		for _, s := range o.Sends {
			if !acked(o, s) {
				continue
			}
			at[s.Value] = int32(len(r.records))
			r.records = append(r.records, record{acked: o.Completed, seen: never})
		}
	}
	r.unseen = int64(len(r.records))
	for i := range r.Ops {
		o := &r.Ops[i]
		for _, p := range o.Polls {
			k, ok := at[p.Value]
			if !ok || r.records[k].seen != never {
				continue
			}
			r.unseen--
			// A poll may end before the acknowledgement does.
			r.records[k].seen = max(o.Completed, r.records[k].acked)
		}
	}
}

// pause finds the gaps between acknowledgements from the first send to the end of
// the last before the final reads: the longest, and those of at least minGap and a
// third of it.
func (r *run) pause() {
	first, end := never, int64(0)
	var acks []int64
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.F != history.Send || o.Phase == history.Final {
			continue
		}
		first, end = min(first, o.Invoked), max(end, o.Completed)
		if o.Type == history.OK {
			acks = append(acks, o.Completed)
		}
	}
	if first == never {
		return
	}
	slices.Sort(acks)
	acks = append(acks, end)
	longest := gap{from: first, to: first}
	last := first
	for _, t := range acks {
		if t-last > longest.length() {
			longest = gap{last, t}
		}
		last = t
	}
	last = first
	for _, t := range acks {
		if g := (gap{last, t}); g == longest && g.length() > 0 || g.length() >= max(longest.length()/3, minGap) {
			r.gaps = append(r.gaps, g)
		}
		last = t
	}
	slices.SortStableFunc(r.gaps, func(x, y gap) int { return cmp.Compare(y.length(), x.length()) })
	r.gaps = r.gaps[:min(len(r.gaps), maxGaps)]
}
