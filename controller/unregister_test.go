package controller_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ponor/controller"
	"ponor/metadata"
)

// refusal is the text of a refusal, "" for none.
func refusal(t *testing.T, err error, code controller.ErrorCode) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *controller.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("%v, want a refusal with code %d", err, code)
	}
	return e.Message
}

// A broker is forgotten when it is down and has no vote. Then no replica list names it,
// and each is as long as before where somebody else is left.
func TestUnregisteredBrokerLeavesEveryReplicaList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(4)
		two, four := c.topic(n, "two", 12, 2), c.topic(n, "four", 2, 4)
		if got := refusal(t, n.UnregisterBroker(c.context(), 9), controller.CodeUnknownBroker); !strings.Contains(got, "not registered") {
			t.Errorf("of an unknown one: %q", got)
		}
		if got := refusal(t, n.UnregisterBroker(c.context(), 3), controller.CodeInvalidRequest); !strings.Contains(got, "'ponor broker drain 3'") {
			t.Errorf("of a live one: %q", got)
		}
		c.kill(c.nodes[3])
		eventually(t, "broker 3 is down", func() bool { b, _ := n.Image().Broker(3); return b.Fenced })
		if err := n.UnregisterBroker(c.context(), 3); err != nil {
			t.Fatal(err)
		}
		if _, ok := n.Image().Broker(3); ok {
			t.Error("it is still registered")
		}
		copies := map[metadata.BrokerID]int{}
		for topic, replicas := range map[metadata.TopicID]int{two: 2, four: 3} {
			for p := range n.Image().Partitions(topic) {
				list := slices.Clone(p.Replicas)
				slices.Sort(list)
				if list = slices.Compact(list); len(list) != replicas || slices.Contains(list, 3) || !slices.Contains(list, p.Owner.Broker) {
					t.Errorf("%v, led by %v, has replicas %v", &p, p.Owner, p.Replicas)
				}
				if topic == two {
					for _, id := range list {
						copies[id]++
					}
				}
			}
		}
		if copies[2] != 12 || copies[1] < 5 || copies[4] < 5 { // 1 and 4 share a zone
			t.Errorf("replicas by broker: %v, want 12 of broker 2 and some 6 of 1 and 4", copies)
		}
		c.start(3, false) // who comes back is new
		c.broker(c.nodes[3])
	})
}

func TestVoterIsNotUnregistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		n := c.leader()
		for _, m := range c.nodes {
			c.broker(m)
		}
		var other *node
		for _, m := range c.nodes {
			if m != n {
				other = m
			}
		}
		id := metadata.BrokerID(other.id)
		c.kill(other)
		eventually(t, "it is down", func() bool { b, _ := n.Image().Broker(id); return b.Fenced })
		if got := refusal(t, n.UnregisterBroker(c.context(), id), controller.CodeInvalidRequest); !strings.Contains(got, "'ponor quorum remove ") {
			t.Errorf("of a voter: %q", got)
		}
		if err := n.RemoveVoter(c.context(), id, controller.DirectoryID{}); err != nil {
			t.Fatal(err)
		}
		if err := n.UnregisterBroker(c.context(), id); err != nil {
			t.Fatal(err)
		}
	})
}

// A reassignment goes on without a broker that is forgotten: one that was to leave
// leaves, and one that was the only one to come leaves the partition where it is.
func TestUnregisteredBrokerLeavesReassignments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(4)
		n.SetMover(func([]controller.Move) {}) // nothing moves
		create := func(name string, replicas ...int) metadata.TopicID {
			id := c.topic(n, name, 1, 1)
			p, _ := n.Image().Partition(id, 0)
			if p.Owner.Broker != 1 {
				b, _ := n.Image().Broker(1)
				from := c.nodes[int(p.Owner.Broker)]
				if r, err := from.SubmitOwn(c.context(), flip(p, b.Incarnation)); err != nil || r.Err != nil {
					t.Fatal(err, r.Err)
				}
			}
			if errs, err := n.Reassign(c.context(), []controller.PartitionChange{{Topic: id, Replicas: ids(replicas...)}}); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			return id
		}
		leaves, comes, both := create("leaves", 1, 3), create("comes", 1), create("both", 1)
		for id, to := range map[metadata.TopicID][]int{leaves: {2}, comes: {3}, both: {3, 4}} {
			if errs, err := n.Reassign(c.context(), []controller.PartitionChange{{Topic: id, Replicas: ids(to...)}}); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
		}
		type lists struct{ replicas, adding, removing []metadata.BrokerID }
		forget := func(id metadata.BrokerID, want map[metadata.TopicID]lists) {
			t.Helper()
			c.kill(c.nodes[int(id)])
			eventually(t, "it is down", func() bool { b, _ := n.Image().Broker(id); return b.Fenced })
			if err := n.UnregisterBroker(c.context(), id); err != nil {
				t.Fatal(err)
			}
			for topic, w := range want {
				p, _ := n.Image().Partition(topic, 0)
				if !slices.Equal(p.Replicas, w.replicas) || !slices.Equal(p.Adding, w.adding) || !slices.Equal(p.Removing, w.removing) {
					t.Errorf("%v without %d: replicas %v, adding %v, removing %v, want %v", &p, id, p.Replicas, p.Adding, p.Removing, w)
				}
			}
		}
		c.kill(c.nodes[2])
		eventually(t, "it is down", func() bool { b, _ := n.Image().Broker(2); return b.Fenced })
		forget(3, map[metadata.TopicID]lists{
			leaves: {ids(2, 1), ids(2), ids(1)},
			comes:  {ids(1, 4), nil, ids(1)}, // 4 instead
			both:   {ids(4, 1), ids(4), ids(1)},
		})
		forget(4, map[metadata.TopicID]lists{
			leaves: {ids(2, 1), ids(2), ids(1)},
			comes:  {ids(1), nil, nil},
			both:   {ids(1), nil, nil},
		})
	})
}
