package group

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group/assignor"
)

// refusal is an error with the text that the client is told.
type refusal struct {
	code *kerr.Error
	text string
}

func refuse(code *kerr.Error, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// heartbeat is one ConsumerGroupHeartbeat on its way through a group.
type heartbeat struct {
	now    time.Time
	caller Caller
	req    *kmsg.ConsumerGroupHeartbeatRequest
	// owned is what the member says that it owns, if it says so.
	owned partitionSet
	said  bool
	// joined: the member is new, or starts anew; it knows nothing of its assignment.
	joined bool
	// bump: the group needs a new epoch.
	bump bool
}

// ConsumerGroupHeartbeat is how a member joins, lives in and leaves a consumer group
// (KIP-848). The answer may have a new assignment.
func (m *Machine) ConsumerGroupHeartbeat(now time.Time, caller Caller, req *kmsg.ConsumerGroupHeartbeatRequest) (*kmsg.ConsumerGroupHeartbeatResponse, []coordinator.Record) {
	h := &heartbeat{now: now, caller: caller, req: req}
	resp, err := m.consumerHeartbeat(h)
	if err != nil {
		resp = kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode, resp.ErrorMessage = err.code.Code, &err.text
	}
	resp.Version = req.Version
	return resp, m.take()
}

func (m *Machine) consumerHeartbeat(h *heartbeat) (*kmsg.ConsumerGroupHeartbeatResponse, *refusal) {
	req := h.req
	if err := m.checkHeartbeat(req); err != nil {
		return nil, err
	}
	h.take()
	g := m.find(req.Group)
	if req.MemberEpoch < 0 {
		c := g.asConsumer()
		if c == nil {
			return nil, notConsumer(req.Group)
		}
		return c.leaveBy(h)
	}
	c, err := m.joinable(h, g)
	if err != nil {
		return nil, err
	}
	member, err := c.subject(h)
	if err != nil {
		return nil, err
	}
	return c.beat(h, member)
}

// asConsumer is consumer for a group that may be nil.
func (g *Group) asConsumer() *consumerGroup {
	if g == nil {
		return nil
	}
	return g.consumer()
}

func notConsumer(id string) *refusal {
	return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", id)
}

// take copies what the request says that the member owns.
func (h *heartbeat) take() {
	h.said = h.req.Topics != nil
	if !h.said {
		return
	}
	h.owned = make(partitionSet)
	for _, t := range h.req.Topics {
		for _, p := range t.Partitions {
			h.owned[assignor.Partition{Topic: t.TopicID, Number: p}] = 0
		}
	}
}

// checkHeartbeat looks at the request by itself.
func (m *Machine) checkHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	invalid := func(text string) *refusal { return refuse(kerr.InvalidRequest, "%s", text) }
	blank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	switch {
	case strings.TrimSpace(req.Group) == "":
		return invalid("GroupId can't be empty.")
	case blank(req.InstanceID):
		return invalid("InstanceId can't be empty.")
	case blank(req.RackID):
		return invalid("RackId can't be empty.")
	case blank(&req.MemberID) && (req.Version >= 1 || req.MemberEpoch != epochJoin):
		return invalid("MemberId can't be empty.") // from version 1 on the client makes it
	case req.MemberEpoch < epochLeaveStatic:
		return invalid("MemberEpoch is invalid.")
	case req.MemberEpoch == epochLeaveStatic && req.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case req.MemberEpoch == epochJoin && req.RebalanceTimeoutMillis == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case req.MemberEpoch == epochJoin && (req.Topics == nil || len(req.Topics) > 0):
		return invalid("TopicPartitions must be empty when (re-)joining.")
	case req.MemberEpoch == epochJoin && req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case req.ServerAssignor != nil && !slices.Contains(m.cfg().Consumer.Assignors, *req.ServerAssignor):
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.",
			*req.ServerAssignor, strings.Join(m.cfg().Consumer.Assignors, ", "))
	case req.MemberEpoch < 0: // who leaves has nothing more to say
		return nil
	case sizeOf(req) > m.cfg().MaxRecordBytes/2:
		return invalid("The subscription is too long to be kept.")
	case req.SubscribedTopicRegex != nil:
		_, err := compile(*req.SubscribedTopicRegex)
		return err
	}
	return nil
}

// sizeOf is about how many bytes a request adds to the record of its member: one that is
// larger than the log takes would cost the coordinator all that it has in memory.
func sizeOf(req *kmsg.ConsumerGroupHeartbeatRequest) int {
	n := len(req.Group) + len(req.MemberID)
	for _, s := range []*string{req.InstanceID, req.RackID, req.SubscribedTopicRegex} {
		if s != nil {
			n += len(*s)
		}
	}
	for _, t := range req.SubscribedTopicNames {
		n += len(t) + 3
	}
	return n
}

// joinable is the consumer group that the request may be for. Who joins makes the
// group, or makes a consumer group of an empty or a suitable classic one.
func (m *Machine) joinable(h *heartbeat, g *Group) (*consumerGroup, *refusal) {
	if c := g.asConsumer(); c != nil {
		return c, nil
	}
	if h.req.MemberEpoch != epochJoin {
		return nil, notConsumer(h.req.Group)
	}
	if m.cfg().Consumer.MaxSize < 1 {
		return nil, full(h.req.Group)
	}
	if g == nil {
		g = m.create(h.req.Group)
	}
	classic := g.classic()
	if !classic.empty() {
		return m.upgrade(h.now, g, classic)
	}
	m.out = classic.tombstones(m.out)
	c := newConsumerGroup(m, g)
	g.members = c
	return c, nil
}

func full(id string) *refusal {
	return refuse(kerr.GroupMaxSizeReached, "The consumer group %s has reached its maximum capacity.", id)
}

// subject finds or makes the member that the request is of.
func (c *consumerGroup) subject(h *heartbeat) (*consumerMember, *refusal) {
	id := h.req.MemberID
	if len(c.members) >= c.m.cfg().Consumer.MaxSize && c.members[id] == nil &&
		(h.req.InstanceID == nil || c.instances[*h.req.InstanceID] == "") {
		return nil, full(c.g.id)
	}
	if h.req.MemberEpoch == epochJoin && id == "" {
		id = c.m.cfg().NewID()
	}
	if h.req.InstanceID != nil {
		return c.staticSubject(h, id)
	}
	m := c.members[id]
	switch {
	case h.req.MemberEpoch == epochJoin && m == nil:
		return c.enrol(h, id, nil), nil
	case m == nil:
		return nil, unknown(id, c.g.id)
	case h.req.MemberEpoch == epochJoin:
		h.joined = true
		return m, nil
	}
	return m, h.checkEpoch(m)
}

func unknown(member, group string) *refusal {
	return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", member, group)
}

// staticSubject is subject for a request with an instance id. Somebody may take the
// place of a static member only after that one left (KIP-848), but for one that uses
// the classic protocol, which cannot say that it will be back.
func (c *consumerGroup) staticSubject(h *heartbeat, id string) (*consumerMember, *refusal) {
	instance := *h.req.InstanceID
	old := c.members[c.instances[instance]]
	if h.req.MemberEpoch != epochJoin {
		if err := checkInstance(old, id, instance); err != nil {
			return nil, err
		}
		return old, h.checkEpoch(old)
	}
	h.joined = true
	switch {
	case old == nil:
		return c.enrol(h, id, &instance), nil
	case old.id == id: // it did not get the answer, or left and changed its mind
		if old.epoch == epochLeaveStatic {
			p := old.position
			p.epoch, p.previous = 0, 0
			c.place(old, p)
		}
		return old, nil
	case old.epoch != epochLeaveStatic && old.classic == nil:
		return nil, refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by member %s.", id, instance, old.id)
	}
	c.g.history.note(old.change(MemberReplaced))
	return c.replace(old, id), nil
}

// checkInstance says whether a member id is the one that an instance id has.
func checkInstance(m *consumerMember, id, instance string) *refusal {
	switch {
	case m == nil:
		return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", instance)
	case m.id != id:
		return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", id, instance, m.id)
	}
	return nil
}

// checkEpoch is C3.
func (h *heartbeat) checkEpoch(m *consumerMember) *refusal {
	got := h.req.MemberEpoch
	if got == m.epoch || got == m.previous && got < m.epoch && h.said && h.owned.within(m.assigned) {
		return nil
	}
	than := "smaller"
	if got > m.epoch {
		than = "greater"
	}
	return refuse(kerr.FencedMemberEpoch, "The consumer group member has a %s member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", than, got, m.epoch)
}

// enrol makes a new member, which has nothing yet.
func (c *consumerGroup) enrol(h *heartbeat, id string, instance *string) *consumerMember {
	if old := c.members[id]; old != nil { // static now, or another one: it begins with nothing
		c.expel(old)
	}
	m := &consumerMember{id: id, subscription: subscription{instance: instance, client: h.caller}}
	c.members[id] = m
	if m.instance != nil {
		c.instances[*m.instance] = id
	}
	h.joined, h.bump = true, true
	c.g.history.note(m.change(MemberJoined))
	return m
}

// replace has a member with a new id go on where a static one left.
func (c *consumerGroup) replace(old *consumerMember, id string) *consumerMember {
	m := &consumerMember{id: id, subscription: old.subscription, position: old.position}
	m.epoch, m.previous = 0, 0
	target := c.targets[old.id]
	c.expel(old)
	if other := c.members[id]; other != nil {
		c.expel(other)
	}
	c.members[id] = m
	c.instances[*m.instance] = id
	c.own(m)
	c.writeMember(m)
	c.targets[id] = target
	c.writeTarget(id)
	c.writeCurrent(m)
	return m
}

// beat is the heartbeat of a member: what it says anew, then a step toward the
// target.
func (c *consumerGroup) beat(h *heartbeat, m *consumerMember) (*kmsg.ConsumerGroupHeartbeatResponse, *refusal) {
	c.update(h, m, m.heard(h))
	c.catchUp(h.now, h.bump)
	late := h.req.MemberEpoch != m.epoch
	changed, err := c.reconcile(h.now, m, h.owned, h.said)
	if err != nil {
		return nil, err
	}
	c.alive(h.now, m)
	c.settle(h.now)
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = &m.id, m.epoch
	resp.HeartbeatIntervalMillis = int32(c.interval(h.now, m).Milliseconds())
	if h.joined || changed || late || h.whole() {
		resp.Assignment = m.assignment()
	}
	return resp, nil
}

// interval is when the member shall be heard next. One that waits for partitions which
// others have to give up learns only by a heartbeat that they are free, and reads
// nothing of them until then. While the group rests it is when that ends: what a member
// has to give up then, others wait for.
func (c *consumerGroup) interval(now time.Time, m *consumerMember) time.Duration {
	d := c.m.cfg().Consumer.heartbeatInterval(c.g.id)
	soon := max(d/10, time.Millisecond)
	switch {
	case m.state == memberUnreleased:
		return soon
	case c.epoch > c.targetEpoch:
		// Rounded up: the answer is in ms.
		return min(d, max(soon, c.rest(now)+time.Millisecond))
	}
	return d
}

// whole says whether the request tells everything, as a client's does that is not
// sure what its coordinator knows.
func (h *heartbeat) whole() bool {
	return h.said && h.req.RebalanceTimeoutMillis != -1 && (h.req.SubscribedTopicNames != nil || h.req.SubscribedTopicRegex != nil)
}

// heard is the member's subscription with what the request says of it; null is "as
// before".
func (m *consumerMember) heard(h *heartbeat) subscription {
	s, req := m.subscription, h.req
	s.classic = nil
	if req.InstanceID != nil {
		s.instance = req.InstanceID
	}
	if req.RackID != nil {
		s.rack = req.RackID
	}
	if req.RebalanceTimeoutMillis != -1 {
		s.rebalanceTimeout = millis(req.RebalanceTimeoutMillis)
	}
	if req.SubscribedTopicNames != nil {
		s.topics = slices.Clone(req.SubscribedTopicNames)
		slices.Sort(s.topics)
		s.topics = slices.Compact(s.topics)
	}
	if req.SubscribedTopicRegex != nil {
		s.regex = *req.SubscribedTopicRegex
	}
	if req.ServerAssignor != nil {
		s.assignor = *req.ServerAssignor
	}
	s.client = h.caller.kept()
	return s
}

// update takes a subscription, records it if it is another one, and notes whether
// the group needs a new epoch for it.
func (c *consumerGroup) update(h *heartbeat, m *consumerMember, s subscription) {
	old := m.subscription
	_, written := c.targets[m.id]
	if written = written || m.epoch != 0; written && old.same(s) {
		return
	}
	m.subscription = s
	c.writeMember(m)
	topics := !slices.Equal(old.topics, s.topics)
	if topics || old.regex != s.regex {
		c.reads = nil
		c.resolve(h.now, false)
	}
	if topics || old.regex != s.regex || !equal(old.rack, s.rack) {
		if !h.bump {
			c.g.history.note(m.change(MemberResubs))
		}
		h.bump = true
		if c.hasUnread(m) {
			c.made = time.Time{} // it shall not have to read what it does not want
		}
	}
}

// same says whether two subscriptions are written alike. Where the client connects
// from alone is not worth a record.
func (s subscription) same(o subscription) bool {
	return equal(s.instance, o.instance) && equal(s.rack, o.rack) && s.rebalanceTimeout == o.rebalanceTimeout &&
		slices.Equal(s.topics, o.topics) && s.regex == o.regex && s.assignor == o.assignor &&
		s.client.ClientID == o.client.ClientID && s.classic.same(o.classic)
}

func (m *classicMember) same(o *classicMember) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.sessionTimeout == o.sessionTimeout && slices.EqualFunc(m.protocols, o.protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

func equal(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// assignment is what the member may read now.
func (m *consumerMember) assignment() *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for _, p := range m.assigned.sorted() {
		if n := len(a.Topics); n == 0 || a.Topics[n-1].TopicID != p.Topic {
			t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			t.TopicID = p.Topic
			a.Topics = append(a.Topics, t)
		}
		t := &a.Topics[len(a.Topics)-1]
		t.Partitions = append(t.Partitions, p.Number)
	}
	return &a
}

// leaveBy takes a member out, or, if it is a static one that will be back, keeps its
// partitions for it until its session ends.
func (c *consumerGroup) leaveBy(h *heartbeat) (*kmsg.ConsumerGroupHeartbeatResponse, *refusal) {
	req := h.req
	m := c.members[req.MemberID]
	if req.InstanceID != nil {
		m = c.members[c.instances[*req.InstanceID]]
		if err := checkInstance(m, req.MemberID, *req.InstanceID); err != nil {
			return nil, err
		}
	}
	switch {
	case m == nil:
		return nil, unknown(req.MemberID, c.g.id)
	case req.MemberEpoch == epochLeaveStatic:
		p := m.position
		p.epoch, p.revoking = epochLeaveStatic, nil
		c.place(m, p)
		m.revokeBy = time.Time{}
	default:
		c.g.history.note(m.change(MemberLeft))
		c.remove(h.now, m)
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = &m.id, req.MemberEpoch
	return resp, nil
}

// remove takes members out for good; the others share what they had from the next
// heartbeat on.
func (c *consumerGroup) remove(now time.Time, members ...*consumerMember) {
	for _, m := range members {
		c.expel(m)
	}
	c.resolve(now, false)
	c.look(now, true)
	c.bump()
	if len(c.members) == 0 {
		c.g.history.joined(now, c.epoch, 0)
	}
	c.m.downgrade(now, c)
}

// expel forgets a member.
func (c *consumerGroup) expel(m *consumerMember) {
	c.disown(m)
	delete(c.members, m.id)
	delete(c.targets, m.id)
	if m.instance != nil && c.instances[*m.instance] == m.id {
		delete(c.instances, *m.instance)
	}
	c.reads = nil
	c.erase(memberKey(keyConsumerCurrent, c.g.id, m.id))
	c.erase(memberKey(keyConsumerTarget, c.g.id, m.id))
	c.erase(memberKey(keyConsumerMember, c.g.id, m.id))
}
