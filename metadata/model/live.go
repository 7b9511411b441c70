package model

import "ponor/metadata"

// rest brings a copy of a state to rest by a fair schedule without faults: what
// was submitted applies, dead incarnations are fenced and sealed, everybody
// looks. Then every stream must have an owner that is alive and serves it, with
// all that was acknowledged.
func (m *Model) rest(st State) *Violation {
	m.free = true
	defer func() { m.free = false }()
	m.restApply(&st)
	st.seal = [sealerCount]sealing{}
	leader, v := m.restLeader(&st)
	if v != nil {
		return v
	}
	m.restFence(&st, leader)
	if v := m.restSeal(&st, leader); v != nil {
		return v
	}
	for i := range st.nprocs {
		m.look(&st, i, 0)
		if st.proc[i].alive() && !m.settled(&st, i) {
			m.settle(&st, i)
		}
	}
	m.restApply(&st)
	for i := range st.nprocs {
		m.look(&st, i, 0)
		for s := range streamCount {
			m.unfreeze(&st, i, s)
			m.open(&st, i, s)
		}
	}
	if m.bad != nil {
		return m.bad
	}
	for s := range streamCount {
		m.count(PropLive)
		if !m.served(&st, s) {
			p := &m.newest(&st).part[s]
			return violation(PropLive, "s%d at epoch %d is P%d's, waits for W%d, and nobody serves it", s, p.epoch, p.owner, p.waits)
		}
	}
	return m.check(&st)
}

// served says whether a process serves a stream as the newest image wants.
func (m *Model) served(st *State, s int) bool {
	info := m.newest(st)
	for i := range st.nprocs {
		p := &st.proc[i]
		l := &p.streams[s]
		if p.alive() && l.open && !l.frozen && info.owns(p.wal, s) && info.part[s].epoch == l.epoch {
			return true
		}
	}
	return false
}

// restLeader finds a process that is alive, or registers one.
func (m *Model) restLeader(st *State) (uint8, *Violation) {
	for i := range st.nprocs {
		m.look(st, i, 0)
	}
	for i := range st.nprocs {
		if st.proc[i].alive() {
			return i, nil
		}
	}
	if !m.register(st, 9) {
		return 0, violation(PropLive, "no process is left, and none can register")
	}
	return st.nprocs - 1, nil
}

// restFence fences whom nobody runs any more, and names the leader for all that
// is theirs.
func (m *Model) restFence(st *State, leader uint8) {
	info := m.newest(st)
	for w := range info.wals {
		running := false
		for i := range st.nprocs {
			running = running || st.proc[i].wal == w && st.proc[i].alive()
		}
		if !running {
			m.fence(st, w, st.proc[leader].wal)
		}
	}
	m.look(st, leader, 0)
}

// restSeal seals all that is fenced.
func (m *Model) restSeal(st *State, leader uint8) *Violation {
	for w := range m.newest(st).wals {
		if m.newest(st).wal[w].state != metadata.Fenced {
			continue
		}
		st.seal[0] = sealing{}
		m.sealStart(st, 0, leader, w)
		for range storeSlots {
			m.sealNext(st, 0)
		}
		if !m.sealSubmit(st, 0) {
			return violation(PropLive, "W%d cannot be sealed", w)
		}
		m.restApply(st)
		if m.newest(st).wal[w].state != metadata.Sealed {
			return violation(PropLive, "W%d stays %s", w, m.newest(st).wal[w].state)
		}
		m.look(st, leader, 0)
	}
	return nil
}

// restApply applies what was submitted; what is refused is lost.
func (m *Model) restApply(st *State) {
	for _, id := range st.cmds { // of a copy: apply takes out dead ones
		if id != 0 {
			m.apply(st, id)
		}
	}
	st.cmds = [maxCommands]cmdID{}
}
