package group_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

// 10,000 idle groups fit into 20 MiB: each of these was used, was left, and has
// offsets of three partitions.
func TestTheMemoryOfIdleGroups(t *testing.T) {
	n := manyGroups()
	source := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = -1 })
	source.loose = true
	for i := range n {
		name := func(q *kmsg.JoinGroupRequest) { q.Group, q.Version = fmt.Sprint("group-", i), 3 }
		j := source.join("", name)
		source.pass(0)
		id := j.ok().MemberID
		source.syncWith(id, 1, func(q *kmsg.SyncGroupRequest) { q.Group = fmt.Sprint("group-", i) })
		source.commit(1, nil, by(id, 1), func(q *kmsg.OffsetCommitRequest) {
			q.Group = fmt.Sprint("group-", i)
			for p := range int32(2) {
				rp := q.Topics[0].Partitions[0]
				rp.Partition = p + 1
				q.Topics[0].Partitions = append(q.Topics[0].Partitions, rp)
			}
		})
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group, leave.MemberID = 2, fmt.Sprint("group-", i), id
		_, records := source.m.LeaveGroup(source.now, leave)
		source.wrote(records)
	}
	t.Run("lived in", func(t *testing.T) { weigh(t, n, func() *group.Machine { m := source.m; source.m = nil; return m }) })
	t.Run("loaded", func(t *testing.T) { weigh(t, n, source.replay) })
}

// And 10,000 groups with a live member each, which reads three partitions, as clients
// are: it can do two protocols, and its id ends in a UUID.
func TestTheMemoryOfLiveGroups(t *testing.T) {
	n := manyGroups()
	source := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay, c.NewID = -1, nil })
	source.loose = true
	assignment := kmsg.NewConsumerMemberAssignment()
	assignment.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{0, 1, 2}}}
	for i := range n {
		name := fmt.Sprint("group-", i)
		j := source.join("", protocols("range", "cooperative-sticky"), func(q *kmsg.JoinGroupRequest) { q.Group, q.Version = name, 3 })
		source.pass(0)
		id := j.ok().MemberID
		source.syncWith(id, 1, func(q *kmsg.SyncGroupRequest) {
			q.Group = name
			q.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: id, MemberAssignment: assignment.AppendTo(nil)}}
		})
		source.commit(1, nil, by(id, 1), func(q *kmsg.OffsetCommitRequest) {
			q.Group = name
			for p := range int32(2) {
				rp := q.Topics[0].Partitions[0]
				rp.Partition = p + 1
				q.Topics[0].Partitions = append(q.Topics[0].Partitions, rp)
			}
		})
	}
	log := source.log
	source.log = nil // what it shares with the machine is the machine's
	t.Run("lived in", func(t *testing.T) { weigh(t, n, func() *group.Machine { m := source.m; source.m = nil; return m }) })
	t.Run("loaded", func(t *testing.T) {
		weigh(t, n, func() *group.Machine {
			m := group.New(source.cfg)
			for i, rec := range log {
				if err := m.Replay(coordinator.Record{Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value)}, int64(i), 0); err != nil {
					t.Fatal(err)
				}
			}
			return m
		})
	})
}

// manyGroups are enough for an average.
func manyGroups() int {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

// weigh measures a machine of n groups by what is freed with it.
func weigh(t *testing.T, n int, machine func() *group.Machine) {
	m := machine()
	with := heap()
	if got := len(m.ListGroups(nil, nil)); got != n {
		t.Fatalf("%d groups, want %d", got, n)
	}
	m = nil
	per := int64(with-heap()) / int64(n)
	t.Logf("%d bytes for an idle group", per)
	if per > 2048 || per < 100 {
		t.Errorf("an idle group takes %d bytes, want at most 2048", per)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// A group of 1,000 members over 10,000 partitions, cooperative: its membership fits
// into a record, is replayed, and every member gets its part.
func TestALargeGroup(t *testing.T) {
	const members, partitions = 1000, 10_000
	r := newRig(t)
	r.loose = true
	owned := kmsg.NewConsumerMemberMetadata()
	owned.Version, owned.Topics = 1, []string{"t"}
	op := kmsg.NewConsumerMemberMetadataOwnedPartition()
	op.Topic, op.Partitions = "t", make([]int32, partitions/members)
	owned.OwnedPartitions = append(owned.OwnedPartitions, op)
	ids := make([]string, members)
	joins := make([]*joining, members)
	for i := range ids {
		ids[i], joins[i] = r.joinNew(func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = owned.AppendTo(nil) })
	}
	r.pass(6 * time.Second)
	if got := len(joins[0].ok().Members); got != members {
		t.Fatalf("the leader learns of %d members", got)
	}
	syncs := make([]*syncing, members)
	for i := members - 1; i >= 0; i-- {
		var assign []string
		if i == 0 {
			assign = ids
		}
		syncs[i] = r.sync(ids[i], 1, assign...)
	}
	for i, s := range syncs {
		s.gets("for " + ids[i])
	}
	r.crash()
	r.is("Stable", members)
	r.sync(ids[members-1], 1).gets("for " + ids[members-1])
	if len(r.log) != 1 {
		t.Errorf("%d records, want 1", len(r.log))
	}
}

// What does not fit into a record gets no generation, and leaves the group as it was
// in the log.
func TestAssignmentsThatAreTooLarge(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.MaxRecordBytes = 4096 })
	ids, generation := r.stable(1)
	leader := r.join(ids[0])
	huge := func(q *kmsg.SyncGroupRequest) {
		q.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: ids[0], MemberAssignment: make([]byte, 5000)}}
	}
	r.syncWith(ids[0], leader.ok().Generation, huge).fails(kerr.UnknownServerError)
	r.is("PreparingRebalance", 1)
	r.heartbeat(ids[0], generation+1, kerr.RebalanceInProgress)
	again := r.join(ids[0])
	r.sync(ids[0], again.ok().Generation, ids...).gets("for " + ids[0])
}

// Bytes of clients are theirs: a machine keeps copies, whatever they are (G4).
func TestBytesOfClientsAreCopied(t *testing.T) {
	r := newRig(t)
	metadata, assignment := []byte("\xff\x00hostile"), []byte("\xff\xff\xff\xff")
	a, j := r.joinNew(func(q *kmsg.JoinGroupRequest) { q.Protocols[0].Metadata = metadata })
	r.pass(3 * time.Second)
	clear(metadata)
	if got := string(j.ok().Members[0].ProtocolMetadata); got != "\xff\x00hostile" {
		t.Errorf("subscription %q", got)
	}
	r.syncWith(a, 1, func(q *kmsg.SyncGroupRequest) {
		q.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: a, MemberAssignment: assignment}}
	})
	clear(assignment)
	r.sync(a, 1).gets("\xff\xff\xff\xff")
}

// Whatever bytes a record has, replaying it does not panic.
func FuzzReplay(f *testing.F) {
	r := newRig(f)
	r.stable(2)
	r.commit(1, kerr.UnknownMemberID)
	for _, rec := range r.log {
		f.Add(rec.Key, rec.Value)
	}
	f.Fuzz(func(_ *testing.T, key, value []byte) {
		m := group.New(group.Config{})
		_ = m.Replay(coordinator.Record{Key: key, Value: value}, 0, 0)
		now := time.UnixMilli(1_700_000_000_000)
		m.Loaded(now)
		m.Tick(now)
		m.Live(func(coordinator.Record) bool { return true })
		m.ListGroups(nil, nil)
	})
}
