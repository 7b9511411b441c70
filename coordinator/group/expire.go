package group

import (
	"maps"
	"slices"
	"time"

	"ponor/coordinator"
)

// expireAtOnce is about how many records one Tick writes for old offsets; calls go
// on between that and the rest.
const expireAtOnce = 1000

// expire deletes offsets that are older than their retention, and groups that have
// neither offsets nor members.
func (m *Machine) expire(now time.Time) {
	if m.look {
		m.look = false
		m.dropDeleted()
	}
	if m.clean.IsZero() || m.clean.After(now) {
		return
	}
	if m.left == nil {
		m.left = slices.Sorted(maps.Keys(m.groups))
	}
	for len(m.left) > 0 && len(m.out) < expireAtOnce {
		last := len(m.left) - 1
		if g := m.groups[m.left[last]]; g != nil {
			m.expireGroup(now.UnixMilli(), g)
		}
		m.left = m.left[:last]
	}
	if len(m.left) == 0 {
		m.left, m.clean = nil, now.Add(m.cfg.OffsetsRetentionCheck)
	}
}

func (m *Machine) expireGroup(now int64, g *Group) {
	for _, at := range g.sortedOffsets() {
		o := g.offsets[at.topic][at.partition]
		since, ok := g.members.expiresSince(o.committed)
		if !ok {
			return
		}
		due := now-since >= m.cfg.OffsetsRetention.Milliseconds()
		if o.expires >= 0 {
			due = now >= o.expires
		}
		if due && !g.members.subscribed(at.topic) {
			m.eraseOffset(g, at.topic, at.partition)
		}
	}
	if len(g.offsets) > 0 || !g.members.empty() {
		return
	}
	if c := g.classic(); c != nil && len(c.pending) > 0 {
		return // somebody is about to join
	}
	m.erase(g)
}

// TopicsDeleted is called after topics were deleted: it deletes the offsets of all
// topics that do not exist (any more, or under that id).
func (m *Machine) TopicsDeleted() []coordinator.Record {
	m.dropDeleted()
	return m.take()
}

// dropDeleted also looks, once, for what happened before this machine was loaded.
// Whoever wrote the offsets knew their topics, and lost the partition after; so the
// metadata with which it was opened here is newer, and a topic that is not in it
// was deleted.
func (m *Machine) dropDeleted() {
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		for _, at := range g.sortedOffsets() {
			if !m.cfg.Exists(at.topic, g.offsets[at.topic][at.partition].topic) {
				m.eraseOffset(g, at.topic, at.partition)
			}
		}
		m.dropIfUnused(g)
	}
}
