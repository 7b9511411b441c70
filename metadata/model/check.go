package model

import (
	"fmt"

	"ponor/metadata"
)

// Property is something that must hold.
type Property uint8

// The properties. All but the last two are of states or steps of the world.
const (
	// PropRecoverable: fencing and sealing the owner now yields every
	// acknowledged record at its offset (ext-3).
	PropRecoverable Property = iota
	// PropOneValue: an offset is acknowledged for one record only.
	PropOneValue
	// PropNoDuplicate: a sequence of the producer is in a log once.
	PropNoDuplicate
	// PropDangling: what an extent names is there, and has its records.
	PropDangling
	// PropOwner: nobody is named owner who is not alive.
	PropOwner
	// PropLeader: one leader is named per epoch (epoch-1).
	PropLeader
	// PropOneEnd: all sealers of a WAL find the same end (slot-3).
	PropOneEnd
	// PropReads: what any process may serve is a prefix of the final log.
	PropReads
	// PropProof: who has an Own-proof(t) has every record that was acknowledged
	// before t (ans-2).
	PropProof
	// PropGarbage: what a sweeper may delete once, it may delete for ever
	// (obj-2).
	PropGarbage
	// PropAlarm: no command of an honest process is refused as evidence of a
	// bug.
	PropAlarm
	// PropLive: once faults stop, every stream gets an open and live owner.
	PropLive
	// PropCheck: metadata.Check and CheckStep.
	PropCheck
	propertyCount
)

var propertyNames = [propertyCount]string{
	"recoverable", "one value per offset", "no duplicate", "no dangling reference", "owner is alive", "one leader per epoch",
	"one end per WAL", "reads in the final log", "proofs linearizable", "garbage is stable", "no alarm", "liveness", "metadata.Check",
}

// String is the property in a few words.
func (p Property) String() string { return propertyNames[p] }

// Violation says which property fails, and how.
type Violation struct {
	Property Property
	Detail   string
}

// String is the violation in one line.
func (v *Violation) String() string { return v.Property.String() + ": " + v.Detail }

func violation(p Property, format string, args ...any) *Violation {
	return &Violation{p, fmt.Sprintf(format, args...)}
}

// count notes that a property had something to check.
func (m *Model) count(p Property) { m.checks[p]++ }

// locate finds the record that an extent has of a stream at an offset, and says
// if anything on the way to it is missing from the store.
func (m *Model) locate(st *State, x extentInfo, s int, offset uint8) (r int, missing string) {
	if x.slot {
		r := st.recordAt(st.content(x.wal, x.number), uint8(s), offset)
		if r < 0 {
			return r, fmt.Sprintf("slot %d of W%d", x.number, x.wal)
		}
		return r, ""
	}
	o := &st.obj[x.wal][x.number]
	r = st.recordAt(o.mask, uint8(s), offset)
	if !o.there || r < 0 {
		return r, fmt.Sprintf("object %d of P%d", x.number, x.wal)
	}
	if rec := &st.records[r]; o.kind == kindIndex && !st.content(rec.wal, rec.slot).has(r) {
		return r, fmt.Sprintf("slot %d of W%d, listed in object %d of P%d", rec.slot, rec.wal, x.number, x.wal)
	}
	return r, ""
}

// finalLog is what the next owner of a stream would find: the extents, and what
// sealing the owner's WAL, or the one that the stream waits for, would add.
func (m *Model) finalLog(st *State, s int) (rec [maxOffsets]uint8, end uint8, bad *Violation) {
	info := m.newest(st)
	p := &info.part[s]
	for _, x := range p.extents {
		for o := x.base; o < x.end; o++ {
			r, missing := m.locate(st, x, s, o)
			if missing != "" {
				return rec, 0, violation(PropDangling, "s%d offset %d is to be in %s, which is not there", s, o, missing)
			}
			rec[o] = uint8(r + 1)
			m.count(PropDangling)
		}
	}
	w := p.owner
	if p.waits != none {
		w = p.waits
	} else if info.wal[w].state == metadata.Sealed {
		return rec, p.end, nil
	}
	end = p.end
	for k := info.wal[w].trim; k < storeSlots; k++ {
		set := st.content(w, k)
		if set == 0 {
			break
		}
		for r := st.recordAt(set, uint8(s), end); r >= 0; r = st.recordAt(set, uint8(s), end) {
			rec[end] = uint8(r + 1)
			end++
		}
		for r := range int(st.nrecords) {
			if set.has(r) && int(st.records[r].stream) == s && st.records[r].offset > end {
				return rec, end, violation(PropRecoverable, "slot %d of W%d has offset %d of s%d, expected is %d", k, w, st.records[r].offset, s, end)
			}
		}
	}
	return rec, end, nil
}

// check checks a state.
func (m *Model) check(st *State) *Violation {
	for s := range streamCount {
		log, end, bad := m.finalLog(st, s)
		if bad != nil {
			return bad
		}
		if bad = m.checkAcked(st, s, &log, end); bad == nil {
			bad = m.checkDuplicates(st, s, &log, end)
		}
		for i := range st.nprocs {
			if bad == nil {
				bad = m.checkProcess(st, i, s, &log)
			}
		}
		if bad != nil {
			return bad
		}
	}
	return nil
}

func (m *Model) checkAcked(st *State, s int, log *[maxOffsets]uint8, end uint8) *Violation {
	start := m.newest(st).part[s].start
	for r := range int(st.nrecords) {
		rec := &st.records[r]
		if !st.acked.has(r) || int(rec.stream) != s || rec.offset < start {
			continue
		}
		m.count(PropRecoverable)
		if rec.offset >= end || log[rec.offset] != uint8(r+1) {
			return violation(PropRecoverable, "record %d was acknowledged at s%d offset %d; sealing the owner now gives %s, end %d", r, s, rec.offset, name(log[rec.offset]), end)
		}
	}
	return nil
}

func name(r uint8) string {
	if r == 0 {
		return "nothing"
	}
	return fmt.Sprintf("record %d", r-1)
}

func (m *Model) checkDuplicates(st *State, s int, log *[maxOffsets]uint8, end uint8) *Violation {
	var at [maxRecords + 2]uint8
	for o := range end {
		if log[o] == 0 {
			continue
		}
		seq := st.records[log[o]-1].seq
		if seq != 0 && at[seq] != 0 {
			return violation(PropNoDuplicate, "sequence %d is at offsets %d and %d of s%d", seq, at[seq]-1, o, s)
		}
		if at[seq] = o + 1; seq != 0 {
			m.count(PropNoDuplicate)
		}
	}
	return nil
}

// checkProcess checks what a process may answer about a stream: what it serves
// below its confirmed end, and, if it could prove now that it is the owner, that
// this end is the newest there is.
func (m *Model) checkProcess(st *State, i uint8, s int, log *[maxOffsets]uint8) *Violation {
	p := &st.proc[i]
	l := &p.streams[s]
	if !l.open {
		return nil
	}
	for o := m.newest(st).part[s].start; o < l.conf; o++ {
		m.count(PropReads)
		if l.rec[o] != log[o] && l.rec[o] != 0 {
			return violation(PropReads, "P%d serves %s at s%d offset %d, the final log has %s", i, name(l.rec[o]), s, o, name(log[o]))
		}
	}
	if l.flip != 0 { // a flip of unknown outcome: no proof
		return nil
	}
	info := m.newest(st)
	how := ""
	switch {
	case info.owns(p.wal, s) && info.part[s].epoch == l.epoch:
		how = "a barrier"
	case m.probe(st, p):
		how = "a probe"
	default:
		return nil
	}
	return m.proof(st, i, s, st.acked, how)
}

// probe says whether a look at the store can prove ownership without a quorum:
// there is no fence from the lowest slot that the process does not know durable
// up to the next one that it would use. The fence is in one of these, and it is
// never deleted. The lowest alone is not enough: it may hold own data, or be
// free because it lay below the fence and was swept.
func (m *Model) probe(st *State, p *process) bool {
	wal := &st.store[p.wal]
	switch m.mutation {
	case ProbeNext:
		return wal[p.next] == slotEmpty
	case ProbeOwnData:
		return !wal[p.prefix()].fence()
	case ProbeLowest:
		return wal[p.prefix()] == slotEmpty
	}
	for k := p.prefix(); k <= p.next; k++ {
		if wal[k].fence() {
			return false
		}
	}
	return true
}

// proof: a process may answer that its confirmed end is the end of the stream,
// so everything in acked must be below it.
func (m *Model) proof(st *State, i uint8, s int, acked mask, how string) *Violation {
	l := &st.proc[i].streams[s]
	m.count(PropProof)
	for r := range int(st.nrecords) {
		if rec := &st.records[r]; acked.has(r) && int(rec.stream) == s && rec.offset >= l.conf {
			return violation(PropProof, "P%d proves by %s that it owns s%d and that its end is %d; record %d was acknowledged at offset %d before", i, how, s, l.conf, r, rec.offset)
		}
	}
	return nil
}

// proofByPut: slots up to some were put after they were issued and are ours, all
// lower ones too. That proves ownership at any time before they were issued.
func (m *Model) proofByPut(st *State, i uint8) {
	p := &st.proc[i]
	for s := range p.streams {
		if l := &p.streams[s]; !l.open || l.flip != 0 {
			continue
		}
		if bad := m.proof(st, i, s, p.seen[p.prefix()-1], "a put"); bad != nil {
			m.fail(bad)
		}
	}
}
