package group_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/rpc/kmsgtest"
)

// fuzzer sends requests that have anything in them, but for names and numbers of which
// there are few, so that much of it fits together.
type fuzzer struct {
	*bench
	r *rand.Rand
	// ids are member ids that were seen, epochs generations and epochs.
	ids    []string
	epochs []int32
	topics *fakeTopics
}

func one[T any](f *fuzzer, of ...T) T { return of[f.r.IntN(len(of))] }

func (f *fuzzer) id() string   { return f.ids[max(0, len(f.ids)-1-f.r.IntN(12))] }
func (f *fuzzer) epoch() int32 { return f.epochs[max(0, len(f.epochs)-1-f.r.IntN(6))] }
func (f *fuzzer) name() string { return one(f, "a", "b", "c", "gone") }
func (f *fuzzer) client() group.Caller {
	return group.Caller{ClientID: one(f, "x", "y"), Host: one(f, "/1", "/2")}
}

func (f *fuzzer) instance() *string {
	if f.r.IntN(3) > 0 {
		return nil
	}
	return kmsg.StringPtr(one(f, "i", "j"))
}

func (f *fuzzer) learn(id string, epoch int32) {
	f.ids, f.epochs = append(f.ids, id), append(f.epochs, epoch)
}

func (f *fuzzer) metadata() []byte {
	m := kmsg.NewConsumerMemberMetadata()
	kmsgtest.Fill(f.r, &m)
	m.Version = int16(f.r.IntN(4))
	m.Topics = []string{f.name(), f.name()}[:f.r.IntN(3)]
	for i := range m.OwnedPartitions {
		m.OwnedPartitions[i].Topic = f.name()
	}
	b := m.AppendTo(nil)
	if f.r.IntN(20) == 0 {
		b = b[:f.r.IntN(len(b))]
	}
	return b
}

func (f *fuzzer) assignment() []byte {
	a := kmsg.NewConsumerMemberAssignment()
	for range f.r.IntN(3) {
		t := kmsg.NewConsumerMemberAssignmentTopic()
		t.Topic, t.Partitions = f.name(), []int32{f.r.Int32N(8) - 1, f.r.Int32N(8)}
		a.Topics = append(a.Topics, t)
	}
	return a.AppendTo(nil)
}

// step does one thing, with the group g.
func (f *fuzzer) step() {
	g := one(f, "g", "g", "g", "h")
	switch f.r.IntN(16) {
	case 0, 1, 2:
		f.join(g)
	case 3, 4:
		req := kmsg.NewPtrSyncGroupRequest()
		kmsgtest.Fill(f.r, req)
		req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, g, f.id(), f.instance(), f.epoch()
		req.ProtocolType, req.Protocol = nil, nil
		for i := range req.GroupAssignment {
			req.GroupAssignment[i].MemberID, req.GroupAssignment[i].MemberAssignment = f.id(), f.assignment()
		}
		answered := 0
		f.keep(f.m.SyncGroup(f.now, req, func(*kmsg.SyncGroupResponse) {
			if answered++; answered > 1 {
				f.t.Fatal("SyncGroup is answered twice")
			}
		}))
	case 5:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, g, f.id(), f.instance(), f.epoch()
		answered := 0
		held, records := f.m.HoldHeartbeat(f.now, req, func(*kmsg.HeartbeatResponse) {
			if answered++; answered > 1 {
				f.t.Fatal("Heartbeat is answered twice")
			}
		})
		f.keep(records)
		if held != nil && f.r.IntN(4) == 0 {
			f.keep(f.m.Release(held, f.r.IntN(2) == 0))
		}
	case 6:
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group = 5, g
		for range f.r.IntN(3) {
			req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: one(f, f.id(), ""), InstanceID: f.instance()})
		}
		_, records := f.m.LeaveGroup(f.now, req)
		f.keep(records)
	case 7, 8, 9, 10:
		f.consumer(g)
	case 11:
		f.commit(g)
	case 12:
		req := kmsg.NewOffsetFetchRequestGroup()
		kmsgtest.Fill(f.r, &req)
		req.Group, req.MemberID, req.MemberEpoch = g, one(f, nil, kmsg.StringPtr(f.id())), one(f, -1, f.epoch())
		f.m.OffsetFetch(req)
		f.m.DescribeGroup(g, int16(f.r.IntN(7)))
		f.m.DescribeConsumerGroup(g)
		f.m.ListGroups(nil, nil)
		f.m.Inspect(g)
	case 13:
		f.topic()
	case 14:
		if f.r.IntN(4) == 0 {
			_, records := f.m.DeleteGroup(g)
			f.keep(records)
		}
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = g
		req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: f.name(), Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: f.r.Int32N(3)}}}}
		_, records := f.m.OffsetDelete(req)
		f.keep(records)
	default:
		f.pass(time.Duration(f.r.IntN(int(one(f, time.Second, time.Minute)))))
	}
}

func (f *fuzzer) join(g string) {
	req := kmsg.NewPtrJoinGroupRequest()
	kmsgtest.Fill(f.r, req)
	req.Version, req.Group, req.MemberID, req.InstanceID = int16(f.r.IntN(10)), g, one(f, "", f.id(), f.id()), f.instance()
	req.ProtocolType = one(f, "consumer", "consumer", "consumer", "connect", req.ProtocolType)
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 6000+f.r.Int32N(10_000), one(f, req.RebalanceTimeoutMillis, 5000, 0)
	for i := range req.Protocols {
		req.Protocols[i].Name, req.Protocols[i].Metadata = one(f, "range", "sticky"), f.metadata()
	}
	answered := 0
	f.keep(f.m.JoinGroup(f.now, f.client(), req, func(resp *kmsg.JoinGroupResponse) {
		if answered++; answered > 1 {
			f.t.Fatal("JoinGroup is answered twice")
		}
		f.learn(resp.MemberID, resp.Generation)
	}))
}

func (f *fuzzer) consumer(g string) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	kmsgtest.Fill(f.r, req)
	req.Version, req.Group, req.MemberID, req.InstanceID = int16(f.r.IntN(2)), g, one(f, f.id(), "m1", "m2", "m3"), f.instance()
	req.MemberEpoch = one(f, 0, 0, f.epoch(), f.epoch(), f.epoch(), -1, -2)
	req.RebalanceTimeoutMillis = one(f, 5000, -1, req.RebalanceTimeoutMillis)
	req.ServerAssignor = one(f, nil, kmsg.StringPtr("range"), req.ServerAssignor)
	req.SubscribedTopicRegex = one(f, nil, nil, kmsg.StringPtr("a|b"), kmsg.StringPtr(".*"), req.SubscribedTopicRegex)
	if len(req.SubscribedTopicNames) > 0 {
		req.SubscribedTopicNames = []string{f.name(), f.name()}
	}
	for i := range req.Topics {
		t, _ := f.topics.Topic(f.name())
		req.Topics[i].TopicID, req.Topics[i].Partitions = t.ID, []int32{f.r.Int32N(6)}
	}
	if req.MemberEpoch == 0 {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	resp, records := f.m.ConsumerGroupHeartbeat(f.now, f.client(), req)
	f.keep(records)
	if resp.MemberID != nil {
		f.learn(*resp.MemberID, resp.MemberEpoch)
	}
}

func (f *fuzzer) commit(g string) {
	req := kmsg.NewPtrOffsetCommitRequest()
	kmsgtest.Fill(f.r, req)
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = int16(2+f.r.IntN(9)), g, one(f, "", f.id()), f.instance(), one(f, -1, f.epoch())
	for i := range req.Topics {
		t, _ := f.topics.Topic(f.name())
		req.Topics[i].Topic, req.Topics[i].TopicID = f.name(), t.ID
	}
	_, records := f.m.OffsetCommit(f.now, req)
	f.keep(records)
}

func (f *fuzzer) topic() {
	name := f.name()
	if f.r.IntN(4) == 0 {
		f.topics.drop(name)
		f.m.TopicsDeleted()
		f.keep(f.m.Tick(f.now))
	} else if name != "gone" {
		f.topics.put(name, 1+f.r.Int32N(6))
	}
}

// owned is C1: what members of a consumer group have is nobody else's.
func (f *fuzzer) owned(g string) {
	d := f.m.DescribeConsumerGroup(g)
	owner := make(map[string]string)
	for _, m := range d.Members {
		for _, t := range m.Assignment.TopicPartitions {
			for _, p := range t.Partitions {
				at := fmt.Sprint(t.Topic, p)
				if other, taken := owner[at]; taken {
					f.t.Fatalf("C1: %s is assigned to %s and %s", at, other, m.MemberID)
				}
				owner[at] = m.MemberID
			}
		}
	}
}

// TestAnythingAtAll: whatever clients send, nothing panics, no call is answered twice,
// and the log says what the machine has (G3).
func TestAnythingAtAll(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := newBench(t)
			f := &fuzzer{bench: b, r: rand.New(rand.NewPCG(seed, 7)), topics: b.topics, ids: []string{"m1"}, epochs: []int32{0}}
			for range 3 {
				f.topic()
			}
			for i := range 300 {
				f.step()
				f.owned("g")
				f.owned("h")
				if i%10 == 0 {
					f.sameAfterReplay()
				}
				if live := compactedState(b.log); i%10 == 0 && !slices.Equal(live, state(b.m)) {
					t.Fatalf("G3: the live records are not the newest of the log:\n live %v\n log  %v", state(b.m), live)
				}
				if f.r.IntN(100) == 0 {
					f.failOver()
				}
			}
		})
	}
}

// compactedState are the newest records of a log, as state has them.
func compactedState(log []coordinator.Record) []string {
	newest := make(map[string]string)
	for _, r := range log {
		if r.Value == nil {
			delete(newest, string(r.Key))
			continue
		}
		newest[string(r.Key)] = fmt.Sprintf("%q = %q", r.Key, r.Value)
	}
	return slices.Sorted(maps.Values(newest))
}
