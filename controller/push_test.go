package controller_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
)

// reached notes when a node's image says that the partition is an incarnation's.
func reached(n *node, topic metadata.TopicID, owner metadata.Incarnation) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() { // ends when the flip has arrived
		for {
			changed := n.Changed()
			if p, ok := n.Image().Partition(topic, 0); ok && p.Owner == owner {
				at <- time.Now()
				return
			}
			<-changed
		}
	}()
	return at
}

// A flip reaches its target, and all others, without waiting for any timer: on
// virtual time no time passes, whatever heartbeats, polls and Raft do meanwhile.
func TestAFlipWaitsForNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const brokers = 12
		c := newCluster(t)
		_, incs := serving(c, brokers)
		topic := c.topic(c.nodes[1], "moving", 1, 1)
		leader := c.leader()
		for i := range 300 {
			time.Sleep(time.Duration(i*37%211) * time.Millisecond) // anywhere between ticks
			p, _ := leader.Image().Partition(topic, 0)
			to := incs[(int(p.Owner.Broker)+i%(brokers-1))%brokers+1]
			var all []<-chan time.Time
			for id := 1; id <= brokers; id++ {
				all = append(all, reached(c.nodes[id], topic, to))
			}
			begun := time.Now()
			if r, err := c.nodes[int(p.Owner.Broker)].SubmitOwn(c.context(), flip(p, to)); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			for id, ch := range all {
				if at := <-ch; at != begun {
					t.Errorf("flip %d reached broker %d after %v", i, id+1, at.Sub(begun))
				}
			}
		}
	})
}

// What the leader wants moved is moved without waiting for any timer: on virtual
// time no time passes between an operator's command and the flip, wherever in its
// interval the owner's heartbeat is.
func TestAMoveWaitsForNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const brokers = 5
		c := newCluster(t)
		_, incs := serving(c, brokers)
		topic := c.topic(c.nodes[1], "moving", 1, 1)
		for id := 1; id <= brokers; id++ {
			obeys(c, c.nodes[id])
		}
		time.Sleep(time.Second) // all follow the leader now
		must := func(errs []*controller.Error, err error) {
			t.Helper()
			if err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
		}
		one := func(list ...int) []controller.PartitionChange {
			return []controller.PartitionChange{{Topic: topic, Replicas: ids(list...)}}
		}
		for i := range 100 {
			time.Sleep(time.Duration(i*37%211) * time.Millisecond) // anywhere between ticks
			n := c.nodes[i%brokers+1]
			p, _ := n.Image().Partition(topic, 0)
			from := int(p.Owner.Broker)
			to := (from+i%(brokers-1))%brokers + 1
			flipped := reached(n, topic, incs[to])
			begun := time.Now()
			what := "reassignment"
			if i%2 == 0 {
				must(n.Reassign(c.context(), one(to)))
			} else {
				what = "election"
				must(n.Reassign(c.context(), one(to, from)))
				must(n.ElectPreferred(c.context(), one()))
			}
			if at := <-flipped; at != begun {
				t.Errorf("%s %d: from broker %d to %d in %v", what, i, from, to, at.Sub(begun))
			}
		}
		for id := 1; id <= 3; id++ {
			time.Sleep(time.Duration(id*37) * time.Millisecond)
			begun := time.Now()
			if err := c.nodes[4].SetBrokerState(c.context(), brokerID(id), func(b *metadata.Broker) { b.Draining = true }); err != nil {
				t.Fatal(err)
			}
			for n, changed := c.leader(), (<-chan struct{})(nil); ; <-changed {
				if changed = n.Changed(); n.Image().OwnedCount(incs[id]) == 0 {
					break
				}
			}
			if took := time.Since(begun); took > 0 {
				t.Errorf("broker %d is drained in %v", id, took)
			}
		}
	})
}

// Three voters and 47 other brokers in one process: how long after the leader
// has a flip its target has it, and the last of all.
func BenchmarkFlipTo50Brokers(b *testing.B) {
	const brokers = 50
	c := newCluster(b)
	c.tune = func(cfg *controller.Config) {
		cfg.HeartbeatInterval, cfg.SessionTimeout, cfg.ElectionTimeout = 500*time.Millisecond, 10*time.Second, time.Second
	}
	c.voters(3)
	for id := 4; id <= brokers; id++ {
		c.start(id, false)
	}
	incs := map[metadata.BrokerID]metadata.Incarnation{}
	for id := 1; id <= brokers; id++ {
		incs[metadata.BrokerID(id)] = c.broker(c.nodes[id])
	}
	topic := c.topic(c.nodes[1], "t", 1, 1)
	leader := c.leader()
	var target, last []time.Duration
	for i := 0; b.Loop(); i++ {
		p, _ := leader.Image().Partition(topic, 0)
		to := metadata.BrokerID(i*7%brokers + 1)
		if to == p.Owner.Broker {
			continue
		}
		first := reached(leader, topic, incs[to])
		var all []<-chan time.Time
		for id := 1; id <= brokers; id++ {
			all = append(all, reached(c.nodes[id], topic, incs[to]))
		}
		if r, err := c.nodes[int(p.Owner.Broker)].SubmitOwn(c.context(), flip(p, incs[to])); err != nil || r.Err != nil {
			b.Fatal(err, r.Err)
		}
		committed, worst := <-first, time.Duration(0)
		for id, ch := range all {
			lag := max(0, (<-ch).Sub(committed))
			if worst = max(worst, lag); metadata.BrokerID(id+1) == to {
				target = append(target, lag)
			}
		}
		last = append(last, worst)
	}
	for name, lags := range map[string][]time.Duration{"target": target, "last": last} {
		slices.Sort(lags)
		if n := len(lags); n > 0 {
			b.ReportMetric(float64(lags[n/2].Microseconds())/1000, name+"-p50-ms")
			b.ReportMetric(float64(lags[n*99/100].Microseconds())/1000, name+"-p99-ms")
		}
	}
}
