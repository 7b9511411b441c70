package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"ponor/jepsen/history"
)

// groups checks consumer groups.
func (r *run) groups() {
	r.ownership()
	r.zombies()
	r.registers()
	r.leftOut()
	if r.Header.AutoCommit {
		r.autoCommits()
	}
}

// holding is a partition that a member of a group owned for a while.
type holding struct {
	process  int32
	from, to int64    // never: to the end
	gen      [2]int32 // seen at its beginning, and highest
	seen     []sight  // of higher ones, in order
	op       int64    // that told of its beginning
}

// sight is when a generation was seen.
type sight struct {
	at  int64
	gen int32
}

// see notes that its process saw a generation.
func (h *holding) see(gen int32, at int64) {
	if gen > h.gen[1] {
		h.gen[1], h.seen = gen, append(h.seen, sight{at, gen})
	}
}

// by is the highest generation that its process had seen at a time.
func (h *holding) by(at int64) int32 {
	gen := h.gen[0]
	for _, s := range h.seen {
		if s.at <= at {
			gen = s.gen
		}
	}
	return gen
}

// membership is a process in a group.
type membership struct {
	group   string
	member  string // "" for not known
	gen     int32  // highest that it saw
	op      int64  // that saw it
	at      int64  // when that ended
	given   int32  // highest that gave it partitions, as this member or one before
	givenOp int64
	holds   map[history.Key]*holding
}

// ownership is G1 and G2.
func (r *run) ownership() {
	double, back := r.check("G1", "double-ownership"), r.check("G2", "generation-regress")
	procs := map[int32]*membership{}
	held := map[string]map[history.Key][]*holding{}
	for i := range r.Ops {
		o := &r.Ops[i]
		m := procs[o.Process]
		if m == nil {
			if o.Group == "" && o.F != history.Subscribe && o.F != history.Join {
				continue
			}
			m = &membership{holds: map[history.Key]*holding{}}
			procs[o.Process] = m
		}
		for _, h := range m.holds {
			h.see(m.gen, m.at)
		}
		begins := o.F == history.Subscribe || o.F == history.Join
		if !begins {
			m.group = cmp.Or(o.Group, m.group)
			m.saw(back, o)
		}
		for j := range o.Rebalance {
			m.rebalance(o, &o.Rebalance[j], held)
		}
		if begins || o.F == history.Assign || o.F == history.Leave || retires(o) {
			m.end(o.Invoked)
		}
		if begins { // another member, of this group or another one
			m.group, m.member, m.gen, m.given = o.Group, "", 0, 0
		}
		if retires(o) {
			delete(procs, o.Process)
		}
	}
	for _, m := range inOrder(procs) {
		m.end(never)
	}
	for _, g := range inOrder(held) {
		for k, list := range inOrderPairs(g) {
			r.overlaps(double, k, list)
		}
	}
}

// saw is G2: generations only grow for a member. A process that had to become another one
// may see a lower generation than it did before, but not than one that gave it partitions:
// that was stored before it was told. Of a generation that ends before its leader has
// shared the partitions nothing is stored, in Kafka neither.
func (m *membership) saw(f *found, o *history.Op) {
	if o.Member != "" {
		if m.member != "" && o.Member != m.member {
			m.gen, m.op = m.given, m.givenOp
		}
		m.member = o.Member
	}
	look := func(gen int32) {
		if gen <= 0 {
			return
		}
		f.Checked++
		if gen < m.gen {
			was, op := m.gen, m.op
			f.add(int64(was-gen), func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("process %d of group %s was in generation %d, then in %d", o.Process, m.group, was, gen),
					Key:  -1, At: o.Completed, Ops: []int64{o.Index, op},
				}
			})
		}
	}
	look(o.Gen)
	most := o.Gen
	for i := range o.Rebalance {
		if e := &o.Rebalance[i]; e.Kind == "assigned" {
			look(e.Gen)
			most = max(most, e.Gen)
			if e.Gen > m.given {
				m.given, m.givenOp = e.Gen, o.Index
			}
		}
	}
	if most > m.gen {
		m.gen, m.op, m.at = most, o.Index, o.Completed
	}
}

// rebalance begins and ends what a process holds.
func (m *membership) rebalance(o *history.Op, e *history.Rebalance, held map[string]map[history.Key][]*holding) {
	for _, k := range e.Keys {
		h := m.holds[k]
		switch {
		case e.Kind == "assigned" && h == nil && e.Gen > 0:
			h = &holding{process: o.Process, from: e.At, to: never, gen: [2]int32{e.Gen, e.Gen}, op: o.Index}
			m.holds[k] = h
			if held[m.group] == nil {
				held[m.group] = map[history.Key][]*holding{}
			}
			held[m.group][k] = append(held[m.group][k], h)
		case e.Kind != "assigned" && h != nil:
			h.to = e.At
			if e.Kind == "revoked" {
				h.see(e.Gen, e.At)
			}
			delete(m.holds, k)
		}
	}
	if e.Kind == "assigned" {
		for _, h := range m.holds {
			h.see(e.Gen, e.At)
		}
	}
}

// end ends all that a process holds.
func (m *membership) end(at int64) {
	for _, h := range m.holds {
		h.see(m.gen, m.at)
		h.to = at
	}
	clear(m.holds)
}

// overlaps is G1: two members hold a partition at the same time, and both have
// seen the same generation meanwhile.
func (r *run) overlaps(f *found, k history.Key, list []*holding) {
	slices.SortStableFunc(list, func(a, b *holding) int { return cmp.Compare(a.from, b.from) })
	f.Checked += int64(len(list))
	var live []*holding
	for _, h := range list {
		live = slices.DeleteFunc(live, func(x *holding) bool { return x.to <= h.from })
		for _, x := range live {
			to := min(x.to, h.to)
			if x.process == h.process || x.by(to) < h.gen[0] || h.by(to) < x.gen[0] {
				continue
			}
			f.add(to-h.from, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("process %d was given %s at generation %d, and process %d held it then, at generations %d to %d", h.process, r.name(k), h.gen[0], x.process, x.gen[0], x.by(to)),
					Key:  k, At: h.from, Ops: []int64{h.op, x.op},
				}
			})
		}
		live = append(live, h)
	}
}

// groupOffset is an offset of a key in a group.
type groupOffset struct {
	group string
	key   history.Key
}

func compareGroups(a, b groupOffset) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.key, b.key))
}

// zombies is G3: a commit of an older generation than one that another member
// committed the same offset under before.
func (r *run) zombies() {
	f := r.check("G3", "zombie-commit")
	newest := map[groupOffset]*timeline{}
	each := func(do func(o *history.Op, at groupOffset)) {
		for i := range r.Ops {
			o := &r.Ops[i]
			if o.F != history.Commit || o.Type != history.OK || o.Gen <= 0 {
				continue
			}
			for _, off := range o.Offsets {
				if off.Err == "" {
					do(o, groupOffset{o.Group, off.Key})
				}
			}
		}
	}
	each(func(o *history.Op, at groupOffset) {
		if newest[at] == nil {
			newest[at] = &timeline{}
		}
		newest[at].add(o.Completed, int64(o.Gen), int32(o.Index))
	})
	each(func(o *history.Op, at groupOffset) {
		f.Checked++
		was, ok := newest[at].before(o.Invoked)
		if !ok || was.max <= int64(o.Gen) || r.Ops[was.op].Process == o.Process {
			return
		}
		f.add(was.max-int64(o.Gen), func() Anomaly {
			return Anomaly{
				Text: fmt.Sprintf("generation %d committed an offset of %s in group %s after generation %d had", o.Gen, r.name(at.key), at.group, was.max),
				Key:  at.key, At: o.Completed, Ops: []int64{o.Index, int64(was.op)},
			}
		})
	})
}

// registers is G4.
func (r *run) registers() {
	f := r.check("G4", "offset-register")
	refs := r.registerOps()
	for _, at := range inOrderKeys(refs) {
		list := r.registersOf(refs[at])
		if !slices.ContainsFunc(list, func(o register) bool { return !o.write }) {
			continue
		}
		f.Checked += int64(len(list))
		if r.stale(f, at, list) {
			continue
		}
		if len(list) <= 2*maxLinear {
			list = pruned(list)
		}
		if len(list) > maxLinear {
			f.note("%s of group %s has %d operations, more than %d: reads were compared with commits only", r.name(at.key), at.group, len(list), maxLinear)
			continue
		}
		switch judge(registerModel, registerOperations(list)) {
		case porcupine.Ok:
		case porcupine.Illegal:
			f.add(0, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("no order of the %d commits and reads of the offset of %s in group %s agrees with their times", len(list), r.name(at.key), at.group),
					Key:  at.key, Ops: firstOps(list),
				}
			})
		default:
			f.note("%s of group %s: no order found and none excluded: reads were compared with commits only", r.name(at.key), at.group)
		}
	}
	f.Note = shortNote(f.Note)
}

// registerRef is a commit or a read of one offset: a place in Ops, and in its
// Offsets.
type registerRef struct{ op, at int32 }

// registerOps are the commits and reads of each offset of groups of which
// anything was read.
func (r *run) registerOps() map[groupOffset][]registerRef {
	read := map[string]bool{}
	for i := range r.Ops {
		if o := &r.Ops[i]; o.F == history.FetchCommitted && o.Type == history.OK {
			read[o.Group] = true
		}
	}
	ops := map[groupOffset][]registerRef{}
	for i := range r.Ops {
		o := &r.Ops[i]
		write := o.F == history.Commit
		if !write && o.F != history.FetchCommitted || o.Type == history.Fail || !write && o.Type != history.OK || !read[o.Group] {
			continue
		}
		for j, off := range o.Offsets {
			if !r.logs[off.Key].gone && (write || off.Err == "") {
				at := groupOffset{o.Group, off.Key}
				ops[at] = append(ops[at], registerRef{int32(i), int32(j)})
			}
		}
	}
	return ops
}

func (r *run) registersOf(refs []registerRef) []register {
	out := make([]register, len(refs))
	for i, ref := range refs {
		o := &r.Ops[ref.op]
		off := &o.Offsets[ref.at]
		end := o.Completed
		if o.Type == history.Info || off.Err != "" {
			end = never
		}
		out[i] = register{ref.op, o.Process, o.F == history.Commit, off.Offset, o.Invoked, end}
	}
	return out
}

// pruned leaves out commits of unknown effect that nobody read: they change
// nothing, and cost much.
func pruned(list []register) []register {
	read := map[int64]bool{}
	for _, o := range list {
		if !o.write {
			read[o.value] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(o register) bool {
		return o.write && o.back == never && !read[o.value]
	})
}

func registerOperations(list []register) []porcupine.Operation {
	out := make([]porcupine.Operation, len(list))
	for i, o := range list {
		out[i] = porcupine.Operation{ClientId: int(o.process), Input: o, Call: o.call, Return: o.back}
	}
	return out
}

func firstOps(list []register) []int64 {
	var out []int64
	for _, o := range list[:min(len(list), 8)] {
		out = append(out, int64(o.op))
	}
	return out
}

// stale is the linear half of G4: a read gives what was committed, and nothing
// that another commit had replaced before the read began.
func (r *run) stale(f *found, at groupOffset, list []register) bool {
	type commits struct{ begun, ended int64 } // earliest call, latest return
	by := map[int64]commits{}
	var ended []register
	for _, o := range list {
		if !o.write {
			continue
		}
		c, ok := by[o.value]
		if !ok {
			c.begun = o.call
		}
		by[o.value] = commits{min(c.begun, o.call), max(c.ended, o.back)}
		if o.back < never {
			ended = append(ended, o)
		}
	}
	var newest timeline // when commits began, by the time at which they had ended
	slices.SortStableFunc(ended, func(a, b register) int { return cmp.Compare(a.back, b.back) })
	for _, o := range ended {
		newest.add(o.back, o.call, o.op)
	}
	bad := false
	for _, o := range list {
		if o.write {
			continue
		}
		c, known := by[o.value]
		was, replaced := newest.before(o.call)
		if known && c.begun <= o.back && (!replaced || c.ended >= was.max) || !known && !replaced {
			continue
		}
		bad = true
		f.add(0, func() Anomaly {
			a := Anomaly{
				Text: fmt.Sprintf("group %s had offset %d of %s, which nobody had committed", at.group, o.value, r.name(at.key)),
				Key:  at.key, At: o.back, Ops: []int64{int64(o.op)},
			}
			if replaced {
				a.Text = fmt.Sprintf("group %s had offset %d of %s after another was committed", at.group, o.value, r.name(at.key))
				a.Ops = append(a.Ops, int64(was.op))
			}
			return a
		})
	}
	return bad
}

// leftOut is G5: a group that committed an offset had read what is below it.
func (r *run) leftOut() {
	f := r.check("G5", "group-skip")
	most := map[groupOffset]*history.Op{}
	for i := range r.Ops {
		o := &r.Ops[i]
		g := r.consumers[o.Group]
		if o.F != history.Commit || o.Type != history.OK || g == nil {
			continue
		}
		for _, off := range o.Offsets {
			m, at := g.members[off.Key], groupOffset{o.Group, off.Key}
			if m == nil || m.from < 0 || off.Err != "" {
				continue
			}
			if m.upTo < off.Offset {
				m.upTo, most[at] = off.Offset, o
			}
		}
	}
	for _, at := range inOrderKeys(most) {
		m, l, o := r.consumers[at.group].members[at.key], &r.logs[at.key], most[at]
		if l.losing() {
			continue
		}
		for i := m.from; int(i) < len(l.offsets) && l.offsets[i] < m.upTo; i++ {
			f.Checked++
			if m.read.has(i) || l.offsets[i] < l.floor {
				continue
			}
			f.add(0, func() Anomaly {
				return Anomaly{
					Text: fmt.Sprintf("group %s committed offset %d of %s and had not read offset %d, value %d", at.group, m.upTo, r.name(at.key), l.offsets[i], r.value(l.vals[i])),
					Key:  at.key, At: o.Completed, Ops: []int64{o.Index, r.writer(l.vals[i]).Index}, Mark: r.value(l.vals[i]),
				}
			})
		}
	}
}

// autoCommits is G7: what a client commits by itself was handed out by a poll
// before its newest one.
func (r *run) autoCommits() {
	f := r.check("G7", "auto-commit")
	type mine struct {
		group string
		got   map[history.Key]int64 // offset behind what its last poll gave
		at    int64                 // when that ended
	}
	procs := map[int32]*mine{}
	allowed := map[groupOffset]*timeline{}
	allow := func(p *mine, at int64, op int32) {
		for k, end := range p.got {
			g := groupOffset{p.group, k}
			if allowed[g] == nil {
				allowed[g] = &timeline{}
			}
			allowed[g].add(at, end, op)
		}
		clear(p.got)
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		p := procs[o.Process]
		if p == nil {
			p = &mine{got: map[history.Key]int64{}}
			procs[o.Process] = p
		}
		p.group = cmp.Or(o.Group, p.group)
		allow(p, o.Invoked, int32(i))
		for j := range o.Polls {
			p.got[o.Polls[j].Key] = max(p.got[o.Polls[j].Key], o.Polls[j].Offset+1)
		}
		p.at = o.Completed
		if o.Type == history.Info {
			allow(p, p.at, int32(i)) // closing commits everything
			delete(procs, o.Process)
		}
	}
	for _, p := range inOrder(procs) {
		allow(p, p.at, 0)
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		if o.F != history.FetchCommitted || o.Type != history.OK {
			continue
		}
		for _, off := range o.Offsets {
			g := allowed[groupOffset{o.Group, off.Key}]
			if off.Err != "" || off.Offset <= 0 || g == nil {
				continue
			}
			f.Checked++
			if was, _ := g.before(o.Completed + 1); was.max < off.Offset {
				f.add(off.Offset-was.max, func() Anomaly {
					return Anomaly{
						Text: fmt.Sprintf("group %s had committed offset %d of %s, and only offsets below %d were done with", o.Group, off.Offset, r.name(off.Key), max(was.max, 0)),
						Key:  off.Key, At: o.Completed, Ops: []int64{o.Index},
					}
				})
			}
		}
	}
}
