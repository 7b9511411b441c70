package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ponor/jepsen/history"
	"ponor/sharedlog/verify"
)

// notLooked is the note of checks that need to see inside the cluster, and did not.
const notLooked = "not looked at"

// inside begins a check that needs to see inside the cluster: looked says that
// somebody did. Findings of others are added.
func (r *run) inside(id, name string, looked bool) *found {
	f := r.check(id, name)
	r.also(f, looked)
	return f
}

// also adds what others found for a check.
func (r *run) also(f *found, looked bool) {
	other, ok := r.white.Findings[f.ID]
	switch {
	case ok:
		f.Checked += other.Checked
		for _, a := range other.Anomalies {
			f.add(0, func() Anomaly { return a })
		}
		if other.Unknown {
			f.unknown("%s", cmp.Or(other.Note, notLooked))
		} else if other.Note != "" {
			f.note("%s", other.Note)
		}
	case !looked && r.own && f.Checked == 0:
		f.Optional = true
		f.unknown(notLooked)
	}
}

// store is S1 to S12.
func (r *run) store() {
	names := []string{
		"ranges", "epochs", "referenced-objects", "garbage-collection", "durable-before-ack", "fence",
		"fence-boundary", "orphans", "cache", "lost-disk", "corruption", "failed-fsync",
	}
	rep := r.white.Store
	// Which of them the verification of the whole store answers.
	kinds := map[int][]verify.Kind{
		1: {verify.Gap, verify.Discontinuous}, 3: {verify.Missing, verify.Damaged, verify.Mismatch},
		6: {verify.NoFence, verify.EarlyFence, verify.Beyond}, 8: {verify.Stray},
	}
	for i, name := range names {
		f := r.inside(fmt.Sprintf("S%d", i+1), name, rep != nil && kinds[i+1] != nil)
		if rep == nil || kinds[i+1] == nil {
			continue
		}
		f.Checked += max(rep.Records, 1)
		f.figure("objects", float64(objects(rep)))
		for _, p := range rep.List {
			if slices.Contains(kinds[i+1], p.Kind) {
				f.add(0, func() Anomaly { return Anomaly{Text: p.String(), Key: r.keyOf(p.Partition)} })
			}
		}
		if rep.Problems > len(rep.List) {
			f.note("%d problems, the first %d are told", rep.Problems, len(rep.List))
		}
		if rep.Unsteady > 0 {
			f.unknown("%d streams and WALs changed faster than they could be read", rep.Unsteady)
		}
		if i+1 == 8 {
			f.figure("garbage_bytes", float64(rep.Class(verify.ClassGarbage).Bytes))
			f.figure("pending_bytes", float64(rep.Class(verify.ClassPending).Bytes))
		}
	}
}

func objects(rep *verify.Report) int64 {
	n := int64(0)
	for _, c := range rep.Classes {
		n += c.Objects
	}
	return n
}

// keyOf finds the key of a partition's name, -1 if it is none of the history's.
func (r *run) keyOf(partition string) history.Key {
	return history.Key(slices.IndexFunc(r.Header.Keys, func(p history.Partition) bool { return p.String() == partition }))
}

// quorum is M1 to M4, M6, M8 and M10: what the voters and brokers say of themselves.
func (r *run) quorum() {
	w := r.white
	leaders := r.inside("M1", "election-safety", w.Leaders != nil)
	of := map[uint64]int32{}
	for _, l := range w.Leaders {
		leaders.Checked++
		if was, ok := of[l.Term]; ok && was != l.Node {
			leaders.add(0, func() Anomaly {
				return Anomaly{Text: fmt.Sprintf("nodes %d and %d both led in term %d", was, l.Node, l.Term), Key: -1}
			})
		}
		of[l.Term] = l.Node
	}
	r.inside("M2", "log-matching", false)
	r.inside("M3", "leader-completeness", false)
	same := r.inside("M4", "state-machine", w.Hashes != nil)
	restored := r.inside("M10", "snapshot", slices.ContainsFunc(w.Hashes, func(h Hash) bool { return h.Snapshot }))
	at := map[uint64]Hash{}
	for _, h := range w.Hashes {
		was, ok := at[h.Index]
		if !ok {
			at[h.Index] = h
			continue
		}
		f := same
		if h.Snapshot || was.Snapshot {
			f = restored
		}
		f.Checked++
		if was.Hash != h.Hash {
			f.add(0, func() Anomaly {
				return Anomaly{Text: fmt.Sprintf("the metadata at index %d are %s on node %d and %s on node %d", h.Index, was.Hash, was.Node, h.Hash, h.Node), Key: -1}
			})
		}
	}
	r.inside("M8", "broker-incarnations", false)
	r.owners()
}

// owners is M6: one owner for each epoch, and epochs that only grow. The half of
// it that clients see is in listed.
func (r *run) owners() {
	f := r.epochs
	r.also(f, r.white.Owners != nil)
	last := map[uint64]Owner{}
	for _, o := range r.white.Owners {
		f.Checked++
		was, ok := last[o.Stream]
		last[o.Stream] = o
		if !ok || o.Epoch > was.Epoch || o == was {
			continue
		}
		f.add(was.Epoch-o.Epoch, func() Anomaly {
			return Anomaly{Text: fmt.Sprintf("stream %d was node %d's at epoch %d, then node %d's at epoch %d", o.Stream, was.Node, was.Epoch, o.Node, o.Epoch), Key: -1}
		})
	}
}

// headers is L25: what the headers of a partition's batches say.
func (r *run) headers() {
	f := r.inside("L25", "header-lineage", r.white.Batches != nil)
	for k, list := range inOrderPairs(r.white.Batches) {
		h := lineage{run: r, found: f, key: k, next: map[producer]int32{}, open: map[int64]bool{}}
		for i := range list {
			f.Checked++
			h.batch(&list[i])
		}
	}
}

type producer struct {
	id    int64
	epoch int16
}

// lineage follows the batches of a key.
type lineage struct {
	*run
	*found
	key   history.Key
	epoch int32
	end   int64
	next  map[producer]int32 // sequence
	open  map[int64]bool     // transactions, by producer
}

func (h *lineage) batch(b *Batch) {
	tell := func(format string, args ...any) {
		h.add(0, func() Anomaly {
			return Anomaly{Text: fmt.Sprintf("batch at offset %d of %s: ", b.Base, h.name(h.key)) + fmt.Sprintf(format, args...), Key: h.key}
		})
	}
	losing := h.key >= 0 && int(h.key) < len(h.logs) && h.logs[h.key].compacted
	if b.Epoch < h.epoch {
		tell("its leader epoch is %d, that of the one before it %d", b.Epoch, h.epoch)
	}
	if b.Base < h.end || b.Base > h.end && h.end > 0 && !losing {
		tell("the one before it ended at %d", h.end-1)
	}
	h.epoch, h.end = max(h.epoch, b.Epoch), b.Last+1
	switch {
	case b.Control:
		if !h.open[b.Producer] {
			tell("it ends a transaction of producer %d, which has none", b.Producer)
		}
		h.open[b.Producer] = false
		return
	case b.Txn:
		h.open[b.Producer] = true
	}
	if b.Producer < 0 || b.Sequence < 0 {
		return
	}
	p := producer{b.Producer, b.PEpoch}
	if want, ok := h.next[p]; ok && want != b.Sequence && !losing {
		tell("producer %d, epoch %d, has sequence %d here, and %d was next", p.id, p.epoch, b.Sequence, want)
	}
	// Sequences go from the largest number to 0.
	h.next[p] = int32((int64(b.Sequence) + b.Last - b.Base + 1) & (1<<31 - 1))
}

// compaction is L27: the newest value of each record key is there after all was
// compacted.
func (r *run) compaction() {
	f := r.check("L27", "compaction")
	for k := range r.logs {
		l := &r.logs[k]
		if !l.compacted || l.gone || l.floor > 0 || l.retained || !l.final.done {
			continue
		}
		newest := map[int32]int32{} // of a record key: index
		for i, p := range l.vals {
			v := &r.vals[p]
			if id := r.Ops[v.op].Sends[v.pos].ID; id != 0 && v.flags&mustBe != 0 {
				newest[id] = int32(i)
			}
		}
		for id, i := range inOrderPairs(newest) {
			f.Checked++
			if o := r.writer(l.vals[i]); !l.final.read.has(i) && o.Completed < l.final.at {
				f.add(0, func() Anomaly {
					return Anomaly{
						Text: fmt.Sprintf("value %d at offset %d is the newest of record key %d of %s, and is not there after compaction", r.value(l.vals[i]), l.offsets[i], id, r.name(history.Key(k))),
						Key:  history.Key(k), At: o.Completed, Ops: []int64{o.Index}, Mark: r.value(l.vals[i]),
					}
				})
			}
		}
	}
}

// guards is V1 to V5; V6 is in the walk.
func (r *run) guards() {
	r.recovery()
	r.progress()
	r.work()
	r.faults()
	r.finals()
}

// recovery is V1: soon after the last fault something succeeds on every key.
func (r *run) recovery() {
	f := r.check("V1", "recovery")
	healed := r.health.healed
	if healed == 0 {
		return
	}
	f.required = true
	first, tried := make([]int64, len(r.logs)), make([]int64, len(r.logs))
	for k := range first {
		first[k], tried[k] = never, never
	}
	errs, after := 0, 0
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.Invoked < healed || o.F == history.Crash {
			continue
		}
		use := func(k history.Key, ok bool) {
			tried[k] = min(tried[k], o.Invoked)
			if ok {
				first[k] = min(first[k], o.Completed)
			}
		}
		for _, s := range o.Sends {
			use(s.Key, o.Type == history.OK)
		}
		for j := range o.Polls {
			use(o.Polls[j].Key, true)
		}
		for _, off := range o.Offsets {
			if o.F == history.ListOffsets {
				use(off.Key, o.Type == history.OK && off.Err == "")
			}
		}
		if o.Invoked > healed+int64(RecoveryBound) {
			after++
			if o.Type != history.OK {
				errs++
			}
		}
	}
	most := int64(0)
	for k := range first {
		took := first[k] - healed
		switch {
		case tried[k] == never || r.logs[k].gone:
			continue
		case first[k] == never:
			took = r.Ops[len(r.Ops)-1].Completed - healed
		}
		f.Checked++
		if first[k] < never {
			most = max(most, took)
		}
		if took-max(0, tried[k]-healed) > int64(RecoveryBound) {
			f.add(took, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("%s had no success for %.0f s after the last fault", r.name(history.Key(k)), float64(took)/1e9),
					Key:  history.Key(k), At: healed + took,
				}
			})
		}
	}
	f.figure("first_ok_s", float64(most)/1e9)
	if after > 0 {
		f.figure("later_errors_%", 100*float64(errs)/float64(after))
	}
}

// fewest operations that tell whether a process can do anything.
const fewest = 5

// progress is V2: a process that keeps trying succeeds, once there are no faults,
// for as long as a cluster may take to recover.
func (r *run) progress() {
	f := r.check("V2", "progress")
	type tally struct {
		tried, ok         int
		last, since, upTo int64
	}
	type doing struct {
		process int32
		f       history.Func
	}
	healed := r.health.healed
	tallies := map[doing]*tally{}
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.Invoked < healed || o.F != history.Send && o.F != history.Poll {
			continue
		}
		d := doing{o.Process, o.F}
		t := tallies[d]
		if t == nil {
			t = &tally{since: o.Invoked}
			tallies[d] = t
		}
		t.tried++
		t.last, t.upTo = o.Index, o.Completed
		if o.Type == history.OK {
			t.ok++
		}
	}
	keys := make([]doing, 0, len(tallies))
	for d := range tallies {
		keys = append(keys, d)
	}
	slices.SortFunc(keys, func(a, b doing) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.f, b.f))
	})
	for _, d := range keys {
		t := tallies[d]
		f.Checked++
		if t.tried >= fewest && t.ok == 0 && (healed == 0 || t.upTo-t.since > int64(RecoveryBound)) {
			f.add(int64(t.tried), func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("process %d tried to %s %d times without a fault, and never could", d.process, d.f, t.tried),
					Key:  -1, At: r.Ops[t.last].Completed, Ops: []int64{t.last},
				}
			})
		}
	}
}

// floor is Header.Floor if it is 0.
const floor = 100

// work is V3: enough was done for the run to mean something.
func (r *run) work() {
	f := r.check("V3", "enough-work")
	f.required = true
	var acked, polled, ok int64
	for i := range r.vals {
		if r.vals[i].flags&mustBe != 0 {
			acked++
		}
	}
	for i := range r.Ops {
		if o := &r.Ops[i]; o.Type == history.OK {
			ok++
			polled += int64(len(o.Polls))
		}
	}
	f.Checked = int64(len(r.Ops))
	f.figure("acked_records", float64(acked))
	f.figure("polled_records", float64(polled))
	f.figure("ok_%", 100*float64(ok)/float64(max(len(r.Ops), 1)))
	least := cmp.Or(r.Header.Floor, floor)
	if acked < least || polled < least {
		f.unknown("%d records acknowledged and %d polled, at least %d of each make a run", acked, polled, least)
	}
}

// faults is V4: what was to happen did.
func (r *run) faults() {
	f := r.check("V4", "faults-happened")
	f.figure("faults", float64(r.health.faults))
	f.Checked = int64(r.health.faults)
	if r.health.failed > 0 {
		f.figure("failed_starts", float64(r.health.failed))
	}
	for _, e := range r.health.unseen {
		f.unknown("%s of %s at %.1f s was not seen to happen", e.Fault, strings.Join(e.Target, ", "), float64(e.At)/1e9)
		if len(f.Note) > 400 {
			break
		}
	}
	for _, n := range r.Header.Nemesis {
		if n != "none" && n != "" && !r.health.started[n] {
			f.unknown("%s never happened", n)
		}
	}
	f.Note = shortNote(f.Note)
}

// finals is V5: the final phase read everything that is known, every reader of it.
func (r *run) finals() {
	f := r.check("V5", "final-reads")
	f.required = true
	for k := range r.logs {
		l := &r.logs[k]
		n := len(l.offsets)
		if l.gone || n == 0 {
			continue
		}
		f.Checked++
		end := l.offsets[n-1]
		if l.final.done || l.final.max >= end || end < l.floor {
			continue
		}
		f.unknown("%s was read up to offset %d of %d", r.name(history.Key(k)), l.final.max, end)
		if len(f.Note) > 400 {
			break
		}
	}
	for _, text := range r.cutOff {
		f.unknown("%s", text)
	}
	f.Note = shortNote(f.Note)
}
