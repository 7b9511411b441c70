package group_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/coordinator/group/assignor"
)

// witness holds what the clients of a group saw against the invariants.
type witness struct {
	*death
	lock sync.Mutex
	// owner is who was assigned a partition in a generation, classic; holder is who has
	// it now, consumer.
	owner  map[string]string
	holder map[int32]string
	// assigned is the highest generation of an assignment, committed that of a commit.
	assigned, committed int32
	// acked are the offsets committed last, -1 for none; tried the highest sent.
	acked, tried [4]int64
	deleted      bool // offsets may be gone
}

func newWitness(d *death) *witness {
	return &witness{death: d, owner: map[string]string{}, holder: map[int32]string{}, acked: [4]int64{-1, -1, -1, -1}, tried: [4]int64{-1, -1, -1, -1}}
}

// gave notes the assignment of a generation (G-1, G-2).
func (w *witness) gave(member string, generation int32, partitions []int32) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if generation < w.assigned {
		w.t.Errorf("%s was assigned in generation %d, after %d (G-2)", member, generation, w.assigned)
	}
	w.assigned = generation
	for _, p := range partitions {
		k := fmt.Sprint(generation, "/", p)
		if other := w.owner[k]; other != "" && other != member {
			w.t.Errorf("%s and %s both have partition %d in generation %d (G-1)", other, member, p, generation)
		}
		w.owner[k] = member
	}
}

// commit sends the next offset of some partitions, and maybe an older one by who is
// fenced (G-3).
func (w *witness) commit(at *coordinator.Shards[*group.Machine], member string, generation int32, partitions []int32) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, grp, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	w.lock.Lock()
	newest := w.committed
	for _, p := range partitions {
		w.tried[p]++
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, w.tried[p]
		rt.Partitions = append(rt.Partitions, rp)
	}
	w.lock.Unlock()
	req.Topics = append(req.Topics, rt)
	resp, err := tell(w.death, at, func(m *group.Machine, now time.Time) (*kmsg.OffsetCommitResponse, []coordinator.Record) {
		return m.OffsetCommit(now, req)
	})
	if err != nil {
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for i, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			continue
		}
		if generation >= 0 && generation < newest {
			w.t.Errorf("a commit of generation %d by %s was taken after one of %d (G-3)", generation, member, newest)
		}
		w.committed = max(w.committed, generation)
		w.acked[p.Partition] = max(w.acked[p.Partition], rt.Partitions[i].Offset)
	}
}

// read holds the offsets against what was committed (G-4).
func (w *witness) read() {
	w.lock.Lock()
	least := w.acked
	w.lock.Unlock()
	got, err := w.offsets()
	if err != nil {
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for p, at := range got {
		if at > w.tried[p] || at < least[p] && !w.deleted {
			w.t.Errorf("offset %d of partition %d is read, %d was committed and %d sent (G-4)", at, p, least[p], w.tried[p])
		}
	}
}

// until runs f each second until it says that it is done or time is up.
func until(end time.Time, f func() bool) {
	for time.Now().Before(end) && !f() {
		time.Sleep(time.Second)
	}
}

// classicClient is a consumer of the classic protocol, with a stock client's manners.
type classicClient struct {
	w          *witness
	id         string
	generation int32
	leads      []string
	have       []int32
	synced     bool
	beats      int
}

func (c *classicClient) reset(code int16) {
	if code != kerr.RebalanceInProgress.Code {
		c.id = ""
	}
	c.generation, c.leads, c.have, c.synced = 0, nil, nil, false
}

// step does the next thing, and says whether it has an assignment.
func (c *classicClient) step() bool {
	switch {
	case c.generation == 0:
		c.join()
	case !c.synced:
		c.sync()
	default:
		c.beat()
	}
	return c.synced
}

func (c *classicClient) join() {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, grp, c.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 20_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	resp, err := coordinatorAsk(c.w.death, c.w.current(), func(m *group.Machine, now time.Time, reply func(*kmsg.JoinGroupResponse)) []coordinator.Record {
		return m.JoinGroup(now, group.Caller{}, req, reply)
	})
	switch {
	case err != nil:
	case resp.ErrorCode == kerr.MemberIDRequired.Code:
		c.id = resp.MemberID
		c.join()
	case resp.ErrorCode != 0:
		c.reset(resp.ErrorCode)
	default:
		c.id, c.generation = resp.MemberID, resp.Generation
		for _, m := range resp.Members {
			c.leads = append(c.leads, m.MemberID)
		}
		c.sync()
	}
}

func (c *classicClient) sync() {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, grp, c.id, c.generation
	for i, m := range c.leads {
		a := kmsg.SyncGroupRequestGroupAssignment{MemberID: m}
		for p := i; p < 4; p += len(c.leads) {
			a.MemberAssignment = append(a.MemberAssignment, byte(p))
		}
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	resp, err := coordinatorAsk(c.w.death, c.w.current(), func(m *group.Machine, now time.Time, reply func(*kmsg.SyncGroupResponse)) []coordinator.Record {
		return m.SyncGroup(now, req, reply)
	})
	switch {
	case err != nil:
	case resp.ErrorCode != 0:
		c.reset(resp.ErrorCode)
	default:
		c.synced = true
		for _, p := range resp.MemberAssignment {
			c.have = append(c.have, int32(p))
		}
		c.w.gave(c.id, c.generation, c.have)
	}
}

func (c *classicClient) beat() {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, grp, c.id, c.generation
	resp, err := tell(c.w.death, c.w.current(), func(m *group.Machine, now time.Time) (*kmsg.HeartbeatResponse, []coordinator.Record) {
		return m.Heartbeat(now, req)
	})
	if c.beats++; c.beats%3 == 0 {
		c.w.commit(c.w.current(), c.id, c.generation, c.have)
		if c.generation > 1 {
			c.w.commit(c.w.current(), c.id, c.generation-1, c.have) // must be refused if another came after it
		}
	}
	if err == nil && resp.ErrorCode != 0 {
		c.reset(resp.ErrorCode)
	}
}

func (c *classicClient) leave() bool {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.Members = 5, grp, []kmsg.LeaveGroupRequestMember{member(c.id)}
	_, err := tell(c.w.death, c.w.current(), func(m *group.Machine, now time.Time) (*kmsg.LeaveGroupResponse, []coordinator.Record) {
		return m.LeaveGroup(now, req)
	})
	return err == nil
}

// consumerClient is a consumer of the protocol of KIP-848.
type consumerClient struct {
	w     *witness
	id    string
	epoch int32
	have  []int32
	said  bool // the coordinator knows all that there is to say
	beats int
}

// drops gives up what is not in the list; takes takes the list.
func (c *consumerClient) drops(keep []int32) {
	c.w.lock.Lock()
	defer c.w.lock.Unlock()
	for _, p := range c.have {
		if !slices.Contains(keep, p) {
			delete(c.w.holder, p)
		}
	}
	c.have = slices.DeleteFunc(c.have, func(p int32) bool { return !slices.Contains(keep, p) })
}

func (c *consumerClient) takes(list []int32) {
	c.w.lock.Lock()
	defer c.w.lock.Unlock()
	for _, p := range list {
		if other := c.w.holder[p]; other != "" && other != c.id {
			c.w.t.Errorf("%s and %s both have partition %d (G-1)", other, c.id, p)
		}
		c.w.holder[p] = c.id
	}
	c.have = list
}

func (c *consumerClient) step() bool {
	topic := c.w.topics.topics["t"].ID
	req := firstBeat(c.id, "t")
	req.Group, req.MemberEpoch = grp, c.epoch
	if c.epoch > 0 && c.said {
		req = request(c.id, c.epoch)
		req.Group = grp
	}
	if c.epoch > 0 {
		rt := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		rt.TopicID, rt.Partitions = topic, c.have
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{rt}
	}
	resp, err := tell(c.w.death, c.w.current(), func(m *group.Machine, now time.Time) (*kmsg.ConsumerGroupHeartbeatResponse, []coordinator.Record) {
		return m.ConsumerGroupHeartbeat(now, group.Caller{}, &req)
	})
	c.said = err == nil
	switch {
	case err != nil:
		return false
	case resp.ErrorCode != 0:
		c.drops(nil)
		c.epoch = 0
		return false
	case resp.MemberEpoch < c.epoch:
		c.w.t.Errorf("%s goes from epoch %d back to %d (G-2)", c.id, c.epoch, resp.MemberEpoch)
	}
	c.epoch = resp.MemberEpoch
	if resp.Assignment != nil {
		var list []int32
		for _, t := range resp.Assignment.Topics {
			list = append(list, t.Partitions...)
		}
		before := len(c.have)
		if c.drops(list); len(c.have) == before {
			c.takes(list) // else it takes them when it has said what it gave up
		} else {
			return false
		}
	}
	if c.beats++; c.beats%3 == 0 && len(c.have) > 0 {
		c.w.commit(c.w.current(), c.id, c.epoch, c.have)
	}
	return len(c.have) > 0
}

func (c *consumerClient) leave() bool {
	req := request(c.id, -1)
	req.Group = grp
	c.drops(nil)
	_, err := tell(c.w.death, c.w.current(), func(m *group.Machine, now time.Time) (*kmsg.ConsumerGroupHeartbeatResponse, []coordinator.Record) {
		return m.ConsumerGroupHeartbeat(now, group.Caller{}, &req)
	})
	return err == nil
}

// client is one of either.
type client interface {
	step() bool
	leave() bool
}

// live is the life of a group: two members, of which one leaves; another comes and falls
// silent; the last leaves; offsets are deleted, and the rest expires.
func (w *witness) live(newClient func(name string) client) {
	begun := time.Now()
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	var wg sync.WaitGroup
	a, b, c := newClient("a"), newClient("b"), newClient("c")
	wg.Go(func() {
		until(at(150), func() bool { a.step(); w.read(); return false })
		if !a.step() {
			w.t.Error("who stayed has nothing in the end (G-6)")
		}
		until(at(170), a.leave)
	})
	wg.Go(func() {
		until(at(30), func() bool { b.step(); return false })
		until(at(50), b.leave)
	})
	time.Sleep(time.Until(at(55)))
	until(at(75), func() bool { c.step(); return false }) // and then it says nothing more
	if cc, ok := c.(*consumerClient); ok {
		cc.drops(nil)
	}
	wg.Wait()
	w.lock.Lock()
	last := w.acked
	w.deleted = true
	w.lock.Unlock()
	for p, n := range last {
		if n < 1 {
			w.t.Errorf("partition %d got no further than %d (G-6)", p, n)
		}
	}
	gone := false
	until(at(200), func() bool {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = grp
		req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}}}}
		resp, err := tell(w.death, w.current(), func(m *group.Machine, _ time.Time) (*kmsg.OffsetDeleteResponse, []coordinator.Record) {
			return m.OffsetDelete(req)
		})
		gone = err == nil && resp.ErrorCode == 0 && resp.Topics[0].Partitions[0].ErrorCode == 0
		return gone
	})
	if got, err := w.offsets(); err != nil || !gone || got[1] != -1 || got[0] < last[0] {
		w.t.Errorf("offsets %v, %v, want none of partition 1", got, err)
	}
	time.Sleep(2 * time.Minute)
	groups := -1
	until(time.Now().Add(time.Minute), func() bool {
		n, err := tell(w.death, w.current(), func(m *group.Machine, _ time.Time) (int, []coordinator.Record) {
			return len(m.ListGroups(nil, nil)), nil
		})
		if err == nil {
			groups = n
		}
		return groups == 0
	})
	if groups != 0 {
		w.t.Errorf("%d groups are left after their time", groups)
	}
	// The dead have their say, and nothing of it counts.
	for _, s := range w.old {
		if _, err := tell(w.death, s, func(m *group.Machine, _ time.Time) (int, []coordinator.Record) {
			return len(m.ListGroups(nil, nil)), nil
		}); err == nil {
			w.t.Error("a coordinator that lost its log answered (ans-2)")
		}
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 9, grp, -1
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 99}}}}
		if _, err := tell(w.death, s, func(m *group.Machine, now time.Time) (*kmsg.OffsetCommitResponse, []coordinator.Record) {
			return m.OffsetCommit(now, req)
		}); err == nil {
			w.t.Error("a coordinator that lost its log took a commit (G-3)")
		}
	}
}

// The coordinator dies at each append of the life of a group, at each point on its way,
// and another takes over (correctness.md f, rows 15, 16, 17: no commit that was
// acknowledged is lost or expires, none of a zombie counts).
func TestACoordinatorDiesAtEachStep(t *testing.T) {
	for _, protocol := range []string{"classic", "consumer"} {
		run := func(at int, kind fault) (appends int) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeath(t, at, kind)
				d.topics.topics = map[string]assignor.Topic{}
				d.topics.put("t", 4)
				w := newWitness(d)
				w.live(func(name string) client {
					if protocol == "classic" {
						return &classicClient{w: w}
					}
					return &consumerClient{w: w, id: name}
				})
				appends = d.appends
				if t.Failed() {
					t.Logf("%s: death at append %d, %v", protocol, at, kind)
				}
			})
			return appends
		}
		all := run(0, noFault)
		if all < 20 {
			t.Fatalf("%s: %d appends are too few", protocol, all)
		}
		step := 1
		if testing.Short() {
			step = 5
		}
		for at := 1; at <= all && !t.Failed(); at += step {
			for kind := beforeAppend; kind <= lostAnswer; kind++ {
				run(at, kind)
			}
		}
		t.Logf("%s: %d appends", protocol, all)
	}
}
