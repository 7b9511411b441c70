package report_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
	"ponor/jepsen/report"
)

const (
	ms  = int64(1e6)
	sec = 1000 * ms
)

// sample makes a history such as a run of a length with a number of faults
// leaves: producers and consumers of six partitions, slower and at times silent
// while a fault is in force, and final reads.
type sample struct {
	length int64 // ns, before the final reads
	faults int
	every  int64 // ns between two sends of one of four producers
	bare   bool  // faults leave no proof
	lose   int   // acknowledged records that are in no log
	twice  int   // records that are in their log twice
}

const partitions = 6

type entry struct {
	value history.Value
	at    int64 // ns, of the append
}

func (s sample) history() *history.History {
	rng := rand.New(rand.NewPCG(1, 2))
	h := &history.History{Header: history.Header{
		Version: history.FormatVersion, Run: "2026-11-30T16-20-00-7f3a", Began: "2026-11-30T16:20:00Z", Workload: "queue",
		Seed: 7240, Product: "ponor v0.9.2 (5f1c2aa)", Client: "franz-go v1.22.3", Nodes: 3, Idempotent: true,
		Settings: map[string]string{"nodes": "3", "rate": "500", "time-limit": fmt.Sprintf("%ds", s.length/sec)},
	}}
	for k := range int32(partitions) {
		h.Header.Keys = append(h.Header.Keys, history.Partition{Topic: fmt.Sprintf("t%d", k/2), Partition: k % 2})
	}
	h.Events = s.events(rng, &h.Header)
	ops, logs := s.sends(rng, h.Events)
	ops = s.polls(ops, logs)
	ops = s.final(ops, logs)
	slices.SortStableFunc(ops, func(a, b history.Op) int { return cmp.Compare(a.Completed, b.Completed) })
	for i := range ops {
		ops[i].Index = int64(i)
	}
	h.Ops = ops
	return h
}

// events are faults that follow each other, with a pause between.
func (s *sample) events(rng *rand.Rand, header *history.Header) []history.Event {
	kinds := []struct {
		name    string
		targets []string
		proof   string
		stops   bool
	}{
		{"kill", []string{"n1", "n2", "n3"}, "pid 4%03d is gone", true},
		{"pause", []string{"n1", "n2", "n3"}, "pid 4%03d state T", true},
		{"partition", []string{"n1->n2", "n2->n1", "n1->n3", "n3->n1", "n2->n3", "n3->n2", "n1->store"}, "%d requests held", true},
		{"store-slow", []string{"store"}, "p50 of puts went up to 2%03d ms", true},
		{"move-leader", []string{"t0-0", "t1-1"}, "leader epoch is now %d", false},
	}
	var out []history.Event
	if s.faults == 0 {
		return nil
	}
	for _, k := range kinds {
		header.Nemesis = append(header.Nemesis, k.name)
	}
	each := s.length / int64(s.faults+1)
	for i := range s.faults {
		k := kinds[(i+rng.IntN(2))%len(kinds)]
		target := []string{k.targets[rng.IntN(len(k.targets))]}
		if k.name == "partition" {
			target = append(target, k.targets[(i+1)%len(k.targets)])
		}
		at := int64(i)*each + each/2 + rng.Int64N(each/4)
		e := history.Event{At: at, End: at + 20*ms, Fault: k.name, Phase: "start", Target: target, Proof: fmt.Sprintf(k.proof, rng.IntN(900))}
		if s.bare && k.name == "pause" {
			e.Proof = ""
		}
		out = append(out, e)
		if k.stops {
			stop := at + min(each/3+rng.Int64N(each/4+1), 40*sec)
			out = append(out, history.Event{At: stop, End: stop + 30*ms, Fault: k.name, Phase: "stop", Target: target, Proof: "answers again"})
		}
	}
	return append(out, history.Event{At: s.length, End: s.length + 200*ms, Fault: "", Phase: "heal", Proof: "3 nodes are ready"})
}

// trouble is the last fault in force at a time, and when it began.
func trouble(events []history.Event, t int64) (name string, since int64) {
	for i := range events {
		e := &events[i]
		switch {
		case e.At > t:
			return name, since
		case e.Phase == "start" && e.Fault != "move-leader":
			name, since = e.Fault, e.At
		default:
			name = ""
		}
	}
	return name, since
}

// sends are those of four producers, and the logs that they make.
func (s *sample) sends(rng *rand.Rand, events []history.Event) ([]history.Op, [partitions][]entry) {
	type sent struct {
		op   history.Op
		at   int64
		lost bool
	}
	var all []sent
	process, value := int32(0), history.Value(0)
	for range 4 {
		process++
		for t := int64(rng.IntN(int(s.every))); t < s.length; {
			name, since := trouble(events, t)
			took := int64(6e6 * math.Exp(rng.NormFloat64()*0.5))
			switch {
			case name == "kill" || name == "partition" || name == "pause":
				if d := t - since; d < 2*sec {
					took += 2*sec - d // until another node has taken over
				}
			case name == "store-slow":
				took = took*40 + 200*ms
			}
			o := history.Op{Process: process, F: history.Send, Invoked: t, Completed: t + took, Type: history.OK, Node: int32(1 + rng.IntN(3)), Attempts: 1}
			key := history.Key(rng.IntN(partitions))
			for range 1 + rng.IntN(3) {
				value++
				o.Sends = append(o.Sends, history.Sent{Key: key, Value: value, Offset: -1})
			}
			x := sent{op: o, at: t + took/2}
			switch c := rng.IntN(60); {
			case name != "" && c == 0:
				x.op.Type, x.op.Err, x.lost = history.Info, "context deadline exceeded", true
				process += 100
			case name != "" && c == 1:
				x.op.Type, x.op.Err, x.lost = history.Fail, "NOT_ENOUGH_REPLICAS: the cluster has fewer in-sync replicas than min.insync.replicas", true
			}
			all = append(all, x)
			t += max(took, int64(rng.ExpFloat64()*float64(s.every)))
		}
		process = process%100 + 10
	}
	slices.SortFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	var logs [partitions][]entry
	ops := make([]history.Op, 0, len(all))
	lose, twice := s.lose, s.twice
	for i := range all {
		x := &all[i]
		if x.lost {
			ops = append(ops, x.op)
			continue
		}
		for k := range x.op.Sends {
			r := &x.op.Sends[k]
			log := &logs[r.Key]
			r.Offset = int64(len(*log))
			e := entry{r.Value, x.at}
			if i > len(all)/2 && lose > 0 {
				lose--
				e.value = 0 // nobody reads it
			}
			*log = append(*log, e)
		}
		if i > len(all)*2/3 && twice > 0 {
			twice--
			r := x.op.Sends[0]
			logs[r.Key] = append(logs[r.Key], entry{r.Value, x.at + ms})
		}
		ops = append(ops, x.op)
	}
	return ops, logs
}

// polls are those of three consumers, each of two partitions.
func (s *sample) polls(ops []history.Op, logs [partitions][]entry) []history.Op {
	every := max(s.every*3, 40*ms)
	for c := range 3 {
		process := int32(5000 + c)
		keys := []history.Key{history.Key(2 * c), history.Key(2*c + 1)}
		ops = append(ops, history.Op{Process: process, F: history.Assign, Invoked: 1, Completed: 2, Type: history.OK, Keys: keys, Seek: true})
		var next [partitions]int
		for t := int64(c+1) * 10 * ms; t < s.length+3*sec; t += every {
			o := history.Op{Process: process, F: history.Poll, Invoked: t, Completed: t + every/2, Type: history.OK, Node: int32(c + 1)}
			for _, k := range keys {
				next[k] = read(&o, k, logs[k], next[k], t)
			}
			ops = append(ops, o)
		}
	}
	return ops
}

// read polls what was appended before a time.
func read(o *history.Op, k history.Key, log []entry, from int, until int64) int {
	for len(o.Polls) < 500 && from < len(log) && log[from].at <= until {
		if e := log[from]; e.value != 0 {
			o.Polls = append(o.Polls, history.Polled{Key: k, Value: e.value, Offset: int64(from)})
		}
		from++
	}
	return from
}

// final are the reads of everything by two fresh consumers.
func (s *sample) final(ops []history.Op, logs [partitions][]entry) []history.Op {
	for c := range int32(2) {
		t := s.length + 5*sec
		var next [partitions]int
		for k := range logs {
			for next[k] < len(logs[k]) {
				o := history.Op{Process: 9000 + c, F: history.Poll, Phase: history.Final, Invoked: t, Completed: t + 40*ms, Type: history.OK, Node: 1 + c}
				next[k] = read(&o, history.Key(k), logs[k], next[k], math.MaxInt64)
				ops = append(ops, o)
				t += 60 * ms
			}
		}
	}
	return ops
}

// results are of checks that all found nothing.
func results(h *history.History) []check.Result {
	ops := int64(len(h.Ops))
	out := []check.Result{}
	for _, c := range []struct{ id, name string }{
		{"L1", "inconsistent-offsets"}, {"L2", "duplicate"}, {"L3", "lost-write"}, {"L4", "unseen"}, {"L5", "aborted-read"},
		{"L7", "poll-skip"}, {"L8", "nonmonotonic-poll"}, {"L9", "int-poll-skip"}, {"L11", "nonmonotonic-send"},
		{"L13", "int-send-skip"}, {"L16", "realtime-lag"}, {"L18", "realtime-append"}, {"L19", "phantom"},
		{"L20", "unstable-read"}, {"L21", "spurious-offset"}, {"L22", "torn-batch"}, {"L23", "high-watermark-regress"},
		{"L24", "order-linearizability"}, {"V1", "recovery"}, {"V2", "minimum-work"}, {"V6", "faults-happened"},
	} {
		out = append(out, check.Result{ID: c.id, Name: c.name, Verdict: check.Valid, Checked: ops})
	}
	at(out, "L13").Count, at(out, "L13").Tolerated = 412, "Kafka does not keep writes of others out of a transaction"
	at(out, "L16").Figure = map[string]float64{"max s": 4.213, "p99 s": 0.181, "median s": 0.043}
	at(out, "L24").Note = "6 partitions, each within 1.2 s"
	at(out, "V1").Figure = map[string]float64{"max s": 2.08}
	at(out, "V2").Figure = map[string]float64{"sends/s": 196.2, "polls/s": 24.9}
	return out
}

func at(list []check.Result, id string) *check.Result {
	i := slices.IndexFunc(list, func(c check.Result) bool { return c.ID == id })
	return &list[i]
}

// judge finds what a sample planted, simply.
func judge(h *history.History, list []check.Result) {
	type place struct {
		op     int64
		offset int64
	}
	reads := map[history.Value][]place{}
	for i := range h.Ops {
		for _, p := range h.Ops[i].Polls {
			l := reads[p.Value]
			if !slices.ContainsFunc(l, func(x place) bool { return x.offset == p.Offset }) {
				reads[p.Value] = append(l, place{h.Ops[i].Index, p.Offset})
			}
		}
	}
	fill := func(id string, a check.Anomaly) {
		c := at(list, id)
		c.Verdict = check.Invalid
		if c.Count++; len(c.Worst) < check.MaxWorst {
			c.Worst = append(c.Worst, a)
		}
	}
	last := int64(len(h.Ops) - 1)
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.F != history.Send || o.Type != history.OK {
			continue
		}
		for _, s := range o.Sends {
			a := check.Anomaly{Key: s.Key, At: o.Completed, Ops: []int64{o.Index}, Mark: s.Value}
			switch l := reads[s.Value]; {
			case len(l) == 0:
				a.Text = fmt.Sprintf("value %d was acknowledged at offset %d of %s and no operation ever read it, though later offsets were read", s.Value, s.Offset, h.Header.Keys[s.Key])
				fill("L3", a)
				fill("L4", a)
			case len(l) > 1:
				a.Text = fmt.Sprintf("value %d is at offsets %d and %d of %s", s.Value, l[0].offset, l[1].offset, h.Header.Keys[s.Key])
				a.Ops = append(a.Ops, l[0].op, min(l[1].op, last))
				fill("L2", a)
			}
		}
	}
}

// samples are the pages that are looked at when the report changes.
func samples() map[string]func() (*history.History, []check.Result, check.Verdict, report.Extra) {
	type made = func() (*history.History, []check.Result, check.Verdict, report.Extra)
	of := func(s sample, v check.Verdict, more func(*history.History, []check.Result, *report.Extra)) made {
		return func() (*history.History, []check.Result, check.Verdict, report.Extra) {
			h := s.history()
			list, extra := results(h), report.Extra{}
			judge(h, list)
			if more != nil {
				more(h, list, &extra)
			}
			return h, list, v, extra
		}
	}
	return map[string]made{
		"valid":   of(sample{length: 300 * sec, faults: 18, every: 60 * ms}, check.Valid, nil),
		"calm":    of(sample{length: 60 * sec, every: 60 * ms}, check.Valid, nil),
		"invalid": of(sample{length: 300 * sec, faults: 18, every: 60 * ms, lose: 5, twice: 2}, check.Invalid, nil),
		"unknown": of(sample{length: 300 * sec, faults: 12, every: 60 * ms, bare: true}, check.Unknown, func(_ *history.History, l []check.Result, e *report.Extra) {
			at(l, "L23").Verdict, at(l, "L23").Checked = check.Unknown, 0
			at(l, "L24").Verdict, at(l, "L24").Note = check.Unknown, "no answer for t1-0 in 60 s"
			e.Why = []string{"node n2 did not answer for 31 s after the last fault was undone"}
			e.Views = []report.View{{Title: "Linearizability of t1-0", Path: "porcupine-t1-0.html", Page: []byte(`<!doctype html><p id="x">no script</p><script>document.getElementById("x").textContent = "a script ran"</script>`)}}
		}),
		"long": of(sample{length: 4 * 3600 * sec, faults: 200, every: 700 * ms}, check.Valid, nil),
	}
}
