package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// lightGroup has members that only speak a group's protocol: a client that also keeps
// the metadata of 10,000 partitions leaves no room for a thousand like it. They keep the
// clients' habits: heartbeats of stock settings, and, with KIP-848, another one as soon
// as an assignment was taken.
type lightGroup struct {
	name, topic string
	partitions  int
	members     []*lightMember
	done        chan error // that all have their share, or that it cannot be

	mu      sync.Mutex
	held    map[*lightMember]int // partitions
	settled int                  // members with perMember partitions
}

// lightMember is one of them.
type lightMember struct {
	*lightGroup
	conn *rpc.Client
	id   string
}

// classicHeartbeat is heartbeat.interval.ms of stock settings, classicSession
// session.timeout.ms; both protocols have a rebalance timeout of max.poll.interval.ms.
const (
	classicHeartbeat = 3 * time.Second
	classicSession   = 45 * time.Second
	rebalanceTimeout = 5 * time.Minute
)

// lightGroup connects the members to the group's coordinator.
func (g *groups) lightGroup(name, topic string, n int) (*lightGroup, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{name}
	found, err := find.RequestWith(g.ctx, g.Client)
	if err != nil {
		return nil, fmt.Errorf("find coordinator: %w", err)
	}
	at := found.Coordinators[0]
	l := &lightGroup{name: name, topic: topic, partitions: n * perMember, done: make(chan error, 1), held: map[*lightMember]int{}}
	for range n {
		c, err := rpc.Dial(g.ctx, new(net.Dialer).DialContext, fmt.Sprintf("%s:%d", at.Host, at.Port), rpc.ClientConfig{ClientID: "light"})
		if err != nil {
			return nil, fmt.Errorf("connect a member: %w", err)
		}
		l.members = append(l.members, &lightMember{lightGroup: l, conn: c})
		versions := kmsg.NewPtrApiVersionsRequest()
		if _, err := c.Do(g.ctx, versions); err != nil { // it is accepted
			return nil, fmt.Errorf("connect a member: %w", err)
		}
	}
	return l, nil
}

// holds notes how many partitions a member has now.
func (m *lightMember) holds(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[m] == perMember {
		m.settled--
	}
	if m.held[m] = n; n == perMember {
		m.settled++
	}
	if m.settled == len(m.members) {
		m.end(nil)
	}
}

func (l *lightGroup) fail(err error) { l.end(err) }

// end tells who waits; only the first counts.
func (l *lightGroup) end(err error) {
	select {
	case l.done <- err:
	default:
	}
}

// askLight asks on a member's connection.
func askLight[R kmsg.Response](ctx context.Context, m *lightMember, version int16, req kmsg.Request) (none R, err error) {
	req.SetVersion(version)
	resp, err := m.conn.Do(ctx, req)
	if err != nil {
		return none, fmt.Errorf("ask the coordinator: %w", err)
	}
	r, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("the coordinator answers with %T", resp)
	}
	return r, nil
}

// classic is a member's life by JoinGroup and SyncGroup until ctx ends.
func (m *lightMember) classic(ctx context.Context) error {
	defer m.leaveClassic()
	for ctx.Err() == nil {
		m.holds(0)
		joined, err := m.join(ctx)
		if err != nil {
			return ending(ctx, err)
		}
		code := joined.ErrorCode
		if code == 0 {
			code, err = m.sync(ctx, joined)
		}
		for code == 0 && err == nil {
			pause(ctx, classicHeartbeat)
			code, err = m.heartbeat(ctx, joined.Generation)
		}
		if err != nil {
			return ending(ctx, err)
		}
		switch err := kerr.ErrorForCode(code); {
		case errors.Is(err, kerr.MemberIDRequired), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration):
		case errors.Is(err, kerr.UnknownMemberID):
			m.id = ""
		default:
			return ending(ctx, err)
		}
	}
	return nil
}

// ending is no error of who was told to end.
func ending(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (m *lightMember) join(ctx context.Context) (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = m.name, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(classicSession.Milliseconds()), int32(rebalanceTimeout.Milliseconds())
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{m.topic}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", meta.AppendTo(nil)
	req.Protocols = append(req.Protocols, p)
	resp, err := askLight[*kmsg.JoinGroupResponse](ctx, m, 9, req)
	if err == nil {
		m.id = resp.MemberID
	}
	return resp, err
}

// sync brings everybody's share if the member is the leader, and takes its own.
func (m *lightMember) sync(ctx context.Context, joined *kmsg.JoinGroupResponse) (int16, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = m.name, m.id, joined.Generation
	req.ProtocolType, req.Protocol = joined.ProtocolType, joined.Protocol
	next := 0
	for i := range joined.Members { // of others there is none
		at := kmsg.NewConsumerMemberAssignmentTopic()
		at.Topic = m.topic
		for end := m.partitions * (i + 1) / len(joined.Members); next < end; next++ {
			at.Partitions = append(at.Partitions, int32(next))
		}
		a := kmsg.NewConsumerMemberAssignment()
		a.Topics = append(a.Topics, at)
		ga := kmsg.NewSyncGroupRequestGroupAssignment()
		ga.MemberID, ga.MemberAssignment = joined.Members[i].MemberID, a.AppendTo(nil)
		req.GroupAssignment = append(req.GroupAssignment, ga)
	}
	resp, err := askLight[*kmsg.SyncGroupResponse](ctx, m, 5, req)
	if err != nil || resp.ErrorCode != 0 {
		return codeOrZero(resp), err
	}
	var mine kmsg.ConsumerMemberAssignment
	if err := mine.ReadFrom(resp.MemberAssignment); err != nil {
		return 0, fmt.Errorf("read the assignment: %w", err)
	}
	n := 0
	for _, t := range mine.Topics {
		n += len(t.Partitions)
	}
	m.holds(n)
	return 0, nil
}

func codeOrZero(resp *kmsg.SyncGroupResponse) int16 {
	if resp == nil {
		return 0
	}
	return resp.ErrorCode
}

func (m *lightMember) heartbeat(ctx context.Context, generation int32) (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.name, m.id, generation
	resp, err := askLight[*kmsg.HeartbeatResponse](ctx, m, 4, req)
	if err != nil {
		return 0, err
	}
	return resp.ErrorCode, nil
}

func (m *lightMember) leaveClassic() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	l := kmsg.NewLeaveGroupRequestMember()
	req.Group, l.MemberID = m.name, m.id
	req.Members = append(req.Members, l)
	_, _ = askLight[*kmsg.LeaveGroupResponse](ctx, m, 5, req) // or its session ends
}

// consumer is a member's life by KIP-848 until ctx ends.
func (m *lightMember) consumer(ctx context.Context) error {
	m.id = fmt.Sprintf("%p", m)
	req := m.beat(0)
	for ctx.Err() == nil {
		resp, err := askLight[*kmsg.ConsumerGroupHeartbeatResponse](ctx, m, 1, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return ending(ctx, err)
		}
		req = m.beat(resp.MemberEpoch)
		if resp.Assignment == nil {
			pause(ctx, time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond)
			continue
		}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		n := 0
		for _, t := range resp.Assignment.Topics {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			n += len(t.Partitions)
		}
		m.holds(n)
	}
	leave, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = askLight[*kmsg.ConsumerGroupHeartbeatResponse](leave, m, 1, m.beat(-1)) // or its session ends
	return nil
}

// beat is a heartbeat; the first says all that there is to say.
func (m *lightMember) beat(epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = m.name, m.id, epoch, -1
	if epoch == 0 {
		req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
		req.SubscribedTopicNames, req.Topics = []string{m.topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return req
}
