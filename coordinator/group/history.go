package group

import (
	"slices"
	"time"

	"ponor/internal/wall"
)

// Bounds of a group's history, so that 10,000 groups of many members remember some
// tens of MB at most. It is kept in memory only: a coordinator that loads knows no
// past.
const (
	historyRebalances = 16
	historyChanges    = 4 // of one rebalance; more are only counted
)

// What can happen to a member that has the group share its partitions anew.
const (
	MemberJoined     = "joined"
	MemberLeft       = "left"
	MemberExpired    = "session expired"           // no heartbeat for its session timeout
	MemberLost       = "went away while it joined" // new, and its connection ended
	MemberAbsent     = "did not join in time"      // not within its rebalance timeout
	MemberUnsynced   = "did not sync in time"      // joined, and never asked for its assignment
	MemberResubs     = "changed its subscription"  // or what it can do
	MemberGaveUp     = "gave up partitions"        // cooperative: others can have them now
	MemberReassigned = "asked to assign anew"      // a leader to which the topics look different
	MemberReplaced   = "restarted"                 // a static member with a new id
)

// Change is what happened to one member.
type Change struct {
	What     string `json:"what"`
	Member   string `json:"member"`
	Instance string `json:"instance,omitempty"`
	Client   string `json:"client"`
	Host     string `json:"host"`
}

// Rebalance is how one generation came about. Times are Unix ms, 0 for not yet.
type Rebalance struct {
	// Generation is a classic group's, or a consumer group's epoch.
	Generation int32 `json:"generation"`
	// Begun is when the wait for members began, Joined when it ended and the
	// generation was made, Assigned when every member could have its partitions. It
	// stays 0 if the next rebalance came first.
	Begun    int64 `json:"begun"`
	Joined   int64 `json:"joined,omitempty"`
	Assigned int64 `json:"assigned,omitempty"`
	Members  int   `json:"members"`
	// Changes are the first that led to it, or happened while it waited; More is
	// the number of others.
	Changes []Change `json:"changes,omitempty"`
	More    int      `json:"more_changes,omitempty"`
}

// history is the newest rebalances of a group. The zero value is ready and small.
type history struct {
	past []Rebalance // oldest first
	now  *Rebalance  // being made, or merely what changed since the last; nil for nothing
}

// next is the rebalance that is under way or comes next.
func (h *history) next() *Rebalance {
	if h.now == nil {
		h.now = new(Rebalance)
	}
	return h.now
}

// note adds what happened to a member. It leads to the rebalance that is under way or
// comes next.
func (h *history) note(c Change) {
	now := h.next()
	if len(now.Changes) == historyChanges {
		now.More++
		return
	}
	now.Changes = append(now.Changes, c)
}

// begin notes that the group waits for its members, if it does not already.
func (h *history) begin(now time.Time) {
	if r := h.next(); r.Begun == 0 {
		r.Begun = wall.Milli(now)
	}
}

// joined notes that a generation was made.
func (h *history) joined(now time.Time, generation int32, members int) {
	h.begin(now)
	r := h.next()
	r.Generation, r.Joined, r.Members = generation, wall.Milli(now), members
	if members == 0 {
		r.Assigned = r.Joined
	}
	if len(h.past) == historyRebalances {
		h.past = slices.Delete(h.past, 0, 1)
	}
	h.past, h.now = append(h.past, *r), nil
}

// assigned notes that the members of the newest generation can have their partitions.
func (h *history) assigned(now time.Time) {
	if n := len(h.past); n > 0 && h.past[n-1].Assigned == 0 {
		h.past[n-1].Assigned = wall.Milli(now)
	}
}

// all are the rebalances, and the one under way, as a copy.
func (h *history) all() []Rebalance {
	list := slices.Clone(h.past)
	if h.now != nil && h.now.Begun != 0 {
		list = append(list, *h.now)
	}
	for i := range list {
		list[i].Changes = slices.Clone(list[i].Changes)
	}
	return list
}

// change is what happened to a member of a classic group.
func (m *member) change(what string) Change {
	c := Change{What: what, Member: m.id, Client: m.client.ClientID, Host: m.client.Host}
	if m.instance != nil {
		c.Instance = *m.instance
	}
	return c
}
