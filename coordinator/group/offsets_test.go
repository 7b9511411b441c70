package group_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

// A consumer that assigns itself, or an admin, commits without a generation to a group
// without members; the group is made by it.
func TestASimpleGroup(t *testing.T) {
	r := newRig(t)
	if got := r.committed(0); got != -1 {
		t.Fatalf("offset %d of a group that does not exist, want -1 and no error", got)
	}
	r.commit(5, nil)
	r.commit(7, nil)
	if got := r.committed(0); got != 7 {
		t.Errorf("offset %d, want 7", got)
	}
	if got := r.committed(1); got != -1 {
		t.Errorf("offset %d of a partition never committed, want -1", got)
	}
	r.is("Empty", 0)
	if list := r.m.ListGroups(nil, nil); len(list) != 1 || list[0].ProtocolType != "" || list[0].GroupType != "classic" {
		t.Errorf("groups %+v", list)
	}
	r.crash()
	if got := r.committed(0); got != 7 {
		t.Errorf("offset %d after a crash, want 7 (G-4)", got)
	}
}

// The group of the empty name keeps offsets, for clients that are that old.
func TestTheGroupWithoutAName(t *testing.T) {
	r := newRig(t)
	r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Group = "" })
	if list := r.m.ListGroups(nil, nil); len(list) != 1 {
		t.Errorf("groups %+v", list)
	}
}

// Who may commit, by state: only members of this generation, once there are members.
func TestWhoMayCommit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(r *rig) (id string, generation int32)
		as    func(id string, generation int32) func(*kmsg.OffsetCommitRequest)
		want  *kerr.Error
	}{
		{"a member", stableOne, by, nil},
		{"an older generation (G-3)", stableOne, func(id string, g int32) func(*kmsg.OffsetCommitRequest) { return by(id, g-1) }, kerr.IllegalGeneration},
		{"a later generation", stableOne, func(id string, g int32) func(*kmsg.OffsetCommitRequest) { return by(id, g+1) }, kerr.IllegalGeneration},
		{"a stranger", stableOne, func(_ string, g int32) func(*kmsg.OffsetCommitRequest) { return by("x", g) }, kerr.UnknownMemberID},
		{"an admin while there are members", stableOne, admin, kerr.UnknownMemberID},
		{"a member without a generation", stableOne, func(id string, _ int32) func(*kmsg.OffsetCommitRequest) { return by(id, -1) }, kerr.IllegalGeneration},
		{"before the assignment", completing, by, kerr.RebalanceInProgress},
		{"while others join", preparing, by, nil},
		{"before the assignment, while others join", unassigned, by, kerr.RebalanceInProgress},
		{"before the first generation", joiningFirst, by, kerr.RebalanceInProgress},
		{"an admin while others join", preparing, admin, kerr.UnknownMemberID},
		{"an admin when all left", left, admin, nil},
		{"a former member when all left", left, by, kerr.UnknownMemberID},
		{"with a generation where there is no group, before version 9", nobody, func(string, int32) func(*kmsg.OffsetCommitRequest) {
			return func(q *kmsg.OffsetCommitRequest) { q.Version, q.Generation, q.MemberID = 8, 3, "x" }
		}, kerr.IllegalGeneration},
		{"with a generation where there is no group", nobody, func(string, int32) func(*kmsg.OffsetCommitRequest) { return by("x", 3) }, kerr.GroupIDNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			id, generation := tc.setup(r)
			r.commit(42, tc.want, tc.as(id, generation))
			want := int64(42)
			if tc.want != nil {
				want = -1
			}
			if got := r.committed(0); got != want {
				t.Errorf("offset %d, want %d", got, want)
			}
		})
	}
}

func admin(string, int32) func(*kmsg.OffsetCommitRequest) { return by("", -1) }

func nobody(*rig) (string, int32) { return "", 0 }

func stableOne(r *rig) (string, int32) {
	ids, generation := r.stable(1)
	return ids[0], generation
}

func preparing(r *rig) (string, int32) {
	ids, generation := r.stable(2)
	r.join(ids[1], topics("u"))
	return ids[0], generation
}

func completing(r *rig) (string, int32) {
	id, _ := r.joinNew()
	r.pass(3 * time.Second)
	return id, 1
}

func unassigned(r *rig) (string, int32) {
	id, generation := completing(r)
	r.joinNew()
	r.is("PreparingRebalance", 2)
	return id, generation
}

func joiningFirst(r *rig) (string, int32) {
	id, _ := r.joinNew()
	return id, 0
}

func left(r *rig) (string, int32) {
	ids, generation := r.stable(1)
	r.leave(nil, member(ids[0]))
	return ids[0], generation
}

// A note that is too long is an error of its partition alone.
func TestALongNote(t *testing.T) {
	r := newRig(t)
	note := strings.Repeat("n", 4097)
	r.commit(5, kerr.OffsetMetadataTooLarge, func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Partitions[0].Metadata = &note })
	note = note[1:]
	r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Partitions[0].Metadata = &note })
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group = grp
	all := r.m.OffsetFetch(req)
	p := all.Topics[0].Partitions[0]
	if p.Offset != 5 || p.LeaderEpoch != 3 || *p.Metadata != note {
		t.Errorf("offset %d, epoch %d, note of %d bytes", p.Offset, p.LeaderEpoch, len(*p.Metadata))
	}
}

// A note is as long as it is in Java.
func TestANoteOfUmlauts(t *testing.T) {
	r := newRig(t)
	for note, want := range map[string]*kerr.Error{
		strings.Repeat("ä", 4096): nil, strings.Repeat("ä", 4097): kerr.OffsetMetadataTooLarge,
		strings.Repeat("🙂", 2048): nil, strings.Repeat("🙂", 2049): kerr.OffsetMetadataTooLarge,
	} {
		r.commit(5, want, func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Partitions[0].Metadata = &note })
	}
}

// One request is one step, whose records are durable together.
func TestACommitOfManyPartitions(t *testing.T) {
	r := newRig(t)
	r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) {
		for p := range int32(99) {
			rp := q.Topics[0].Partitions[0]
			rp.Partition = p + 1
			q.Topics[0].Partitions = append(q.Topics[0].Partitions, rp)
		}
	})
	if len(r.log) != 100 || r.committed(99) != 5 {
		t.Errorf("%d records, offset %d", len(r.log), r.committed(99))
	}
}

// A topic that was deleted takes its offsets with it, and takes no new ones; neither
// does one that has its name.
func TestADeletedTopic(t *testing.T) {
	exists := map[[16]byte]bool{{1}: true, {2}: true}
	r := newRig(t, func(c *group.Config) { c.Exists = func(_ string, id [16]byte) bool { return exists[id] } })
	r.commit(5, nil)
	r.commit(6, nil, inTopic("other", 2))
	delete(exists, [16]byte{1})
	r.m.TopicsDeleted()
	r.pass(0)
	if last := r.log[len(r.log)-1]; last.Value != nil || r.committed(0) != -1 {
		t.Errorf("last record %q, offset %d, want a tombstone and none", last, r.committed(0))
	}
	r.commit(7, kerr.UnknownTopicOrPartition)
	r.commit(7, kerr.UnknownTopicID, func(q *kmsg.OffsetCommitRequest) { q.Version = 10 })

	// Deleted while nobody coordinated: whoever loads looks.
	delete(exists, [16]byte{2})
	r.crash()
	r.pass(0)
	if list := r.m.ListGroups(nil, nil); len(list) != 0 {
		t.Errorf("groups %+v, want none", list)
	}
}

func inTopic(name string, id byte) func(*kmsg.OffsetCommitRequest) {
	return func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Topic, q.Topics[0].TopicID = name, [16]byte{id} }
}

// Golden bytes: what other tools read in __consumer_offsets.
func TestTheFormatOfOffsets(t *testing.T) {
	r := newRig(t)
	r.commit(5, nil)
	r.commit(5, nil, func(q *kmsg.OffsetCommitRequest) { q.Version, q.RetentionTimeMillis = 4, 1000 })
	key := "\x00\x01\x00\x07readers\x00\x01t\x00\x00\x00\x00"
	v4 := "\x00\x04" + "\x00\x00\x00\x00\x00\x00\x00\x05" + "\x00\x00\x00\x03" + "\x01" + "\x00\x00\x01\x8b\xcf\xe5\x68\x00" +
		"\x01\x00\x10\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	v1 := "\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x05" + "\x00\x00" + "\x00\x00\x01\x8b\xcf\xe5\x68\x00" + "\x00\x00\x01\x8b\xcf\xe5\x6b\xe8"
	for i, want := range []string{v4, v1} {
		if got := r.log[i]; string(got.Key) != key || string(got.Value) != want {
			t.Errorf("record %d: key %q, value %q, want %q and %q", i, got.Key, got.Value, key, want)
		}
	}
}

func TestTheFormatOfGroups(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = -1 })
	r.join("", static("i"), func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = []byte("S") })
	r.pass(0)
	r.sync("i-id1", 1, "i-id1")
	str := func(s string) string { return "\x00" + string(rune(len(s))) + s }
	value := "\x00\x03" + str("consumer") + "\x00\x00\x00\x01" + str("range") + str("i-id1") + "\x00\x00\x01\x8b\xcf\xe5\x68\x00" +
		"\x00\x00\x00\x01" + str("i-id1") + str("i") + str("app") + str("/10.0.0.1") + "\x00\x00\xea\x60" + "\x00\x00\x27\x10" +
		"\x00\x00\x00\x01S" + "\x00\x00\x00\x09for i-id1"
	if got := r.log[0]; string(got.Key) != "\x00\x02\x00\x07readers" || string(got.Value) != value {
		t.Errorf("key %q, value\n%q, want\n%q", got.Key, got.Value, value)
	}
}

// Records that Kafka wrote long ago are read, and those of the future skipped.
func TestRecordsOfOtherVersions(t *testing.T) {
	m := group.New(group.Config{})
	key := kmsg.OffsetCommitKey{Version: 0, Group: grp, Topic: "t"}
	v0 := kmsg.OffsetCommitValue{Offset: 9}
	old := kmsg.GroupMetadataValue{ProtocolType: "consumer", Generation: 4, Protocol: kmsg.StringPtr("range"), Leader: kmsg.StringPtr("a"),
		Members: []kmsg.GroupMetadataValueMember{{MemberID: "a", SessionTimeoutMillis: 10_000}}}
	gk := kmsg.GroupMetadataKey{Version: 2, Group: grp}
	for _, rec := range []coordinator.Record{
		{Key: key.AppendTo(nil), Value: v0.AppendTo(nil)},
		{Key: gk.AppendTo(nil), Value: old.AppendTo(nil)},
		{Key: []byte("\x7f\x00future"), Value: []byte("?")},
		{Key: []byte("\x7f\x00future")},
	} {
		if err := m.Replay(rec, 0, 0); err != nil {
			t.Errorf("replay %q: %v", rec, err)
		}
	}
	now := time.UnixMilli(1_700_000_000_000)
	m.Loaded(now)
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = grp, "a", 4
	resp, _ := m.Heartbeat(now, req)
	code(t, "Heartbeat", resp.ErrorCode, nil)
	for _, bad := range []coordinator.Record{{Key: nil}, {Key: []byte{0}}, {Key: []byte{0, 1, 0, 9}}, {Key: gk.AppendTo(nil), Value: []byte{0, 3, 0}}, {Key: key.AppendTo(nil), Value: []byte{0}}} {
		if m.Replay(bad, 0, 0) == nil {
			t.Errorf("record %q makes no sense and was taken", bad)
		}
	}
}
