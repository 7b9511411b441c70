package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ponor/jepsen/history"
)

// never is the time of what did not happen.
const never = int64(math.MaxInt64)

// run is a history with the indices that checks share.
type run struct {
	*history.History
	white *White
	own   bool // the cluster is ours
	found []*found

	vals   []val // of all sends, in the order of the ops
	ids    ids
	logs   []keyLog // by Key
	health health
	// batches are the sends of one key in one op, in the order of the ops; sent has
	// their values.
	batches   []batch
	sent      []int32
	consumers map[string]*group // after the walk
	cutOff    []string          // readers of the final phase that did not come to the end; after the walk
	future    bool              // a value was read before it was sent
	// Checks that several parts add to: L5, L6, L19, L22, L26, M6.
	aborted, early, phantom, torn, kept, epochs *found
}

// val is a value that was sent.
type val struct {
	first int64 // offset at which it was seen first, -1: at none
	op    int32 // position in Ops
	pos   int32 // position in Sends
	key   history.Key
	flags uint8
}

const (
	// wasAcked: its offset was told.
	wasAcked = 1 << iota
	// wasPolled: by anybody.
	wasPolled
	// mustBe: it was appended, for certain.
	mustBe
	// wasTwice: it has more than one offset, see keyLog.twice.
	wasTwice
)

// batch is the sends of one key in one op.
type batch struct {
	op       int32
	key      history.Key
	from, to int32 // in sent
	max      int64 // largest offset told, -1: none
	min      int64
}

// ids finds a value's place in vals: by position if values are dense.
type ids struct {
	base  history.Value
	dense []int32 // place + 1
	few   map[history.Value]int32
}

func (x *ids) init(lo, hi history.Value, n int) {
	if span := uint64(hi) - uint64(lo); span < uint64(4*n)+1024 {
		x.base, x.dense = lo, make([]int32, span+1)
		return
	}
	x.few = make(map[history.Value]int32, n)
}

// set is false if the value has a place already.
func (x *ids) set(v history.Value, place int32) bool {
	if x.few != nil {
		n := len(x.few)
		x.few[v] = place
		return len(x.few) > n
	}
	was := x.dense[v-x.base]
	x.dense[v-x.base] = place + 1
	return was == 0
}

// place is -1 for a value that nobody sent.
func (x *ids) place(v history.Value) int32 {
	if x.few != nil {
		if p, ok := x.few[v]; ok {
			return p
		}
		return -1
	}
	if i := uint64(v) - uint64(x.base); v >= x.base && i < uint64(len(x.dense)) {
		return x.dense[i] - 1
	}
	return -1
}

// newRun numbers the values and builds the logs.
func newRun(h *history.History, w *White) (*run, error) {
	r := &run{History: h, white: w, own: isOurs(h.Header.Product)}
	n, err := r.survey()
	if err != nil {
		return nil, err
	}
	r.logs = make([]keyLog, n)
	for k := range r.logs {
		r.logs[k].init()
	}
	r.mark()
	r.health = newHealth(h.Events)
	if err := r.acked(); err != nil {
		return nil, err
	}
	r.polled()
	r.certain()
	for k := range r.logs {
		r.logs[k].seal()
	}
	return r, nil
}

// maxKeys bounds the keys of a history.
const maxKeys = 1 << 20

// survey counts keys and values.
func (r *run) survey() (keys int, err error) {
	most := history.Key(len(r.Header.Keys) - 1)
	lo, hi, n, batches := history.Value(math.MaxInt64), history.Value(math.MinInt64), 0, 0
	bad := func(o *history.Op, k history.Key) {
		most = max(most, k)
		if k < 0 || k >= maxKeys {
			err = fmt.Errorf("op %d names key %d", o.Index, k)
		}
	}
	for _, k := range slices.Concat(r.Header.Compacted, r.Header.Retained) {
		if k < 0 || int(k) >= len(r.Header.Keys) {
			return 0, fmt.Errorf("the header names key %d", k)
		}
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.Completed < o.Invoked {
			err = fmt.Errorf("op %d ended before it began", o.Index)
		}
		for _, k := range o.Keys {
			bad(o, k)
		}
		for j, s := range o.Sends {
			bad(o, s.Key)
			if j == 0 || s.Key != o.Sends[j-1].Key {
				batches++ // not fewer than there are
			}
			lo, hi, n = min(lo, s.Value), max(hi, s.Value), n+1
		}
		for j := range o.Polls {
			bad(o, o.Polls[j].Key)
		}
		for j := range o.Offsets {
			bad(o, o.Offsets[j].Key)
		}
		for j := range o.Rebalance {
			for _, k := range o.Rebalance[j].Keys {
				bad(o, k)
			}
		}
	}
	if n == 0 {
		lo, hi = 0, 0
	}
	r.vals, r.sent, r.batches = make([]val, 0, n), make([]int32, 0, n), make([]batch, 0, batches)
	r.ids.init(lo, hi, n)
	return int(most) + 1, err
}

// mark notes which keys may lose records, and from when on.
func (r *run) mark() {
	for _, k := range r.Header.Compacted {
		r.logs[k].compacted = true
	}
	for _, k := range r.Header.Retained {
		r.logs[k].retained = true
	}
	deleted := map[string]bool{}
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.F == history.DeleteTopic && o.Topic != nil && o.Type != history.Fail {
			deleted[o.Topic.Name] = true
		}
		if o.F != history.DeleteRecords || o.Type == history.Fail {
			continue
		}
		for _, off := range o.Offsets {
			l := &r.logs[off.Key]
			upTo := off.Asked
			switch {
			case o.Type == history.OK && off.Err == "" && off.Offset >= 0:
				upTo = off.Offset
				l.trims.add(o.Completed, off.Offset, int32(i))
			case upTo < 0:
				upTo = never
			}
			l.floor = max(l.floor, upTo)
		}
	}
	for k, p := range r.Header.Keys {
		r.logs[k].gone = deleted[p.Topic]
	}
}

// acked numbers the values that were sent, and enters the offsets that were told.
func (r *run) acked() error {
	for i := range r.Ops {
		o := &r.Ops[i]
		begin := len(r.sent)
		for j := range o.Sends {
			s := &o.Sends[j]
			place := int32(len(r.vals))
			if !r.ids.set(s.Value, place) {
				return fmt.Errorf("op %d sends value %d, which was sent before", o.Index, s.Value)
			}
			v := val{first: -1, op: int32(i), pos: int32(j), key: s.Key}
			if o.Type == history.OK {
				v.flags |= mustBe
			}
			if s.Offset >= 0 && o.Type != history.Fail {
				v.first, v.flags = s.Offset, v.flags|wasAcked|mustBe
				r.logs[s.Key].add(s.Offset, place, o.Completed, never)
			}
			r.vals = append(r.vals, v)
			r.sent = append(r.sent, place)
		}
		r.split(int32(i), begin)
	}
	return nil
}

// split makes batches of an op's sends, those from a place in sent on.
func (r *run) split(op int32, from int) {
	slices.SortStableFunc(r.sent[from:], func(a, b int32) int { return cmp.Compare(r.vals[a].key, r.vals[b].key) })
	for from < len(r.sent) {
		b := batch{op: op, key: r.vals[r.sent[from]].key, from: int32(from), min: -1, max: -1}
		for ; from < len(r.sent) && r.vals[r.sent[from]].key == b.key; from++ {
			if v := &r.vals[r.sent[from]]; v.flags&wasAcked != 0 {
				if b.max = max(b.max, v.first); b.min < 0 || v.first < b.min {
					b.min = v.first
				}
			}
		}
		b.to = int32(from)
		r.batches = append(r.batches, b)
	}
}

// of are the values of a batch, as they were sent.
func (r *run) of(b *batch) []int32 { return r.sent[b.from:b.to] }

// polled enters what was polled. Consumers must only ever see what is safe, so
// that it counts whatever became of the operation.
func (r *run) polled() {
	r.aborted = r.check("L5", "aborted-read")
	r.early = r.check("L6", "precommitted-read")
	r.phantom = r.check("L19", "phantom")
	for i := range r.Ops {
		o := &r.Ops[i]
		for j := range o.Polls {
			p := &o.Polls[j]
			r.aborted.Checked++
			r.phantom.Checked++
			id := r.origin(o, p)
			if id < 0 {
				continue
			}
			v := &r.vals[id]
			r.logs[p.Key].add(p.Offset, id, o.Completed, o.Completed)
			v.flags |= wasPolled
			switch {
			case v.first < 0:
				v.first = p.Offset
			case v.first != p.Offset:
				v.flags |= wasTwice
				r.logs[p.Key].again(id, p.Offset)
			}
		}
	}
}

// origin says which value a polled record is, or -1 after noting what is wrong
// with it.
func (r *run) origin(o *history.Op, p *history.Polled) int32 {
	id := r.ids.place(p.Value)
	tell := func(text string) {
		r.phantom.add(0, func() Anomaly {
			return Anomaly{Text: fmt.Sprintf("offset %d of %s holds value %d, %s", p.Offset, r.name(p.Key), p.Value, text), Key: p.Key, At: o.Completed, Ops: []int64{o.Index}, Mark: p.Value}
		})
	}
	switch {
	case p.Damage != "":
		tell("which is damaged: " + p.Damage)
		return -1
	case id < 0:
		tell("which nobody sent")
		return -1
	case r.vals[id].key != p.Key:
		tell("which was sent to " + r.name(r.vals[id].key))
		return -1
	case p.Offset < 0:
		tell("which is no offset")
		return -1
	}
	w := &r.Ops[r.vals[id].op]
	r.future = r.future || w.Invoked > o.Completed
	if w.Type == history.Fail {
		r.aborted.add(0, func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("value %d was read at offset %d of %s, and its write had failed: %s", p.Value, p.Offset, r.name(p.Key), w.Err),
				Key:  p.Key, At: o.Completed, Ops: []int64{o.Index, w.Index}, Mark: p.Value,
			}
		})
	}
	if len(o.Sends) > 0 {
		r.early.Checked++
		if w == o {
			r.early.add(0, func() Anomaly {
				return Anomaly{Text: fmt.Sprintf("an operation read value %d, which it sends itself", p.Value), Key: p.Key, At: o.Completed, Ops: []int64{o.Index}, Mark: p.Value}
			})
		}
	}
	return id
}

// certain completes mustBe: a batch is whole, so that what was read of one of
// unknown outcome proves the rest of it.
func (r *run) certain() {
	for i := range r.batches {
		b := &r.batches[i]
		if r.Ops[b.op].Type != history.Info {
			continue
		}
		for _, id := range r.of(b) {
			if r.vals[id].flags&(wasPolled|wasAcked) != 0 {
				for _, all := range r.of(b) {
					r.vals[all].flags |= mustBe
				}
				break
			}
		}
	}
}

// name of a key for a text.
func (r *run) name(k history.Key) string {
	if k >= 0 && int(k) < len(r.Header.Keys) {
		return r.Header.Keys[k].String()
	}
	return fmt.Sprintf("key %d", k)
}

// value of a place in vals.
func (r *run) value(id int32) history.Value {
	v := &r.vals[id]
	return r.Ops[v.op].Sends[v.pos].Value
}

// writer of a place in vals.
func (r *run) writer(id int32) *history.Op { return &r.Ops[r.vals[id].op] }
