package check

import (
	"fmt"

	"ponor/jepsen/history"
)

// sends checks the offsets that producers were told.
func (r *run) sends() {
	r.timelines()
	r.processOrder()
	s := sendChecks{
		run:    r,
		inner:  r.check("L12", "int-nonmonotonic-send"),
		skip:   r.check("L13", "int-send-skip"),
		real:   r.check("L18", "realtime-append"),
		wrong:  r.check("L21", "spurious-offset"),
		unlike: r.check("L22", "torn-batch"),
	}
	r.torn = s.unlike
	for i := range r.batches {
		b := &r.batches[i]
		if o := &r.Ops[b.op]; o.Type != history.Fail && !r.logs[b.key].gone {
			s.within(o, b)
			s.against(o, b)
		}
	}
}

// timelines notes when offsets of each key were known.
func (r *run) timelines() {
	for i := range r.batches {
		if b := &r.batches[i]; b.max >= 0 && r.Ops[b.op].Type != history.Fail {
			r.logs[b.key].acks.add(r.Ops[b.op].Completed, b.max, b.op)
		}
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		for j := range o.Polls {
			p := &o.Polls[j]
			if l := &r.logs[p.Key]; p.Offset >= 0 && l.index(p.Offset) >= 0 {
				l.seen.add(o.Completed, p.Offset, int32(i))
			}
		}
		if o.F != history.ListOffsets || o.Type != history.OK {
			continue
		}
		for _, off := range o.Offsets {
			l := &r.logs[off.Key]
			if off.Err != "" || off.Offset < 0 {
				continue
			}
			switch o.Spec {
			case latest:
				l.ends.add(o.Completed, off.Offset, int32(i))
				l.seen.add(o.Completed, off.Offset-1, int32(i))
				l.epochs.add(o.Completed, int64(off.Epoch), int32(i))
			case earliest:
				l.starts.add(o.Completed, off.Offset, int32(i))
			}
		}
	}
}

// Values of Op.Spec.
const (
	latest   = "latest"
	earliest = "earliest"
	whole    = "all" // of a poll
)

// processOrder is L11: what a process sends later lands behind.
func (r *run) processOrder() {
	f := r.check("L11", "nonmonotonic-send")
	last := map[int32]map[history.Key]*batch{}
	for i := range r.batches {
		b := &r.batches[i]
		o := &r.Ops[b.op]
		if o.Type == history.Fail || b.max < 0 || r.logs[b.key].gone {
			continue
		}
		mine := last[o.Process]
		if mine == nil {
			mine = map[history.Key]*batch{}
			last[o.Process] = mine
		}
		was := mine[b.key]
		mine[b.key] = b
		if was == nil || was.op == b.op {
			continue
		}
		f.Checked++
		if was.max >= b.min {
			f.add(was.max-b.min, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("process %d sent to offset %d of %s, then to %d", o.Process, was.max, r.name(b.key), b.min),
					Key:  b.key, At: o.Completed, Ops: []int64{o.Index, r.Ops[was.op].Index}, Mark: r.value(r.of(b)[0]),
				}
			})
		}
		if o.Type == history.Info {
			delete(last, o.Process)
		}
	}
}

// sendChecks are those of one batch.
type sendChecks struct {
	*run
	inner, skip, real, wrong, unlike *found
}

// within compares the offsets of a batch with each other.
func (s *sendChecks) within(o *history.Op, b *batch) {
	l := &s.logs[b.key]
	ids := s.of(b)
	for j := 1; j < len(ids); j++ {
		from, to := &s.vals[ids[j-1]], &s.vals[ids[j]]
		if from.flags&to.flags&wasAcked == 0 {
			continue
		}
		s.inner.Checked++
		s.skip.Checked++
		s.unlike.Checked++
		text := func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("one batch has offset %d of %s, then %d", from.first, s.name(b.key), to.first),
				Key:  b.key, At: o.Completed, Ops: []int64{o.Index}, Mark: s.value(ids[j]),
			}
		}
		delta := to.first - from.first
		switch {
		case delta <= 0:
			s.inner.add(-delta, text)
			continue
		case delta > 1:
			s.unlike.add(delta, text)
		}
		for i := l.index(from.first) + 1; i < l.index(to.first); i++ {
			if s.vals[l.vals[i]].op != b.op {
				s.skip.tolerate("Kafka does not isolate the writes of a transaction from those of others", delta, text)
				break
			}
		}
	}
}

// against compares a batch with what was known before.
func (s *sendChecks) against(o *history.Op, b *batch) {
	l := &s.logs[b.key]
	s.wrong.Checked++
	first := s.of(b)[0]
	anomaly := func(text string, ops ...int64) func() Anomaly {
		return func() Anomaly {
			return Anomaly{Text: text, Key: b.key, At: o.Completed, Ops: append([]int64{o.Index}, ops...), Mark: s.value(first)}
		}
	}
	for _, id := range s.of(b) {
		v := &s.vals[id]
		if v.flags&wasAcked == 0 {
			if o.Type == history.OK {
				s.wrong.add(0, anomaly(fmt.Sprintf("value %d was acknowledged by %s without an offset", s.value(id), s.name(b.key))))
				break
			}
			continue
		}
		if other := s.rival(l, id); other >= 0 {
			s.wrong.add(0, anomaly(fmt.Sprintf("values %d and %d were both acknowledged at offset %d of %s", s.value(id), s.value(other), v.first, s.name(b.key)), s.writer(other).Index))
			break
		}
	}
	if b.min < 0 {
		return
	}
	s.real.Checked++
	if was, ok := l.acks.before(o.Invoked); ok && was.max >= b.min {
		s.real.add(was.max-b.min, anomaly(fmt.Sprintf("offset %d of %s was given out after offset %d had been acknowledged", b.min, s.name(b.key), was.max), s.Ops[was.op].Index))
	}
	if was, ok := l.seen.before(o.Invoked); ok && was.max >= b.min {
		s.wrong.add(was.max-b.min, anomaly(fmt.Sprintf("offset %d of %s was given out, and %d had been there before the send began", b.min, s.name(b.key), was.max), s.Ops[was.op].Index))
	}
}

// rival is another value that was acknowledged at a value's offset, or -1.
func (s *sendChecks) rival(l *keyLog, id int32) int32 {
	at := s.vals[id].first
	if p := l.place(at); p != id && s.vals[p].flags&wasAcked != 0 && s.vals[p].first == at {
		return p
	}
	for _, p := range l.others[at] {
		if p != id && s.vals[p].flags&wasAcked != 0 && s.vals[p].first == at {
			return p
		}
	}
	return -1
}

// listed checks the answers of list-offsets.
func (r *run) listed() {
	marks := r.check("L23", "high-watermark-regress")
	epochs := r.check("M6", "owner-epochs")
	r.epochs = epochs
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.F != history.ListOffsets || o.Type != history.OK {
			continue
		}
		for _, off := range o.Offsets {
			l := &r.logs[off.Key]
			if off.Err != "" || off.Offset < 0 || l.gone {
				continue
			}
			anomaly := func(text string, was instant) func() Anomaly {
				return func() Anomaly {
					return Anomaly{Text: text, Key: off.Key, At: o.Completed, Ops: []int64{o.Index, r.Ops[was.op].Index}}
				}
			}
			switch o.Spec {
			case latest:
				marks.Checked++
				if was, ok := l.ends.before(o.Invoked); ok && was.max > off.Offset {
					marks.add(was.max-off.Offset, anomaly(fmt.Sprintf("the end of %s went from %d back to %d", r.name(off.Key), was.max, off.Offset), was))
				} else if was, ok := l.acks.before(o.Invoked); ok && was.max >= off.Offset {
					marks.add(was.max-off.Offset, anomaly(fmt.Sprintf("the end of %s was %d after offset %d had been acknowledged", r.name(off.Key), off.Offset, was.max), was))
				} else if was, ok := l.seen.before(o.Invoked); ok && was.max >= off.Offset {
					marks.add(was.max-off.Offset, anomaly(fmt.Sprintf("the end of %s was %d after offset %d had been read", r.name(off.Key), off.Offset, was.max), was))
				}
				if off.Epoch > 0 {
					epochs.Checked++
				}
				if was, ok := l.epochs.before(o.Invoked); ok && off.Epoch > 0 && was.max > int64(off.Epoch) {
					epochs.add(was.max-int64(off.Epoch), anomaly(fmt.Sprintf("the leader epoch of %s went from %d back to %d", r.name(off.Key), was.max, off.Epoch), was))
				}
			case earliest:
				marks.Checked++
				if was, ok := l.starts.before(o.Invoked); ok && was.max > off.Offset {
					marks.add(was.max-off.Offset, anomaly(fmt.Sprintf("the start of %s went from %d back to %d", r.name(off.Key), was.max, off.Offset), was))
				}
				r.undeleted(o, off, l)
			}
		}
	}
}

// undeleted is a part of L26: the start of a log is not below what was deleted.
func (r *run) undeleted(o *history.Op, off history.Offset, l *keyLog) {
	if len(l.trims) == 0 {
		return
	}
	r.kept.Checked++
	if was, ok := l.trims.before(o.Invoked); ok && was.max > off.Offset {
		r.kept.add(was.max-off.Offset, func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("%s starts at %d, though records up to %d were deleted", r.name(off.Key), off.Offset, was.max),
				Key:  off.Key, At: o.Completed, Ops: []int64{o.Index, r.Ops[was.op].Index},
			}
		})
	}
}
