package controller_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
)

// Each mistake must be told in words that name what, where and what to do, and
// must not make a quorum.
func TestBootstrapMistakesAreTold(t *testing.T) {
	tests := []struct {
		name  string
		start func(c *cluster)
		says  []string
	}{
		{"a join address that never answers", func(c *cluster) {
			c.join = []string{"n1:9093", "n2:9093", "n3:9093"}
			c.start(1, true)
			c.start(2, true)
		}, []string{"no answer from n3:9093", "correct --join"}},
		{"two processes with one node id", func(c *cluster) {
			c.join = []string{"n1:9093", "n2:9093", "m2:9093"}
			c.start(1, true)
			c.start(2, true)
			c.startAs("m2", 2, true)
		}, []string{"node id 2", "give each node its own id"}},
		{"join lists that differ", func(c *cluster) {
			c.join = []string{"n1:9093", "n2:9093"}
			c.start(1, true)
			c.join = []string{"n1:9093", "n2:9093", "n3:9093"}
			c.start(2, true)
		}, []string{"was started with --join", "use the same list on all nodes"}},
		{"an own address that is not in the list", func(c *cluster) {
			c.join = []string{"n1:9093", "n2:9093"}
			c.start(1, true)
			c.start(2, true)
			c.net.listen("n3:9093")
			c.start(3, true)
		}, []string{"n3:9093 is not in --join", "follows the quorum without a vote"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				tt.start(c)
				time.Sleep(15 * time.Second)
				var logs strings.Builder
				for _, n := range c.all {
					logs.WriteString(n.log.String())
				}
				found := false
				for _, s := range tt.says {
					found = found || strings.Contains(logs.String(), s)
				}
				if !found {
					t.Errorf("none of %q in the logs:\n%s", tt.says, logs.String())
				}
				for _, n := range c.all {
					if lines := strings.Count(n.log.String(), "waiting for the quorum"); lines > 6 {
						t.Errorf("%s told it %d times in 15 s", n.name, lines)
					}
				}
			})
		})
	}
}

func TestIncompleteQuorumFormsWhenTheLastNodeComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.join = []string{"n1:9093", "n2:9093", "n3:9093"}
		c.start(1, true)
		c.start(3, true)
		time.Sleep(20 * time.Second)
		for _, n := range c.nodes {
			if len(n.Quorum()) != 0 {
				t.Fatalf("%s has a quorum of %v", n.name, n.Quorum())
			}
		}
		c.start(2, true)
		c.broker(c.nodes[2])
		if q := c.leader().Quorum(); len(q) != 3 {
			t.Errorf("quorum %v", q)
		}
	})
}

// K10: a node that lost its disk never makes a second quorum.
func TestEmptyNodeJoinsTheQuorumThatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		c.broker(c.nodes[2])
		id := c.nodes[2].Image().ClusterID()
		lowest := c.nodes[1]
		c.kill(lowest)
		c.stop(lowest)
		c.leader()
		back := c.start(1, true)
		c.broker(back)
		if got := back.Image().ClusterID(); got != id {
			t.Errorf("cluster id %s, was %s", got, id)
		}
		c.sameHash()
	})
}

func TestDataDirectoryRemembersWhoseItIs(t *testing.T) {
	dir := t.TempDir()
	c := newCluster(t)
	c.tune = func(cfg *controller.Config) { cfg.DataDir = dir }
	c.voters(1)
	c.broker(c.nodes[1])
	open := func(id int) error {
		n, err := controller.New(controller.Config{
			NodeID: 0 + brokerID(id), Voter: true, DataDir: dir,
			ControllerListener: c.net.listen("x:1"), Dial: c.net.dialer("x"),
		})
		if err == nil {
			n.Close()
		}
		return err
	}
	if err := open(1); err == nil || !strings.Contains(err.Error(), "another process is using it") {
		t.Errorf("second process: %v", err)
	}
	c.stop(c.nodes[1])
	if err := open(2); err == nil || !strings.Contains(err.Error(), "belongs to node 1, not to node 2") {
		t.Errorf("other node: %v", err)
	}
	if err := open(1); err != nil {
		t.Errorf("same node: %v", err)
	}
}

func TestDirectoryOfAnotherClusterIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := newCluster(t)
	first.voters(1)
	first.broker(first.nodes[1])
	first.tune = func(cfg *controller.Config) { cfg.DataDir = dir }
	b := first.start(5, false)
	first.broker(b)
	eventually(t, "identity", func() bool { return b.Image().ClusterID() != "" })
	first.stop(b)

	second := newCluster(t)
	second.voters(1)
	second.broker(second.nodes[1])
	second.tune = first.tune
	lost := second.start(5, false)
	eventually(t, "complaint", func() bool { return lost.log.has("wrong cluster") })
	if lost.Image().ClusterID() != "" {
		t.Error("took the image of another cluster")
	}
	second.stop(lost)
	if lost.err != nil && !errors.Is(lost.err, controller.ErrWrongCluster) {
		t.Errorf("ended with %v", lost.err)
	}
}
