package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// manyGroups are on one node.
	manyGroups = 10_000
	// manyClients work at a time, and joiningClients join: each waits for the delay of
	// a new group.
	manyClients    = 32
	joiningClients = 256
)

// many measures what very many groups cost on one node, and how quick it is to look
// at them.
func (g *groups) many() error {
	for i, kind := range []struct {
		name    string
		clients int
		make    func(*kgo.Client, string) error
	}{
		{"without members", manyClients, func(c *kgo.Client, group string) error { return g.commitAs(g.ctx, c, group, 1) }},
		{"of one member", joiningClients, g.joinIdle},
	} {
		if g.name == "kafka" && kind.clients == joiningClients {
			continue // 3 s for each group
		}
		list, err := g.groupsOfOneNode(kind.name)
		if err != nil {
			return err
		}
		before, err := g.liveHeap()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := g.eachOf(list, kind.clients, kind.make); err != nil {
			return err
		}
		g.seconds(fmt.Sprintf("make %d groups %s", manyGroups, kind.name), time.Since(begin))
		after, err := g.liveHeap()
		if err != nil {
			return err
		}
		if g.debug != nil {
			g.note("live heap of a group "+kind.name, "B", (after-before)/manyGroups)
		}
		if err := g.look((i + 1) * manyGroups); err != nil {
			return err
		}
	}
	return nil
}

// liveHeap is that of the first node, 0 for Kafka: the smallest of some in a row, for
// connections that were closed a moment ago have buffers yet.
func (g *groups) liveHeap() (float64, error) {
	if g.debug == nil {
		return 0, nil
	}
	s := &scale{ctx: g.ctx, o: g.o, system: g.system, Client: g.Client}
	least := math.Inf(1)
	for range 5 {
		pause(g.ctx, time.Second)
		heaps, err := s.heaps()
		if err != nil {
			return 0, err
		}
		least = min(least, heaps[0].live)
	}
	return least, nil
}

// groupsOfOneNode are names of groups that the first node coordinates.
func (g *groups) groupsOfOneNode(prefix string) ([]string, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	for i := range 4 * manyGroups {
		req.CoordinatorKeys = append(req.CoordinatorKeys, fmt.Sprintf("%s-%05d", prefix, i))
	}
	resp, err := req.RequestWith(g.ctx, g.Client)
	if err != nil {
		return nil, fmt.Errorf("find coordinators: %w", err)
	}
	var list []string
	for _, c := range resp.Coordinators {
		if c.NodeID == 1 && len(list) < manyGroups {
			list = append(list, c.Key)
		}
	}
	if len(list) < manyGroups {
		return nil, fmt.Errorf("find coordinators: the first node has %d groups of %d", len(list), len(req.CoordinatorKeys))
	}
	return list, nil
}

// eachOf does something for all groups, with some clients.
func (g *groups) eachOf(list []string, clients int, do func(*kgo.Client, string) error) error {
	var wg sync.WaitGroup
	failures := make(chan error, clients)
	for part := range slices.Chunk(list, (len(list)+clients-1)/clients) {
		wg.Go(func() {
			c, err := kgo.NewClient(kgo.SeedBrokers(g.seeds()...))
			if err != nil {
				failures <- fmt.Errorf("make client: %w", err)
				return
			}
			defer c.Close()
			for _, group := range part {
				if err := do(c, group); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// joinIdle makes a group with one member, which says nothing any more, and commits
// an offset for it. Its session is the longest that brokers allow.
func (g *groups) joinIdle(c *kgo.Client, group string) error {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType = group, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 30*60*1000, 60*1000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{groupTopic}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", meta.AppendTo(nil)
	join.Protocols = append(join.Protocols, p)
	var resp *kmsg.JoinGroupResponse
	for range 2 { // with the member id that it is told
		var err error
		if resp, err = join.RequestWith(g.ctx, c); err != nil {
			return fmt.Errorf("join %s: %w", group, err)
		}
		join.MemberID = resp.MemberID
	}
	if resp.ErrorCode != 0 {
		return &codeError{"join " + group, resp.ErrorCode}
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, resp.Generation, resp.MemberID
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	a := kmsg.NewConsumerMemberAssignment()
	at := kmsg.NewConsumerMemberAssignmentTopic()
	at.Topic, at.Partitions = groupTopic, []int32{0, 1, 2, 3, 4, 5}
	a.Topics = append(a.Topics, at)
	ga := kmsg.NewSyncGroupRequestGroupAssignment()
	ga.MemberID, ga.MemberAssignment = resp.MemberID, a.AppendTo(nil)
	sync.GroupAssignment = append(sync.GroupAssignment, ga)
	done, err := sync.RequestWith(g.ctx, c)
	if err != nil {
		return fmt.Errorf("sync %s: %w", group, err)
	}
	if done.ErrorCode != 0 {
		return &codeError{"sync " + group, done.ErrorCode}
	}
	return g.commitOf(g.ctx, c, g.commitRequest(group, resp.MemberID, resp.Generation, 1))
}

// look lists all groups and describes some.
func (g *groups) look(total int) error {
	var list, one, thousand []float64
	for range 5 {
		begin := time.Now()
		req := kmsg.NewPtrListGroupsRequest()
		n := 0
		var names []string
		for _, shard := range g.RequestSharded(g.ctx, req) {
			if shard.Err != nil {
				return fmt.Errorf("list groups: %w", shard.Err)
			}
			resp, ok := shard.Resp.(*kmsg.ListGroupsResponse)
			if !ok || resp.ErrorCode != 0 {
				return fmt.Errorf("list groups: answered with %T, or an error", shard.Resp)
			}
			n += len(resp.Groups)
			for _, l := range resp.Groups {
				names = append(names, l.Group)
			}
		}
		list = append(list, time.Since(begin).Seconds()*1000)
		if n < total {
			return fmt.Errorf("list groups: only %d", n)
		}
		for _, what := range []struct {
			n    int
			took *[]float64
		}{{1, &one}, {1000, &thousand}} {
			begin := time.Now()
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = names[:what.n]
			if _, err := req.RequestWith(g.ctx, g.Client); err != nil {
				return fmt.Errorf("describe groups: %w", err)
			}
			*what.took = append(*what.took, time.Since(begin).Seconds()*1000)
		}
	}
	name := fmt.Sprintf(" of %d groups", total)
	g.note("list all"+name, "ms", median(list))
	g.note("describe one"+name, "ms", median(one))
	g.note("describe 1,000"+name, "ms", median(thousand))
	return nil
}
