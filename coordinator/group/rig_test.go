package group_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

// rig is a machine with a clock and a log. After every step it holds that the log,
// replayed, and Live say the same as the machine.
type rig struct {
	t   testing.TB
	cfg group.Config
	m   *group.Machine
	now time.Time
	log []coordinator.Record
	ids int
	// loose leaves out the comparison, which costs.
	loose bool
}

const grp = "readers"

func newRig(t testing.TB, edit ...func(*group.Config)) *rig {
	r := &rig{t: t, now: time.UnixMilli(1_700_000_000_000)}
	r.cfg.NewID = func() string { r.ids++; return fmt.Sprint("id", r.ids) }
	r.cfg.InitialRebalanceDelay = 3 * time.Second // longer than ours, so that much fits into it
	for _, f := range edit {
		f(&r.cfg)
	}
	r.m = group.New(r.cfg)
	r.m.Loaded(r.now)
	return r
}

// wrote takes the records of a step and compares.
func (r *rig) wrote(records []coordinator.Record) {
	r.t.Helper()
	r.log = append(r.log, records...)
	if r.loose {
		return
	}
	live, replayed := contents(r.m), contents(r.replay())
	if !slices.Equal(live, replayed) {
		r.t.Fatalf("the log, replayed, is not the state (G3):\n live     %q\n replayed %q", live, replayed)
	}
	want := compacted(r.log)
	if !slices.Equal(live, want) {
		r.t.Fatalf("the live records are not the log without what is old (G3):\n live %q\n log  %q", live, want)
	}
}

// replay is a machine that has read the log.
func (r *rig) replay() *group.Machine {
	r.t.Helper()
	m := group.New(r.cfg)
	for i, rec := range r.log {
		if err := m.Replay(rec, int64(i), r.now.UnixMilli()); err != nil {
			r.t.Fatalf("replay record %d: %v", i, err)
		}
	}
	return m
}

// crash is the loss of the coordinator: another reads the log.
func (r *rig) crash() {
	r.m = r.replay()
	r.m.Loaded(r.now)
}

// contents are the live records, sorted.
func contents(m *group.Machine) []string {
	var out []string
	m.Live(func(rec coordinator.Record) bool {
		out = append(out, string(rec.Key)+"="+string(rec.Value))
		return true
	})
	slices.Sort(out)
	return out
}

// compacted is the log with the last record of every key, without tombstones.
func compacted(log []coordinator.Record) []string {
	last := map[string][]byte{}
	for _, rec := range log {
		last[string(rec.Key)] = rec.Value
	}
	var out []string
	for k, v := range last {
		if v != nil {
			out = append(out, k+"="+string(v))
		}
	}
	slices.Sort(out)
	return out
}

// pass lets time go by, with a Tick whenever the machine wants one.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for range 100_000 {
		next := r.m.Next()
		if next.IsZero() || next.After(end) {
			r.now = end
			return
		}
		if next.After(r.now) {
			r.now = next
		}
		r.wrote(r.m.Tick(r.now))
	}
	r.t.Fatalf("Tick does not end what is due: Next is %v, now %v", r.m.Next(), r.now)
}

// joining is a JoinGroup, perhaps under way.
type joining struct {
	r    *rig
	resp *kmsg.JoinGroupResponse
}

// join sends a JoinGroup with protocols that all clients of a test have unless edit
// says otherwise.
func (r *rig) join(id string, edit ...func(*kmsg.JoinGroupRequest)) *joining {
	r.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, grp, id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	for _, f := range edit {
		f(req)
	}
	j := &joining{r: r}
	r.wrote(r.m.JoinGroup(r.now, group.Caller{ClientID: "app", Host: "/10.0.0.1"}, req, func(resp *kmsg.JoinGroupResponse) {
		if j.resp != nil {
			r.t.Fatalf("JoinGroup of %q was answered twice", id)
		}
		j.resp = resp
	}))
	return j
}

// open says whether it waits.
func (j *joining) open() bool { return j.resp == nil }

// ok is the answer, which must be there.
func (j *joining) ok() *kmsg.JoinGroupResponse {
	j.r.t.Helper()
	if j.resp == nil {
		j.r.t.Fatal("JoinGroup is not answered")
	}
	code(j.r.t, "JoinGroup", j.resp.ErrorCode, nil)
	return j.resp
}

// fails checks the error.
func (j *joining) fails(want *kerr.Error) {
	j.r.t.Helper()
	if j.resp == nil {
		j.r.t.Fatalf("JoinGroup is not answered, want %v", want)
	}
	code(j.r.t, "JoinGroup", j.resp.ErrorCode, want)
}

// joinNew sends both JoinGroups of a new member (KIP-394).
func (r *rig) joinNew(edit ...func(*kmsg.JoinGroupRequest)) (string, *joining) {
	r.t.Helper()
	first := r.join("", edit...)
	first.fails(kerr.MemberIDRequired)
	return first.resp.MemberID, r.join(first.resp.MemberID, edit...)
}

func static(instance string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.InstanceID = &instance }
}

func protocols(names ...string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) {
		q.Protocols = nil
		for _, n := range names {
			q.Protocols = append(q.Protocols, kmsg.JoinGroupRequestProtocol{Name: n, Metadata: subscription("t")})
		}
	}
}

func topics(names ...string) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = subscription(names...) }
}

func atVersion(v int16) func(*kmsg.JoinGroupRequest) {
	return func(q *kmsg.JoinGroupRequest) { q.Version = v }
}

func subscription(names ...string) []byte {
	s := kmsg.NewConsumerMemberMetadata()
	s.Version, s.Topics = 1, names
	return s.AppendTo(nil)
}

// syncing is a SyncGroup, perhaps under way.
type syncing struct {
	r    *rig
	resp *kmsg.SyncGroupResponse
}

// sync sends a SyncGroup; a leader assigns to each member its id.
func (r *rig) sync(id string, generation int32, assign ...string) *syncing {
	r.t.Helper()
	return r.syncWith(id, generation, func(q *kmsg.SyncGroupRequest) {
		for _, m := range assign {
			q.GroupAssignment = append(q.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte("for " + m)})
		}
	})
}

func (r *rig) syncWith(id string, generation int32, edit func(*kmsg.SyncGroupRequest)) *syncing {
	r.t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, grp, id, generation
	edit(req)
	s := &syncing{r: r}
	r.wrote(r.m.SyncGroup(r.now, req, func(resp *kmsg.SyncGroupResponse) {
		if s.resp != nil {
			r.t.Fatalf("SyncGroup of %q was answered twice", id)
		}
		s.resp = resp
	}))
	return s
}

// gets checks the assignment.
func (s *syncing) gets(want string) {
	s.r.t.Helper()
	s.fails(nil)
	if string(s.resp.MemberAssignment) != want {
		s.r.t.Fatalf("assignment is %q, want %q", s.resp.MemberAssignment, want)
	}
}

func (s *syncing) fails(want *kerr.Error) {
	s.r.t.Helper()
	if s.resp == nil {
		s.r.t.Fatalf("SyncGroup is not answered, want %v", want)
	}
	code(s.r.t, "SyncGroup", s.resp.ErrorCode, want)
}

func (r *rig) heartbeat(id string, generation int32, want *kerr.Error) {
	r.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, grp, id, generation
	resp, records := r.m.Heartbeat(r.now, req)
	r.wrote(records)
	code(r.t, "Heartbeat of "+id, resp.ErrorCode, want)
}

func (r *rig) leave(want *kerr.Error, members ...kmsg.LeaveGroupRequestMember) {
	r.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.Members = 5, grp, members
	resp, records := r.m.LeaveGroup(r.now, req)
	r.wrote(records)
	code(r.t, "LeaveGroup", resp.ErrorCode, nil)
	for _, m := range resp.Members {
		code(r.t, "LeaveGroup of "+m.MemberID, m.ErrorCode, want)
	}
}

func member(id string) kmsg.LeaveGroupRequestMember {
	return kmsg.LeaveGroupRequestMember{MemberID: id}
}

// commit commits an offset of partition 0 of t.
func (r *rig) commit(at int64, want *kerr.Error, edit ...func(*kmsg.OffsetCommitRequest)) {
	r.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 9, grp, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = "t", [16]byte{1}
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset, rp.LeaderEpoch = at, 3
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	for _, f := range edit {
		f(req)
	}
	resp, records := r.m.OffsetCommit(r.now, req)
	r.wrote(records)
	for _, ct := range resp.Topics {
		for _, cp := range ct.Partitions {
			code(r.t, fmt.Sprintf("commit of %s-%d", ct.Topic, cp.Partition), cp.ErrorCode, want)
		}
	}
}

func by(id string, generation int32) func(*kmsg.OffsetCommitRequest) {
	return func(q *kmsg.OffsetCommitRequest) { q.MemberID, q.Generation = id, generation }
}

// committed is the offset of a partition of t, -1 for none.
func (r *rig) committed(partition int32) int64 {
	r.t.Helper()
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group = grp
	req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{partition}}}
	resp := r.m.OffsetFetch(req)
	code(r.t, "OffsetFetch", resp.ErrorCode, nil)
	return resp.Topics[0].Partitions[0].Offset
}

// is checks the state of the group, and the number of its members.
func (r *rig) is(state string, members int) {
	r.t.Helper()
	d := r.m.DescribeGroup(grp, 5)
	if d.State != state || len(d.Members) != members {
		r.t.Fatalf("the group is %s with %d members, want %s with %d", d.State, len(d.Members), state, members)
	}
}

func code(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	if e := kerr.ErrorForCode(got); want == nil && e != nil {
		t.Fatalf("%s: %v", what, e)
	} else if want != nil && got != want.Code {
		t.Fatalf("%s: got %v, want %v", what, e, want)
	}
}

// stable makes a group of n members, the first of which leads, and returns their
// ids and its generation.
func (r *rig) stable(n int, edit ...func(*kmsg.JoinGroupRequest)) ([]string, int32) {
	r.t.Helper()
	var ids []string
	var joins []*joining
	for range n {
		id, j := r.joinNew(edit...)
		ids, joins = append(ids, id), append(joins, j)
	}
	r.pass(10 * time.Second) // the initial delay, and what it was lengthened by
	generation := joins[0].ok().Generation
	followers := make([]*syncing, n)
	for i := 1; i < n; i++ {
		followers[i] = r.sync(ids[i], generation)
	}
	r.sync(ids[0], generation, ids...).gets("for " + ids[0])
	for i := 1; i < n; i++ {
		followers[i].gets("for " + ids[i])
	}
	r.is("Stable", n)
	return ids, generation
}
