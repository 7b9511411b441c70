package controller_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
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
			n := c.brokers(2)
			for _, b := range c.nodes {
				obeys(c, b)
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
		n := c.brokers(2)
		for _, b := range c.nodes {
			obeys(c, b)
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

// Hot partitions that sit on one broker spread over those that take part, and
// what the leader says of it beforehand is what it does.
func TestHotPartitionsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(4)
		for _, b := range c.nodes {
			obeys(c, b)
		}
		topic := c.topic(n, "t", 12, 3)
		if err := n.SetBrokerState(c.context(), 4, func(b *metadata.Broker) { b.Cordoned = true }); err != nil {
			t.Fatal(err)
		}
		hot := map[int32]bool{}
		for p := range n.Image().Partitions(topic) {
			if p.Owner.Broker == 1 {
				hot[p.Number] = true
			}
		}
		explained := func() controller.Balance {
			t.Helper()
			b, err := c.nodes[2].Balance(c.context()) // which is not the leader
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		time.Sleep(3 * time.Second)
		if v := explained().Verdict; !strings.Contains(v, "not known yet") {
			t.Errorf("before any load is known: %s", v)
		}
		for id := 1; id <= 4; id++ {
			reports(c.nodes[id], topic, hot)
		}
		time.Sleep(time.Minute)
		before := explained()
		if len(before.Moves) != 2 || !strings.Contains(before.Verdict, "leaders move in") || len(led(n, topic)) != 4 {
			t.Fatalf("planned after a minute: %+v", before)
		}
		if b := before.Brokers; b[0].Bytes != 3e7 || b[0].Share != 1 || b[0].Role != "leader" || b[0].Partitions != 3 || b[1].Role != "observer" || b[3].State != "cordoned" {
			t.Errorf("brokers: %+v", b)
		}
		for len(explained().Moves) > 0 { // until they are made
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		if v := explained().Verdict; !strings.Contains(v, "balanced") {
			t.Errorf("right after the moves: %s", v)
		}
		for _, m := range before.Moves {
			p, _ := n.Image().Partition(topic, m.Partition)
			if p.Owner.Broker != m.To || p.Replicas[0] != m.To || m.From != 1 || m.To == 4 || m.Cause != "bytes" {
				t.Errorf("announced %+v, but %v is led by %v, replicas %v", m, &p, p.Owner, p.Replicas)
			}
		}
		after := explained()
		if len(after.Moves) != 0 || !strings.Contains(after.Verdict, "balanced") {
			t.Errorf("after the moves: %+v", after)
		}
		for _, b := range after.Brokers[:3] {
			if b.Bytes != 1e7 {
				t.Errorf("broker %d has %.0f bytes/s", b.ID, b.Bytes)
			}
		}
		moved := epochs(n, topic)
		time.Sleep(10 * time.Minute)
		if epochs(n, topic) != moved {
			t.Error("leaders move under a steady load")
		}
		// Switched off it says so, and does nothing.
		errs, err := n.AlterConfigs(c.context(), []controller.ConfigResource{{Kind: metadata.KindBroker, Changes: []controller.ConfigChange{{Name: "auto.leader.rebalance.enable", Value: "false"}}}}, false)
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		if off := explained(); off.Enabled || !strings.Contains(off.Verdict, "switched off") {
			t.Errorf("switched off: %+v", off)
		}
		for p := range n.Image().Partitions(topic) {
			if p.Owner.Broker == 2 {
				hot[p.Number] = true
			}
		}
		for id := 1; id <= 4; id++ {
			reports(c.nodes[id], topic, hot)
		}
		time.Sleep(10 * time.Minute)
		if epochs(n, topic) != moved {
			t.Error("leaders move though balancing is switched off")
		}
	})
}

// reports has a node report 10 MB/s of each hot partition that it leads.
func reports(n *node, topic metadata.TopicID, hot map[int32]bool) {
	hot = maps.Clone(hot)
	n.SetStats(func() controller.Stats {
		l := &partition.Loads{}
		for p := range n.Image().Partitions(topic) {
			if p.Owner == n.Incarnation() && hot[p.Number] {
				l.Bytes += 1e7
				l.Busiest = append(l.Busiest, partition.Load{Topic: topic, Partition: p.Number, Bytes: 1e7})
			}
		}
		return controller.Stats{Load: l}
	})
}

// The balance says of every broker where it was and whether it serves: one that is
// dead is down, and one that owes signs of life is silent before.
func TestBalanceSaysWhoDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(2)
		n.SetStats(func() controller.Stats {
			return controller.Stats{Trouble: "no space left on device", TroubleFor: time.Minute}
		})
		stateOf := func(n *node) map[metadata.BrokerID]controller.BrokerBalance {
			b, err := n.Balance(c.context())
			if err != nil {
				t.Fatal(err)
			}
			out := map[metadata.BrokerID]controller.BrokerBalance{}
			for _, b := range b.Brokers {
				out[b.ID] = b
			}
			return out
		}
		eventually(t, "trouble of the store is told", func() bool {
			b := stateOf(n)[1]
			return b.Trouble == "no space left on device" && b.TroubleFor == time.Minute && b.State == "open"
		})
		if b := stateOf(n)[2]; b.State != "open" || b.Address == "" || b.Trouble != "" {
			t.Errorf("%+v", b)
		}
		resume := c.net.stall("n2")
		eventually(t, "silent first", func() bool { return stateOf(n)[2].State == "silent" })
		eventually(t, "then down", func() bool { return stateOf(n)[2].State == "down" })
		if b := stateOf(n)[2]; b.Address == "" {
			t.Errorf("where it was is forgotten: %+v", b)
		}
		resume()
	})
}
