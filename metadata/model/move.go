package model

// flip: the owner gives a stream away. It appends no more, has waited until all
// it appended is durable in slot order, and submits. (A freeze before that is no
// step of its own: it only keeps appends from coming, which not appending does.)
func (m *Model) flip(st *State, i uint8, s int, target uint8) bool {
	p := &st.proc[i]
	l := &p.streams[s]
	info := m.view(st, i)
	if !p.alive() || !l.open || l.frozen || !m.mayCommand(st, i) || !m.settled(st, i) ||
		target == p.wal || target >= info.wals || int(l.epoch) >= m.cfg.Epochs {
		return false
	}
	if l.conf != l.next && m.mutation != FlipWithoutWaiting { // section 5: wait first
		return false
	}
	if !info.wal[target].active() && m.mutation != FlipToFenced { // Apply has the last word (cmd-3)
		return false
	}
	c := command{kind: cmdFlip, target: target, part: 1 << s}
	c.epoch[s], c.base[s], c.end[s] = l.epoch, info.part[s].end, l.conf
	m.tailInSlots(st, i, s, &c)
	l.frozen, l.flip = true, p.seq+1
	return m.submit(st, i, c)
}

// tailInSlots says in which slots the records of [base, end) of a stream are.
func (m *Model) tailInSlots(st *State, i uint8, s int, c *command) {
	l := &st.proc[i].streams[s]
	for o := c.base[s]; o < c.end[s]; o++ {
		if r := l.rec[o]; r != 0 {
			c.tail[s][st.records[r-1].slot] = o + 1
		}
	}
}

// settle: a process submits a Noop, because it does not know what became of its
// last command (cmd-2).
func (m *Model) settle(st *State, i uint8) bool {
	p := &st.proc[i]
	if !p.alive() || p.noop && !m.free || m.settled(st, i) || !m.mayCommand(st, i) {
		return false
	}
	return m.submit(st, i, command{kind: cmdNoop})
}

// unfreeze: a source serves writes again, because its flip did not and never
// will apply (cmd-2).
func (m *Model) unfreeze(st *State, i uint8, s int) bool {
	p := &st.proc[i]
	l := &p.streams[s]
	if !p.alive() || !l.frozen {
		return false
	}
	info := m.view(st, i)
	named := info.owns(p.wal, s) && info.part[s].epoch == l.epoch
	decided := info.wal[p.wal].seq >= l.flip
	switch m.mutation {
	case UnfreezeOnTimeout:
	case UnfreezeOnImage:
		if !named {
			return false
		}
	default:
		if !named || !decided {
			return false
		}
	}
	l.frozen, l.flip = false, 0
	return true
}
