package group_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// veteran is a cooperative consumer that uses the classic protocol.
type veteran struct {
	b          *bench
	id         string
	instance   *string
	generation int32
	owned      []int32 // of foo
	leads      bool
	members    []string
	joined     *kmsg.JoinGroupResponse
	synced     *kmsg.SyncGroupResponse
}

func (v *veteran) join() *kmsg.JoinGroupResponse {
	v.joined = nil
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = 9, "g", v.id, v.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 45_000, 60_000, "consumer"
	metadata := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"foo"}}
	if len(v.owned) > 0 {
		metadata.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "foo", Partitions: v.owned}}
	}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: metadata.AppendTo(nil)}}
	v.b.keep(v.b.m.JoinGroup(v.b.now, group.Caller{ClientID: "veteran", Host: "/127.0.0.1"}, req, func(r *kmsg.JoinGroupResponse) { v.joined = r }))
	if v.joined != nil && v.joined.ErrorCode == kerr.MemberIDRequired.Code {
		v.id = v.joined.MemberID
		return v.join()
	}
	v.accept()
	return v.joined
}

// accept takes the answer to JoinGroup, if it is there.
func (v *veteran) accept() {
	if v.joined == nil || v.joined.ErrorCode != 0 {
		return
	}
	v.id, v.generation, v.leads = v.joined.MemberID, v.joined.Generation, v.joined.LeaderID == v.joined.MemberID
	v.members = nil
	for _, m := range v.joined.Members {
		v.members = append(v.members, m.MemberID)
	}
}

// sync brings, if it leads, the partitions of each member in its order.
func (v *veteran) sync(given ...[]int32) *kmsg.SyncGroupResponse {
	v.synced = nil
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, "g", v.id, v.instance, v.generation
	for i, id := range v.members {
		a := kmsg.ConsumerMemberAssignment{Version: 1, Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "foo", Partitions: given[i]}}}
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
	}
	v.b.keep(v.b.m.SyncGroup(v.b.now, req, func(r *kmsg.SyncGroupResponse) { v.synced = r }))
	v.assigned()
	return v.synced
}

// assigned takes the answer to SyncGroup, if it is there; it says whether something
// had to be given up, after which a cooperative client joins again.
func (v *veteran) assigned() (gaveUp bool) {
	if v.synced == nil || v.synced.ErrorCode != 0 {
		return false
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(v.synced.MemberAssignment); err != nil {
		v.b.t.Fatalf("assignment of %s: %v", v.id, err)
	}
	var now []int32
	for _, t := range a.Topics {
		now = append(now, t.Partitions...)
	}
	slices.Sort(now)
	gaveUp = slices.ContainsFunc(v.owned, func(p int32) bool { return !slices.Contains(now, p) })
	v.owned = now
	return gaveUp
}

func (v *veteran) heartbeat() error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, "g", v.id, v.instance, v.generation
	resp, records := v.b.m.Heartbeat(v.b.now, req)
	v.b.keep(records)
	return kerr.ErrorForCode(resp.ErrorCode)
}

// live does what a client does next in a consumer group.
func (v *veteran) live() {
	v.b.t.Helper()
	switch err := v.heartbeat(); err {
	case nil:
	case kerr.RebalanceInProgress:
		for v.join() != nil && v.joined.ErrorCode == 0 {
			v.synced = nil
			before := slices.Clone(v.owned)
			v.sync()
			if v.synced == nil || v.synced.ErrorCode != 0 || !slices.ContainsFunc(before, func(p int32) bool { return !slices.Contains(v.owned, p) }) {
				return
			}
		}
	default:
		v.b.t.Fatalf("heartbeat of %s: %v", v.id, err)
	}
}

// stable makes a classic group of two, which have two partitions each.
func stable(t *testing.T, change ...func(*group.Config)) (*bench, *veteran, *veteran) {
	t.Helper()
	b := newBench(t, change...)
	b.topics.put("foo", 4)
	one, two := &veteran{b: b}, &veteran{b: b}
	one.join()
	two.join()
	b.pass(time.Minute - 20*time.Second)
	one.accept()
	two.accept()
	leader, other := one, two
	if two.leads {
		leader, other = two, one
	}
	other.sync()
	leader.sync([]int32{0, 1}, []int32{2, 3})
	other.assigned()
	if len(one.owned) != 2 || len(two.owned) != 2 {
		t.Fatalf("the classic group is not set up: %v and %v", one.owned, two.owned)
	}
	return b, one, two
}

func TestUpgradeOneMemberAfterTheOther(t *testing.T) {
	b, one, two := stable(t)
	generation := one.generation
	fresh := b.subscriber("fresh", "foo")
	fresh.beat()
	if d := b.describe(); d.ErrorCode != 0 || len(d.Members) != 3 || d.Epoch != generation+1 {
		t.Fatalf("after one joined by KIP-848 the group is %+v", d)
	}
	if len(fresh.owned) != 0 {
		t.Fatalf("C1: the new member has %v, which classic members still read", fresh.owned)
	}
	b.sameAfterReplay()
	b.failOver()
	for range 6 {
		b.pass(3 * time.Second)
		one.live()
		two.live()
		fresh.beat()
		read := append(slices.Clone(one.owned), two.owned...)
		for _, p := range fresh.numbers("foo") {
			if slices.Contains(read, p) {
				t.Fatalf("C1: partition %d is read twice: %v %v %v", p, one.owned, two.owned, fresh.owned)
			}
		}
	}
	if len(one.owned)+len(two.owned)+len(fresh.owned) != 4 || len(fresh.owned) == 0 || b.describe().State != "Stable" {
		t.Fatalf("they own %v, %v and %v, the group is %s", one.owned, two.owned, fresh.owned, b.describe().State)
	}
	types := map[int8]int{}
	for _, m := range b.describe().Members {
		types[m.MemberType]++
	}
	if types[0] != 2 || types[1] != 1 {
		t.Errorf("member types %v, want two classic (0) and one consumer (1)", types)
	}
	b.leave(one)
	b.leave(two)
	b.settle(fresh)
	if len(fresh.owned) != 4 {
		t.Errorf("the last one owns %v", fresh.owned)
	}
	b.sameAfterReplay()
}

func (b *bench) leave(v *veteran) {
	b.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: v.id, InstanceID: v.instance}}
	resp, records := b.m.LeaveGroup(b.now, req)
	b.keep(records)
	if resp.ErrorCode != 0 || resp.Members[0].ErrorCode != 0 {
		b.t.Fatalf("leave of %s: %v", v.id, resp)
	}
}

func TestDowngradeWhenTheLastConsumerLeaves(t *testing.T) {
	b, one, two := stable(t)
	fresh := b.subscriber("fresh", "foo")
	for range 6 {
		b.pass(3 * time.Second)
		fresh.beat()
		one.live()
		two.live()
	}
	epoch := b.describe().Epoch
	b.beat(request("fresh", -1))
	if d := b.describe(); d.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Fatalf("after the last consumer left the group is still %+v", d)
	}
	if list := b.m.ListGroups(nil, []string{"classic"}); len(list) != 1 || list[0].ProtocolType != "consumer" {
		t.Fatalf("listed as %+v", list)
	}
	b.sameAfterReplay()
	one.join()
	two.join()
	one.accept()
	two.accept()
	if one.joined == nil || one.joined.ErrorCode != 0 || one.generation <= epoch {
		t.Fatalf("C2: generation %d after epoch %d, answer %+v", one.generation, epoch, one.joined)
	}
}

func TestMigrationCanBeForbidden(t *testing.T) {
	b, _, _ := stable(t, func(c *group.Config) { c.Consumer.Migration = group.MigrateDown })
	answers(t, b.beat(firstBeat("fresh", "foo")), kerr.GroupIDNotFound)
	if list := b.m.ListGroups(nil, []string{"classic"}); len(list) != 1 {
		t.Errorf("the classic group is gone")
	}
	b.sameAfterReplay()
}

func TestAnEmptyGroupTakesEitherProtocol(t *testing.T) {
	b, one, two := stable(t)
	b.leave(one)
	b.leave(two)
	fresh := b.subscriber("fresh", "foo")
	b.settle(fresh)
	if len(fresh.owned) != 4 {
		t.Fatalf("owned %v", fresh.owned)
	}
	b.sameAfterReplay()
	b.beat(request("fresh", -1))
	again := &veteran{b: b}
	again.join()
	b.pass(40 * time.Second)
	again.accept()
	if again.joined == nil || again.joined.ErrorCode != 0 {
		t.Fatalf("a classic member cannot join an empty consumer group: %+v", again.joined)
	}
	again.sync([]int32{0, 1, 2, 3})
	b.sameAfterReplay()
}

func TestClassicMembersOfConsumerGroupsAreFenced(t *testing.T) {
	b, one, two := stable(t)
	fresh := b.subscriber("fresh", "foo")
	fresh.beat()
	stale := *one
	stale.generation--
	if err := stale.heartbeat(); err != kerr.IllegalGeneration {
		t.Errorf("heartbeat of an old generation: %v", err)
	}
	stranger := &veteran{b: b, id: "stranger"}
	if err := stranger.heartbeat(); err != kerr.UnknownMemberID {
		t.Errorf("heartbeat of a stranger: %v", err)
	}
	if err := (&veteran{b: b, id: "fresh", generation: fresh.epoch}).heartbeat(); err != kerr.UnknownMemberID {
		t.Errorf("a member by KIP-848 is heard by the classic protocol: %v", err)
	}
	// Who is told to join again and does not is removed after its rebalance timeout.
	if err := two.heartbeat(); err != kerr.RebalanceInProgress {
		t.Fatalf("heartbeat: %v", err)
	}
	for range 21 {
		b.pass(3 * time.Second)
		one.live()
		fresh.beat()
		_ = two.heartbeat()
	}
	if err := two.heartbeat(); err != kerr.UnknownMemberID {
		t.Errorf("who does not join again: %v", err)
	}
	b.sameAfterReplay()
}

func TestAClassicMemberIsToldWhenWhatItWaitsForIsFree(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 4)
	fresh := b.subscriber("fresh", "foo")
	b.settle(fresh)
	late := &veteran{b: b}
	late.join()
	late.sync()
	if len(late.owned) != 0 {
		t.Fatalf("C1: the classic member has %v, which another reads", late.owned)
	}
	if err := late.heartbeat(); err != nil {
		t.Errorf("heartbeat while nothing is free: %v", err)
	}
	fresh.beat() // gives up two
	fresh.beat() // says so
	if err := late.heartbeat(); err != kerr.RebalanceInProgress {
		t.Fatalf("heartbeat after two became free: %v", err)
	}
	late.live()
	if len(late.owned) != 2 || len(fresh.owned) != 2 {
		t.Errorf("they own %v and %v", late.owned, fresh.numbers("foo"))
	}
	b.sameAfterReplay()
}
