package controller_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// obeys has a node carry out the moves it is asked for, as brokers do.
func obeys(c *cluster, n *node) {
	n.SetMover(func(moves []controller.Move) {
		for _, m := range moves {
			p, ok := n.Image().Partition(m.Topic, m.Partition)
			if !ok || p.Epoch != m.Epoch || p.Owner != n.Incarnation() {
				continue
			}
			go func() { _, _ = n.SubmitOwn(c.context(), flip(p, m.Target)) }()
		}
	})
}

// led counts the partitions of each broker.
func led(n *node, id metadata.TopicID) map[metadata.BrokerID]int {
	out := map[metadata.BrokerID]int{}
	for p := range n.Image().Partitions(id) {
		out[p.Owner.Broker]++
	}
	return out
}

// epochs changes whenever any partition moves.
func epochs(n *node, id metadata.TopicID) (sum int) {
	for p := range n.Image().Partitions(id) {
		sum += int(p.Epoch)
	}
	return sum
}

// A broker that joins gets an even share; then nothing moves any more.
func TestNewBrokerGetsItsShare(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.voters(1)
			n := c.nodes[1]
			c.start(2, false)
			for _, id := range []int{1, 2} {
				c.broker(c.nodes[id])
				obeys(c, c.nodes[id])
			}
			id := c.topic(n, "t", 12, 2)
			if off {
				errs, err := n.AlterConfigs(c.context(), []controller.ConfigResource{{Kind: metadata.KindBroker, Changes: []controller.ConfigChange{{Name: "auto.leader.rebalance.enable", Value: "false"}}}}, false)
				if err != nil || errs[0] != nil {
					t.Fatal(err, errs)
				}
			}
			time.Sleep(10 * time.Second)
			if got := led(n, id); got[1] != 6 || got[2] != 6 {
				t.Fatalf("led by %v", got)
			}
			c.start(3, false)
			c.broker(c.nodes[3])
			obeys(c, c.nodes[3])
			time.Sleep(10 * time.Second)
			want := 4
			if off {
				want = 0
			}
			if got := led(n, id); got[3] != want {
				t.Errorf("switched off: %v: led by %v, want %d by the new broker", off, got, want)
			}
			before := epochs(n, id)
			time.Sleep(time.Minute)
			if after := epochs(n, id); after != before {
				t.Errorf("%d moves without cause", after-before)
			}
			for p := range n.Image().Partitions(id) {
				if len(p.Replicas) != 2 || p.Replicas[0] == p.Replicas[1] || len(p.Adding)+len(p.Removing) > 0 {
					t.Errorf("%v has replicas %v, adding %v, removing %v", &p, p.Replicas, p.Adding, p.Removing)
				}
			}
		})
	}
}

// After a drain and a restart leaders go home, and lists that people made stay
// as they are.
func TestLeadersGoHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(1)
		n := c.nodes[1]
		c.start(2, false)
		for _, id := range []int{1, 2} {
			c.broker(c.nodes[id])
			obeys(c, c.nodes[id])
		}
		id := c.topic(n, "t", 5, 2)
		before := slices.Collect(n.Image().Partitions(id))
		if err := n.SetBrokerState(c.context(), 2, func(b *metadata.Broker) { b.Draining = true }); err != nil {
			t.Fatal(err)
		}
		eventually(t, "drained broker", func() bool { return led(n, id)[2] == 0 })
		// A new registration ends the draining; here an operator does.
		if err := n.SetBrokerState(c.context(), 2, func(b *metadata.Broker) { b.Draining = false }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1900 * time.Millisecond)
		if led(n, id)[2] != 0 {
			t.Error("leaders went home before membership was stable")
		}
		time.Sleep(10 * time.Second)
		for i, p := range slices.Collect(n.Image().Partitions(id)) {
			if p.Owner.Broker != p.Replicas[0] || !slices.Equal(p.Replicas, before[i].Replicas) {
				t.Errorf("%v is led by %v, replicas %v, were %v", &p, p.Owner, p.Replicas, before[i].Replicas)
			}
		}
		_, _ = n.Submit(c.context(), &metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
		if err := n.SetBrokerState(c.context(), 9, func(*metadata.Broker) {}); err == nil {
			t.Error("state of a broker that is not registered was set")
		}
	})
}
