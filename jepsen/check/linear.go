package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"ponor/jepsen/history"
)

const (
	// maxLinear bounds the operations of one key, or one group and key, that are
	// searched for an order: the search takes memory of their square.
	maxLinear = 10_000
	// maxMaybe bounds those of them of which it is not known whether they
	// happened: each doubles the work.
	maxMaybe = 12
	// searchSteps bounds one search, and searchBytes what it may remember: with each
	// step, which operations have their place.
	searchSteps = 2 << 20
	searchBytes = 1 << 30
)

// logOp is an operation on a partition's log, whose state is where it ends.
type logOp struct {
	op     int64
	n      int64 // records appended, 0: the end is read
	offset int64 // of the first, or the end that was read; -1: not known
	maybe  bool  // it may have had no effect
}

// logModel appends at the end, whatever that was at first (-1).
var logModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(-1)} },
	Step: func(state, input, _ any) []any {
		end, in := state.(int64), input.(logOp)
		switch {
		case in.maybe:
			if end < 0 {
				return []any{end}
			}
			return []any{end, end + in.n}
		case end < 0 || in.offset == end:
			return []any{in.offset + in.n}
		}
		return nil
	},
}).ToModel()

// linear is L24: there is one order of all appends to a key, and of all looks at
// its end, that agrees with their times and offsets.
func (r *run) linear() {
	f := r.check("L24", "order-linearizability")
	f.Optional = true
	byKey := make([][]porcupine.Operation, len(r.logs))
	maybe := make([]int, len(r.logs))
	why := r.tooMany()
	for i := range r.batches {
		r.appended(&r.batches[i], byKey, maybe, why)
	}
	for i := range r.Ops {
		r.looked(&r.Ops[i], byKey, why)
	}
	for k := range byKey {
		l := &r.logs[k]
		ops := byKey[k]
		switch {
		case l.gone || why[k] == "" && len(ops) < 2:
			continue
		case maybe[k] > maxMaybe:
			why[k] = fmt.Sprintf("%d sends of unknown effect, more than %d", maybe[k], maxMaybe)
		case maybe[k] == 0 && why[k] == "" && l.gaps():
			why[k] = "offsets without a known record"
		}
		if why[k] != "" {
			f.unknown("%s: %s", r.name(history.Key(k)), why[k])
			continue
		}
		switch judge(logModel, ops) {
		case porcupine.Ok:
			f.Checked += int64(len(ops))
		case porcupine.Illegal:
			f.Checked += int64(len(ops))
			f.add(0, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("no order of the %d appends and looks at the end of %s agrees with their times", len(ops), r.name(history.Key(k))),
					Key:  history.Key(k), At: r.Ops[ops[len(ops)-1].Input.(logOp).op].Completed, Ops: stuckAt(ops),
				}
			})
		default:
			f.unknown("%s: no order found and none excluded", r.name(history.Key(k)))
		}
	}
	f.Note = shortNote(f.Note)
}

// tooMany says which keys have more operations than can be searched.
func (r *run) tooMany() []string {
	n, why := make([]int, len(r.logs)), make([]string, len(r.logs))
	for i := range r.batches {
		n[r.batches[i].key]++
	}
	for i := range r.Ops {
		if o := &r.Ops[i]; o.F == history.ListOffsets {
			for _, off := range o.Offsets {
				n[off.Key]++
			}
		}
	}
	for k := range n {
		if n[k] > maxLinear {
			why[k] = fmt.Sprintf("%d operations, more than %d", n[k], maxLinear)
		}
	}
	return why
}

// shortNote bounds a note with a part for each key.
func shortNote(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// gaps says that the offsets known are not contiguous.
func (l *keyLog) gaps() bool {
	n := len(l.offsets)
	return n > 0 && l.offsets[n-1]-l.offsets[0] != int64(n-1)
}

// complete says that the final phase read all that was ever known of a log.
func (l *keyLog) complete() bool {
	last, end := int64(-1), int64(0)
	if n := len(l.offsets); n > 0 {
		last = l.offsets[n-1]
	}
	if n := len(l.ends); n > 0 {
		end = l.ends[n-1].max
	}
	return (l.final.done || l.final.max >= 0 && l.final.max >= last) && end <= last+1
}

// appended enters a batch. When somebody saw it, it had happened; when the final
// phase read everything and not this one, it has not.
func (r *run) appended(b *batch, byKey [][]porcupine.Operation, maybe []int, why []string) {
	o, l := &r.Ops[b.op], &r.logs[b.key]
	if o.Type == history.Fail || why[b.key] != "" {
		return
	}
	first, end := int64(-1), never
	if o.Type == history.OK {
		end = o.Completed
	}
	for _, id := range r.of(b) {
		v := &r.vals[id]
		if v.flags&wasTwice != 0 {
			why[b.key] = "a value has two offsets"
			return
		}
		if v.first < 0 {
			continue
		}
		if first < 0 || v.first < first {
			first = v.first
		}
		end = min(end, l.polled[l.index(v.first)])
	}
	in := logOp{op: o.Index, n: int64(len(r.of(b))), offset: first}
	if first < 0 {
		switch {
		case l.losing() || l.floor > 0:
			why[b.key] = "a send of unknown effect, and records were deleted"
			return
		case o.Type == history.Info && l.complete() && l.final.at > o.Completed:
			// It may still come, but nobody saw it by the end of the history.
			return
		}
		in.maybe = true
		maybe[b.key]++
	}
	if end < o.Invoked {
		end = o.Invoked // L21 tells of it
	}
	byKey[b.key] = append(byKey[b.key], porcupine.Operation{ClientId: int(o.Process), Input: in, Call: o.Invoked, Return: end})
}

// looked enters what an operation saw of the end of a log.
func (r *run) looked(o *history.Op, byKey [][]porcupine.Operation, why []string) {
	if o.Type != history.OK {
		return
	}
	add := func(k history.Key, end int64) {
		if why[k] != "" {
			return
		}
		byKey[k] = append(byKey[k], porcupine.Operation{ClientId: int(o.Process), Input: logOp{op: o.Index, offset: end}, Call: o.Invoked, Return: o.Completed})
	}
	switch {
	case o.F == history.ListOffsets && o.Spec == latest:
		for _, off := range o.Offsets {
			if off.Err == "" && off.Offset >= 0 {
				add(off.Key, off.Offset)
			}
		}
	case o.F == history.Poll && o.Spec == whole && len(o.Polls) > 0:
		last := &o.Polls[len(o.Polls)-1]
		if r.logs[last.Key].index(last.Offset) >= 0 {
			add(last.Key, last.Offset+1)
		}
	}
}

// stuckAt guesses the operations that cannot be ordered: the first that ended
// whose append does not follow those before it.
func stuckAt(ops []porcupine.Operation) []int64 {
	list := slices.Clone(ops)
	slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return int(min(max(a.Return-b.Return, -1), 1)) })
	high, at := int64(-1), int64(-1)
	for _, op := range list {
		in := op.Input.(logOp)
		if in.offset >= 0 && in.offset < high && at >= 0 {
			return []int64{in.op, at}
		}
		if in.offset+in.n > high {
			high, at = in.offset+in.n, in.op
		}
	}
	return nil
}

// register is an operation on a committed offset.
type register struct {
	op, process       int32
	write             bool
	value, call, back int64
}

// unset is the state of a register of which nothing is known.
const unset = int64(-2)

// registerModel reads what was written last.
var registerModel = porcupine.Model{
	Init: func() any { return unset },
	Step: func(state, input, _ any) (bool, any) {
		was, in := state.(int64), input.(register)
		return in.write || was == unset || was == in.value, in.value
	},
}

// judge asks Porcupine. It is unknown when the search takes too many steps: they
// are counted, so that a history is judged the same on every machine.
func judge(m porcupine.Model, ops []porcupine.Operation) porcupine.CheckResult {
	left := min(searchSteps, searchBytes/(len(ops)/8+128))
	step := m.StepContext
	if step == nil {
		step = func(_ context.Context, state, input, output any) (bool, any) { return m.Step(state, input, output) }
	}
	m.StepContext = func(ctx context.Context, state, input, output any) (bool, any) {
		if left--; left < 0 {
			return false, state
		}
		return step(ctx, state, input, output)
	}
	res := porcupine.CheckOperationsTimeout(m, ops, 0)
	if left < 0 && res != porcupine.Ok {
		return porcupine.Unknown
	}
	return res
}
