package group_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestListingGroups(t *testing.T) {
	r := newRig(t)
	r.stable(1)
	r.commit(1, nil, func(q *kmsg.OffsetCommitRequest) { q.Group = "simple" })
	for _, tc := range []struct {
		name          string
		states, types []string
		want          []string
	}{
		{"all", nil, nil, []string{grp, "simple"}},
		{"by state, in any case", []string{"STABLE"}, nil, []string{grp}},
		{"by another state", []string{"Empty", "Dead"}, nil, []string{"simple"}},
		{"by type", nil, []string{"Classic"}, []string{grp, "simple"}},
		{"by another type", nil, []string{"consumer"}, nil},
		{"by what is neither", []string{"x"}, []string{"y"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, g := range r.m.ListGroups(tc.states, tc.types) {
				got = append(got, g.Group)
			}
			if len(got) != len(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Only of a stable group is it known what members do. Until the next generation they
// still have what they were assigned.
func TestDescribingGroups(t *testing.T) {
	r := newRig(t)
	if d := r.m.DescribeGroup(grp, 5); d.State != "Dead" || d.ErrorCode != 0 {
		t.Errorf("a group that does not exist is %+v", d)
	}
	if d := r.m.DescribeGroup(grp, 6); d.State != "Dead" || d.ErrorCode != kerr.GroupIDNotFound.Code || d.ErrorMessage == nil {
		t.Errorf("a group that does not exist is %+v in version 6", d)
	}
	ids, _ := r.stable(1)
	d := r.m.DescribeGroup(grp, 6)
	m := d.Members[0]
	if d.ProtocolType != "consumer" || d.Protocol != "range" || m.MemberID != ids[0] || m.ClientID != "app" || m.ClientHost != "/10.0.0.1" ||
		string(m.ProtocolMetadata) != string(subscription("t")) || string(m.MemberAssignment) != "for "+ids[0] {
		t.Errorf("a stable group is %+v", d)
	}
	r.joinNew()
	if d := r.m.DescribeGroup(grp, 6); d.Protocol != "" || len(d.Members) != 2 || len(d.Members[0].ProtocolMetadata) != 0 ||
		string(d.Members[0].MemberAssignment) != "for "+ids[0] || len(d.Members[1].MemberAssignment) != 0 {
		t.Errorf("a group in a rebalance is %+v", d)
	}
}

func TestDeletingGroups(t *testing.T) {
	r := newRig(t)
	if err, _ := r.m.DeleteGroup(grp); err != kerr.GroupIDNotFound {
		t.Errorf("deleting what does not exist: %v", err)
	}
	ids, generation := r.stable(1)
	r.commit(5, nil, by(ids[0], generation))
	if err, _ := r.m.DeleteGroup(grp); err != kerr.NonEmptyGroup {
		t.Errorf("deleting a group with members: %v", err)
	}
	r.leave(nil, member(ids[0]))
	err, records := r.m.DeleteGroup(grp)
	r.wrote(records)
	if err != nil || len(contents(r.m)) != 0 || len(contents(r.replay())) != 0 {
		t.Errorf("deleting a group: %v, %q is left", err, contents(r.replay()))
	}
}

// KIP-496: offsets can be deleted where no member reads.
func TestDeletingOffsets(t *testing.T) {
	del := func(r *rig, topic string) (top, part int16) {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = grp
		req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
		resp, records := r.m.OffsetDelete(req)
		r.wrote(records)
		if resp.ErrorCode == 0 {
			part = resp.Topics[0].Partitions[0].ErrorCode
		}
		return resp.ErrorCode, part
	}
	for _, tc := range []struct {
		name      string
		do        func(r *rig)
		topic     string
		top, part *kerr.Error
		left      int64
	}{
		{"of a group that does not exist", func(*rig) {}, "t", kerr.GroupIDNotFound, nil, -1},
		{"of a simple group", func(r *rig) { r.commit(5, nil) }, "t", nil, nil, -1},
		{"that do not exist", func(r *rig) { r.commit(5, nil) }, "x", nil, nil, 5},
		{"that members read", func(r *rig) { commitAs(r) }, "t", nil, kerr.GroupSubscribedToTopic, 5},
		{"that no member reads", func(r *rig) { commitAs(r, topics("u")) }, "t", nil, nil, -1},
		{"of members that say nothing of use", func(r *rig) {
			commitAs(r, func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte{1} })
		}, "t", nil, kerr.GroupSubscribedToTopic, 5},
		{"of another kind of client", func(r *rig) { commitAs(r, func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" }) }, "t", kerr.NonEmptyGroup, nil, 5},
		{"when all left", func(r *rig) { r.leave(nil, member(commitAs(r))) }, "t", nil, nil, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.do(r)
			top, part := del(r, tc.topic)
			code(t, "OffsetDelete", top, tc.top)
			code(t, "partition", part, tc.part)
			if got := r.committed(0); got != tc.left {
				t.Errorf("offset %d, want %d", got, tc.left)
			}
		})
	}
}

// A call that is repeated, because its answer was lost, finds the group.
func TestDeletingAllOffsetsLeavesTheGroup(t *testing.T) {
	r := newRig(t)
	r.commit(5, nil)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = grp
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	for range 2 {
		resp, records := r.m.OffsetDelete(req)
		r.wrote(records)
		code(t, "OffsetDelete", resp.ErrorCode, nil)
		r.is("Empty", 0)
	}
	r.pass(11 * time.Minute)
	if list := r.m.ListGroups(nil, nil); len(list) != 0 {
		t.Errorf("groups %+v, want none after a look for what is old", list)
	}
}

func commitAs(r *rig, edit ...func(*kmsg.JoinGroupRequest)) string {
	ids, generation := r.stable(1, edit...)
	r.commit(5, nil, by(ids[0], generation))
	return ids[0]
}
