package main

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A group of other clients shares its topic with this command, whatever its members
// have in common; a group that has nothing in common with it is told so.
func TestConsumeJoinsGroupsOfOthers(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create t --partitions 4")
	producer, err := kgo.NewClient(kgo.SeedBrokers(n.clients), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for p := range int32(4) { // whatever it is assigned
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for group, b := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()} {
		other := joined(t, n.clients, group, b)
		n.does("consume t --group " + group + " --from start --count 1")
		other()
	}
	defer joined(t, n.clients, "own", named{kgo.RangeBalancer()})()
	n.says("consume t --group own --count 1", exitError, "join group own", "range, roundrobin, sticky and cooperative-sticky", "ponor group describe own")
}

// named is a balancer that nobody else has.
type named struct{ kgo.GroupBalancer }

func (named) ProtocolName() string { return "of our own" }

// joined joins a group without reading anything, until the func that it returns
// is called.
func joined(t *testing.T, address, group string, b kgo.GroupBalancer) func() {
	t.Helper()
	assigned := make(chan struct{}, 100)
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(address, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("t"), kgo.Balancers(b),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	cl.PauseFetchTopics("t")
	<-assigned
	return cl.Close
}
