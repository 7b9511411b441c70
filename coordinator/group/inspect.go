package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/wall"
)

// Inspection is what Kafka's protocol cannot say of a group. It is the answer, as
// JSON, of an operator's call, so its fields are only ever added to.
type Inspection struct {
	Type  string `json:"type"`
	State string `json:"state"`
	// Since is when the state began, Unix ms; 0 for not known.
	Since int64 `json:"since,omitempty"`
	// Awaited are members that the rebalance under way waits for.
	Awaited []Awaited `json:"awaited,omitempty"`
	// Unheard are members that were not heard of since the group's coordinator is where
	// it is; they may have died with, or before, the one that it was. Their sessions
	// began anew.
	Unheard []Unheard `json:"unheard,omitempty"`
	// Rebalances are the newest, oldest first, since the coordinator loaded; the
	// last may be under way.
	Rebalances []Rebalance `json:"rebalances,omitempty"`
	Commits    []Commit    `json:"commits,omitempty"`
}

// Awaited is a member that others wait for.
type Awaited struct {
	Member   string `json:"member"`
	Instance string `json:"instance,omitempty"`
	Client   string `json:"client"`
	Host     string `json:"host"`
	// Until is when the group goes on without it, Unix ms.
	Until int64 `json:"until"`
}

// Unheard is a member that its coordinator has not heard of.
type Unheard struct {
	Awaited       // Until is when its session ends.
	Since   int64 `json:"since"` // when its coordinator was loaded, Unix ms
}

// Commit is when an offset was committed.
type Commit struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	At        int64  `json:"at"` // Unix ms
}

// Inspect shows a group; false if there is none of that name.
func (m *Machine) Inspect(id string) (Inspection, bool) {
	g := m.find(id)
	if g == nil {
		return Inspection{}, false
	}
	v := Inspection{Type: g.members.kind(), State: g.members.state(), Rebalances: g.history.all()}
	for _, t := range g.offsets {
		for _, p := range t.of {
			v.Commits = append(v.Commits, Commit{Topic: t.topic, Partition: p.partition, Offset: p.at, At: p.committed})
		}
	}
	switch members := g.members.(type) {
	case *classicGroup:
		v.Since, v.Awaited, v.Unheard = max(members.since, 0), members.awaited(), members.unheard()
	case *consumerGroup:
		v.Awaited, v.Unheard = members.awaited(), members.unheard()
	}
	return v, true
}

// awaited are the members that the group waits for: to join, or to sync.
func (c *classicGroup) awaited() []Awaited {
	var list []Awaited
	for _, m := range c.members {
		_, unsynced := c.unsynced[m.id]
		var until time.Time
		switch {
		case c.st == statePreparing && c.first == nil && m.joining == nil:
			until = c.joinBy
		case c.st == stateCompleting && unsynced:
			until = c.syncBy
		default:
			continue
		}
		list = append(list, m.change("").awaited(until))
	}
	return list
}

// awaited are the members that have to give up partitions.
func (c *consumerGroup) awaited() []Awaited {
	var list []Awaited
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if m := c.members[id]; !m.revokeBy.IsZero() {
			list = append(list, m.change("").awaited(m.revokeBy))
		}
	}
	return list
}

func (c *classicGroup) unheard() (list []Unheard) {
	for _, m := range c.members {
		if !m.unheard.IsZero() {
			list = append(list, Unheard{m.change("").awaited(m.deadline), wall.Milli(m.unheard)})
		}
	}
	return list
}

func (c *consumerGroup) unheard() (list []Unheard) {
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		if m := c.members[id]; !m.unheard.IsZero() {
			list = append(list, Unheard{m.change("").awaited(m.deadline), wall.Milli(m.unheard)})
		}
	}
	return list
}

func (c Change) awaited(until time.Time) Awaited {
	return Awaited{Member: c.Member, Instance: c.Instance, Client: c.Client, Host: c.Host, Until: wall.Milli(until)}
}

// rejoining is why a member that joins again has the group share its partitions
// anew; "" for that it was told to.
func (c *classicGroup) rejoining(m *member, j join) string {
	unchanged := m.matches(j.req.Protocols)
	switch {
	case c.st == statePreparing:
		return ""
	case unchanged && c.leader == m.id:
		return MemberReassigned
	case unchanged:
		return ""
	case len(m.protocols) == 0 || len(j.req.Protocols) == 0:
		return MemberResubs
	}
	// Cooperative members also say what they own.
	var before, after kmsg.ConsumerMemberMetadata
	if before.ReadFrom(m.protocols[0].Metadata) != nil || after.ReadFrom(j.req.Protocols[0].Metadata) != nil {
		return MemberResubs
	}
	slices.Sort(before.Topics)
	slices.Sort(after.Topics)
	if !slices.Equal(before.Topics, after.Topics) {
		return MemberResubs
	}
	return MemberGaveUp
}
