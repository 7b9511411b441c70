package controller_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"ponor/controller"
	"ponor/metadata"
)

func brokerID(id int) metadata.BrokerID { return metadata.BrokerID(id) }

func ids(list ...int) (out []metadata.BrokerID) {
	for _, id := range list {
		out = append(out, brokerID(id))
	}
	return out
}

func TestPlacementIsEvenAndSpreadsZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(6) // zones z1 z2 z0 z1 z2 z0
		total := map[metadata.BrokerID]int{}
		for i := range 7 {
			id := c.topic(n, fmt.Sprintf("t%d", i), 10, 3)
			owners, copies := map[metadata.BrokerID]int{}, map[metadata.BrokerID]int{}
			for p := range n.Image().Partitions(id) {
				owners[p.Owner.Broker]++
				total[p.Owner.Broker]++
				if p.Owner.Broker != p.Replicas[0] {
					t.Errorf("%s: owner %v, replicas %v", &p, p.Owner, p.Replicas)
				}
				zones := map[int]bool{}
				for _, r := range p.Replicas {
					zones[int(r)%3] = true
					copies[r]++
				}
				if len(zones) != 3 {
					t.Errorf("%s: replicas %v lie in %d zones", &p, p.Replicas, len(zones))
				}
			}
			for b := range copies {
				if owners[b] < 1 || owners[b] > 2 || copies[b] < 4 || copies[b] > 6 {
					t.Errorf("topic %d: broker %d owns %d of 10 and holds %d of 30", i, b, owners[b], copies[b])
				}
			}
		}
		for b, count := range total {
			if count < 11 || count > 12 {
				t.Errorf("broker %d owns %d of 70", b, count)
			}
		}
	})
}

func TestConcurrentCreatesSeeEachOther(t *testing.T) {
	c := newCluster(t)
	c.voters(3)
	for id := 1; id <= 3; id++ {
		c.broker(c.nodes[id])
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() { c.topic(c.nodes[1+i%3], fmt.Sprintf("t%d", i), 1, 1) })
	}
	var won, lost int
	var mu sync.Mutex
	for i := range 6 {
		wg.Go(func() {
			r, err := c.nodes[1+i%3].CreateTopics(c.context(), []controller.TopicSpec{{Name: "same", Partitions: 1, ReplicationFactor: 1}}, false)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case r[0].Err == nil:
				won++
			case r[0].Err.Code == controller.CodeTopicExists:
				lost++
			default:
				t.Error(r[0].Err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != 5 {
		t.Errorf("%d creates of one name succeeded, %d were refused", won, lost)
	}
	img, err := c.nodes[1].Barrier(c.context())
	if err != nil {
		t.Fatal(err)
	}
	for b := range img.Brokers() {
		if n := img.OwnedCount(b.Incarnation); n < 10 || n > 11 {
			t.Errorf("broker %d owns %d of 31", b.ID, n)
		}
	}
}

func TestCreateTopicsRefuses(t *testing.T) {
	c := newCluster(t)
	c.voters(1)
	n := c.nodes[1]
	c.broker(n)
	c.topic(n, "a.b_c", 1, 1)
	tests := []struct {
		name string
		spec controller.TopicSpec
		code controller.ErrorCode
		says string
	}{
		{"a name that exists", controller.TopicSpec{Name: "a.b_c", Partitions: 1, ReplicationFactor: 1}, controller.CodeTopicExists, "already exists"},
		{"a name that collides", controller.TopicSpec{Name: "a_b.c", Partitions: 1, ReplicationFactor: 1}, controller.CodeInvalidTopic, "collides"},
		{"an illegal name", controller.TopicSpec{Name: "a b", Partitions: 1, ReplicationFactor: 1}, controller.CodeInvalidTopic, "a b"},
		{"no partitions", controller.TopicSpec{Name: "t", Partitions: 0, ReplicationFactor: 1}, controller.CodeInvalidPartitions, "larger than 0"},
		{"too many partitions", controller.TopicSpec{Name: "t", Partitions: 1 << 30, ReplicationFactor: 1}, controller.CodeInvalidPartitions, "the most is"},
		{"more replicas than brokers", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 2}, controller.CodeInvalidReplicationFactor, "available brokers"},
		{"no replicas", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 0}, controller.CodeInvalidReplicationFactor, "larger than 0"},
		{"an unknown config", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.mss": "1"}}, controller.CodeInvalidConfig, "retention.ms"},
		{"a local log, which would be lost with its broker", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"storage.mode": "local"}}, controller.CodeInvalidConfig, "storage.mode"},
		{"a bad config value", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "soon"}}, controller.CodeInvalidConfig, "retention.ms"},
		{"an assignment beside a count", controller.TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: -1, Assignments: map[int32][]metadata.BrokerID{0: ids(1)}}, controller.CodeInvalidRequest, "must be -1"},
		{"an assignment with a gap", controller.TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]metadata.BrokerID{1: ids(1)}}, controller.CodeInvalidAssignment, "numbered from 0"},
		{"an assignment to a stranger", controller.TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]metadata.BrokerID{0: ids(7)}}, controller.CodeInvalidAssignment, "not registered"},
		{"an assignment that repeats", controller.TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]metadata.BrokerID{0: ids(1, 1)}}, controller.CodeInvalidAssignment, "twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				r, err := n.CreateTopics(c.context(), []controller.TopicSpec{tt.spec}, dry)
				if err != nil {
					t.Fatal(err)
				}
				if r[0].Err == nil || r[0].Err.Code != tt.code || !strings.Contains(r[0].Err.Message, tt.says) {
					t.Errorf("validate only %v: %+v", dry, r[0].Err)
				}
			}
		})
	}
}

func TestAdminOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		for id := 1; id <= 3; id++ {
			c.broker(c.nodes[id])
		}
		ctx, n := c.context(), c.nodes[2]
		check := func(what string, got []*controller.Error, err error, want controller.ErrorCode) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			code := controller.CodeNone
			if got[0] != nil {
				code = got[0].Code
			}
			if code != want {
				t.Errorf("%s: %v, want code %d", what, got[0], want)
			}
		}
		r, err := n.CreateTopics(ctx, []controller.TopicSpec{{Name: "dry", Partitions: 4, ReplicationFactor: -1}}, true)
		if err != nil || r[0].Err != nil || r[0].Partitions != 4 || r[0].ReplicationFactor != 3 {
			t.Errorf("validate only: %+v, %v", r, err)
		}
		if _, ok := n.Image().Topic("dry"); ok {
			t.Error("validate only created a topic")
		}
		id := c.topic(n, "t", 2, -1)

		got, err := n.CreatePartitions(ctx, []controller.PartitionsSpec{{Topic: "t", Count: 2}}, false)
		check("same count", got, err, controller.CodeInvalidPartitions)
		got, err = n.CreatePartitions(ctx, []controller.PartitionsSpec{{Topic: "t", Count: 5}}, false)
		check("more partitions", got, err, controller.CodeNone)
		if top, _ := n.Image().Topic("t"); top.Partitions != 5 {
			t.Errorf("%d partitions", top.Partitions)
		}

		alter := func(name, value string, op controller.ConfigOpKind) ([]*controller.Error, error) {
			return n.AlterConfigs(ctx, []controller.ConfigResource{{Kind: metadata.KindTopic, Name: "t",
				Changes: []controller.ConfigChange{{Name: name, Value: value, Op: op}}}}, false)
		}
		got, err = alter("retention.ms", "1000", controller.ConfigSet)
		check("set", got, err, controller.CodeNone)
		got, err = alter("cleanup.policy", "compact", controller.ConfigAppend)
		check("append", got, err, controller.CodeNone)
		if v := n.Image().Configs(metadata.KindTopic, "t")["cleanup.policy"]; v != "delete,compact" {
			t.Errorf("cleanup.policy %q", v)
		}
		got, err = alter("cleanup.policy", "delete", controller.ConfigSubtract)
		check("subtract", got, err, controller.CodeNone)
		got, err = alter("retention.ms", "5", controller.ConfigAppend)
		check("append to a number", got, err, controller.CodeInvalidConfig)
		got, err = alter("retention.ms", "", controller.ConfigDelete)
		check("delete", got, err, controller.CodeNone)
		if got := n.Image().Configs(metadata.KindTopic, "t"); len(got) != 1 || got["cleanup.policy"] != "compact" {
			t.Errorf("configs %v", got)
		}

		ofGroup := func(name, value string) ([]*controller.Error, error) {
			return n.AlterConfigs(ctx, []controller.ConfigResource{{Kind: metadata.KindGroup, Name: "g", Changes: []controller.ConfigChange{{Name: name, Value: value}}}}, false)
		}
		got, err = ofGroup("consumer.session.timeout.ms", "60000")
		check("a group's", got, err, controller.CodeNone)
		got, err = ofGroup("consumer.session.timeout.ms", "60001")
		check("a group's, above what brokers allow", got, err, controller.CodeInvalidConfig)
		got, err = ofGroup("session.timeout.ms", "50000")
		check("a group's, unknown", got, err, controller.CodeInvalidConfig)

		p, _ := n.Image().Partition(id, 0)
		got, err = n.ElectPreferred(ctx, []controller.PartitionChange{{Topic: id}})
		check("election", got, err, controller.CodeElectionNotNeeded)
		got, err = n.Reassign(ctx, []controller.PartitionChange{{Topic: id, Replicas: ids(int(p.Owner.Broker))}})
		check("reassign", got, err, controller.CodeNone)
		if q, _ := n.Image().Partition(id, 0); len(q.Replicas) != 1 || len(q.Adding)+len(q.Removing) != 0 {
			t.Errorf("after reassignment %v, adding %v, removing %v", q.Replicas, q.Adding, q.Removing)
		}

		errs, err := n.DeleteTopics(ctx, []metadata.TopicID{id, {1}})
		if err != nil || errs[0] != nil || errs[1] == nil || errs[1].Code != controller.CodeUnknownTopic {
			t.Errorf("delete: %v, %v", errs, err)
		}
		if top, ok := n.Image().Topic("t"); ok && !top.Deleting {
			t.Error("topic is still there")
		}
		c.sameHash()
	})
}

func TestReassignmentAwayFromTheOwnerAsksItToMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(1)
		c.start(2, false)
		c.broker(c.nodes[1])
		target := c.broker(c.nodes[2])
		n := c.nodes[1]
		moves := make(chan []controller.Move, 100)
		n.SetMover(func(m []controller.Move) { moves <- m })
		id := c.topic(n, "t", 1, 1)
		p, _ := n.Image().Partition(id, 0)
		if p.Owner.Broker != 1 {
			t.Fatalf("owner is %v", p.Owner)
		}
		errs, err := n.Reassign(c.context(), []controller.PartitionChange{{Topic: id, Replicas: ids(2)}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		got := (<-moves)[0]
		if want := (controller.Move{Topic: id, Epoch: p.Epoch, Target: target}); got != want {
			t.Fatalf("asked for %+v, want %+v", got, want)
		}
		r, err := n.SubmitOwn(c.context(), flip(p, target))
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		eventually(t, "end of the reassignment", func() bool {
			q, _ := n.Image().Partition(id, 0)
			return len(q.Replicas) == 1 && q.Replicas[0] == 2 && len(q.Adding)+len(q.Removing) == 0
		})
	})
}
