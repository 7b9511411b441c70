package check

import (
	"fmt"
	"slices"

	"ponor/jepsen/history"
)

// values checks what became of every value.
func (r *run) values() {
	v := valueChecks{
		run:    r,
		clash:  r.check("L1", "inconsistent-offsets"),
		twice:  r.check("L2", "duplicate"),
		lost:   r.check("L3", "lost-write"),
		unseen: r.check("L4", "unseen"),

		readers: map[history.Key]int64{},
	}
	for k := range r.logs {
		if l := &r.logs[k]; !l.gone {
			v.clashes(history.Key(k), l)
		}
	}
	for id := range r.vals {
		if val := &r.vals[id]; !r.logs[val.key].gone {
			v.fate(val, int32(id))
		}
	}
	for i := range r.batches {
		v.part(&r.batches[i])
	}
}

type valueChecks struct {
	*run
	clash, twice, lost, unseen *found
	readers                    map[history.Key]int64
}

// clashes is L1.
func (v *valueChecks) clashes(k history.Key, l *keyLog) {
	v.clash.Checked += int64(len(l.offsets))
	if len(l.others) == 0 {
		return
	}
	for i, offset := range l.offsets {
		others := l.others[offset]
		if len(others) == 0 {
			continue
		}
		v.clash.add(int64(len(others)), func() Anomaly {
			a := Anomaly{
				Text: fmt.Sprintf("offset %d of %s holds value %d", offset, v.name(k), v.value(l.vals[i])),
				Key:  k, At: v.writer(l.vals[i]).Completed, Ops: []int64{v.writer(l.vals[i]).Index}, Mark: v.value(l.vals[i]),
			}
			for _, p := range others[:min(len(others), 8)] {
				a.Text += fmt.Sprintf(" and value %d", v.value(p))
				a.Ops = append(a.Ops, v.writer(p).Index)
			}
			return a
		})
	}
}

const whyRetried = "a producer that is not idempotent may append twice when it tries again"

// fate checks one value.
func (v *valueChecks) fate(val *val, id int32) {
	l := &v.logs[val.key]
	o := v.writer(id)
	anomaly := func(format string, args ...any) func() Anomaly {
		return func() Anomaly {
			return Anomaly{Text: fmt.Sprintf(format, args...), Key: val.key, At: o.Completed, Ops: []int64{o.Index}, Mark: v.value(id)}
		}
	}
	if val.first >= 0 {
		v.twice.Checked++
	}
	if val.flags&wasTwice != 0 {
		more := l.twice[id]
		text := anomaly("value %d is at offsets %d and %v of %s", v.value(id), val.first, more[:min(len(more), 8)], v.name(val.key))
		if v.Header.Idempotent {
			v.twice.add(int64(len(more)), text)
		} else {
			v.twice.tolerate(whyRetried, int64(len(more)), text)
		}
	}
	if val.flags&mustBe == 0 || l.losing() {
		return
	}
	v.wasLost(l, val, id)
	if o.Type != history.OK && val.flags&wasAcked == 0 {
		return // only what was read of its batch proves it
	}
	if val.first < l.floor && l.floor > 0 {
		return
	}
	v.unseen.required = true
	if l.final.at == 0 || o.Completed > l.final.at {
		return
	}
	if !l.final.done && (val.first < 0 || val.first > l.final.max) {
		return // the final phase did not get so far
	}
	v.unseen.Checked++
	if val.flags&wasPolled == 0 {
		v.unseen.add(0, anomaly("value %d was acknowledged at offset %d of %s, and nobody ever read it", v.value(id), val.first, v.name(val.key)))
	}
}

// wasLost is L3: nobody read a value, and one who began at the beginning read
// something behind it.
func (v *valueChecks) wasLost(l *keyLog, val *val, id int32) {
	if val.first < 0 || l.scanned < 0 {
		return
	}
	_, last := l.span(val, id)
	if last > l.scanned {
		return
	}
	v.lost.Checked++
	if val.flags&wasPolled != 0 || l.offsets[last] < l.floor {
		return
	}
	o := v.writer(id)
	v.lost.add(int64(l.scanned-last), func() Anomaly {
		a := Anomaly{
			Text: fmt.Sprintf("value %d was written at offset %d of %s and nobody read it, though offset %d was read by one who began at the start", v.value(id), val.first, v.name(val.key), l.offsets[l.scanned]),
			Key:  val.key, At: o.Completed, Ops: []int64{o.Index}, Mark: v.value(id),
		}
		if reader := v.reader(val.key, l.offsets[l.scanned]); reader >= 0 {
			a.Ops = append(a.Ops, reader)
		}
		return a
	})
}

// reader finds an op that polled the offset of a key that somebody from its start
// reached. It looks through all of them, once for a key.
func (v *valueChecks) reader(k history.Key, offset int64) int64 {
	if i, ok := v.readers[k]; ok {
		return i
	}
	i := slices.IndexFunc(v.Ops, func(o history.Op) bool {
		return slices.ContainsFunc(o.Polls, func(p history.Polled) bool { return p.Key == k && p.Offset == offset })
	})
	v.readers[k] = int64(i)
	return int64(i)
}

// part is the half of L22 that asks which records of a batch are there: all or
// none, one behind the other.
func (v *valueChecks) part(b *batch) {
	l := &v.logs[b.key]
	ids := v.of(b)
	if len(ids) < 2 || l.losing() || v.Ops[b.op].Type == history.Fail {
		return
	}
	// The place of the batch, from the first of its values that was polled.
	n := slices.IndexFunc(ids, func(id int32) bool { return v.vals[id].flags&wasPolled != 0 })
	if n < 0 {
		return
	}
	base := v.vals[ids[n]].first - int64(n)
	v.torn.Checked++
	for j, id := range ids {
		val, want := &v.vals[id], base+int64(j)
		if val.flags&wasTwice != 0 {
			return // L2 judges it
		}
		if val.flags&wasAcked != 0 && val.flags&wasPolled != 0 {
			continue // the acknowledgement said where it is
		}
		missing := val.flags&wasPolled == 0 && want >= l.floor && (want < l.final.max || l.final.done && l.final.max >= 0)
		moved := val.flags&wasPolled != 0 && val.first != want
		if !missing && !moved {
			continue
		}
		o := &v.Ops[b.op]
		v.torn.add(0, func() Anomaly {
			text := fmt.Sprintf("value %d of a batch is at offset %d of %s, and value %d, %d behind it, is not there", v.value(ids[n]), v.vals[ids[n]].first, v.name(b.key), v.value(id), j-n)
			if moved {
				text = fmt.Sprintf("value %d of a batch is at offset %d of %s, and value %d, %d behind it, at %d", v.value(ids[n]), v.vals[ids[n]].first, v.name(b.key), v.value(id), j-n, val.first)
			}
			return Anomaly{Text: text, Key: b.key, At: o.Completed, Ops: []int64{o.Index}, Mark: v.value(id)}
		})
		return
	}
}
