package check_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"

	"ponor/jepsen/history"
)

// model is a correct cluster in memory with concurrent clients on virtual time.
// Its histories have no anomaly: sends that are given up and land late or never,
// polls of what was fetched before, crashes, deleted records, and a group whose
// zombies do not notice that they lost their partitions.
type model struct {
	rng  *rand.Rand
	h    *history.History
	now  int64
	todo todo
	logs []log
	next history.Value
	proc int32
	opts options
	stop int64
	group
}

type options struct {
	keys, clients int
	ops           int
	idempotent    bool
	deletes       bool
	retained      bool // records expire
	compacted     bool // records go for newer ones of their key
	grouped       bool
	calm          bool // no op fails
	batch         int
	fetch         int // records of a key in one poll, at most; 0: 6
}

type log struct {
	values []history.Value
	start  int64
}

// group is an eager consumer group with one coordinator.
type group struct {
	gen       int32
	members   []*consumer
	committed map[history.Key]int64
}

type event struct {
	at int64
	n  int
	do func()
}

type todo []event

func (t todo) Len() int { return len(t) }
func (t todo) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].n < t[j].n
}
func (t todo) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *todo) Push(x any)   { *t = append(*t, x.(event)) }
func (t *todo) Pop() any     { e := (*t)[len(*t)-1]; *t = (*t)[:len(*t)-1]; return e }

const ms = int64(1e6)

func generate(seed uint64, o options) *history.History {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), opts: o, logs: make([]log, o.keys), h: &history.History{}}
	m.committed = map[history.Key]int64{}
	m.h.Header = history.Header{Version: history.FormatVersion, Run: fmt.Sprint(seed), Workload: "model", Seed: seed, Product: "other", Nodes: 3, Idempotent: o.idempotent, Group: o.grouped, Floor: 1}
	for k := range o.keys {
		m.h.Header.Keys = append(m.h.Header.Keys, history.Partition{Topic: fmt.Sprintf("t%d", k/2), Partition: int32(k % 2)})
	}
	m.stop = int64(1) << 62
	for c := range o.clients {
		switch {
		case c%2 == 0:
			m.producer()
		case o.grouped && c%4 == 1:
			m.member()
		default:
			m.reader()
		}
	}
	if o.grouped {
		m.at(50*ms, m.rebalances)
	}
	for k := range o.keys {
		if o.retained {
			m.h.Header.Retained = append(m.h.Header.Retained, history.Key(k))
		}
		if o.compacted {
			m.h.Header.Compacted = append(m.h.Header.Compacted, history.Key(k))
		}
	}
	if o.retained || o.compacted {
		m.at(20*ms, m.clean)
	}
	for len(m.todo) > 0 {
		e := heap.Pop(&m.todo).(event)
		m.now = e.at
		if len(m.h.Ops) >= o.ops && m.stop > m.now {
			m.stop = m.now
		}
		e.do()
	}
	m.final()
	return m.h
}

var events int

func (m *model) at(d int64, do func()) {
	events++
	heap.Push(&m.todo, event{m.now + d, events, do})
}

func (m *model) spread(d int64) int64 { return 1 + m.rng.Int64N(2*d) }

func (m *model) chance(n int) bool { return !m.opts.calm && m.rng.IntN(n) == 0 }

func (m *model) begin(p int32, f history.Func) *history.Op {
	return &history.Op{Process: p, F: f, Invoked: m.now}
}

func (m *model) end(o *history.Op, t history.Outcome) {
	o.Index, o.Completed, o.Type = int64(len(m.h.Ops)), m.now, t
	m.h.Ops = append(m.h.Ops, *o)
}

func (m *model) process() int32 { m.proc++; return m.proc }

// producer sends, one op after the other.
func (m *model) producer() {
	p := m.process()
	var next func()
	next = func() {
		if m.now >= m.stop {
			return
		}
		o := m.begin(p, history.Send)
		type part struct {
			k    history.Key
			vals []history.Value
		}
		var parts []part
		for _, k := range m.rng.Perm(len(m.logs))[:1+m.rng.IntN(min(2, len(m.logs)))] {
			part := part{k: history.Key(k)}
			for range 1 + m.rng.IntN(max(m.opts.batch, 3)) {
				m.next++
				part.vals = append(part.vals, m.next)
				o.Sends = append(o.Sends, history.Sent{Key: part.k, ID: m.id(m.next), Value: m.next, Offset: -1})
			}
			parts = append(parts, part)
		}
		fate := history.OK
		switch {
		case m.chance(20):
			fate = history.Info
		case m.chance(25):
			fate = history.Fail
		}
		last := int64(0)
		for _, part := range parts {
			if fate == history.Fail || fate == history.Info && m.chance(3) {
				continue
			}
			d := m.spread(5 * ms)
			last = max(last, d)
			late := fate == history.Info && m.chance(2)
			if late {
				d += m.spread(300 * ms)
			}
			m.at(d, func() {
				base := m.append(part.k, part.vals)
				if late {
					return
				}
				for i, v := range part.vals {
					j := slices.IndexFunc(o.Sends, func(s history.Sent) bool { return s.Value == v })
					if fate == history.OK || m.chance(2) && i == 0 {
						o.Sends[j].Offset = base + int64(i)
					} else if i > 0 && fate == history.Info && o.Sends[j-1].Offset >= 0 {
						o.Sends[j].Offset = base + int64(i)
					}
				}
				if !m.opts.idempotent && m.chance(20) {
					m.append(part.k, part.vals)
				}
			})
		}
		m.at(last+m.spread(2*ms), func() {
			m.end(o, fate)
			if fate == history.Info {
				m.producer()
				return
			}
			m.at(m.spread(3*ms), next)
		})
	}
	m.at(m.spread(5*ms), next)
}

func (m *model) append(k history.Key, vals []history.Value) int64 {
	l := &m.logs[k]
	base := int64(len(l.values))
	l.values = append(l.values, vals...)
	return base
}

// id of the record key that a value is of.
func (m *model) id(v history.Value) int32 {
	if m.opts.compacted {
		return 1 + int32(v%7)
	}
	return 0
}

// clean lets records expire, or compacts what has a newer one of its key.
func (m *model) clean() {
	l := &m.logs[m.rng.IntN(len(m.logs))]
	if m.opts.retained {
		l.start += m.rng.Int64N(int64(len(l.values)) - l.start + 1)
	}
	newer := map[int32]bool{}
	for i := len(l.values) - 1; i >= 0 && m.opts.compacted; i-- {
		if id := m.id(l.values[i]); l.values[i] != 0 && newer[id] && m.rng.IntN(2) == 0 {
			l.values[i] = 0 // gone
		} else if l.values[i] != 0 {
			newer[id] = true
		}
	}
	if m.now < m.stop {
		m.at(m.spread(60*ms), m.clean)
	}
}

// read is a record, if it is still there.
func (l *log) read(list []history.Polled, k history.Key, at int64) []history.Polled {
	if l.values[at] == 0 {
		return list
	}
	return append(list, history.Polled{Key: k, Value: l.values[at], Offset: at})
}

// consumer is where a process is.
type consumer struct {
	p      int32
	keys   []history.Key
	pos    map[history.Key]int64
	gen    int32
	told   []history.Rebalance
	zombie bool
}

// reader assigns and polls, and looks at offsets.
func (m *model) reader() {
	c := &consumer{p: m.process(), pos: map[history.Key]int64{}}
	var next func()
	assign := func(then func()) {
		o := m.begin(c.p, history.Assign)
		o.Seek = m.rng.IntN(4) == 0
		was := c.pos
		c.pos, c.keys = map[history.Key]int64{}, nil
		for _, k := range m.rng.Perm(len(m.logs))[:1+m.rng.IntN(min(8, len(m.logs)))] {
			k := history.Key(k)
			o.Keys = append(o.Keys, k)
			c.keys = append(c.keys, k)
			if pos, ok := was[k]; ok && !o.Seek {
				c.pos[k] = pos
			} else {
				c.pos[k] = m.logs[k].start
			}
		}
		m.at(ms, func() { m.end(o, history.OK); m.at(m.spread(ms), then) })
	}
	next = func() {
		switch {
		case m.now >= m.stop:
			return
		case m.rng.IntN(30) == 0:
			assign(next)
		case m.rng.IntN(10) == 0:
			m.look(c.p, next)
		case m.opts.deletes && m.rng.IntN(60) == 0:
			m.trim(c.p, next)
		case m.chance(60):
			o := m.begin(c.p, history.Crash)
			m.end(o, history.Info)
			m.reader()
		default:
			m.poll(c, "", next)
		}
	}
	m.at(m.spread(5*ms), func() { assign(next) })
}

// poll reads, at a moment within the op or, of what the client had fetched, before.
func (m *model) poll(c *consumer, phase string, next func()) {
	o := m.begin(c.p, history.Poll)
	o.Phase = phase
	o.Gen = c.gen
	if c.gen > 0 {
		o.Group = "g"
	}
	fetch := func() {
		for _, k := range c.keys {
			l := &m.logs[k]
			c.pos[k] = max(c.pos[k], l.start)
			for n := m.rng.IntN(cmp.Or(m.opts.fetch, 6)); n > 0 && c.pos[k] < int64(len(l.values)); n-- {
				o.Polls = l.read(o.Polls, k, c.pos[k])
				c.pos[k]++
			}
		}
	}
	if m.rng.IntN(3) == 0 {
		fetch()
	} else {
		m.at(m.spread(2*ms), fetch)
	}
	m.at(5*ms+m.spread(ms), func() {
		o.Rebalance, c.told = c.told, nil
		switch {
		case phase == "" && c.gen == 0 && m.chance(40):
			m.end(o, history.Info)
			m.reader()
			return
		case phase == "" && c.gen == 0 && m.chance(40):
			m.end(o, history.Fail)
			for i := len(o.Polls) - 1; i >= 0; i-- {
				c.pos[o.Polls[i].Key] = o.Polls[i].Offset
			}
		default:
			m.end(o, history.OK)
		}
		m.at(m.spread(3*ms), next)
	})
}

// look lists offsets, or reads a whole log.
func (m *model) look(p int32, next func()) {
	k := history.Key(m.rng.IntN(len(m.logs)))
	o := m.begin(p, history.ListOffsets)
	o.Keys = []history.Key{k}
	do := func() { m.readAll(o, k) }
	what := m.rng.IntN(3)
	if len(m.logs[k].values) > 3000 {
		what = m.rng.IntN(2)
	}
	switch what {
	case 0:
		o.Spec = "latest"
		do = func() {
			o.Offsets = []history.Offset{{Key: k, Offset: int64(len(m.logs[k].values)), Epoch: 3}}
		}
	case 1:
		o.Spec = "earliest"
		do = func() { o.Offsets = []history.Offset{{Key: k, Offset: m.logs[k].start, Epoch: 1}} }
	default:
		o.F, o.Spec = history.Poll, "all"
	}
	m.at(m.spread(2*ms), do)
	m.at(5*ms, func() { m.end(o, history.OK); m.at(m.spread(3*ms), next) })
}

func (m *model) readAll(o *history.Op, k history.Key) {
	l := &m.logs[k]
	for i := l.start; i < int64(len(l.values)); i++ {
		o.Polls = l.read(o.Polls, k, i)
	}
}

// trim deletes records.
func (m *model) trim(p int32, next func()) {
	k := history.Key(m.rng.IntN(len(m.logs)))
	l := &m.logs[k]
	o := m.begin(p, history.DeleteRecords)
	to := l.start + m.rng.Int64N(int64(len(l.values))-l.start+1)
	o.Offsets = []history.Offset{{Key: k, Asked: to, Offset: to}}
	m.at(m.spread(2*ms), func() { l.start = max(l.start, to); o.Offsets[0].Offset = l.start })
	m.at(5*ms, func() { m.end(o, history.OK); m.at(m.spread(3*ms), next) })
}

// member subscribes, polls and commits.
func (m *model) member() {
	c := &consumer{p: m.process(), pos: map[history.Key]int64{}}
	o := m.begin(c.p, history.Subscribe)
	o.Group = "g"
	for k := range m.logs {
		o.Keys = append(o.Keys, history.Key(k))
	}
	m.at(ms, func() {
		m.end(o, history.OK)
		m.members = append(m.members, c)
		m.rebalance()
	})
	var next func()
	next = func() {
		switch {
		case m.now >= m.stop:
		case len(c.keys) == 0 && len(c.told) == 0:
			m.at(10*ms, next)
		case m.rng.IntN(3) == 0 && len(c.keys) > 0:
			m.commit(c, next)
		case m.rng.IntN(5) == 0:
			m.fetchCommitted(c, next)
		default:
			m.poll(c, "", next)
		}
	}
	m.at(3*ms, next)
}

func (m *model) rebalances() {
	if m.now < m.stop {
		m.rebalance()
		m.at(m.spread(100*ms), m.rebalances)
	}
}

// rebalance takes all partitions from all members that are awake and deals them
// out in a new generation. One that sleeps keeps what it thinks it has.
func (m *model) rebalance() {
	m.gen++
	var awake []*consumer
	for _, c := range m.members {
		if c.zombie = len(m.members) > 1 && m.chance(6); !c.zombie {
			awake = append(awake, c)
		}
	}
	if len(awake) == 0 {
		return
	}
	for i, c := range awake {
		if len(c.keys) > 0 {
			c.told = append(c.told, history.Rebalance{At: m.now, Kind: "revoked", Keys: c.keys, Gen: c.gen, Member: fmt.Sprint(c.p)})
		}
		c.keys, c.gen = nil, m.gen
		for k := range m.logs {
			if k%len(awake) == i {
				c.keys = append(c.keys, history.Key(k))
			}
		}
		m.committedPositions(c)
		c.told = append(c.told, history.Rebalance{At: m.now + 1, Kind: "assigned", Keys: c.keys, Gen: m.gen, Member: fmt.Sprint(c.p)})
	}
}

func (m *model) committedPositions(c *consumer) {
	for _, k := range c.keys {
		c.pos[k] = m.committed[k]
	}
}

func (m *model) commit(c *consumer, next func()) {
	o := m.begin(c.p, history.Commit)
	o.Group, o.Gen = "g", c.gen
	o.Rebalance, c.told = c.told, nil
	for _, k := range c.keys {
		o.Offsets = append(o.Offsets, history.Offset{Key: k, Offset: c.pos[k]})
	}
	t := history.Fail
	m.at(m.spread(2*ms), func() {
		if o.Gen != m.gen || c.zombie {
			return
		}
		t = history.OK
		for _, off := range o.Offsets {
			m.committed[off.Key] = off.Offset
		}
	})
	m.at(5*ms, func() { m.end(o, t); m.at(m.spread(3*ms), next) })
}

func (m *model) fetchCommitted(c *consumer, next func()) {
	o := m.begin(c.p, history.FetchCommitted)
	o.Group = "g"
	m.at(m.spread(2*ms), func() {
		for k := range m.logs {
			off, ok := m.committed[history.Key(k)]
			if !ok {
				off = -1
			}
			o.Offsets = append(o.Offsets, history.Offset{Key: history.Key(k), Offset: off})
		}
	})
	m.at(5*ms, func() { m.end(o, history.OK); m.at(m.spread(3*ms), next) })
}

// final reads everything, twice.
func (m *model) final() {
	m.now += 1000 * ms
	for range 2 {
		c := &consumer{p: m.process(), pos: map[history.Key]int64{}}
		o := m.begin(c.p, history.Assign)
		o.Phase, o.Seek = history.Final, true
		for k := range m.logs {
			o.Keys = append(o.Keys, history.Key(k))
			c.keys = append(c.keys, history.Key(k))
			c.pos[history.Key(k)] = m.logs[k].start
		}
		m.now += ms
		m.end(o, history.OK)
		for k := range m.logs {
			l := &m.logs[k]
			for c.pos[history.Key(k)] < int64(len(l.values)) {
				o := m.begin(c.p, history.Poll)
				o.Phase = history.Final
				for n := 0; n < 100 && c.pos[history.Key(k)] < int64(len(l.values)); n++ {
					at := c.pos[history.Key(k)]
					o.Polls = l.read(o.Polls, history.Key(k), at)
					c.pos[history.Key(k)]++
				}
				m.now += ms
				m.end(o, history.OK)
				m.now += ms
			}
		}
		for range 3 {
			o = m.begin(c.p, history.Poll)
			o.Phase = history.Final
			m.now += ms
			m.end(o, history.OK)
		}
	}
}
