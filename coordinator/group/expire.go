package group

import (
	"maps"
	"slices"
	"time"

	"ponor/internal/wall"
)

// Bounds of one Tick that looks for offsets that shall go; calls go on between that and
// the rest. sweepRecords is about how many records it writes, sweepOffsets about how
// many offsets it looks at, which takes some milliseconds.
const (
	sweepRecords = 1000
	sweepOffsets = 20_000
)

// sweep is a look through all groups.
type sweep struct {
	left []string // groups still to see; nil if none is under way
	gone bool     // it is for offsets of topics that do not exist
	old  bool     // and for those past their retention
}

// expire deletes offsets that are older than their retention, those of deleted topics,
// and groups that have neither offsets nor members.
func (m *Machine) expire(now time.Time) {
	old := !m.clean.IsZero() && !m.clean.After(now)
	if old {
		m.clean = now.Add(m.cfg().OffsetsRetentionCheck)
	}
	s := &m.sweep
	if m.look || old {
		s.left, s.gone, s.old = slices.Collect(maps.Keys(m.groups)), s.gone || m.look, s.old || old
		m.look = false
	}
	for seen := 0; len(s.left) > 0 && seen < sweepOffsets && len(m.out) < sweepRecords; seen++ {
		last := len(s.left) - 1
		if g := m.groups[s.left[last]]; g != nil {
			seen += m.sweepGroup(wall.Milli(now), g)
		}
		s.left = s.left[:last]
	}
	if len(s.left) == 0 {
		*s = sweep{}
	}
}

// sweepGroup returns how many offsets it has looked at.
func (m *Machine) sweepGroup(now int64, g *Group) int {
	seen := 0
	var end []topicPartition
	for _, t := range g.offsets {
		expires := m.sweep.old && !g.members.subscribed(t.topic)
		var asked *offset // of most topics all have the same id
		exists := true
		for _, p := range t.of {
			if m.sweep.gone && (asked == nil || p.topic != asked.topic) {
				asked, exists = p.offset, m.cfg().Exists(t.topic, p.topic)
			}
			if !exists || expires && m.expired(now, g, p.offset) {
				end = append(end, topicPartition{t.topic, p.partition})
			}
		}
		seen += len(t.of)
	}
	for _, at := range end {
		m.eraseOffset(g, at.topic, at.partition)
	}
	m.dropIfUnused(g)
	if c := g.classic(); m.sweep.old && len(g.offsets) == 0 && g.members.empty() && (c == nil || len(c.pending) == 0) {
		m.erase(g)
	}
	return seen
}

// expired says whether an offset is past its retention.
func (m *Machine) expired(now int64, g *Group, o *offset) bool {
	since, ok := g.members.expiresSince(o.committed)
	switch {
	case !ok:
		return false
	case o.expires >= 0:
		return now >= o.expires
	}
	return now-since >= m.cfg().OffsetsRetention.Milliseconds()
}

// TopicsDeleted is called after topics were deleted: the next Ticks delete the offsets
// of all topics that do not exist (any more, or under that id). Loaded asks for it, too,
// for what happened before. Whoever wrote the offsets knew their topics, and lost the
// partition after; so the metadata with which it was opened here is newer, and a topic
// that is not in it was deleted.
func (m *Machine) TopicsDeleted() { m.look = true }
