package model

import (
	"ponor/metadata"
)

// fence: the controller fences an incarnation, or names again for a dead one.
// It may do so at any time and to any; a command of an old controller that comes
// late is one that is decided now.
func (m *Model) fence(st *State, wal, target uint8) bool {
	info := m.newest(st)
	if wal >= info.wals || target != none && (target == wal || target >= info.wals || !info.wal[target].active()) {
		return false
	}
	if !m.free && int(st.fences) >= m.cfg.FenceLimit {
		return false
	}
	for s := range info.part {
		if int(info.part[s].epoch) >= m.cfg.Epochs && !m.free {
			return false
		}
	}
	before := st.img
	o := m.apply(st, m.command(command{kind: cmdFence, wal: wal, target: target}))
	if o.next != before {
		st.fences++
	}
	return o.next != before
}

// register: a broker id registers, and its process begins (cmd-6). The process
// before may still run.
func (m *Model) register(st *State, broker int32) bool {
	info := m.newest(st)
	if st.nprocs >= maxProcs || info.wals >= maxProcs || !m.free && int(st.nprocs) >= m.cfg.incarnations() {
		return false
	}
	for w := range info.wals {
		// Once per id is enough: the sequence of registrations is bounded.
		if info.wal[w].inc.Broker == metadata.BrokerID(broker) && int(w) >= len(m.cfg.Brokers) {
			return false
		}
	}
	p := process{wal: info.wals}
	if m.mutation == DuplicateIncarnation {
		p.wal = 0
	} else {
		m.apply(st, m.command(command{kind: cmdRegister, target: uint8(broker), seq: st.nprocs}))
	}
	p.view = st.img
	st.proc[st.nprocs] = p
	st.nprocs++
	return true
}

// sealStart: a live process begins to seal a WAL that its image says is fenced,
// at the trim that froze with the fence (cmd-4).
func (m *Model) sealStart(st *State, j, by, wal uint8) bool {
	z := &st.seal[j]
	info := m.view(st, by)
	p := &st.proc[by]
	if !p.alive() || wal >= info.wals || p.wal == wal || z.phase != sealIdle && (z.phase != sealSubmitted || z.wal == wal) {
		return false
	}
	if info.wal[wal].state != metadata.Fenced {
		return false
	}
	*z = sealing{phase: sealClosing, by: by, wal: wal, at: info.wal[wal].trim}
	if m.mutation == SealStaleTrim {
		z.at = 0
	}
	return true
}

// sealNext closes one slot: it has data, or a fence, or gets one (slot-5).
func (m *Model) sealNext(st *State, j uint8) bool {
	z := &st.seal[j]
	if z.phase != sealClosing || !st.proc[z.by].alive() {
		return false
	}
	at := &st.store[z.wal][z.at]
	if at.data() {
		z.at++
		return true
	}
	*at = slotFence | slotSynced
	z.phase = sealEnded
	m.checkEnd(st, z)
	return true
}

// sealAhead puts a fence in the way of a writer that is too fast.
func (m *Model) sealAhead(st *State, j uint8) bool {
	z := &st.seal[j]
	if z.phase != sealClosing || z.ahead || !st.proc[z.by].alive() || z.at+window >= storeSlots {
		return false
	}
	z.ahead = true
	if at := &st.store[z.wal][z.at+window]; *at == slotEmpty {
		*at = slotFence | slotSynced
	}
	return true
}

// checkEnd checks a sealer's result against everybody else's, and that it does
// not look as if slots were lost (slot-5), for then it would refuse. A sealer
// that comes after Sealed may find less, because slots below the fence may have
// been swept by then: it has to look at a newer image before it cries.
func (m *Model) checkEnd(st *State, z *sealing) {
	m.count(PropOneEnd)
	w := &m.newest(st).wal[z.wal]
	if w.state == metadata.Sealed {
		if z.at > w.end {
			m.fail(violation(PropOneEnd, "W%d is sealed at %d, and a sealer finds %d", z.wal, w.end, z.at))
		}
		return
	}
	for j := range st.seal {
		if o := &st.seal[j]; o.phase >= sealEnded && o.wal == z.wal && o.at != z.at {
			m.fail(violation(PropOneEnd, "W%d ends at %d for one sealer and at %d for another", z.wal, o.at, z.at))
		}
	}
	for k := z.at + window; k < storeSlots; k++ {
		if st.store[z.wal][k].data() {
			m.fail(violation(PropOneEnd, "W%d ends at %d, but slot %d has data: slots seem lost", z.wal, z.at, k))
		}
	}
}

// sealSubmit settles the slots, writes the recovery index and submits Sealed
// (cmd-5), by the image that the sealer has by now.
func (m *Model) sealSubmit(st *State, j uint8) bool {
	z := &st.seal[j]
	p := &st.proc[z.by]
	if z.phase != sealEnded || !p.alive() || !m.mayCommand(st, z.by) {
		return false
	}
	info := m.view(st, z.by)
	z.phase = sealSubmitted
	if info.wal[z.wal].state != metadata.Fenced {
		return true // somebody was faster
	}
	for k := range z.at {
		if st.store[z.wal][k].data() && m.mutation != SealWithoutSettle {
			st.store[z.wal][k] |= slotSynced
		}
	}
	c := command{kind: cmdSealed, wal: z.wal, trim: z.at}
	var listed mask
	for s := range streamCount {
		if info.part[s].waits != z.wal {
			continue
		}
		c.base[s], c.end[s] = info.part[s].end, info.part[s].end
		for k := info.wal[z.wal].trim; k < z.at; k++ {
			set := st.content(z.wal, k)
			for r := st.recordAt(set, uint8(s), c.end[s]); r >= 0; r = st.recordAt(set, uint8(s), c.end[s]) {
				listed |= bit(r)
				c.end[s]++
			}
		}
		if c.end[s] > c.base[s] {
			c.part |= 1 << s
		}
	}
	if listed != 0 && !m.upload(st, z.by, object{kind: kindIndex, mask: listed}, &c) {
		return false
	}
	return m.submit(st, z.by, c)
}

// losePower: names that were never synced vanish, and so does everything that
// processes had in memory or under way.
func (m *Model) losePower(st *State) bool {
	if st.powerLost || !m.cfg.on(Directory) {
		return false
	}
	st.powerLost = true
	for w := range st.store {
		for k := range st.store[w] {
			if at := &st.store[w][k]; *at != slotEmpty && !at.synced() {
				*at = slotEmpty
			}
		}
	}
	for i := range st.nprocs {
		p := &st.proc[i]
		*p = process{wal: p.wal, down: true, slots: p.slots}
	}
	st.seal = [sealerCount]sealing{}
	return true
}
