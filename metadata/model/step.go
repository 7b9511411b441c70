package model

import "fmt"

type stepKind uint8

const (
	doAppend stepKind = iota
	doProducerNext
	doIssue
	doLand
	doLearn
	doLook
	doOpen
	doFlip
	doSettle
	doUnfreeze
	doPack
	doRepack
	doTrim
	doDelete
	doDeleteOwn
	doSweep
	doApply
	doFence
	doRegister
	doSealStart
	doSealNext
	doSealAhead
	doSealSubmit
	doLosePower
	stepKinds
)

var stepNames = [stepKinds]string{
	"append", "producer goes on", "issue", "land", "learn", "look", "open", "flip", "settle", "unfreeze", "pack", "repack", "trim",
	"delete slot", "delete own object", "sweep", "apply", "fence", "register", "seal start", "seal next", "fence ahead", "seal submit", "power loss",
}

// Step is one atomic event.
type Step struct {
	kind    stepKind
	a, b, c uint8
}

// process is whose step it is; none: nobody's.
func (s Step) process() uint8 {
	switch {
	case s.kind == doSealStart:
		return s.b
	case s.kind < doSweep && s.kind != doProducerNext:
		return s.a
	default:
		return none
	}
}

// do makes a step on a state if it can be made there.
func (m *Model) do(st *State, s Step) bool {
	if who := s.process(); who != none && who >= st.nprocs {
		return false // it has not registered yet
	}
	switch s.kind {
	case doAppend:
		return m.appendRecord(st, s.a, int(s.b), s.c)
	case doProducerNext:
		return m.producerNext(st)
	case doIssue:
		return m.issue(st, s.a)
	case doLand:
		return m.land(st, s.a, s.b)
	case doLearn:
		return m.learn(st, s.a, s.b)
	case doLook:
		return m.look(st, s.a, s.b)
	case doOpen:
		return m.open(st, s.a, int(s.b))
	case doFlip:
		return m.flip(st, s.a, int(s.b), s.c)
	case doSettle:
		return m.settle(st, s.a)
	case doUnfreeze:
		return m.unfreeze(st, s.a, int(s.b))
	case doPack:
		return m.pack(st, s.a, s.b == 1)
	case doRepack:
		return m.repack(st, s.a, int(s.b))
	case doTrim:
		return m.trimStream(st, s.a, int(s.b), s.c)
	case doDelete:
		return m.deleteSlot(st, s.a, s.b)
	case doDeleteOwn:
		return m.deleteOwn(st, s.a, s.b)
	default:
		return m.doWorld(st, s)
	}
}

// doWorld makes the steps of what is not a serving process.
func (m *Model) doWorld(st *State, s Step) bool {
	switch s.kind {
	case doSweep:
		return m.sweep(st, s.a, s.b, s.c == 1)
	case doApply:
		id := st.cmds[s.a]
		before := st.img
		return id != 0 && m.apply(st, id).next != before
	case doFence:
		return m.fence(st, s.a, s.b)
	case doRegister:
		return m.register(st, int32(s.a))
	case doSealStart:
		return m.sealStart(st, s.a, s.b, s.c)
	case doSealNext:
		return m.sealNext(st, s.a)
	case doSealAhead:
		return m.sealAhead(st, s.a)
	case doSealSubmit:
		return m.sealSubmit(st, s.a)
	case doLosePower:
		return m.losePower(st)
	default:
		panic(fmt.Sprintf("step of kind %d", s.kind))
	}
}

// steps lists the steps that a config has, whether or not they can be made in
// some state. Most cannot be in most states; do says so.
func (m *Model) steps() []Step {
	var list []Step
	add := func(k stepKind, a, b, c int) { list = append(list, Step{k, uint8(a), uint8(b), uint8(c)}) }
	n, cfg := m.cfg.incarnations(), &m.cfg
	for i := range n {
		m.processSteps(i, n, add)
	}
	for k := range maxCommands {
		add(doApply, k, 0, 0)
	}
	if cfg.on(Producer) {
		add(doProducerNext, 0, 0, 0)
	}
	for i := range n {
		for t := range n {
			if cfg.on(Fences) && t != i {
				add(doFence, i, t, 0)
			}
		}
		if cfg.on(Nameless) {
			add(doFence, i, none, 0)
		}
		if cfg.on(Sweeps) {
			for k := range storeSlots {
				add(doSweep, i, k, 1)
			}
			for k := range cfg.Objects {
				add(doSweep, i, k, 0)
			}
		}
	}
	for _, b := range cfg.Restarts {
		add(doRegister, int(b), 0, 0)
	}
	for j := range sealerCount {
		if j > 0 && cfg.OneSealer {
			break
		}
		for i := range n {
			for w := range n {
				if i != w && (cfg.on(Fences) || len(cfg.Restarts) > 0) {
					add(doSealStart, j, i, w)
				}
			}
		}
		add(doSealNext, j, 0, 0)
		add(doSealSubmit, j, 0, 0)
		if cfg.on(Ahead) {
			add(doSealAhead, j, 0, 0)
		}
	}
	if cfg.on(Directory) {
		add(doLosePower, 0, 0, 0)
	}
	return list
}

// processSteps lists the steps of process i of n.
func (m *Model) processSteps(i, n int, add func(k stepKind, a, b, c int)) {
	cfg := &m.cfg
	add(doLook, i, 0, 0)
	for back := 1; back <= pastImages && cfg.on(Behind); back++ {
		add(doLook, i, back, 0)
	}
	add(doIssue, i, 0, 0)
	for k := range cfg.Slots {
		add(doLand, i, k, 0)
		add(doLearn, i, k, 0)
		if cfg.on(Sweeps) {
			add(doDelete, i, k, 0)
		}
	}
	if cfg.on(Producer) {
		add(doAppend, i, 0, 1)
	}
	if cfg.on(Pipelined) {
		add(doAppend, i, 0, 2)
	}
	if cfg.on(Plain) {
		add(doAppend, i, 0, 0)
	}
	if cfg.on(TwoStream) {
		add(doAppend, i, 1, 0)
	}
	if cfg.on(Sweeps) {
		for k := range cfg.Objects {
			add(doDeleteOwn, i, k, 0)
		}
	}
	if cfg.on(Packs) {
		add(doPack, i, 0, 0)
	}
	if cfg.on(Adopts) {
		add(doPack, i, 1, 0)
	}
	add(doSettle, i, 0, 0)
	for s := range streamCount {
		if s == 1 && !cfg.on(TwoStream) {
			break
		}
		add(doOpen, i, s, 0)
		if cfg.on(Repacks) {
			add(doRepack, i, s, 0)
		}
		for o := 1; o <= cfg.Offsets && cfg.on(Trims); o++ {
			add(doTrim, i, s, o)
		}
		for t := range n {
			if t != i && cfg.on(Flips) {
				add(doFlip, i, s, t)
			}
		}
		if cfg.on(Flips) {
			add(doUnfreeze, i, s, 0)
		}
	}
}

// explain is a step, made in a state, for a trace. after is the state it leads
// to.
func (m *Model) explain(s Step, before, after *State) string {
	switch s.kind {
	case doAppend:
		if after.nrecords == before.nrecords {
			return fmt.Sprintf("P%d answers a duplicate of sequence %d on s%d", s.a, before.producerSeq+s.c-1, s.b)
		}
		r := after.records[before.nrecords]
		return fmt.Sprintf("P%d appends record %d to s%d at offset %d, epoch %d, sequence %d", s.a, before.nrecords, s.b, r.offset, r.epoch, r.seq)
	case doProducerNext:
		return fmt.Sprintf("the producer goes on to sequence %d", after.producerSeq)
	case doIssue:
		return fmt.Sprintf("P%d issues slot %d with records %s", s.a, before.proc[s.a].next, records(before.proc[s.a].buffer))
	case doLand:
		return fmt.Sprintf("the PUT of slot %d of P%d lands", s.b, s.a)
	case doLearn:
		if after.proc[s.a].stopped {
			return fmt.Sprintf("P%d learns that slot %d is not its own, and stops", s.a, s.b)
		}
		return fmt.Sprintf("P%d learns that slot %d is its own; acknowledged are records %s", s.a, s.b, records(after.acked))
	case doLook:
		if s.b == 0 {
			return fmt.Sprintf("P%d applies the newest image", s.a)
		}
		return fmt.Sprintf("P%d applies the newest image but %d", s.a, s.b)
	case doOpen:
		return fmt.Sprintf("P%d opens s%d at epoch %d from offset %d", s.a, s.b, after.proc[s.a].streams[s.b].epoch, after.proc[s.a].streams[s.b].next)
	case doUnfreeze:
		return fmt.Sprintf("P%d serves s%d again", s.a, s.b)
	case doDelete:
		return fmt.Sprintf("P%d deletes its slot %d", s.a, s.b)
	case doDeleteOwn:
		return fmt.Sprintf("P%d deletes its object %d", s.a, s.b)
	case doSweep:
		return fmt.Sprintf("a sweeper deletes %s %d of W%d", map[uint8]string{0: "object", 1: "slot"}[s.c], s.b, s.a)
	case doApply:
		c := m.commands[before.cmds[s.a]]
		return "applied: " + c.String()
	case doFence:
		c := command{kind: cmdFence, wal: s.a, target: s.b}
		return "applied: " + c.String()
	case doRegister:
		return fmt.Sprintf("broker %d registers as W%d, process P%d", s.a, after.proc[after.nprocs-1].wal, after.nprocs-1)
	case doSealStart:
		return fmt.Sprintf("sealer %d of P%d begins with W%d at slot %d", s.a, s.b, s.c, after.seal[s.a].at)
	case doSealNext:
		if z := after.seal[s.a]; z.phase == sealEnded {
			return fmt.Sprintf("sealer %d finds or puts the fence at %d", s.a, z.at)
		}
		return fmt.Sprintf("sealer %d finds data at %d", s.a, before.seal[s.a].at)
	case doSealAhead:
		return fmt.Sprintf("sealer %d puts a fence ahead, at %d", s.a, before.seal[s.a].at+window)
	case doLosePower:
		return "power loss"
	default:
		return m.explainSubmit(s, before, after)
	}
}

// explainSubmit explains a step by the command that it submits.
func (m *Model) explainSubmit(s Step, before, after *State) string {
	text := stepNames[s.kind]
	for _, id := range after.cmds {
		fresh := id != 0
		for _, o := range before.cmds {
			fresh = fresh && id != o
		}
		if fresh {
			c := m.commands[id]
			return text + ": submitted: " + c.String()
		}
	}
	return text
}

func records(set mask) string {
	out := ""
	for r := range maxRecords {
		if set.has(r) {
			out += fmt.Sprintf(",%d", r)
		}
	}
	if out == "" {
		return "none"
	}
	return out[1:]
}
