package model

import "ponor/metadata"

// pack commits what a process has durable in its WAL beyond the committed ends,
// and moves its trim: from a segment object with a checkpoint, or (adopt) from
// the slots as they are. The upload is part of the step: the reference comes
// with apply, and a sweeper may come in between.
func (m *Model) pack(st *State, i uint8, adopt bool) bool {
	p := &st.proc[i]
	info := m.view(st, i)
	trim := p.prefix()
	if !p.alive() || !m.mayCommand(st, i) || trim <= info.wal[p.wal].trim || !m.settled(st, i) && !m.cfg.on(Impatient) {
		return false
	}
	c := command{kind: cmdCommit, trim: trim}
	var held mask
	for s := range streamCount {
		l := &p.streams[s]
		if !l.open || info.part[s].epoch != l.epoch || l.conf <= info.part[s].end ||
			l.frozen && m.mutation == PackSkipsFrozen {
			continue
		}
		c.part |= 1 << s
		c.epoch[s], c.base[s], c.end[s] = l.epoch, info.part[s].end, l.conf
		for o := c.base[s]; o < c.end[s]; o++ {
			held |= bit(int(l.rec[o] - 1))
		}
		if adopt {
			m.tailInSlots(st, i, s, &c)
		}
	}
	if !adopt {
		if held == 0 || !m.upload(st, i, object{kind: kindSegment, mask: held, state: st.lastSeq(&p.streams[0], c.end[0])}, &c) {
			return false
		}
	}
	return m.submit(st, i, c)
}

// upload makes an object under a process's next name.
func (m *Model) upload(st *State, i uint8, o object, c *command) bool {
	p := &st.proc[i]
	if p.objects >= maxObjects || !m.free && int(p.objects) >= m.cfg.Objects || st.obj[p.wal][p.objects].kind != 0 {
		return false
	}
	o.there = true
	st.obj[p.wal][p.objects] = o
	p.objects++
	c.object = p.objects
	return true
}

// repack replaces all extents of a stream by one segment object, with a
// checkpoint, if any of them is in WAL slots.
func (m *Model) repack(st *State, i uint8, s int) bool {
	p := &st.proc[i]
	info := m.view(st, i)
	part := &info.part[s]
	l := &p.streams[s]
	if !p.alive() || !l.open || l.flip != 0 || part.epoch != l.epoch || !m.mayCommand(st, i) || !m.settled(st, i) {
		return false
	}
	var held mask
	inSlots := false
	for _, x := range part.extents {
		inSlots = inSlots || x.kind != kindSegment
		for o := x.base; o < x.end; o++ {
			if l.rec[o] == 0 {
				return false // it opened after this one was trimmed
			}
			held |= bit(int(l.rec[o] - 1))
		}
	}
	if !inSlots {
		return false
	}
	c := command{kind: cmdReplace, part: 1 << s}
	c.epoch[s], c.base[s], c.end[s] = l.epoch, part.extents[0].base, part.end
	var state uint8
	if s == 0 {
		state = st.lastSeq(l, part.end)
	}
	return m.upload(st, i, object{kind: kindSegment, mask: held, state: state}, &c) && m.submit(st, i, c)
}

// trimStream moves the start of a stream. What would be dropped with it must
// not be the newest checkpoint (ext-4), nor all there is of one.
func (m *Model) trimStream(st *State, i uint8, s int, start uint8) bool {
	p := &st.proc[i]
	info := m.view(st, i)
	part := &info.part[s]
	l := &p.streams[s]
	if !p.alive() || !l.open || l.flip != 0 || part.epoch != l.epoch || start <= part.start || start > part.end ||
		!m.mayCommand(st, i) || !m.settled(st, i) {
		return false
	}
	drop := 0
	for drop < len(part.extents)-1 && part.extents[drop].end <= start {
		drop++
	}
	kept := drop == 0
	for _, x := range part.extents[drop:] {
		kept = kept || x.kind == kindSegment
	}
	if !kept && m.mutation != TrimPastCheckpoint {
		return false
	}
	c := command{kind: cmdTrim, part: 1 << s}
	c.epoch[s], c.base[s] = l.epoch, start
	return m.submit(st, i, c)
}

// deleteSlot: a process deletes a slot below its trim that nothing refers to,
// by its own image, which may be old (obj-1).
func (m *Model) deleteSlot(st *State, i, k uint8) bool {
	p := &st.proc[i]
	info := m.view(st, i)
	if !p.alive() || k >= info.wal[p.wal].trim || !st.store[p.wal][k].data() {
		return false
	}
	garbage := m.garbage(st, info)
	if garbage>>slotBit(p.wal, k)&1 == 0 && m.mutation != DeleteIgnoringReferences {
		return false
	}
	st.store[p.wal][k] = slotEmpty
	return true
}

// deleteOwn: a live process deletes an object of its own that has no reference,
// once none of its commands can give it one (obj-2).
func (m *Model) deleteOwn(st *State, i, n uint8) bool {
	p := &st.proc[i]
	o := &st.obj[p.wal][n]
	if !p.alive() || !o.there || !m.settled(st, i) || m.view(st, i).refers(p.wal, n) {
		return false
	}
	o.there = false
	return true
}

// refers says whether an image has an extent in an object.
func (info *imageInfo) refers(wal, n uint8) bool {
	for s := range info.part {
		for _, x := range info.part[s].extents {
			if !x.slot && x.wal == wal && x.number == n {
				return true
			}
		}
	}
	return false
}

// slotBit and objectBit number everything that may be garbage.
func slotBit(wal, k uint8) int   { return int(wal)*16 + int(k) }
func objectBit(wal, n uint8) int { return int(wal)*16 + 8 + int(n) }

// garbage is what an image lets a sweeper delete: what its Judge says, but for
// slots that an index object lists.
func (m *Model) garbage(st *State, info *imageInfo) uint64 {
	var out, listed uint64
	for w := range info.wals {
		out |= uint64(info.garbageSlots[w]) << slotBit(w, 0)
		for n := range uint8(maxObjects) {
			if kind := st.obj[w][n].kind; kind != 0 && info.garbageObjects[w][kind]>>n&1 != 0 {
				out |= 1 << objectBit(w, n)
			}
		}
	}
	for s := range info.part {
		for _, x := range info.part[s].extents {
			if x.kind != kindIndex {
				continue
			}
			o := &st.obj[x.wal][x.number]
			for r := range int(st.nrecords) {
				if rec := &st.records[r]; o.mask.has(r) && int(rec.stream) == s {
					listed |= 1 << slotBit(rec.wal, rec.slot)
				}
			}
		}
	}
	return out &^ listed
}

// sweep deletes a slot or an object that an image says is garbage. It is always
// the newest image: every step that changes the image is checked to leave
// garbage garbage, so that a sweeper with an older one can do nothing that this
// one cannot.
func (m *Model) sweep(st *State, wal, n uint8, slots bool) bool {
	garbage := m.garbage(st, m.newest(st))
	if slots {
		at := &st.store[wal][n]
		info := &m.newest(st).wal[wal]
		fence := m.mutation == DeleteFence && at.fence() && info.state == metadata.Sealed && n == info.end
		if *at == slotEmpty || garbage>>slotBit(wal, n)&1 == 0 && !fence {
			return false
		}
		*at = slotEmpty
		return true
	}
	o := &st.obj[wal][n]
	aged := m.mutation == SweepByAge && !m.newest(st).refers(wal, n)
	if !o.there || garbage>>objectBit(wal, n)&1 == 0 && !aged {
		return false
	}
	o.there = false
	return true
}
