package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/coordinator"
	"ponor/coordinator/group/assignor"
)

// consumerGroup is the membership of a group whose members are assigned by the
// coordinator (KIP-848). What it keeps beyond doc.go's promises:
//
//	C1  A partition is assigned to one member at a time. Another gets it only after
//	    the one before said that it gave it up, left, or was removed.
//	C2  The group epoch, the assignment epoch and the epoch of a member id never go
//	    back, and none is above the one before it in this list.
//	C3  A heartbeat is taken only from the epoch that the member has, or from the one
//	    before by who owns nothing that it may not: its last reply was lost.
//	C4  Members catch up one by one with the target, which is made of the
//	    subscriptions of the assignment epoch; who has nothing to give up does not wait.
//	C5  A target that is behind the group epoch is made anew by the first heartbeat
//	    after a rest (due); where nobody knows when it was made, by the next one.
type consumerGroup struct {
	m *Machine
	g *Group

	// epoch grows with every change of members, subscriptions or topics. hash is
	// what the topics looked like then.
	epoch int32
	hash  int64
	// targetEpoch is the epoch that targets were made for.
	targetEpoch int32
	targets     map[string]partitionSet // by member id; none yet for who came since
	// made is when that was; zero has the next epoch assigned at once. A coordinator
	// that loads does not know it.
	made time.Time

	members   map[string]*consumerMember
	instances map[string]string // member ids of static members
	// owners are the members that partitions are assigned to, or that have not given
	// them up yet. It follows from the members, and is not kept.
	owners map[assignor.Partition]string
	// regexes are the topics that match the members' expressions.
	regexes map[string]resolved

	// looked is when the topics were last compared with hash, and names and racks are
	// what was known then (Topics.Marks).
	looked       time.Time
	names, racks any
	seen         seenTopics
	// reads are the names of all subscribed topics, nil for not known.
	reads map[string]struct{}
	// settled: all members have the target, and the history knows.
	settled bool
}

var _ membership = (*consumerGroup)(nil)

func newConsumerGroup(m *Machine, g *Group) *consumerGroup {
	return &consumerGroup{
		m: m, g: g, targets: make(map[string]partitionSet), members: make(map[string]*consumerMember),
		instances: make(map[string]string), owners: make(map[assignor.Partition]string), regexes: make(map[string]resolved),
	}
}

// consumer is the group's membership by KIP-848; nil if it is of another kind.
func (g *Group) consumer() *consumerGroup {
	c, _ := g.members.(*consumerGroup)
	return c
}

func (c *consumerGroup) kind() string         { return "consumer" }
func (c *consumerGroup) protocolType() string { return consumerProtocol }
func (c *consumerGroup) empty() bool          { return len(c.members) == 0 }

func (c *consumerGroup) state() string {
	switch {
	case len(c.members) == 0:
		return "Empty"
	case c.epoch > c.targetEpoch:
		return "Assigning"
	case !c.reconciled():
		return "Reconciling"
	default:
		return "Stable"
	}
}

// reconciled says whether every member has its target.
func (c *consumerGroup) reconciled() bool {
	for _, m := range c.members {
		if m.state != memberStable || m.epoch != c.targetEpoch {
			return false
		}
	}
	return true
}

// checkCommit is KIP-848's fencing. A commit of an epoch that is behind may still be
// good for some partitions (checkPartition).
func (c *consumerGroup) checkCommit(now time.Time, who identity) *kerr.Error {
	if who.generation < 0 && len(c.members) == 0 {
		return nil // an admin, or a consumer that assigns itself
	}
	if who.transactional && who.generation < 0 && who.member == "" && who.instance == nil {
		return nil
	}
	m := c.members[who.member]
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case m.classic != nil && who.generation != m.epoch:
		return kerr.IllegalGeneration
	case m.classic != nil:
		c.alive(now, m)
		return nil
	case !who.transactional && who.version < 9:
		return kerr.UnsupportedVersion // it could not be told that it is stale
	case who.generation > m.epoch || who.generation < 0:
		return kerr.StaleMemberEpoch
	}
	return nil
}

// checkPartition takes a commit of an older epoch where the member has had the
// partition ever since (KIP-1251): else one that was sent just before a heartbeat
// brought the new epoch would be lost.
func (m *Machine) checkPartition(g *Group, who identity, topic string, partition int32) *kerr.Error {
	c := g.consumer()
	if c == nil {
		return nil
	}
	member := c.members[who.member]
	if member == nil || member.classic != nil || who.generation == member.epoch {
		return nil
	}
	t, ok := m.cfg().Topics().Topic(topic)
	since, has := member.assigned[assignor.Partition{Topic: t.ID, Number: partition}]
	if !ok || !has || since > who.generation {
		return kerr.StaleMemberEpoch
	}
	return nil
}

// checkFetch lets members of the current epoch read.
func (c *consumerGroup) checkFetch(who identity) *kerr.Error {
	m := c.members[who.member]
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case who.generation == m.epoch:
		return nil
	case m.classic != nil:
		return kerr.IllegalGeneration
	default:
		return kerr.StaleMemberEpoch
	}
}

func (c *consumerGroup) checkOffsetDelete() *kerr.Error { return nil }

func (c *consumerGroup) subscribed(topic string) bool {
	_, ok := c.subscriptions()[topic]
	return ok
}

// expiresSince is the commit: who reads the topic is asked for by itself.
func (c *consumerGroup) expiresSince(committed int64) (int64, bool) { return committed, true }

// tombstones deletes all records of the membership.
func (c *consumerGroup) tombstones(records []coordinator.Record) []coordinator.Record {
	erase := func(key []byte) { records = append(records, coordinator.Record{Key: key}) }
	ids := slices.Sorted(maps.Keys(c.members))
	for _, id := range ids {
		erase(memberKey(keyConsumerCurrent, c.g.id, id))
	}
	for _, id := range slices.Sorted(maps.Keys(c.targets)) {
		erase(memberKey(keyConsumerTarget, c.g.id, id))
	}
	erase(consumerKey(keyConsumerTargetEpoch, c.g.id))
	for _, id := range ids {
		erase(memberKey(keyConsumerMember, c.g.id, id))
	}
	for _, regex := range slices.Sorted(maps.Keys(c.regexes)) {
		erase(memberKey(keyConsumerRegex, c.g.id, regex))
	}
	erase(consumerKey(keyConsumerEpoch, c.g.id))
	return records
}

// loaded begins the sessions, and the time that members have to give up partitions.
func (c *consumerGroup) loaded(now time.Time) {
	clear(c.owners)
	for _, m := range c.members {
		c.own(m)
		c.alive(now, m)
		m.unheard = now
		c.awaitRevocation(now, m)
	}
	c.settled = c.epoch == c.targetEpoch && c.reconciled()
}

// next is the earliest of all that members have to do.
func (c *consumerGroup) next() time.Time {
	var at time.Time
	for _, m := range c.members {
		at = earlier(at, m.due())
	}
	return at
}

func (c *consumerGroup) delay(d time.Duration) {
	for _, m := range c.members {
		m.deadline, m.revokeBy = later(m.deadline, d), later(m.revokeBy, d)
		m.joinBy, m.syncBy = later(m.joinBy, d), later(m.syncBy, d)
	}
}

// tick removes the members that are late.
func (c *consumerGroup) tick(now time.Time) {
	var late []*consumerMember
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		m := c.members[id]
		if due := m.due(); !due.IsZero() && !due.After(now) {
			what := MemberExpired
			if !m.deadline.Equal(due) {
				what = MemberUnrevoked
			}
			c.g.history.note(m.change(what))
			late = append(late, m)
		}
	}
	if len(late) > 0 {
		c.remove(now, late...)
	}
}
