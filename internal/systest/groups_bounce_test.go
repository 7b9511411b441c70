package systest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/systest"
)

var bounceFor = flag.Duration("groups.bounce", 0, "how long groups are bounced, at least three rounds")

// observe fetches the committed offsets until ctx ends: what was acknowledged when
// it asked is there.
func (h *groupHistory) observe(ctx context.Context, c *systest.Cluster) {
	var adm groupOffsets
	defer adm.close()
	for ctx.Err() == nil {
		h.mu.Lock()
		least := map[int32]int64{}
		for p, o := range h.committed {
			least[p] = o
		}
		h.mu.Unlock()
		offsets, err := adm.of(ctx, c, h.name)
		if err != nil {
			continue
		}
		h.mu.Lock()
		h.observed++
		for p, o := range least {
			if got, ok := offsets[p]; !ok || got < o {
				h.failf("partition %d has the committed offset %d, after %d", p, got, o)
			}
		}
		h.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// bouncedMember is one member, which processes what it polls and then commits it.
type bouncedMember struct {
	*consumer
	id      string
	h       *groupHistory
	belongs atomic.Bool // it was assigned something
}

// OnGroupManageError is told why a session with the coordinator ended.
func (m *bouncedMember) OnGroupManageError(err error) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.h.lost++
	// Of a member that was never in a generation the next coordinator knows nothing.
	for _, thrownOut := range []error{kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.FencedInstanceID} {
		if m.belongs.Load() && errors.Is(err, thrownOut) {
			m.h.failf("%s was thrown out: %v", m.id, err)
		}
	}
}

func bounceMember(c *systest.Cluster, h *groupHistory, id string, opts ...kgo.Opt) *bouncedMember {
	m := &bouncedMember{id: id, h: h, consumer: &consumer{done: make(chan struct{})}}
	gone := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) { h.revoke(id, topics["bounced"]) }
	m.cl = c.Client(append(opts, kgo.ConsumerGroup(h.name), kgo.ConsumeTopics("bounced"), kgo.ClientID(id), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(45*time.Second), kgo.WithHooks(m),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, topics map[string][]int32) {
			var gen int32
			if h.name != "consumer" {
				_, gen = cl.GroupMetadata()
			}
			m.belongs.Store(true)
			h.assign(id, topics["bounced"], gen)
		}),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))...)
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			m.step(ctx)
			m.cl.AllowRebalance()
		}
	}()
	return m
}

func (m *bouncedMember) step(ctx context.Context) {
	records := m.cl.PollRecords(ctx, 1000).Records()
	if len(records) == 0 {
		return
	}
	ends := map[int32]kgo.EpochOffset{}
	for _, r := range records {
		m.h.process(m.id, r.Partition, r.Offset, r.Offset)
		ends[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), systest.Patience)
	defer cancel()
	m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{"bounced": ends}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode == 0 {
				m.h.commit(p.Partition, ends[p.Partition].Offset)
			}
		}
	})
}

// leave ends the member, which tells the group.
func (m *bouncedMember) leave() {
	m.stop()
	<-m.done
	m.cl.CloseAllowingRebalance()
}

// Groups of each protocol read while brokers are killed, coordinators and partitions
// move and members come and go. Nobody reads what another has, no acknowledged commit
// is forgotten, no record is skipped, and none is read again whose commit was
// acknowledged.
func TestGroupsUnderKillsAndMoves(t *testing.T) {
	const partitions = 6
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "bounced", partitions, 1)
	cl := c.Client()
	adm := kadm.NewClient(cl)
	protocols := map[string][]kgo.Opt{
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"consumer":    {kgo.ServerSideBalancer()},
	}
	var groups []*groupHistory
	members := map[*groupHistory][]*bouncedMember{}
	run, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for name, opts := range protocols {
		g := newGroupHistory(name)
		groups = append(groups, g)
		for i := range 3 {
			members[g] = append(members[g], bounceMember(c, g, fmt.Sprint(name, i), opts...))
		}
		wg.Go(func() { g.observe(run, c) })
	}
	// progress waits until each group has read more of each partition, and somebody
	// acknowledged it.
	progress := func(what string) {
		t.Helper()
		before := map[*groupHistory]map[int32]int64{}
		for _, g := range groups {
			g.mu.Lock()
			before[g] = map[int32]int64{}
			for p := range int32(partitions) {
				before[g][p] = g.committed[p]
			}
			g.mu.Unlock()
		}
		systest.Eventually(t, what+": all groups go on", func() error {
			for _, g := range groups {
				g.mu.Lock()
				defer g.mu.Unlock()
				if g.errs != nil {
					t.Fatal(errors.Join(g.errs...))
				}
				for p, o := range before[g] {
					if g.committed[p] < o+20 {
						return fmt.Errorf("%s has not committed anything of partition %d since offset %d", g.name, p, o)
					}
				}
			}
			return nil
		})
	}
	progress("at first")
	begun := time.Now()
	rounds := 0
	for ; rounds < 3 || time.Since(begun) < *bounceFor; rounds++ {
		n := c.Nodes[rounds%3]
		n.Kill()
		progress(fmt.Sprintf("node %d is dead", n.ID))
		n.Start()
		c.WaitLive(3)
		for _, g := range groups {
			members[g][0].leave()
			members[g] = append(members[g][1:], bounceMember(c, g, fmt.Sprint(g.name, rounds+3), protocols[g.name]...))
		}
		// A coordinator that takes over a rebalance does not know who left in it, as in
		// Kafka, and waits for their sessions to end. The long run does that.
		if *bounceFor == 0 {
			progress("members come and go")
		}
		moved, lists := map[int32][]int32{}, map[int32][]int32{}
		for p := range int32(50) {
			moved[p] = []int32{(p+int32(rounds))%3 + 1}
		}
		for p := range int32(partitions) {
			lists[p] = []int32{(p+int32(rounds))%3 + 1}
		}
		for topic, lists := range map[string]map[int32][]int32{"__consumer_offsets": moved, "bounced": lists} {
			if err := reassign(t.Context(), cl, topic, lists); err != nil {
				t.Fatal(err)
			}
		}
		progress("all has moved")
	}
	h.Stop()
	ends, err := adm.ListEndOffsets(t.Context(), "bounced")
	if err != nil {
		t.Fatal(err)
	}
	systest.Eventually(t, "everything is read", func() error {
		for _, g := range groups {
			g.mu.Lock()
			defer g.mu.Unlock()
			for p := range int32(partitions) {
				if end, _ := ends.Lookup("bounced", p); g.committed[p] != end.Offset || g.processed[p] != end.Offset {
					return fmt.Errorf("%s: partition %d is processed to %d, committed to %d, and ends at %d", g.name, p, g.processed[p], g.committed[p], end.Offset)
				}
			}
		}
		return nil
	})
	stop()
	wg.Wait()
	for _, g := range groups {
		for _, m := range members[g] {
			m.leave()
		}
		for _, err := range g.errs {
			t.Error(err)
		}
		times := 0
		for _, n := range g.assigned {
			times += n
		}
		if g.observed == 0 {
			t.Errorf("%s: its offsets were never fetched", g.name)
		}
		t.Logf("%s: %d rounds, %d assignments of partitions, %d sessions lost, %d records of %d read again, offsets fetched %d times", g.name, rounds, times, g.lost, g.again, h.Acked.Load(), g.observed)
	}
	h.Check()
}
