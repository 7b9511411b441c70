package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/internal/wall"
)

// state is what a classic group is doing. A dead one is not in the machine.
type state int8

const (
	stateEmpty      state = iota // no members
	statePreparing               // waits for members to join
	stateCompleting              // has a new generation, waits for the leader's assignment
	stateStable                  // every member can have its assignment
)

// String is Kafka's name.
func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// classicGroup is the membership of a group whose leader, a member, assigns.
type classicGroup struct {
	m *Machine
	g *Group

	st state
	// since is when the state began, in ms, -1 if not known (records before
	// Kafka 2.1).
	since int64

	generation int32
	// protoType is the kind of client, "consumer" or "connect"; "" for a group that
	// never had members. protocol is the selected one of what members can do, nil
	// for none.
	protoType string
	protocol  *string
	leader    string // member id, "" for none

	members []*member // in the order in which they came
	// byID is nil for a few members, which are found without: a map of one has room for
	// eight.
	byID map[string]*member
	// instances are the member ids of static members.
	instances map[string]string
	// awaiting counts the members that wait in JoinGroup.
	awaiting int
	// pending are member ids that were handed out and have not joined (KIP-394), and
	// when they are forgotten.
	pending map[string]time.Time
	// unsynced are the members that have not asked for their assignment.
	unsynced map[string]struct{}
	// topics are what the members subscribe to, sorted, if topicsKnown.
	topics      []string
	topicsKnown bool

	// joinBy ends the wait in statePreparing, syncBy that for unsynced members.
	joinBy, syncBy time.Time
	// first is the wait of a group that was empty; nil in any other rebalance.
	first *firstRebalance

	// written is the value of the last record of the membership, nil for none, and
	// writtenGeneration its generation.
	written           []byte
	writtenGeneration int32
}

var _ membership = (*classicGroup)(nil)

func newClassicGroup(m *Machine, g *Group) *classicGroup {
	return &classicGroup{m: m, g: g, since: -1}
}

// classic is the group's classic membership; nil if it is of another kind.
func (g *Group) classic() *classicGroup {
	c, _ := g.members.(*classicGroup)
	return c
}

func (c *classicGroup) kind() string         { return "classic" }
func (c *classicGroup) protocolType() string { return c.protoType }
func (c *classicGroup) state() string        { return c.st.String() }
func (c *classicGroup) empty() bool          { return c.st == stateEmpty }

// enter changes the state.
func (c *classicGroup) enter(now time.Time, s state) {
	c.st, c.since = s, wall.Milli(now)
}

// add takes a new member in, which waits for the next generation.
func (c *classicGroup) add(m *member, protocolType string, reply func(*kmsg.JoinGroupResponse)) {
	if len(c.members) == 0 {
		c.protoType = intern(protocolType)
	}
	if c.leader == "" {
		c.leader = m.id
	}
	c.forgetPending(m.id)
	c.insert(m)
	c.awaitJoin(m, reply)
}

// forgetPending drops an id that was handed out. Most groups have none for nearly all
// of their life.
func (c *classicGroup) forgetPending(id string) {
	if delete(c.pending, id); len(c.pending) == 0 {
		c.pending = nil
	}
}

// insert puts a member into the lists.
func (c *classicGroup) insert(m *member) {
	c.members = append(c.members, m)
	switch {
	case c.byID != nil:
		c.byID[m.id] = m
	case len(c.members) > 8:
		c.byID = make(map[string]*member)
		for _, m := range c.members {
			c.byID[m.id] = m
		}
	}
	c.keepInstance(m)
}

// member is the one with an id, nil if there is none.
func (c *classicGroup) member(id string) *member {
	if c.byID != nil {
		return c.byID[id]
	}
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (c *classicGroup) keepInstance(m *member) {
	if !m.static() {
		return
	}
	if c.instances == nil {
		c.instances = make(map[string]string)
	}
	c.instances[*m.instance] = m.id
}

// remove takes a member out; a call that it waits in is answered with the code.
func (c *classicGroup) remove(m *member, code *kerr.Error) {
	c.finishJoin(m, failedJoin(unknownMember, code))
	c.finishSync(m, failedSync(code))
	m.pulse.finish(kerr.UnknownMemberID)
	c.members = slices.DeleteFunc(c.members, func(other *member) bool { return other == m })
	delete(c.byID, m.id)
	if m.static() {
		delete(c.instances, *m.instance)
	}
	delete(c.unsynced, m.id)
	if c.leader == m.id {
		c.leader = ""
		if len(c.members) > 0 {
			c.leader = c.members[0].id
		}
	}
}

// expel takes a member out that is not known from then on; why is for the history.
func (c *classicGroup) expel(m *member, why string) {
	c.g.history.note(m.change(why))
	c.remove(m, kerr.UnknownMemberID)
}

// replace gives a static member that came back a new id. Who still uses the old one
// is fenced.
func (c *classicGroup) replace(old *member, id string, caller Caller) {
	c.finishJoin(old, failedJoin(old.id, kerr.FencedInstanceID))
	c.finishSync(old, failedSync(kerr.FencedInstanceID))
	old.pulse.finish(kerr.FencedInstanceID)
	delete(c.byID, old.id)
	if _, ok := c.unsynced[old.id]; ok {
		delete(c.unsynced, old.id)
		c.unsynced[id] = struct{}{}
	}
	if c.leader == old.id {
		c.leader = id
	}
	old.id, old.client = id, caller
	if c.byID != nil {
		c.byID[id] = old
	}
	c.keepInstance(old)
}

// check says whether a member id, with the instance id of a static member, is of
// the group.
func (c *classicGroup) check(id string, instance *string) *kerr.Error {
	if instance != nil {
		switch current, ok := c.instances[*instance]; {
		case !ok:
			return kerr.UnknownMemberID
		case current != id:
			return kerr.FencedInstanceID
		}
	}
	if c.member(id) == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

// rebalanceTimeout is the longest of the members'.
func (c *classicGroup) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range c.members {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

// candidates are the protocols that every member can do, in the order of the first
// member.
func (c *classicGroup) candidates() []string {
	if len(c.members) == 0 {
		return nil
	}
	var common []string
	for _, p := range c.members[0].protocols {
		if !slices.ContainsFunc(c.members[1:], func(m *member) bool { return !m.supports(p.Name) }) {
			common = append(common, p.Name)
		}
	}
	return common
}

// accepts says whether a member that can do these protocols fits in.
func (c *classicGroup) accepts(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if c.st == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	if len(c.members) == 0 { // all left, and an id that was handed out keeps it open
		return protocolType == c.protoType && len(protocols) > 0
	}
	if protocolType != c.protoType {
		return false
	}
	common := c.candidates()
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return slices.Contains(common, p.Name) })
}

// selectProtocol has every member vote for its favourite among the candidates. Of
// two with as many votes it is the one that the first member prefers.
func (c *classicGroup) selectProtocol() string {
	candidates := c.candidates()
	votes := make(map[string]int)
	for _, m := range c.members {
		votes[m.vote(candidates)]++
	}
	best := ""
	for _, p := range candidates {
		if best == "" || votes[p] > votes[best] {
			best = p
		}
	}
	return best
}

// subscribe finds what the members read, if the protocol is that of consumers and
// all of them make sense (G4).
func (c *classicGroup) subscribe() {
	c.topics, c.topicsKnown = nil, false
	if c.protoType != consumerProtocol || c.protocol == nil {
		return
	}
	var topics []string
	for _, m := range c.members {
		var s kmsg.ConsumerMemberMetadata
		if err := s.ReadFrom(m.metadata(*c.protocol)); err != nil {
			return
		}
		for _, t := range s.Topics {
			if i, found := slices.BinarySearch(topics, t); !found {
				topics = slices.Insert(topics, i, intern(t))
			}
		}
	}
	c.topics, c.topicsKnown = slices.Clip(topics), true
}

// consumerProtocol is the protocol type of consumers.
const consumerProtocol = "consumer"

// subscribed says whether a member reads the topic, or might.
func (c *classicGroup) subscribed(topic string) bool {
	if len(c.members) == 0 || c.protoType != consumerProtocol {
		return false
	}
	_, ok := slices.BinarySearch(c.topics, topic)
	return ok || !c.topicsKnown
}

// live yields the last record of the membership.
func (c *classicGroup) live(yield func(coordinator.Record) bool) bool {
	return c.written == nil || yield(coordinator.Record{Key: groupKey(c.g.id), Value: c.written})
}

// tombstones deletes the membership, if it is in the log.
func (c *classicGroup) tombstones(records []coordinator.Record) []coordinator.Record {
	if c.written == nil {
		return records
	}
	return append(records, coordinator.Record{Key: groupKey(c.g.id)})
}

// checkCommit is Kafka's rule for classic groups.
func (c *classicGroup) checkCommit(now time.Time, who identity) *kerr.Error {
	if who.generation < 0 && c.st == stateEmpty {
		return nil // an admin, or a consumer that assigns itself
	}
	if who.generation >= 0 || who.member != "" || who.instance != nil {
		if err := c.check(who.member, who.instance); err != nil {
			return err
		}
		if who.generation != c.generation {
			return kerr.IllegalGeneration
		}
	} else if !who.transactional {
		return kerr.UnknownMemberID // there are members: only they may
	}
	// A generation that nobody was assigned in is not in the log: whoever takes over
	// does not know it, and would take commits of the one before after those of it
	// (G2). Kafka refuses them only before the next rebalance begins.
	unassigned := c.st == stateCompleting || c.st == statePreparing && c.generation != c.writtenGeneration
	if !who.transactional && (unassigned || c.written == nil) {
		return rebalanceInProgress
	}
	if m := c.member(who.member); m != nil {
		c.alive(now, m)
	}
	return nil
}

// checkFetch lets everybody read.
func (c *classicGroup) checkFetch(identity) *kerr.Error { return nil }

// checkOffsetDelete allows it where members' subscriptions can be known.
func (c *classicGroup) checkOffsetDelete() *kerr.Error {
	if c.st == stateEmpty || c.protoType == consumerProtocol {
		return nil
	}
	return kerr.NonEmptyGroup
}

// expiresSince is KIP-211: an empty group's offsets expire together, some time
// after the last member left; a stable group's when nobody subscribes to the topic;
// those of a simple group each by its own commit. During a rebalance nothing
// expires: who comes back reads on (KAFKA-13636).
func (c *classicGroup) expiresSince(committed int64) (int64, bool) {
	switch {
	case c.protoType == "":
		return committed, c.st == stateEmpty
	case c.st == stateEmpty && c.since >= 0:
		return c.since, true
	case c.st == stateEmpty:
		return committed, true
	default:
		return committed, c.st == stateStable && c.protoType == consumerProtocol && c.topicsKnown
	}
}

// loaded begins the sessions of the members.
func (c *classicGroup) loaded(now time.Time) {
	for _, m := range c.members {
		c.alive(now, m)
		m.unheard = now
	}
	if len(c.members) > c.m.cfg().MaxSize {
		c.prepare(now) // the limit was lowered: the last to join again stay out
	}
}

// next is the earliest of all that the group waits for.
func (c *classicGroup) next() time.Time {
	at := earlier(c.joinBy, c.syncBy)
	for _, m := range c.members {
		at = earlier(at, earlier(m.deadline, m.pulse.until()))
	}
	for _, expires := range c.pending {
		at = earlier(at, expires)
	}
	return at
}

func (c *classicGroup) delay(d time.Duration) {
	c.joinBy, c.syncBy = later(c.joinBy, d), later(c.syncBy, d)
	for _, m := range c.members {
		m.deadline = later(m.deadline, d)
	}
	for id, expires := range c.pending {
		c.pending[id] = later(expires, d)
	}
}

// tick ends what is due.
func (c *classicGroup) tick(now time.Time) {
	for _, m := range slices.Clone(c.members) {
		m.pulse.end(now)
		if m.deadline.IsZero() || m.deadline.After(now) || c.member(m.id) != m {
			continue
		}
		m.deadline = time.Time{}
		if m.isNew || m.lost || m.joining == nil && m.syncing == nil {
			c.expel(m, MemberExpired)
			c.rebalance(now)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.pending)) {
		if !c.pending[id].After(now) {
			c.forgetPending(id)
			c.maybeComplete(now)
		}
	}
	if !c.joinBy.IsZero() && !c.joinBy.After(now) {
		c.joinDue(now)
	}
	if !c.syncBy.IsZero() && !c.syncBy.After(now) {
		c.syncDue(now)
	}
}
