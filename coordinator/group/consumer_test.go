package group_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

func ptr(s string) *string { return &s }

func TestConsumerHeartbeatsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		{"no member id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, kerr.InvalidRequest},
		{"empty instance id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr("") }, kerr.InvalidRequest},
		{"member id of spaces", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = " " }, kerr.InvalidRequest},
		{"instance id of spaces", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr(" ") }, kerr.InvalidRequest},
		{"empty rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = ptr("") }, kerr.InvalidRequest},
		{"epoch below -2", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }, kerr.InvalidRequest},
		{"static leave without instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }, kerr.InvalidRequest},
		{"join without rebalance timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		{"join without owned partitions", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		{"join with owned partitions", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{Partitions: []int32{1}}}
		}, kerr.InvalidRequest},
		{"join without subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, kerr.InvalidRequest},
		{"unknown assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = ptr("sticky") }, kerr.UnsupportedAssignor},
		{"bad expression", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("[") }, kerr.InvalidRegularExpression},
		{"expression that closes what it did not open", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("a)|(b") }, kerr.InvalidRegularExpression},
		{"unknown group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 1 }, kerr.GroupIDNotFound},
		{"leave of an unknown group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 }, kerr.GroupIDNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			req := firstBeat("m", "foo")
			c.change(&req)
			answers(t, b.beat(req), c.want)
			if len(b.log) > 0 || len(state(b.m)) > 0 {
				t.Errorf("a refused heartbeat left %d records and %v", len(b.log), state(b.m))
			}
		})
	}
}

func TestVersion0GetsItsMemberIDFromTheCoordinator(t *testing.T) {
	b := newBench(t)
	req := firstBeat("", "foo")
	req.Version = 0
	resp := b.beat(req)
	answers(t, resp, nil)
	if *resp.MemberID == "" || resp.MemberEpoch != 1 || resp.HeartbeatIntervalMillis != 3000 || resp.Assignment == nil {
		t.Errorf("got %+v", resp)
	}
}

// Whatever else it says.
func TestWhoLeavesIsLetGo(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 1)
	answers(t, b.beat(firstBeat("m", "foo")), nil)
	req := request("m", -1)
	req.SubscribedTopicRegex = ptr("(")
	answers(t, b.beat(req), nil)
	if got := b.describe(); len(got.Members) != 0 {
		t.Errorf("the members are %+v", got.Members)
	}
}

// An administrator takes a member out by its id; the classic protocol serves for it.
func TestAMemberIsTakenOutByItsID(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 1)
	answers(t, b.beat(firstBeat("m", "foo")), nil)
	still := firstBeat("s", "foo")
	still.InstanceID = ptr("i")
	answers(t, b.beat(still), nil)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, "g"
	for _, l := range []struct {
		id       string
		instance *string
	}{{"x", nil}, {"m", ptr("i")}, {"", ptr("k")}, {"m", nil}, {"", ptr("i")}} {
		req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: l.id, InstanceID: l.instance})
	}
	resp, records := b.m.LeaveGroup(b.now, req)
	b.keep(records)
	for i, want := range []*kerr.Error{kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.UnknownMemberID, nil, nil} {
		code(t, "leave", resp.Members[i].ErrorCode, want)
	}
	if got := b.describe(); len(got.Members) != 0 {
		t.Errorf("the members are %+v", got.Members)
	}
	b.sameAfterReplay()
}

// Only who says nothing of itself reads as an administrator does.
func TestWhoMayFetchOffsetsOfAConsumerGroup(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 1)
	answers(t, b.beat(firstBeat("m", "foo")), nil)
	for _, c := range []struct {
		id    *string
		epoch int32
		want  *kerr.Error
	}{{nil, -1, nil}, {ptr("m"), 1, nil}, {ptr("m"), 2, kerr.StaleMemberEpoch}, {ptr("m"), -1, kerr.StaleMemberEpoch},
		{ptr(""), -1, kerr.UnknownMemberID}, {nil, 1, kerr.UnknownMemberID}} {
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group, req.MemberID, req.MemberEpoch = "g", c.id, c.epoch
		code(t, "fetch", b.m.OffsetFetch(req).ErrorCode, c.want)
	}
}

func TestDescribingConsumerGroups(t *testing.T) {
	b := newBench(t)
	code(t, "no group", b.m.DescribeConsumerGroup("").ErrorCode, kerr.InvalidGroupID)
	code(t, "unknown group", b.m.DescribeConsumerGroup("g").ErrorCode, kerr.GroupIDNotFound)
	answers(t, b.beat(firstBeat("m", "foo")), nil)
	if got := b.describe().Members[0].SubscribedTopicRegex; got == nil || *got != "" {
		t.Errorf("no expression is shown as %v, want an empty one", got)
	}
}

func TestPartitionsChangeHandsOnlyWhenGivenUp(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 4)
	one, two := b.subscriber("one", "foo"), b.subscriber("two", "foo")
	one.beat()
	if got := one.numbers("foo"); len(got) != 4 {
		t.Fatalf("the only member owns %v", got)
	}
	resp := two.beat()
	if two.epoch != 2 || len(two.owned) != 0 || b.describe().State != "Reconciling" {
		t.Fatalf("C1: a second member has %v at epoch %d before the first gave anything up: %+v", two.owned, two.epoch, resp)
	}
	if resp.HeartbeatIntervalMillis != 300 {
		t.Errorf("who waits for partitions is told to ask again in %d ms, want 300", resp.HeartbeatIntervalMillis)
	}
	one.beat() // is told to give up
	if got := b.describe().Members[0]; len(got.Assignment.TopicPartitions[0].Partitions) != 4 || len(got.TargetAssignment.TopicPartitions[0].Partitions) != 2 {
		t.Errorf("who has not given up yet is shown as %+v", got)
	}
	if one.epoch != 1 || len(one.owned) != 2 {
		t.Fatalf("the first owns %v at epoch %d, want 2 of the old epoch", one.owned, one.epoch)
	}
	two.beat()
	if len(two.owned) != 0 {
		t.Fatalf("C1: the second got %v before the first said that it gave up", two.owned)
	}
	one.beat() // says so
	if one.epoch != 2 {
		t.Fatalf("C4: the first is at epoch %d after it gave up", one.epoch)
	}
	if resp := two.beat(); resp.HeartbeatIntervalMillis != 3000 {
		t.Errorf("who has all its partitions is told to come again in %d ms, want 3000", resp.HeartbeatIntervalMillis)
	}
	if len(two.owned) != 2 || b.describe().State != "Stable" {
		t.Fatalf("the second owns %v, the group is %s", two.owned, b.describe().State)
	}
	b.sameAfterReplay()
}

func TestEpochsFence(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 2)
	one, two, three := b.subscriber("one", "foo"), b.subscriber("two", "foo"), b.subscriber("three", "foo")
	b.settle(one)
	b.settle(one, two)
	b.settle(one, two, three)
	epoch := one.epoch
	answers(t, b.beat(request("one", epoch+1)), kerr.FencedMemberEpoch)
	answers(t, b.beat(request("nobody", epoch)), kerr.UnknownMemberID)
	answers(t, b.beat(request("nobody", -1)), kerr.UnknownMemberID)
	// The epoch before is only for who owns nothing that it may not.
	answers(t, b.beat(request("one", epoch-1)), kerr.FencedMemberEpoch) // says nothing
	stranger := one.next()
	stranger.MemberEpoch = epoch - 1
	stranger.Topics = append(stranger.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: [16]byte{9}, Partitions: []int32{7}})
	answers(t, b.beat(stranger), kerr.FencedMemberEpoch)
	lost := one.next()
	lost.MemberEpoch = epoch - 1
	resp := b.beat(lost)
	answers(t, resp, nil)
	if resp.MemberEpoch != epoch || resp.Assignment == nil {
		t.Errorf("C3: who lost a reply is told epoch %d and assignment %v", resp.MemberEpoch, resp.Assignment)
	}
	lost.MemberEpoch = epoch - 2
	answers(t, b.beat(lost), kerr.FencedMemberEpoch)
}

func TestSessionsEnd(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 2)
	one, two := b.subscriber("one", "foo"), b.subscriber("two", "foo")
	b.settle(one, two)
	for range 10 {
		b.pass(5 * time.Second)
		one.beat()
	}
	if got := b.describe().Members; len(got) != 1 || got[0].MemberID != "one" {
		t.Fatalf("members are %v", got)
	}
	if len(one.owned) != 2 {
		t.Errorf("the one left owns %v", one.owned)
	}
	answers(t, two.beat(), kerr.UnknownMemberID)
	b.pass(time.Minute)
	if d := b.describe(); d.State != "Empty" || len(d.Members) != 0 {
		t.Errorf("without members the group is %s", d.State)
	}
	b.sameAfterReplay()
}

func TestWhoDoesNotGiveUpInTimeIsFenced(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 2)
	one, two := b.subscriber("one", "foo"), b.subscriber("two", "foo")
	one.beat()
	two.beat()
	stubborn := one.next() // owns both, and will go on saying so
	for range 5 {
		answers(t, b.beat(stubborn), nil)
		b.pass(5 * time.Second)
		two.beat()
	}
	if len(two.owned) != 0 {
		t.Fatalf("C1: the second owns %v", two.owned)
	}
	b.pass(6 * time.Second) // 31 s, of 30
	answers(t, b.beat(stubborn), kerr.UnknownMemberID)
	two.beat()
	if len(two.owned) != 2 {
		t.Errorf("the second owns %v after the first was fenced", two.owned)
	}
	b.sameAfterReplay()
}

func TestStaticMembersKeepTheirPartitions(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 4)
	one, two := b.subscriber("one", "foo"), b.subscriber("two", "foo")
	one.first.InstanceID = ptr("static")
	b.settle(one, two)
	owned, epoch := one.numbers("foo"), b.describe().Epoch

	usurper := firstBeat("other", "foo")
	usurper.InstanceID = ptr("static")
	answers(t, b.beat(usurper), kerr.UnreleasedInstanceID)
	wrong := request("other", 1)
	wrong.InstanceID = ptr("static")
	answers(t, b.beat(wrong), kerr.FencedInstanceID)
	wrong.InstanceID = ptr("nobody")
	answers(t, b.beat(wrong), kerr.UnknownMemberID)

	leave := request("one", -2)
	leave.InstanceID = ptr("static")
	resp := b.beat(leave)
	answers(t, resp, nil)
	if resp.MemberEpoch != -2 {
		t.Errorf("a static leave is answered with epoch %d", resp.MemberEpoch)
	}
	two.beat()
	if len(two.owned) != 2 {
		t.Fatalf("the other took %v while a static member was away", two.owned)
	}
	b.failOver()
	again := b.subscriber("one-again", "foo")
	again.first.InstanceID = ptr("static")
	again.beat()
	if got := again.numbers("foo"); !slices.Equal(got, owned) {
		t.Errorf("who comes back owns %v, had %v", got, owned)
	}
	if got := b.describe().Epoch; got != epoch {
		t.Errorf("group epoch went from %d to %d for a restart", epoch, got)
	}
	answers(t, b.beat(request("one", epoch)), kerr.UnknownMemberID)
	b.sameAfterReplay()

	leave.MemberID = "one-again"
	b.beat(leave)
	b.pass(46 * time.Second)
	two.beat() // expired as well: joins again
	two.beat()
	if len(two.owned) != 4 {
		t.Errorf("a static member that stayed away keeps partitions: the other owns %v", two.owned)
	}
}

func TestLeavingFreesAtOnce(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 2)
	one, two := b.subscriber("one", "foo"), b.subscriber("two", "foo")
	b.settle(one, two)
	resp := b.beat(request("one", -1))
	if resp.MemberEpoch != -1 {
		t.Errorf("a leave is answered with epoch %d", resp.MemberEpoch)
	}
	two.beat()
	if len(two.owned) != 2 {
		t.Errorf("the one left owns %v", two.owned)
	}
	b.sameAfterReplay()
}

func TestGroupsHaveALimit(t *testing.T) {
	b := newBench(t, func(c *group.Config) { c.Consumer.MaxSize = 1 })
	one := b.subscriber("one", "foo")
	answers(t, one.beat(), nil)
	answers(t, b.beat(firstBeat("two", "foo")), kerr.GroupMaxSizeReached)
	answers(t, b.beat(firstBeat("one", "foo")), nil)
}

func TestExpressionsFollowTheTopics(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo1", 1)
	b.topics.put("bar", 1)
	b.topics.put("xfoo1", 1)
	one := b.subscriber("one")
	one.first.SubscribedTopicNames, one.first.SubscribedTopicRegex = nil, ptr("foo.|bar")
	one.beat()
	if len(one.owned) != 2 {
		t.Fatalf("owned %v, want foo1 and bar: the whole name must match", one.owned)
	}
	epoch := one.epoch
	b.topics.put("foo2", 3)
	b.topics.put("baz", 3)
	b.settle(one)
	if got := one.numbers("foo2"); len(got) != 3 || one.epoch != epoch+1 {
		t.Errorf("owned %v of a new topic at epoch %d, want 3 at %d", got, one.epoch, epoch+1)
	}
	b.sameAfterReplay()
	b.topics.drop("foo1")
	b.settle(one)
	if len(one.owned) != 4 {
		t.Errorf("owned %v after a topic was deleted", one.owned)
	}
	req := one.first
	req.MemberEpoch, req.Topics = one.epoch, one.next().Topics
	req.SubscribedTopicRegex = ptr("")
	req.SubscribedTopicNames = []string{"baz"}
	one.take(b.beat(req))
	b.settle(one)
	if len(one.numbers("baz")) != 3 || len(one.owned) != 3 {
		t.Errorf("owned %v after the subscription changed", one.owned)
	}
	for _, s := range state(b.m) {
		if s[:6] == `"\x00\x10` {
			t.Errorf("an expression that nobody uses is kept: %s", s)
		}
	}
	b.sameAfterReplay()
}

func TestNewPartitionsAreAssigned(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 1)
	one := b.subscriber("one", "foo", "later")
	b.settle(one)
	b.topics.put("foo", 3)
	b.topics.put("later", 2)
	b.settle(one)
	if len(one.owned) != 5 {
		t.Errorf("owned %v", one.owned)
	}
}

func TestRacksMatterOnlyToWhoHasOne(t *testing.T) {
	for rack, bumps := range map[string]bool{"": false, "a": true} {
		b := newBench(t)
		b.topics.put("foo", 1, "a")
		one := b.subscriber("one", "foo")
		if rack != "" {
			one.first.RackID = &rack
		}
		b.settle(one)
		epoch := one.epoch
		b.topics.put("foo", 1, "b")
		b.settle(one)
		if got := one.epoch > epoch; got != bumps {
			t.Errorf("rack %q: a replica moved, a new epoch: %v, want %v", rack, got, bumps)
		}
	}
}

func TestTheMostWantedAssignorIsUsed(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 4)
	one, two, three := b.subscriber("one", "foo"), b.subscriber("two", "foo"), b.subscriber("three", "foo")
	b.settle(one, two)
	if got := b.describe().AssignorName; got != "uniform" {
		t.Errorf("assignor is %s", got)
	}
	three.first.ServerAssignor = ptr("range")
	b.settle(one, two, three)
	if got := b.describe().AssignorName; got != "range" {
		t.Errorf("assignor is %s, the only one that is asked for is range", got)
	}
}

func TestHeartbeatsThatChangeNothingWriteNothing(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 4)
	one := b.subscriber("one", "foo")
	b.settle(one)
	n := len(b.log)
	resp := b.beat(request("one", one.epoch))
	if len(b.log) != n || resp.Assignment != nil {
		t.Errorf("wrote %d records, assignment %v", len(b.log)-n, resp.Assignment)
	}
	if resp := b.beat(one.first); resp.Assignment == nil { // joins again
		t.Errorf("who joins again is not told what it has")
	}
	b.failOver()
	n = len(b.log)
	b.beat(request("one", one.epoch))
	if len(b.log) != n {
		t.Errorf("the first heartbeat after a failover wrote %d records", len(b.log)-n)
	}
}

func TestOffsetsNeedTheMembersEpoch(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 2)
	commit := func(version int16, id string, epoch, partition int32) error {
		req := kmsg.NewOffsetCommitRequest()
		req.Version, req.Group, req.MemberID, req.Generation = version, "g", id, epoch
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = partition, 1
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.Partitions = "foo", append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, records := b.m.OffsetCommit(b.now, &req)
		b.keep(records)
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	fetch := func(id *string, epoch int32) error {
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group, req.MemberID, req.MemberEpoch = "g", id, epoch
		return kerr.ErrorForCode(b.m.OffsetFetch(req).ErrorCode)
	}
	one := b.subscriber("one", "foo")
	b.settle(one)
	two := b.subscriber("two", "foo")
	b.settle(one, two)
	kept, lost := one.numbers("foo")[0], two.numbers("foo")[0]
	for _, c := range []struct {
		name string
		got  error
		want *kerr.Error
	}{
		{"the current epoch", commit(9, "one", one.epoch, kept), nil},
		{"an older epoch, a partition it has had since", commit(9, "one", one.epoch-1, kept), nil},
		{"an older epoch, a partition of another", commit(9, "one", one.epoch-1, lost), kerr.StaleMemberEpoch},
		{"a later epoch", commit(9, "one", one.epoch+1, kept), kerr.StaleMemberEpoch},
		{"an epoch from before it had the partition", commit(9, "two", two.epoch-1, lost), kerr.StaleMemberEpoch},
		{"nobody, while there are members", commit(9, "", -1, kept), kerr.UnknownMemberID},
		{"a version that cannot be told", commit(8, "one", one.epoch, kept), kerr.UnsupportedVersion},
		{"fetch of the current epoch", fetch(ptr("one"), one.epoch), nil},
		{"fetch of an older epoch", fetch(ptr("one"), one.epoch-1), kerr.StaleMemberEpoch},
		{"fetch of a stranger", fetch(ptr("x"), 1), kerr.UnknownMemberID},
		{"fetch of an admin", fetch(nil, -1), nil},
	} {
		if c.want == nil && c.got != nil || c.want != nil && c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	b.beat(request("one", -1))
	b.beat(request("two", -1))
	if err := commit(9, "", -1, kept); err != nil {
		t.Errorf("an admin's commit to an empty group: %v", err)
	}
	if err, records := b.m.DeleteGroup("g"); err != nil {
		t.Errorf("delete an empty group: %v", err)
	} else {
		b.keep(records)
	}
	if left := state(b.replayed()); len(left) != 0 {
		t.Errorf("a deleted group leaves %v", left)
	}
}

func TestGroupsOfBothKindsAreListedAsWhatTheyAre(t *testing.T) {
	b := newBench(t)
	b.topics.put("foo", 1)
	one := b.subscriber("one", "foo")
	b.settle(one)
	list := b.m.ListGroups([]string{"stable"}, []string{"Consumer"})
	if len(list) != 1 || list[0].GroupType != "consumer" || list[0].ProtocolType != "consumer" || list[0].GroupState != "Stable" {
		t.Errorf("listed as %+v", list)
	}
	if err, _ := b.m.DeleteGroup("g"); err != kerr.NonEmptyGroup {
		t.Errorf("delete a group with members: %v", err)
	}
	d := b.describe()
	if m := d.Members[0]; d.Epoch != 1 || d.AssignmentEpoch != 1 || m.MemberType != 1 || m.ClientID != "client" ||
		len(m.Assignment.TopicPartitions) != 1 || m.Assignment.TopicPartitions[0].Topic != "foo" {
		t.Errorf("described as %+v", d)
	}
	if got := b.m.DescribeConsumerGroup("none").ErrorCode; got != kerr.GroupIDNotFound.Code {
		t.Errorf("a group that does not exist is described with code %d", got)
	}
}

// Groups look at topics, and match their expressions, when topics have changed, not
// whenever anything of the cluster has.
func TestTopicsAreLookedAtWhenTheyChanged(t *testing.T) {
	b := newBench(t)
	b.topics.put("t", 2)
	one, two := b.subscriber("one", "t"), b.subscriber("two")
	two.first.SubscribedTopicNames, two.first.SubscribedTopicRegex = nil, ptr("t.*")
	rack := "a"
	three := b.subscriber("three", "t")
	b.settle(one, two)
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"replicas, of which no member has said that it is near", func() { b.topics.racks++ }, false},
		{"topics", func() { b.topics.version++ }, true},
		{"a member", func() { three.first.RackID = &rack; b.settle(one, two, three) }, false},
		{"replicas", func() { b.topics.racks++ }, true},
	} {
		step.do()
		before := b.topics.asked
		for range 5 {
			b.pass(2 * time.Second)
			one.beat()
			two.beat()
		}
		if asked := b.topics.asked - before; asked > 0 != step.want || asked > 3 {
			t.Errorf("after a change of %s topics were looked at %d times", step.what, asked)
		}
	}
}

// Settings count from the call that follows their change; those of one group go before
// those of all, within bounds.
func TestSettingsAreFollowed(t *testing.T) {
	set := &group.Config{}
	of := map[string]time.Duration{}
	b := newBench(t, func(c *group.Config) {
		c.Newest = func() *group.Config { return set }
	})
	change := func(edit func(*group.ConsumerConfig)) {
		next := b.cfg
		edit(&next.Consumer)
		next.Consumer.Of = func(id string) group.ConsumerSettings {
			return group.ConsumerSettings{SessionTimeout: 4 * of[id], HeartbeatInterval: of[id]}
		}
		set = &next
	}
	change(func(*group.ConsumerConfig) {})
	b.topics.put("t", 1)
	one := b.subscriber("one", "t")
	for _, step := range []struct {
		what          string
		edit          func(*group.ConsumerConfig)
		own           time.Duration
		beat, session time.Duration
	}{
		{"defaults", func(*group.ConsumerConfig) {}, 0, 3 * time.Second, 45 * time.Second},
		{"all groups", func(c *group.ConsumerConfig) { c.HeartbeatInterval, c.SessionTimeout = 7*time.Second, 20*time.Second }, 0, 7 * time.Second, 20 * time.Second},
		{"this group", func(*group.ConsumerConfig) {}, 13 * time.Second, 13 * time.Second, 52 * time.Second},
		{"this group, too long", func(*group.ConsumerConfig) {}, time.Hour, 15 * time.Second, time.Minute},
		{"this group, and bounds that came later", func(c *group.ConsumerConfig) {
			c.MinHeartbeatInterval, c.MinSessionTimeout = 14*time.Second, 55*time.Second
		}, time.Second, 14 * time.Second, 55 * time.Second},
	} {
		of["g"] = step.own
		change(step.edit)
		resp := one.beat()
		if got := time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond; got != step.beat {
			t.Errorf("%s: heartbeats each %v, want %v", step.what, got, step.beat)
		}
		b.pass(step.session - time.Millisecond)
		if n := len(b.describe().Members); n != 1 {
			t.Errorf("%s: the member is gone before %v", step.what, step.session)
		}
		b.pass(time.Millisecond)
		if n := len(b.describe().Members); n != 0 {
			t.Errorf("%s: the member is there after %v", step.what, step.session)
		}
		one.beat() // it is unknown, and joins again
		one.beat()
	}
}
