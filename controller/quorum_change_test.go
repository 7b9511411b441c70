package controller_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
)

// disks gives every node of c a directory of its own; wipe changes it for an
// empty one.
func (c *cluster) disks() (wipe func(id int)) {
	base, wiped, before := c.t.TempDir(), map[metadata.BrokerID]int{}, c.tune
	c.tune = func(cfg *controller.Config) {
		if before != nil {
			before(cfg)
		}
		if cfg.Voter {
			cfg.DataDir = filepath.Join(base, fmt.Sprintf("n%d-%d", cfg.NodeID, wiped[cfg.NodeID]))
		}
	}
	return func(id int) { wiped[brokerID(id)]++ }
}

// crash is a kill of which the process really ends, so that its disk is free.
func (c *cluster) crash(n *node) {
	c.kill(n)
	c.stop(n)
}

// votes waits until exactly these nodes have a vote at the leader.
func (c *cluster) votes(ids ...int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("quorum of %v", ids), func() bool {
		info, err := c.leader().DescribeQuorum(c.context())
		if err != nil {
			return false
		}
		var have []int
		for _, m := range info.Members {
			if m.Voter {
				if m.Heard.IsZero() {
					return false // another disk answers in its place
				}
				have = append(have, int(m.ID))
			} else if m.Member {
				return false // on its way
			}
		}
		slices.Sort(have)
		return slices.Equal(have, ids)
	})
}

// K12: an entry that one voter and a voter whose disk is lost acknowledged must
// not be outvoted by the empty one together with one that is behind.
func TestVoterWithAnEmptyDiskDoesNotVoteUnderItsOldName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		wipe := c.disks()
		c.voters(3)
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
		}
		if err := c.nodes[1].TransferLeadership(c.context(), 1); err != nil {
			t.Fatal(err)
		}
		c.crash(c.nodes[3])
		id := c.topic(c.nodes[1], "kept", 1, 1)
		c.crash(c.nodes[1])
		c.crash(c.nodes[2])
		wipe(2)
		stale, empty := c.start(3, true), c.start(2, true)
		time.Sleep(2 * time.Minute)
		if stale.Leading() || empty.Leading() {
			t.Fatal("two voters lead that do not have what the majority acknowledged")
		}
		back := c.start(1, true)
		c.votes(1, 2, 3)
		eventually(t, "the entry at the empty node", func() bool { _, ok := empty.Image().TopicByID(id); return ok })
		// The new vote counts: two of three go on.
		c.crash(stale)
		c.broker(empty)
		c.topic(empty, "after", 1, 1)
		if s := back.Status(); s.State == "Observer" {
			t.Errorf("%s has lost its vote", back.name)
		}
	})
}

func TestNodesGetAndLoseVotesWhileTheQuorumRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.disks()
		c.voters(1)
		c.join = []string{"n1:9093"}
		c.broker(c.nodes[1])
		for i := 2; i <= 4; i++ { // not in their own list: they follow
			c.broker(c.start(i, true))
			if s := c.nodes[i].Status().State; s != "Observer" {
				t.Fatalf("node %d is %s without being asked", i, s)
			}
		}
		for i := 2; i <= 3; i++ {
			if err := c.nodes[4].AddVoter(c.context(), brokerID(i), controller.DirectoryID{}); err != nil {
				t.Fatal(err)
			}
			if err := c.nodes[4].AddVoter(c.context(), brokerID(i), controller.DirectoryID{}); err != nil {
				t.Errorf("again: %v", err)
			}
		}
		c.votes(1, 2, 3)
		// The founder goes, though it leads, and comes back as a follower.
		if err := c.nodes[1].RemoveVoter(c.context(), 1, controller.DirectoryID{}); err != nil {
			t.Fatal(err)
		}
		c.votes(2, 3)
		c.topic(c.nodes[1], "founderless", 1, 1)
		founder := c.nodes[1]
		id := founder.Image().ClusterID()
		c.crash(founder)
		c.join = nil // as it was started first
		founder = c.start(1, true)
		c.broker(founder)
		time.Sleep(time.Minute)
		if got := founder.Image().ClusterID(); got != id || founder.Leading() {
			t.Errorf("the founder is of cluster %s and leads: %v", got, founder.Leading())
		}
		c.votes(2, 3)
		// It can have its vote back, with the log that it still has.
		if err := founder.AddVoter(c.context(), 1, controller.DirectoryID{}); err != nil {
			t.Fatal(err)
		}
		c.votes(1, 2, 3)
		c.sameHash()
	})
}

func TestChangesOfTheQuorumAreRefusedWithReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.disks()
		c.voters(3)
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
		}
		c.broker(c.start(4, false))
		c.leader()
		refused := func(err error, says string) {
			t.Helper()
			var e *controller.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
				t.Errorf("want a refusal with %q, got %v", says, err)
			}
		}
		n := c.nodes[4]
		refused(n.AddVoter(c.context(), 9, controller.DirectoryID{}), "node 9 is not known")
		refused(n.AddVoter(c.context(), 4, controller.DirectoryID{}), "no controller listener")
		refused(n.AddVoter(c.context(), 1, controller.DirectoryID{1}), ", not AQ")
		refused(n.TransferLeadership(c.context(), 4), "no voter")
		refused(n.RemoveVoter(c.context(), 9, controller.DirectoryID{}), "node 9 is not known; the voters are [1 2 3]")
		if err := n.RemoveVoter(c.context(), 4, controller.DirectoryID{}); err != nil {
			t.Errorf("a broker without a vote: %v", err) // as when it is asked for twice
		}
		var down *node
		for _, x := range c.nodes {
			if !x.Leading() && x.id != 4 {
				down = x
			}
		}
		c.crash(down)
		for id := 1; id <= 3; id++ {
			if id != down.id {
				refused(n.RemoveVoter(c.context(), brokerID(id), controller.DirectoryID{}), "a majority")
			}
		}
		refused(n.TransferLeadership(c.context(), brokerID(down.id)), "does not answer")
		if err := n.RemoveVoter(c.context(), brokerID(down.id), controller.DirectoryID{}); err != nil {
			t.Errorf("remove the dead one: %v", err)
		}
		for range 2 {
			if err := n.RemoveVoter(c.context(), brokerID(c.leader().id), controller.DirectoryID{}); err != nil {
				refused(err, "the only voter")
			}
		}
	})
}

// A change goes on wherever its leader dies, and asking again does no harm.
func TestQuorumChangesSurviveTheirLeader(t *testing.T) {
	// The leader dies this long after each change was asked for: before, between
	// and after its steps.
	for _, after := range []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 210 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				wipe := c.disks()
				c.voters(3)
				for i := 1; i <= 3; i++ {
					c.broker(c.nodes[i])
				}
				c.broker(c.start(4, true))
				c.broker(c.start(5, true))
				asker := c.start(6, false)
				c.leader()
				done := make(chan error, 1)
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
				defer cancel()
				go func() { done <- asker.AddVoter(ctx, 4, controller.DirectoryID{}) }()
				time.Sleep(after)
				old := c.leader()
				c.crash(old)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				c.broker(c.start(old.id, true))
				c.votes(1, 2, 3, 4)
				// Now one with an empty disk, whose replacement is cut short.
				lost := 1
				if c.leader().id == lost {
					lost = 2
				}
				c.crash(c.nodes[lost])
				wipe(lost)
				c.start(lost, true)
				time.Sleep(200*time.Millisecond + after)
				old = c.leader()
				c.crash(old) // with the lost one that may be no majority of four
				c.start(old.id, true)
				c.votes(1, 2, 3, 4)
				go func() { done <- asker.RemoveVoter(ctx, 4, controller.DirectoryID{}) }()
				time.Sleep(after)
				old = c.leader()
				c.crash(old)
				c.leader()
				c.start(old.id, true)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				c.votes(1, 2, 3)
				c.sameHash()
			})
		})
	}
}

// Once there is a quorum the join list only says where to look.
func TestOldJoinListStillFindsTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.disks()
		c.voters(1)
		old := []string{"n1:9093"}
		c.join = old
		c.broker(c.nodes[1])
		for i := 2; i <= 4; i++ {
			c.broker(c.start(i, true))
			if err := c.nodes[i].AddVoter(c.context(), brokerID(i), controller.DirectoryID{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.nodes[2].RemoveVoter(c.context(), 1, controller.DirectoryID{}); err != nil {
			t.Fatal(err)
		}
		c.votes(2, 3, 4)
		// A node without a disk asks node 1, which has no vote but knows who has.
		c.broker(c.start(9, false))
		// A voter remembers the others when nobody of its list is there.
		c.crash(c.nodes[1])
		for i := 2; i <= 4; i++ {
			c.crash(c.nodes[i])
		}
		for i := 2; i <= 4; i++ {
			c.start(i, true)
		}
		c.broker(c.nodes[2])
		c.votes(2, 3, 4)
		// One that moves to another address is found there again.
		c.crash(c.nodes[3])
		moved := c.startAs("m3", 3, true)
		c.broker(moved)
		eventually(t, "the new address", func() bool {
			info, err := c.leader().DescribeQuorum(c.context())
			return err == nil && slices.ContainsFunc(info.Members, func(m controller.QuorumMember) bool {
				return m.ID == 3 && m.Voter && m.Address == "m3:9093"
			})
		})
	})
}
