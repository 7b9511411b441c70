package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group/assignor"
)

// memberState is how far a member is with its target. The numbers are Kafka's, in
// records.
type memberState int8

const (
	memberStable memberState = 0
	// memberUnrevoked has still to give up partitions.
	memberUnrevoked memberState = 1
	// memberUnreleased has the epoch of the target, and waits for others to give up
	// some partitions of it.
	memberUnreleased memberState = 2
	// Any other was written by a newer version; Kafka's 127 stands for that.
)

// MemberUnrevoked happens to members of consumer groups only.
const MemberUnrevoked = "did not give up partitions in time"

// partitionSet are partitions, each with the epoch since which a member has it; of a
// target the epochs are 0.
type partitionSet map[assignor.Partition]int32

// Epochs in heartbeats that are none.
const (
	epochJoin        = 0
	epochLeave       = -1
	epochLeaveStatic = -2 // comes back soon
)

// subscription is what a member says of itself.
type subscription struct {
	instance, rack *string
	client         Caller
	// rebalanceTimeout is how long it may take to give up partitions.
	rebalanceTimeout time.Duration
	topics           []string // sorted, each once
	regex            string   // "" for none
	assignor         string   // "" for the group's
	// classic is set if the member uses the classic protocol.
	classic *classicMember
}

// classicMember is what a member of a consumer group that uses the classic protocol
// says besides.
type classicMember struct {
	sessionTimeout time.Duration
	protocols      []kmsg.JoinGroupRequestProtocol
}

// position is where a member is on its way to the target.
type position struct {
	// epoch is the member's, -2 while a static one is away. previous is the one
	// before.
	epoch, previous int32
	state           memberState
	assigned        partitionSet
	revoking        partitionSet // was assigned, and is not given up
}

// consumerMember is one member.
type consumerMember struct {
	id string
	subscription
	position
	// deadline is when its session ends, revokeBy when it must have given up what it
	// has to; joinBy and syncBy are for classic members. Zero is never.
	deadline, revokeBy, joinBy, syncBy time.Time
	// unheard is when its coordinator was loaded if it was not heard of since, zero if
	// it was.
	unheard time.Time
}

// due is the earliest that it must do something by.
func (m *consumerMember) due() time.Time {
	return earlier(earlier(m.deadline, m.revokeBy), earlier(m.joinBy, m.syncBy))
}

func (m *consumerMember) change(what string) Change {
	ch := Change{What: what, Member: m.id, Client: m.client.ClientID, Host: m.client.Host}
	if m.instance != nil {
		ch.Instance = *m.instance
	}
	return ch
}

// alive begins the member's session anew.
func (c *consumerGroup) alive(now time.Time, m *consumerMember) {
	session := c.m.cfg().Consumer.sessionTimeout(c.g.id)
	if m.classic != nil {
		session = m.classic.sessionTimeout
	}
	m.deadline, m.unheard = now.Add(session), time.Time{}
	c.m.wakeBy(c.g, m.deadline)
}

// awaitRevocation begins or ends the time in which the member has to give up
// partitions.
func (c *consumerGroup) awaitRevocation(now time.Time, m *consumerMember) {
	switch {
	case m.state != memberUnrevoked || m.epoch == epochLeaveStatic:
		m.revokeBy = time.Time{}
	case m.revokeBy.IsZero():
		m.revokeBy = now.Add(m.rebalanceTimeout)
		c.m.wakeBy(c.g, m.revokeBy)
	}
}

// own notes what is assigned to the member, or not given up by it.
func (c *consumerGroup) own(m *consumerMember) {
	for p := range m.assigned {
		c.owners[p] = m.id
	}
	for p := range m.revoking {
		c.owners[p] = m.id
	}
}

// disown undoes own.
func (c *consumerGroup) disown(m *consumerMember) {
	for _, set := range []partitionSet{m.assigned, m.revoking} {
		for p := range set {
			if c.owners[p] == m.id {
				delete(c.owners, p)
			}
		}
	}
}

// sorted lists a set by topic and number.
func (s partitionSet) sorted() []assignor.Partition {
	list := make([]assignor.Partition, 0, len(s))
	for p := range s {
		list = append(list, p)
	}
	slices.SortFunc(list, assignor.Compare)
	return list
}

// sameKeys says whether two sets have the same partitions.
func (s partitionSet) sameKeys(o partitionSet) bool {
	return len(s) == len(o) && s.within(o)
}

// within says whether all partitions of s are in o.
func (s partitionSet) within(o partitionSet) bool {
	for p := range s {
		if _, ok := o[p]; !ok {
			return false
		}
	}
	return true
}

// meets says whether s and o have a partition in common.
func (s partitionSet) meets(o partitionSet) bool {
	for p := range s {
		if _, ok := o[p]; ok {
			return true
		}
	}
	return false
}
