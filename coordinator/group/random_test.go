package group_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// actor is one consumer of a random history, that does what clients do most of the
// time.
type actor struct {
	r          *rig
	instance   *string
	id         string
	generation int32
	leads      []string // the members, if it leads
	join       *joining
	sync       *syncing
	beat       *beating
	assigned   string
}

// classicHistory runs clients against one group and holds the invariants after every step.
type classicHistory struct {
	*rig
	rnd     *rand.Rand
	clients []*actor
	// newest is the highest generation of a commit that was taken, told the highest
	// that a member joined since the last crash.
	newest, told int32
	// register is what the group committed last.
	register int64
	joined   []int32 // generations, in this step
	commits  int64
	did      map[string]int
}

// Histories of joins, leaves, syncs, heartbeats, commits, silence and crashes keep the
// invariants: G-1 (one owner of each assignment), G-2 (generations grow), G-3 (no
// commit of an older generation after one of a newer), G-4 (a commit is read until the
// next, over crashes), G-6 (with well-behaved clients the group becomes stable), and
// that every call is answered once.
func TestRandomHistories(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	total := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newClassicHistory(t, seed)
			for range 300 {
				h.step()
			}
			h.settle()
			for k, n := range h.did {
				total[k] += n
			}
		})
	}
	for _, k := range []string{"assigned", "committed", "refused", "crash", "replaced", "expired", "told", "disconnected"} {
		if total[k] == 0 {
			t.Errorf("no history has %q", k)
		}
	}
	t.Log(total)
}

func newClassicHistory(t *testing.T, seed uint64) *classicHistory {
	rnd := rand.New(rand.NewPCG(seed, 1))
	h := &classicHistory{rnd: rnd, register: -1, did: map[string]int{}}
	h.rig = newRig(t, func(c *group.Config) { c.MaxSize = 4 + rnd.IntN(3) })
	for i := range 5 {
		c := &actor{r: h.rig}
		if rnd.IntN(3) == 0 {
			name := fmt.Sprint("i", i%2+i) // some names are taken by two
			c.instance = &name
		}
		h.clients = append(h.clients, c)
	}
	return h
}

func (h *classicHistory) step() {
	c := h.clients[h.rnd.IntN(len(h.clients))]
	switch n := h.rnd.IntN(100); {
	case n < 55:
		h.go1(c)
	case n < 70:
		h.commitAs(c)
	case n < 75:
		h.leaveAs(c)
	case n < 80: // restarts
		h.disconnect(c)
		*c = actor{r: h.rig, instance: c.instance}
	case n < 83:
		h.disconnect(c)
	case n < 95:
		h.pass(time.Duration(h.rnd.IntN(4000)) * time.Millisecond)
	case n < 97:
		h.pass(time.Duration(h.rnd.IntN(70)) * time.Second)
		h.did["expired"]++
	default:
		h.crashAll()
	}
	h.check()
}

// crashAll is the loss of the coordinator. Calls under way fail.
func (h *classicHistory) crashAll() {
	h.did["crash"]++
	h.crash()
	for _, c := range h.clients {
		c.join, c.sync, c.beat = nil, nil, nil
	}
	h.told = 0 // generations without an assignment are forgotten, as in Kafka
}

// go1 is the next thing that a client does.
func (h *classicHistory) go1(c *actor) {
	h.collect(c)
	switch {
	case c.join != nil || c.sync != nil:
	case c.id == "" || c.generation == 0:
		version := int16(9 - h.rnd.IntN(7))
		subscribed := fmt.Sprint("t", h.rnd.IntN(2))
		c.join = h.rig.join(c.id, atVersion(version), topics(subscribed), func(q *kmsg.JoinGroupRequest) { q.InstanceID = c.instance })
	case c.assigned == "":
		c.sync = h.syncWith(c.id, c.generation, func(q *kmsg.SyncGroupRequest) {
			q.InstanceID = c.instance
			for _, m := range c.leads {
				q.GroupAssignment = append(q.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: fmt.Appendf(nil, "%s of %d", m, c.generation)})
			}
		})
	case c.beat != nil:
		h.release(c.beat, h.rnd.IntN(10) == 0)
	default:
		c.beat = h.hold(c.id, c.generation)
	}
	h.collect(c)
}

// react is what clients do with an error.
func (c *actor) react(code int16) {
	switch code {
	case 0:
	case kerr.RebalanceInProgress.Code:
		c.generation, c.assigned, c.leads = 0, "", nil
	default: // it is out of the group
		c.id, c.generation, c.assigned, c.leads = "", 0, "", nil
	}
}

// collect takes the answers that came.
func (h *classicHistory) collect(c *actor) {
	if j := c.join; j != nil && !j.open() {
		c.join = nil
		switch resp := j.resp; resp.ErrorCode {
		case 0:
			c.id, c.generation, c.assigned, c.leads = resp.MemberID, resp.Generation, "", nil
			h.joined = append(h.joined, resp.Generation)
			if resp.LeaderID == c.id && !resp.SkipAssignment {
				for _, m := range resp.Members {
					c.leads = append(c.leads, m.MemberID)
				}
			}
			if c.instance != nil && resp.SkipAssignment {
				h.did["replaced"]++
			}
		case kerr.MemberIDRequired.Code:
			c.id = resp.MemberID
		default:
			c.react(resp.ErrorCode)
		}
	}
	if s := c.sync; s != nil && s.resp != nil {
		c.sync = nil
		if c.react(s.resp.ErrorCode); s.resp.ErrorCode == 0 {
			c.assigned = string(s.resp.MemberAssignment)
			h.own(c)
		}
	}
	if b := c.beat; b != nil && b.resp != nil {
		c.beat = nil
		c.react(b.resp.ErrorCode)
		if b.held != nil && b.resp.ErrorCode == kerr.RebalanceInProgress.Code {
			h.did["told"]++
		}
	}
}

// own holds G-1: an assignment of a generation has one owner, and is of the
// generation it is in.
func (h *classicHistory) own(c *actor) {
	h.did["assigned"]++
	if c.assigned == "" {
		c.assigned = "nothing" // the leader did not know it
		return
	}
	var of string
	var generation int32
	if _, err := fmt.Sscanf(c.assigned, "%s of %d", &of, &generation); err != nil || generation != c.generation {
		h.t.Fatalf("%s of generation %d got %q (G-1)", c.id, c.generation, c.assigned)
	}
	for _, other := range h.clients {
		same := other.instance != nil && c.instance != nil && *other.instance == *c.instance
		if other != c && other.assigned == c.assigned && other.generation == c.generation && !same {
			h.t.Fatalf("%s and %s both got %q (G-1)", c.id, other.id, c.assigned)
		}
	}
}

// commitAs commits, maybe with an older generation.
func (h *classicHistory) commitAs(c *actor) {
	if c.id == "" {
		return
	}
	h.collect(c)
	generation := c.generation
	if h.rnd.IntN(4) == 0 {
		generation--
	}
	h.commits++
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = 9, grp, c.id, generation, c.instance
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	rt.Partitions = []kmsg.OffsetCommitRequestTopicPartition{{Offset: h.commits}}
	req.Topics = append(req.Topics, rt)
	resp, records := h.m.OffsetCommit(h.now, req)
	h.wrote(records)
	if resp.Topics[0].Partitions[0].ErrorCode != 0 {
		h.did["refused"]++
		return
	}
	h.did["committed"]++
	if state := h.m.DescribeGroup(grp, 5).State; generation >= 0 && (generation < h.newest || state == "CompletingRebalance") {
		h.t.Fatalf("a commit of generation %d was taken after one of %d, %s (G-3)", generation, h.newest, state)
	}
	h.newest = max(h.newest, generation)
	h.register = h.commits
}

// disconnect ends the connection that a client waits on to join, if its member id is
// known, and half of the time nobody notices.
func (h *classicHistory) disconnect(c *actor) {
	h.collect(c)
	if c.join == nil || h.rnd.IntN(2) == 0 {
		return
	}
	h.did["disconnected"]++
	h.wrote(h.m.Disconnect(h.now, grp, c.id))
	c.join = nil
}

func (h *classicHistory) leaveAs(c *actor) {
	if c.id == "" || c.instance != nil {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.Members = 5, grp, []kmsg.LeaveGroupRequestMember{member(c.id)}
	_, records := h.m.LeaveGroup(h.now, req)
	h.wrote(records)
	*c = actor{r: h.rig, instance: c.instance}
}

func (h *classicHistory) check() {
	for _, c := range h.clients {
		h.collect(c)
		if state := h.m.DescribeGroup(grp, 5).State; c.beat != nil && state != "Stable" {
			h.t.Fatalf("a heartbeat is held while the group is %s", state)
		}
	}
	// Answers are collected late, so only what is older than an earlier step counts.
	if len(h.joined) > 0 {
		if low := slices.Min(h.joined); low < h.told {
			h.t.Fatalf("a member joined generation %d after another joined %d (G-2)", low, h.told)
		}
		h.told = slices.Max(h.joined)
		h.joined = nil
	}
	if got := h.committed(0); got != h.register {
		h.t.Fatalf("offset %d is read, %d was committed last (G-4)", got, h.register)
	}
}

// settle lets all clients do what they should, quickly: the group becomes stable and
// everybody has an assignment (G-6).
func (h *classicHistory) settle() {
	names := map[string]bool{}
	h.clients = slices.DeleteFunc(h.clients, func(c *actor) bool {
		if c.instance == nil {
			return false
		}
		taken := names[*c.instance] // two of a name fence each other for ever
		names[*c.instance] = true
		return taken
	})
	h.clients = h.clients[:min(3, len(h.clients))]
	for range 1200 {
		for _, c := range h.clients {
			h.go1(c)
		}
		h.check()
		done := !slices.ContainsFunc(h.clients, func(c *actor) bool { return c.assigned == "" || c.assigned == "nothing" })
		if d := h.m.DescribeGroup(grp, 5); done && d.State == "Stable" && len(d.Members) == len(h.clients) {
			return
		}
		h.pass(500 * time.Millisecond)
	}
	d := h.m.DescribeGroup(grp, 5)
	h.t.Fatalf("after 10 minutes the group is %s with %d members (G-6)", d.State, len(d.Members))
}
