package controller_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"ponor/controller"
	"ponor/metadata"
	"ponor/rpc"
)

// operatorOf is a client of the node's calls for operators.
func operatorOf(t *testing.T, c *cluster, n *node) *rpc.Client {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{APIs: n.OperatorAPIs(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	address := n.name + ":operators"
	l := c.net.listen(address)
	go func() { done <- server.Serve(context.Background(), l) }()
	client, err := rpc.Dial(c.context(), c.net.dialer("operator"), address, rpc.ClientConfig{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		server.Close()
		<-done
	})
	return client
}

// The last broker that takes partitions is not cordoned or drained, and where none does
// whoever wants a topic is told why, and what undoes it.
func TestSomeBrokerTakesPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(2)
		client := operatorOf(t, c, n)
		ask := func(id metadata.BrokerID, cordoned, draining bool) string {
			if err := controller.AskBrokerState(c.context(), client, id, cordoned, draining); err != nil {
				return err.Error()
			}
			return ""
		}
		if got := ask(2, true, false); got != "" {
			t.Fatal(got)
		}
		for _, draining := range []bool{false, true} {
			if got := ask(1, true, draining); !strings.Contains(got, "no other broker would take new partitions: broker 2 is cordoned; 'ponor broker uncordon NODE'") {
				t.Errorf("draining %v: %q", draining, got)
			}
		}
		if got := ask(2, true, true); got != "" {
			t.Error(got)
		}
		if got := ask(1, false, true); !strings.Contains(got, "no other broker can take its partitions: broker 2 is draining") {
			t.Errorf("%q", got)
		}
		// As by a process that stops, which asks nobody.
		if err := n.SetBrokerState(c.context(), 1, func(b *metadata.Broker) { b.Draining = true }); err != nil {
			t.Fatal(err)
		}
		if got := ask(1, true, true); !strings.Contains(got, "no other broker can take its partitions: broker 2 is draining;") {
			t.Errorf("%q, which should be of the other one only", got)
		}
		res, err := n.CreateTopics(c.context(), []controller.TopicSpec{{Name: "t", Partitions: 1, ReplicationFactor: -1}}, false)
		if err != nil {
			t.Fatal(err)
		}
		want := "no broker takes the partitions of topic \"t\": broker 1 is draining, broker 2 is draining; 'ponor broker uncordon NODE' ends cordoning and draining"
		if e := res[0].Err; e == nil || e.Code != controller.CodeInvalidReplicationFactor || e.Message != want {
			t.Errorf("%v, want %s", e, want)
		}
	})
}

func TestALeaderOfAnEarlierBuildIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(1)
		if err := n.AskUnknown(c.context()); err == nil || !strings.Contains(err.Error(), "its build is older") {
			t.Errorf("it says %v", err)
		}
	})
}

// Two requests at once, of two nodes, close one broker of the last two, not both.
func TestTheLastTwoAreNotClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.brokers(3)
		set := func(id metadata.BrokerID, closed bool) {
			t.Helper()
			if err := n.SetBrokerState(c.context(), id, func(b *metadata.Broker) { b.Cordoned, b.Draining = closed, closed }); err != nil {
				t.Fatal(err)
			}
		}
		set(1, true) // neither of those asked leads, so that they go in step
		for _, draining := range []bool{false, true} {
			errs := make(chan error, 2)
			for id := 2; id <= 3; id++ {
				client := operatorOf(t, c, c.nodes[id])
				go func() { errs <- controller.AskBrokerState(c.context(), client, metadata.BrokerID(id), true, draining) }()
			}
			one, other := <-errs, <-errs
			if one == nil {
				one, other = other, one
			}
			if one == nil || !strings.Contains(one.Error(), "no other broker ") || other != nil {
				t.Errorf("draining %v: %v, %v", draining, one, other)
			}
			set(2, false)
			set(3, false)
		}
	})
}
