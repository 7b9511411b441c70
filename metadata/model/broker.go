package model

import (
	"slices"

	"ponor/metadata"
)

// stop is what a process does when it knows that it is fenced: it drops all it
// had. Only its requests to the store may still land.
func (st *State) stop(i uint8) {
	p := &st.proc[i]
	*p = process{wal: p.wal, stopped: true, next: p.next, slots: p.slots}
}

// appendRecord appends one record to a stream: a plain one (nth 0), or the nth of
// the producer that it has no answer for yet. A retry of what was appended before waits for the original (ans-1),
// so that it is no step: the original's Commit acknowledges it.
func (m *Model) appendRecord(st *State, i uint8, s int, nth uint8) bool {
	p := &st.proc[i]
	l := &p.streams[s]
	if !p.alive() || !l.open || l.frozen {
		return false
	}
	r := record{stream: uint8(s), offset: l.next, epoch: l.epoch, wal: p.wal, slot: none}
	if nth > 0 {
		seq := st.producerSeq + nth - 1
		last := st.lastSeq(l, l.next)
		if last >= seq {
			return m.mutation == DedupEarly && m.answerEarly(st, l, seq)
		}
		if last != 0 && seq != last+1 {
			return false // OUT_OF_ORDER_SEQUENCE_NUMBER
		}
		r.seq = seq
	}
	if int(st.nrecords) >= m.cfg.Records || int(l.next) >= m.cfg.Offsets || int(p.next) >= m.cfg.Slots {
		return false
	}
	n := int(st.nrecords)
	st.records[n] = r
	st.nrecords++
	l.rec[l.next] = uint8(n + 1)
	l.next++
	p.buffer |= bit(n)
	return true
}

// answerEarly is the mutation: a duplicate is answered before the original is
// durable.
func (m *Model) answerEarly(st *State, l *log, seq uint8) bool {
	for o := range l.next {
		if r := l.rec[o]; r != 0 && st.records[r-1].seq == seq {
			st.acked |= bit(int(r - 1))
			return true
		}
	}
	return false
}

// producerNext: the producer has got its answer and sends the next record. It
// may as well have lost the answer and retry: that is not making this step.
func (m *Model) producerNext(st *State) bool {
	for r := range int(st.nrecords) {
		if st.acked.has(r) && st.records[r].seq == st.producerSeq {
			st.producerSeq++
			return true
		}
	}
	return false
}

// issue closes the buffer and begins the PUT of the next slot.
func (m *Model) issue(st *State, i uint8) bool {
	p := &st.proc[i]
	if !p.alive() || p.buffer == 0 || p.next >= p.prefix()+window {
		return false
	}
	p.slots[p.next], p.seen[p.next] = p.buffer, st.acked
	for r := range int(st.nrecords) {
		if p.buffer.has(r) {
			st.records[r].slot = p.next
		}
	}
	p.buffer = 0
	p.next++
	return true
}

// land: a copy of an issued PUT reaches the store, now or much later, and its
// reply is lost. On a directory the name is there, but not synced.
func (m *Model) land(st *State, i, k uint8) bool {
	p := &st.proc[i]
	if p.down || k >= p.next || st.store[p.wal][k] != slotEmpty {
		return false
	}
	st.store[p.wal][k] = slotData + slot(i)
	if !m.cfg.on(Directory) {
		st.store[p.wal][k] |= slotSynced
	}
	return true
}

// learn: an issued PUT reaches the store and its reply the process (slot-1).
func (m *Model) learn(st *State, i, k uint8) bool {
	p := &st.proc[i]
	if !p.alive() || k >= p.next || p.learned>>k&1 != 0 {
		return false
	}
	at := &st.store[p.wal][k]
	switch {
	case *at == slotEmpty:
		*at = slotData + slot(i) | slotSynced
		if m.mutation == RetryProves {
			p.seen[k] = st.acked
		}
	case at.fence() || at.writer() != int(i): // fenced, or not our bytes
		st.stop(i)
		return true
	case m.mutation != ExistsWithoutSync:
		*at |= slotSynced
	}
	p.learned |= 1 << k
	if m.mutation == AckOutOfOrder {
		st.acked |= p.slots[k]
	}
	m.confirm(st, i)
	if p.prefix() > k {
		m.proofByPut(st, i)
	}
	return true
}

// confirm resolves slots in order (slot-2) and acknowledges at once what was
// confirmed: later would only promise less.
func (m *Model) confirm(st *State, i uint8) {
	p := &st.proc[i]
	for k := range p.prefix() {
		for r := range int(st.nrecords) {
			rec := &st.records[r]
			l := &p.streams[rec.stream]
			if !p.slots[k].has(r) || !l.open || rec.epoch != l.epoch || st.acked.has(r) && l.conf > rec.offset {
				continue
			}
			l.conf = max(l.conf, rec.offset+1)
			m.acknowledge(st, r)
		}
	}
}

// acknowledge checks that no offset and no sequence is acknowledged twice.
func (m *Model) acknowledge(st *State, r int) {
	st.acked |= bit(r)
	a := &st.records[r]
	for o := range int(st.nrecords) {
		b := &st.records[o]
		if o == r || !st.acked.has(o) || a.stream != b.stream {
			continue
		}
		if a.offset == b.offset {
			m.fail(violation(PropOneValue, "s%d offset %d is acknowledged for record %d and for record %d", a.stream, a.offset, r, o))
		}
		if a.seq != 0 && a.seq == b.seq {
			m.fail(violation(PropNoDuplicate, "sequence %d is acknowledged at offsets %d and %d", a.seq, a.offset, b.offset))
		}
		m.count(PropOneValue)
	}
}

// look: a process applies the newest image, or one that is back from it. What it
// does not own any more it closes; if it is fenced, it stops.
func (m *Model) look(st *State, i, back uint8) bool {
	p := &st.proc[i]
	if !p.alive() || p.view == st.img {
		return false
	}
	next := st.img
	if back > 0 {
		// Images do not come back, so that one at or before the view is found
		// by going back from it. Image 0 is the first: everybody has applied it.
		next = st.past[back-1]
		if next == 0 || slices.Contains(st.past[:back], p.view) {
			return false
		}
	}
	p.view = next
	info := m.images[next]
	if !info.wal[p.wal].active() {
		st.stop(i)
		return true
	}
	for s := range p.streams {
		l := &p.streams[s]
		if l.open && (info.part[s].owner != p.wal || info.part[s].epoch != l.epoch) {
			*l = log{}
		}
	}
	return true
}

// open: a process opens a stream that its image, which may be old, names it for
// (slot-4). What it needs must be readable; if not it has to look first (ans-3).
func (m *Model) open(st *State, i uint8, s int) bool {
	p := &st.proc[i]
	info := m.view(st, i)
	part := &info.part[s]
	if !p.alive() || p.streams[s].open || part.owner != p.wal || info.wal[p.wal].state != metadata.Active {
		return false
	}
	if part.waits != none && m.mutation != OpenUnsealed {
		return false
	}
	l := log{open: true, epoch: part.epoch, next: part.end, conf: part.end}
	for _, x := range part.extents {
		if s == 0 && x.kind == kindSegment {
			l.openSeq = st.obj[x.wal][x.number].state
		}
		for o := x.base; o < x.end; o++ {
			r, missing := m.locate(st, x, s, o)
			if missing != "" {
				return false
			}
			l.rec[o] = uint8(r + 1)
			if x.kind != kindSegment {
				l.openSeq = max(l.openSeq, st.records[r].seq)
			}
		}
	}
	p.streams[s] = l
	return true
}
