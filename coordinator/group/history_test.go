package group_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// inspect is what the machine says of the group of a test.
func (r *rig) inspect() group.Inspection {
	r.t.Helper()
	v, ok := r.m.Inspect(grp)
	if !ok {
		r.t.Fatal("there is no group")
	}
	return v
}

// last is the newest rebalance.
func (r *rig) last() group.Rebalance {
	r.t.Helper()
	list := r.inspect().Rebalances
	if len(list) == 0 {
		r.t.Fatal("there was no rebalance")
	}
	return list[len(list)-1]
}

// because checks what the newest rebalance was for, member by member.
func (r *rig) because(want ...string) {
	r.t.Helper()
	var got []string
	for _, c := range r.last().Changes {
		got = append(got, c.Member+" "+c.What)
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("the rebalance was because %q, want %q", got, want)
	}
}

func TestHistorySaysHowLongARebalanceTookAndWhatForAndWhoWasIn(t *testing.T) {
	r := newRig(t)
	begun := r.now
	ids, generation := r.stable(2)
	b := r.last()
	if b.Generation != generation || b.Members != 2 || b.Begun != begun.UnixMilli() {
		t.Errorf("generation %d of %d members begun at %d, want %d of 2 at %d", b.Generation, b.Members, b.Begun, generation, begun.UnixMilli())
	}
	if took := b.Joined - b.Begun; took != 6000 {
		t.Errorf("the first wait is noted with %d ms, want twice 3 s", took)
	}
	if b.Assigned != r.now.UnixMilli() {
		t.Errorf("assigned at %d, want %d", b.Assigned, r.now.UnixMilli())
	}
	r.because(ids[0]+" joined", ids[1]+" joined")
	if c := b.Changes[0]; c.Client != "app" || c.Host != "/10.0.0.1" {
		t.Errorf("the change does not say who: %+v", c)
	}
	if v := r.inspect(); v.Type != "classic" || v.State != "Stable" || v.Since != r.now.UnixMilli() {
		t.Errorf("inspection: %+v", v)
	}
}

func TestHistoryNamesTheCauseOfEachRebalance(t *testing.T) {
	lastOf := func(t *testing.T, edit ...func(*kmsg.JoinGroupRequest)) (*rig, []string, int32) {
		r := newRig(t)
		ids, generation := r.stable(2, edit...)
		return r, ids, generation
	}
	t.Run("a member left", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		r.leave(nil, member(ids[1]))
		r.because(ids[1] + " left")
		if v := r.inspect(); len(v.Awaited) != 1 || v.Awaited[0].Member != ids[0] || v.Awaited[0].Until != r.now.Add(time.Minute).UnixMilli() {
			t.Errorf("it waits for the other member for its rebalance timeout, but says %+v", v.Awaited)
		}
		if b := r.last(); b.Joined != 0 || b.Assigned != 0 {
			t.Errorf("the rebalance under way is said to be done: %+v", b)
		}
	})
	t.Run("a session expired", func(t *testing.T) {
		r, ids, generation := lastOf(t)
		r.pass(6 * time.Second)
		r.heartbeat(ids[0], generation, nil)
		r.pass(5 * time.Second)
		r.because(ids[1] + " session expired")
	})
	t.Run("a member did not join in time", func(t *testing.T) {
		r, ids, generation := lastOf(t)
		_, j := r.joinNew()
		r.join(ids[0])
		for range 12 { // it lives, and does not join
			r.heartbeat(ids[1], generation, kerr.RebalanceInProgress)
			r.pass(5 * time.Second)
		}
		j.ok()
		r.because(j.resp.MemberID+" joined", ids[1]+" did not join in time")
	})
	t.Run("a member did not sync in time", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		a := r.join(ids[0], topics("t", "u"))
		r.join(ids[1])
		generation := a.ok().Generation
		for range 12 {
			r.heartbeat(ids[0], generation, nil)
			r.heartbeat(ids[1], generation, nil)
			if v := r.inspect(); len(v.Awaited) != 2 {
				t.Fatalf("waits for two to sync, but says %+v", v.Awaited)
			}
			r.pass(5 * time.Second)
		}
		r.because(ids[1]+" did not sync in time", ids[0]+" did not sync in time")
	})
	t.Run("a subscription changed", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		r.join(ids[1], topics("t", "u"))
		r.because(ids[1] + " changed its subscription")
	})
	t.Run("a cooperative member gave up partitions", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		r.join(ids[1], func(q *kmsg.JoinGroupRequest) {
			s := kmsg.NewConsumerMemberMetadata()
			s.Version, s.Topics = 1, []string{"t"}
			owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
			owned.Topic, owned.Partitions = "t", []int32{1}
			s.OwnedPartitions = append(s.OwnedPartitions, owned)
			q.Protocols[0].Metadata = s.AppendTo(nil)
		})
		r.because(ids[1] + " gave up partitions")
	})
	t.Run("the leader asked anew", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		r.join(ids[0])
		r.because(ids[0] + " asked to assign anew")
	})
	t.Run("members that join again because they were told to are no cause", func(t *testing.T) {
		r, ids, _ := lastOf(t)
		r.leave(nil, member(ids[1]))
		r.join(ids[0]).ok()
		r.because(ids[1] + " left")
	})
}

func TestHistoryIsBounded(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	for range 40 {
		generation = r.join(ids[0]).ok().Generation
		r.sync(ids[0], generation, ids...)
	}
	list := r.inspect().Rebalances
	if len(list) != 16 || list[15].Generation != generation {
		t.Errorf("%d rebalances to generation %d, want the 16 up to %d", len(list), list[len(list)-1].Generation, generation)
	}
	r = newRig(t)
	r.stable(9)
	if b := r.last(); len(b.Changes) != 4 || b.More != 5 {
		t.Errorf("%d changes and %d more, want 4 and 5", len(b.Changes), b.More)
	}
}

func TestHistoryOutlivesTheMembersButNotTheCoordinator(t *testing.T) {
	r := newRig(t)
	ids, _ := r.stable(1)
	r.leave(nil, member(ids[0]))
	r.because(ids[0] + " left")
	if b := r.last(); b.Members != 0 || b.Assigned == 0 {
		t.Errorf("the rebalance to no members is not done: %+v", b)
	}
	r.crash()
	if list := r.inspect().Rebalances; len(list) != 0 {
		t.Errorf("a coordinator that just loaded remembers %+v", list)
	}
}

func TestInspectionSaysWhenOffsetsWereCommitted(t *testing.T) {
	r := newRig(t)
	if _, ok := r.m.Inspect(grp); ok {
		t.Error("shows a group that does not exist")
	}
	r.commit(7, nil)
	want := group.Commit{Topic: "t", Partition: 0, Offset: 7, At: r.now.UnixMilli()}
	r.pass(time.Minute)
	if got := r.inspect().Commits; len(got) != 1 || got[0] != want {
		t.Errorf("commits %+v, want %+v", got, want)
	}
}

func TestHistoryOfAConsumerGroup(t *testing.T) {
	b := newBench(t)
	b.topics.put("t", 4)
	one, two := b.subscriber("one", "t"), b.subscriber("two", "t")
	b.settle(one)
	two.beat()
	one.beat() // is told to give up half, and says that it did only with its next heartbeat
	v, _ := b.m.Inspect("g")
	if v.Type != "consumer" || len(v.Awaited) != 1 || v.Awaited[0].Member != "one" {
		t.Errorf("waits for one to give up partitions, but says %+v", v)
	}
	b.settle(one, two)
	v, _ = b.m.Inspect("g")
	last := v.Rebalances[len(v.Rebalances)-1]
	if last.Members != 2 || last.Assigned == 0 || len(last.Changes) != 1 || last.Changes[0].Member != "two" || last.Changes[0].What != group.MemberJoined {
		t.Errorf("the last rebalance is %+v, want that two joined", last)
	}
	if len(v.Awaited) != 0 {
		t.Errorf("settled, and waits for %+v", v.Awaited)
	}
}

// unheardAre checks whom a coordinator has not heard of since it loaded, and that their
// sessions, which began then, end as said.
func unheardAre(t *testing.T, v group.Inspection, loaded time.Time, session time.Duration, want ...string) {
	t.Helper()
	var got []string
	for _, u := range v.Unheard {
		got = append(got, u.Member)
		if u.Since != loaded.UnixMilli() || u.Until != loaded.Add(session).UnixMilli() {
			t.Errorf("unheard %+v, want since %d until %d", u, loaded.UnixMilli(), loaded.Add(session).UnixMilli())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("unheard are %q, want %q", got, want)
	}
}

func TestMembersAreUnheardUntilTheySpeakToANewCoordinator(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	unheardAre(t, r.inspect(), r.now, 0)
	r.crash()
	loaded := r.now
	unheardAre(t, r.inspect(), loaded, 10*time.Second, ids...)
	r.pass(time.Second)
	r.hold(ids[1], generation)
	unheardAre(t, r.inspect(), loaded, 10*time.Second, ids[0])

	b := newBench(t)
	b.topics.put("t", 4)
	one, two := b.subscriber("one", "t"), b.subscriber("two", "t")
	b.settle(one, two)
	b.failOver()
	loaded = b.now
	v, _ := b.m.Inspect("g")
	unheardAre(t, v, loaded, 45*time.Second, "one", "two")
	one.beat()
	v, _ = b.m.Inspect("g")
	unheardAre(t, v, loaded, 45*time.Second, "two")
}
