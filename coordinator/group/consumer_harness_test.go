package group_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/coordinator/group/assignor"
)

// fakeTopics are the topics of a test.
type fakeTopics struct {
	version uint64 // of topics
	racks   int    // a version, too
	topics  map[string]assignor.Topic
	asked   int // for topics
}

func (f *fakeTopics) Version() uint64            { return f.version }
func (f *fakeTopics) Marks() (topics, racks any) { return f.version, f.racks }
func (f *fakeTopics) Topic(name string) (assignor.Topic, bool) {
	f.asked++
	t, ok := f.topics[name]
	return t, ok
}

func (f *fakeTopics) Name(id [16]byte) (string, bool) {
	for name, t := range f.topics {
		if t.ID == id {
			return name, true
		}
	}
	return "", false
}
func (f *fakeTopics) Names() iter.Seq[string] { f.asked++; return maps.Keys(f.topics) }

// put makes or changes a topic.
func (f *fakeTopics) put(name string, partitions int32, racks ...string) {
	t := assignor.Topic{Partitions: partitions}
	copy(t.ID[:], name)
	for range racks {
		t.Racks = append(t.Racks, racks)
	}
	f.topics[name] = t
	f.version++
}

func (f *fakeTopics) drop(name string) {
	delete(f.topics, name)
	f.version++
}

// bench is a machine with a clock, its log, and topics.
type bench struct {
	t      *testing.T
	m      *group.Machine
	now    time.Time
	topics *fakeTopics
	cfg    group.Config
	log    []coordinator.Record
}

func newBench(t *testing.T, change ...func(*group.Config)) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0), topics: &fakeTopics{topics: make(map[string]assignor.Topic)}}
	ids := 0
	b.cfg = group.Config{Topics: func() group.Topics { return b.topics }, NewID: func() string {
		ids++
		return fmt.Sprintf("id-%d", ids)
	}}
	for _, c := range change {
		c(&b.cfg)
	}
	b.m = group.New(b.cfg)
	b.m.Loaded(b.now)
	return b
}

func (b *bench) keep(records []coordinator.Record) { b.log = append(b.log, records...) }

// pass lets time go by, with ticks when the machine wants them.
func (b *bench) pass(d time.Duration) {
	end := b.now.Add(d)
	for {
		next := b.m.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(b.now) {
			b.now = next
		}
		b.keep(b.m.Tick(b.now))
	}
	b.now = end
}

// state lists the live records, sorted.
func state(m *group.Machine) []string {
	var list []string
	m.Live(func(r coordinator.Record) bool {
		list = append(list, fmt.Sprintf("%q = %q", r.Key, r.Value))
		return true
	})
	slices.Sort(list)
	return list
}

// replayed is a machine made of the log.
func (b *bench) replayed() *group.Machine {
	b.t.Helper()
	m := group.New(b.cfg)
	for i, r := range b.log {
		if err := m.Replay(r, int64(i), 0); err != nil {
			b.t.Fatalf("replay record %d: %v", i, err)
		}
	}
	return m
}

// sameAfterReplay checks G3.
func (b *bench) sameAfterReplay() {
	b.t.Helper()
	replayed := b.replayed()
	if got, want := state(replayed), state(b.m); !slices.Equal(got, want) {
		b.t.Fatalf("G3: replayed state differs\n got %v\nwant %v", got, want)
	}
}

// fail over to a machine made of the log.
func (b *bench) failOver() {
	b.m = b.replayed()
	b.m.Loaded(b.now)
}

// beat sends a heartbeat.
func (b *bench) beat(req kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	req.Group = "g"
	resp, records := b.m.ConsumerGroupHeartbeat(b.now, group.Caller{ClientID: "client", Host: "/127.0.0.1"}, &req)
	b.keep(records)
	return resp
}

func (b *bench) describe() kmsg.ConsumerGroupDescribeResponseGroup {
	return b.m.DescribeConsumerGroup("g")
}

// request is a heartbeat that says nothing new.
func request(id string, epoch int32) kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewConsumerGroupHeartbeatRequest()
	req.Version, req.MemberID, req.MemberEpoch = 1, id, epoch
	return req
}

// firstBeat is a first heartbeat.
func firstBeat(id string, topics ...string) kmsg.ConsumerGroupHeartbeatRequest {
	req := request(id, 0)
	req.RebalanceTimeoutMillis = 30_000
	req.SubscribedTopicNames = append([]string{}, topics...)
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

func answers(t *testing.T, resp *kmsg.ConsumerGroupHeartbeatResponse, want *kerr.Error) {
	t.Helper()
	got := kerr.ErrorForCode(resp.ErrorCode)
	if want == nil && got != nil || want != nil && got != want {
		text := ""
		if resp.ErrorMessage != nil {
			text = *resp.ErrorMessage
		}
		t.Fatalf("answer is %v (%s), want %v", got, text, want)
	}
}

// subscriber is a member as a real client behaves: it gives up what it must, says so, and
// only then takes what is new.
type subscriber struct {
	b     *bench
	id    string
	first kmsg.ConsumerGroupHeartbeatRequest
	epoch int32
	owned map[assignor.Partition]bool
	// told is the last assignment, nil for none.
	told map[assignor.Partition]bool
	// unsure: the last answer was lost, so it says everything again.
	unsure bool
}

func (b *bench) subscriber(id string, topics ...string) *subscriber {
	return &subscriber{b: b, id: id, first: firstBeat(id, topics...), owned: map[assignor.Partition]bool{}}
}

// next is the client's next heartbeat.
func (c *subscriber) next() kmsg.ConsumerGroupHeartbeatRequest {
	if c.epoch == 0 {
		return c.first
	}
	req := request(c.id, c.epoch)
	if c.unsure {
		req = c.first
		req.MemberEpoch = c.epoch
	}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for p := range c.owned {
		rt := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		rt.TopicID, rt.Partitions = p.Topic, []int32{p.Number}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// beat sends a heartbeat and does what the answer says.
func (c *subscriber) beat() *kmsg.ConsumerGroupHeartbeatResponse {
	resp := c.b.beat(c.next())
	c.take(resp)
	return resp
}

// lose sends a heartbeat whose answer is lost.
func (c *subscriber) lose() {
	c.b.beat(c.next())
	c.unsure = true
}

func (c *subscriber) take(resp *kmsg.ConsumerGroupHeartbeatResponse) {
	c.unsure = false
	switch kerr.ErrorForCode(resp.ErrorCode) {
	case nil:
	case kerr.FencedMemberEpoch, kerr.UnknownMemberID, kerr.GroupIDNotFound:
		c.epoch, c.owned, c.told = 0, map[assignor.Partition]bool{}, nil
		return
	default:
		c.b.t.Fatalf("member %s: heartbeat: %v", c.id, kerr.ErrorForCode(resp.ErrorCode))
	}
	if resp.MemberEpoch < c.epoch && c.epoch > 0 {
		c.b.t.Fatalf("C2: member %s goes back from epoch %d to %d", c.id, c.epoch, resp.MemberEpoch)
	}
	c.epoch = resp.MemberEpoch
	if resp.Assignment != nil {
		c.told = make(map[assignor.Partition]bool)
		for _, t := range resp.Assignment.Topics {
			for _, n := range t.Partitions {
				c.told[assignor.Partition{Topic: t.TopicID, Number: n}] = true
			}
		}
	}
	if c.told == nil {
		return
	}
	gaveUp := false
	for p := range c.owned {
		if !c.told[p] {
			delete(c.owned, p)
			gaveUp = true
		}
	}
	if !gaveUp {
		for p := range c.told {
			c.owned[p] = true
		}
	}
}

// settle has all clients send heartbeats until nothing changes.
func (b *bench) settle(clients ...*subscriber) {
	b.t.Helper()
	for range 20 + 4*len(clients) {
		b.pass(2 * time.Second)
		for _, c := range clients {
			c.beat()
		}
	}
	if d := b.describe(); d.State != "Stable" && len(clients) > 0 {
		b.t.Fatalf("the group is %s after many heartbeats", d.State)
	}
}

// numbers are the partitions of a topic that a client owns.
func (c *subscriber) numbers(topic string) []int32 {
	var list []int32
	for p := range c.owned {
		if p.Topic == c.b.topics.topics[topic].ID {
			list = append(list, p.Number)
		}
	}
	slices.Sort(list)
	return list
}
