package group

import (
	"slices"
	"time"
	"unique"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is one member of a classic group.
type member struct {
	id       string
	instance *string // of a static member (KIP-345)
	client   Caller

	rebalanceTimeout, sessionTimeout time.Duration
	// protocols are what the member can do, its favourite first, each with the
	// member's metadata for it (for consumers: a subscription).
	protocols []kmsg.JoinGroupRequestProtocol
	// assignment is what the leader gave it in the current generation.
	assignment []byte

	// isNew is true until the member's first generation: it knows no id to send
	// heartbeats with, so it lives by its JoinGroup alone.
	isNew bool
	// deadline is when it is taken for dead, zero for not now.
	deadline time.Time
	// unheard is when its coordinator was loaded if it was not heard of since, zero if
	// it was.
	unheard time.Time
	// joining and syncing reply to the call that it waits in, nil for none. A
	// member that waits for others need not send heartbeats.
	joining func(*kmsg.JoinGroupResponse)
	syncing func(*kmsg.SyncGroupResponse)
	// lost says that the connection ended on which it waited in JoinGroup, and that it
	// was not heard of since.
	lost bool
	// pulse is of a member whose heartbeats may be held, nil for others.
	pulse *pulse
}

// static says whether the member keeps its place over a restart.
func (m *member) static() bool { return m.instance != nil }

// metadata is what the member said for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// supports says whether the member can do a protocol.
func (m *member) supports(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == protocol })
}

// matches says whether a new JoinGroup would change nothing.
func (m *member) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// vote is the favourite among the candidates.
func (m *member) vote(candidates []string) string {
	for _, p := range m.protocols {
		if slices.Contains(candidates, p.Name) {
			return p.Name
		}
	}
	return ""
}

// keepProtocols copies them out of a request, whose bytes are not ours to keep.
func keepProtocols(protocols []kmsg.JoinGroupRequestProtocol) []kmsg.JoinGroupRequestProtocol {
	kept := make([]kmsg.JoinGroupRequestProtocol, len(protocols))
	for i, p := range protocols {
		kept[i].Name = intern(p.Name)
		if i > 0 && string(p.Metadata) == string(kept[i-1].Metadata) { // most clients say the same for all
			kept[i].Metadata = kept[i-1].Metadata
			continue
		}
		kept[i].Metadata = slices.Clone(p.Metadata)
	}
	return kept
}

// intern has the names that many groups have in common once in memory.
func intern(s string) string { return unique.Make(s).Value() }

// kept is the caller as it is kept for long.
func (c Caller) kept() Caller { return Caller{ClientID: intern(c.ClientID), Host: intern(c.Host)} }

// finishJoin answers the member's JoinGroup, if it waits in one.
func (c *classicGroup) finishJoin(m *member, resp *kmsg.JoinGroupResponse) {
	reply := m.joining
	if reply == nil {
		return
	}
	m.joining = nil
	c.awaiting--
	reply(resp)
}

// awaitJoin has the member wait for the next generation. An older JoinGroup of it
// that still waits is one whose client gave up: it gets an error that says to try
// again.
func (c *classicGroup) awaitJoin(m *member, reply func(*kmsg.JoinGroupResponse)) {
	c.finishJoin(m, failedJoin(m.id, rebalanceInProgress))
	m.joining, m.lost = reply, false
	c.awaiting++
}

// finishSync answers the member's SyncGroup; false if it waits in none.
func (c *classicGroup) finishSync(m *member, resp *kmsg.SyncGroupResponse) bool {
	reply := m.syncing
	if reply == nil {
		return false
	}
	m.syncing = nil
	reply(resp)
	return true
}

// alive begins the member's session anew.
func (c *classicGroup) alive(now time.Time, m *member) {
	m.unheard, m.lost = time.Time{}, false
	c.dieAt(m, now.Add(m.sessionTimeout))
}

// dieAt has the member taken for dead at a time.
func (c *classicGroup) dieAt(m *member, at time.Time) {
	m.deadline = at
	c.m.wakeBy(c.g, at)
}
