package group

import (
	"time"

	"ponor/coordinator"
)

// Machine is the groups of one partition of __consumer_offsets. Calls must not be
// made at the same time. A Machine that Replay is fed serves nothing before Loaded.
type Machine struct {
	// base is what New got; current is what base.Newest said last, with defaults.
	base           Config
	given, current *Config

	groups map[string]*Group
	timers timers
	// replayed is the group of the last offset that was replayed, and fresh are
	// offsets for the next; both are for loads alone.
	replayed *Group
	fresh    []offset
	// out are the records of the call under way.
	out []coordinator.Record
	// clean is when old offsets are looked for next; look is for those of topics that
	// are deleted, at the next Tick. sweep is the look that is under way.
	clean time.Time
	look  bool
	sweep sweep
}

var _ coordinator.Machine = (*Machine)(nil)

// New returns a machine without groups.
func New(cfg Config) *Machine {
	return &Machine{base: cfg.withDefaults(), groups: make(map[string]*Group)}
}

// cfg are the settings as they are now.
func (m *Machine) cfg() *Config {
	if m.base.Newest == nil {
		return &m.base
	}
	if newest := m.base.Newest(); newest != m.given {
		c := newest.withDefaults()
		m.given, m.current = newest, &c
	}
	return m.current
}

// find is the group of that name, nil if there is none.
func (m *Machine) find(id string) *Group { return m.groups[id] }

// create makes an empty classic group. It is in the log as soon as it has an offset
// or a generation.
func (m *Machine) create(id string) *Group {
	g := &Group{id: id, timer: -1}
	g.members = newClassicGroup(m, g)
	m.groups[id] = g
	return g
}

// drop forgets a group.
func (m *Machine) drop(g *Group) {
	m.timers.set(g, time.Time{})
	delete(m.groups, g.id)
	if m.replayed == g {
		m.replayed = nil
	}
}

// wakeBy has the group looked at no later than at.
func (m *Machine) wakeBy(g *Group, at time.Time) {
	if next := earlier(g.wake, at); !next.Equal(g.wake) {
		m.timers.set(g, next)
	}
}

// write adds a record to what the call returns.
func (m *Machine) write(r coordinator.Record) { m.out = append(m.out, r) }

// take ends a call: the records that it wrote.
func (m *Machine) take() []coordinator.Record {
	out := m.out
	m.out = nil
	return out
}

// Loaded ends the replay: the sessions of all members begin now, for nobody could
// send a heartbeat to a coordinator that was not there.
func (m *Machine) Loaded(now time.Time) {
	m.replayed, m.fresh = nil, nil
	for _, g := range m.groups {
		g.members.loaded(now)
		m.wakeBy(g, g.members.next())
	}
	m.clean, m.look = now.Add(m.cfg().OffsetsRetentionCheck), true
}

// Delay gives all members so much more time.
func (m *Machine) Delay(d time.Duration) {
	for _, g := range m.groups {
		g.members.delay(d)
	}
}

// Next is when Tick shall be called, at the latest; zero is never.
func (m *Machine) Next() time.Time {
	if len(m.groups) == 0 {
		return time.Time{}
	}
	if m.look || m.sweep.left != nil {
		return time.Unix(0, 0) // at once
	}
	next := m.clean
	if g := m.timers.first(); g != nil {
		next = earlier(next, g.wake)
	}
	return next
}

// Tick does what is due: sessions end, rebalances go on without those that did
// not come, old offsets expire.
func (m *Machine) Tick(now time.Time) []coordinator.Record {
	for g := m.timers.first(); g != nil && !g.wake.After(now); g = m.timers.first() {
		g.members.tick(now)
		m.timers.set(g, g.members.next())
		m.dropIfUnused(g)
	}
	m.expire(now)
	return m.take()
}

// Live yields every live record.
func (m *Machine) Live(yield func(coordinator.Record) bool) {
	for _, g := range m.groups {
		if !g.members.live(yield) || !g.liveOffsets(yield) {
			return
		}
	}
}
