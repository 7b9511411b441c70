package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

const day = 24 * time.Hour

// keepAlive sends heartbeats of all members for that long.
func (r *rig) keepAlive(d time.Duration, generation int32, ids ...string) {
	r.t.Helper()
	for end := r.now.Add(d); r.now.Before(end); {
		r.pass(min(time.Hour, end.Sub(r.now)))
		for _, id := range ids {
			r.heartbeat(id, generation, nil)
		}
	}
}

// longSession allows sessions for which days need few heartbeats.
func longSession(c *group.Config) { c.MaxSessionTimeout = 2 * time.Hour }

func patient(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = 7_200_000 }

// KIP-211: how long offsets stay.
func TestHowLongOffsetsStay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(r *rig)
		after time.Duration
		want  int64
	}{
		{"a simple group, before its time", func(r *rig) { r.commit(5, nil) }, 7*day - 12*time.Minute, 5},
		{"a simple group, after its time", func(r *rig) { r.commit(5, nil) }, 7*day + 10*time.Minute, -1},
		{"a simple group that commits again", func(r *rig) { r.commit(5, nil); r.pass(6 * day); r.commit(6, nil) }, 6 * day, 6},
		{"a group that was left lately", func(r *rig) {
			ids, generation := r.stable(1, patient)
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(9*day, generation, ids...)
			r.leave(nil, member(ids[0]))
		}, 6 * day, 5},
		{"a group that was left long ago", func(r *rig) {
			ids, generation := r.stable(1, patient)
			r.commit(5, nil, by(ids[0], generation))
			r.leave(nil, member(ids[0]))
		}, 7*day + 10*time.Minute, -1},
		{"a topic that members read", func(r *rig) {
			ids, generation := r.stable(1, patient)
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(9*day, generation, ids...)
		}, 0, 5},
		{"a topic that no member reads any more", func(r *rig) {
			ids, generation := r.stable(1, patient, topics("u"))
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(7*day+time.Hour, generation, ids...)
		}, 0, -1},
		{"members that say nothing of use (G4)", func(r *rig) {
			ids, generation := r.stable(1, patient, func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("\x00\x01\x7f\xff\xff\xff") })
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(9*day, generation, ids...)
		}, 0, 5},
		{"a group of another kind of client", func(r *rig) {
			connect := func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" }
			ids, generation := r.stable(1, patient, connect)
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(9*day, generation, ids...)
		}, 0, 5},
		{"a rebalance at the time (KAFKA-13636)", func(r *rig) {
			ids, generation := r.stable(2, patient, topics("u"), func(q *kmsg.JoinGroupRequest) { q.RebalanceTimeoutMillis = 7_200_000 })
			r.commit(5, nil, by(ids[0], generation))
			r.keepAlive(7*day-time.Hour, generation, ids...)
			r.join(ids[0], patient, topics("u"))
			r.pass(time.Hour + 30*time.Minute)
			r.is("PreparingRebalance", 2)
		}, 0, 5},
		{"a commit with a time of its own", func(r *rig) {
			r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Version, q.RetentionTimeMillis = 4, 3_600_000 })
		}, 2 * time.Hour, -1},
		{"a commit with a longer time of its own", func(r *rig) {
			r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Version, q.RetentionTimeMillis = 4, (10 * day).Milliseconds() })
		}, 9 * day, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, longSession)
			r.loose = true
			tc.do(r)
			if r.m.DescribeGroup(grp, 5).State != "PreparingRebalance" {
				r.crash() // KAFKA-8069: it is the same to whoever loads it
				r.pass(11 * time.Minute)
			}
			r.pass(tc.after)
			r.loose = false
			r.wrote(nil)
			if got := r.committed(0); got != tc.want {
				t.Errorf("offset %d, want %d", got, tc.want)
			}
		})
	}
}

// A group with neither members nor offsets goes, with tombstones.
func TestAnEmptyGroupGoes(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	r.commit(5, nil, by(ids[0], generation))
	r.leave(nil, member(ids[0]))
	r.pass(7*day + 10*time.Minute)
	if list := r.m.ListGroups(nil, nil); len(list) != 0 {
		t.Errorf("groups %+v, want none", list)
	}
	if live := contents(r.m); len(live) != 0 {
		t.Errorf("live records %q, want none", live)
	}
}

// Many old offsets go in pieces, so that calls go on in between.
func TestManyOldOffsetsGoInPieces(t *testing.T) {
	r := newRig(t)
	r.loose = true
	for i := range 5000 {
		r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Group = fmt.Sprint("g", i) })
	}
	r.now = r.now.Add(8 * day)
	for i := 0; ; i++ {
		records := r.m.Tick(r.now)
		if len(records) == 0 {
			break
		}
		if len(records) > 1001 {
			t.Fatalf("%d records at once", len(records))
		}
		if i == 0 && r.m.Next().After(r.now) {
			t.Fatal("the rest waits")
		}
	}
	if list := r.m.ListGroups(nil, nil); len(list) != 0 {
		t.Errorf("%d groups are left", len(list))
	}
}

// Offsets that stay are looked at in pieces, too: the partition serves others meanwhile.
func TestManyOffsetsAreLookedAtInPieces(t *testing.T) {
	r := newRig(t)
	r.loose = true
	const groups, each = 5, 20_000
	for i := range groups {
		r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) {
			q.Group = fmt.Sprint("g", i)
			for p := range int32(each - 1) {
				rp := q.Topics[0].Partitions[0]
				rp.Partition = p + 1
				q.Topics[0].Partitions = append(q.Topics[0].Partitions, rp)
			}
		})
	}
	for _, why := range []func(){r.m.TopicsDeleted, func() { r.now = r.now.Add(time.Hour) }} {
		r.pass(0)
		why()
		ticks := 0
		for ; !r.m.Next().After(r.now); ticks++ {
			r.wrote(r.m.Tick(r.now))
		}
		if ticks < groups {
			t.Errorf("%d offsets were looked at in %d ticks", groups*each, ticks)
		}
	}
}

// While the log took nothing nobody could be answered: time that members did not have.
func TestMembersAreNotLateByTheLogsFault(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	first, _ := r.joinNew() // the others have to join again
	r.now = r.now.Add(9 * time.Minute)
	r.m.Delay(9 * time.Minute)
	r.pass(9 * time.Second)
	r.is("PreparingRebalance", 3)
	r.heartbeat(ids[0], generation, kerr.RebalanceInProgress)
	r.pass(2 * time.Second)
	r.is("PreparingRebalance", 2)
	r.heartbeat(ids[1], generation, kerr.UnknownMemberID)
	r.pass(9 * time.Second) // the session of the other ends, too
	r.is("CompletingRebalance", 1)
	if got := r.m.DescribeGroup(grp, 5).Members[0].MemberID; got != first {
		t.Errorf("%s is left, want %s, which joined", got, first)
	}

	b := newBench(t)
	b.topics.put("t", 2)
	one, two := b.subscriber("one", "t"), b.subscriber("two", "t")
	b.settle(one, two)
	b.now = b.now.Add(9 * time.Minute)
	b.m.Delay(9 * time.Minute)
	b.pass(40 * time.Second)
	if n := len(b.describe().Members); n != 2 {
		t.Fatalf("%d members, want both", n)
	}
	b.pass(10 * time.Second)
	if n := len(b.describe().Members); n != 0 {
		t.Fatalf("%d members, want none", n)
	}
}
