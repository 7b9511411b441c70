package controller_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"ponor/controller"
)

// firstEntry is where the Raft log of a stopped voter begins.
func firstEntry(t *testing.T, dir string) uint64 {
	t.Helper()
	log, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	first, err := log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// load has nodes submit commands until stop, and says how many were done.
func (c *cluster) load(nodes ...*node) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var done atomic.Int64
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := n.Submit(ctx, noop()); err == nil {
					done.Add(1)
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() int64 { cancel(); wg.Wait(); return done.Load() }
}

// The log is cut under load while a voter is away, which then can only come back
// by a snapshot, while the log goes on and is cut again.
func TestLogIsCutUnderLoadWhileAVoterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		dirs := map[int]string{}
		c.tune = func(cfg *controller.Config) {
			cfg.SnapshotEntries, cfg.TrailingLogs, cfg.SnapshotInterval = 20, 5, 100*time.Millisecond
			cfg.TailBytes = 4 << 10 // followers fall back on snapshots too
		}
		c.disks()
		before := c.tune
		c.tune = func(cfg *controller.Config) { before(cfg); dirs[int(cfg.NodeID)] = cfg.DataDir }
		c.voters(3)
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
		}
		observer := c.start(9, false)
		c.broker(observer)
		stop := c.load(observer)
		leader := c.leader()
		away := c.nodes[1+leader.id%3]
		missed := uint64(away.Image().Index())
		c.crash(away)
		time.Sleep(5 * time.Second)
		c.crash(leader) // no quorum now, and its disk can be looked at
		if first := firstEntry(t, dirs[leader.id]); first <= missed+1 {
			t.Errorf("the leader's log begins at %d, the absent voter has up to %d: it was not cut", first, missed)
		}
		c.start(leader.id, true)
		back := c.start(away.id, true)
		c.broker(back)
		c.votes(1, 2, 3)
		time.Sleep(3 * time.Second)
		if n := stop(); n < 100 {
			t.Errorf("only %d commands were done", n)
		}
		c.sameHash()
		// What came by snapshot is on its disk: it can lead.
		if err := observer.TransferLeadership(c.context(), brokerID(back.id)); err != nil {
			t.Fatal(err)
		}
		c.topic(observer, "led-by-who-was-away", 1, 1)
		c.sameHash()
	})
}

// Two dozen nodes without a vote come and go while votes change hands.
func TestNodesWithoutAVoteComeAndGoWhileVotersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		wipe := c.disks()
		c.voters(3)
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
		}
		c.broker(c.start(4, true))
		asker := c.start(5, false)
		stop := c.load(asker)
		steps := []func() error{
			func() error { return asker.AddVoter(c.context(), 4, controller.DirectoryID{}) },
			func() error { return asker.RemoveVoter(c.context(), 1, controller.DirectoryID{}) },
			func() error { return nil }, // node 3 is given another vote, see below
			func() error { return asker.TransferLeadership(c.context(), -1) },
		}
		const each = 6
		for i, step := range steps {
			if i == 2 { // 2, 3, 4 vote; 3 comes back on an empty disk
				c.crash(c.nodes[3])
				wipe(3)
				c.broker(c.start(3, true))
			}
			changed := make(chan error, 1)
			go func() { changed <- step() }()
			for j := range each {
				c.broker(c.start(100+i*each+j, false))
				if j%2 == 0 { // the older ones leave, some in order and some not
					old := c.nodes[100+i*each+j]
					if j%4 == 0 {
						c.crash(old)
					} else {
						c.stop(old)
						delete(c.nodes, old.id)
					}
				}
			}
			if err := <-changed; err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			if i >= 1 {
				c.votes(2, 3, 4)
			}
		}
		stop()
		c.votes(2, 3, 4)
		info, err := asker.DescribeQuorum(c.context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Members {
			if m.Voter != (m.ID >= 2 && m.ID <= 4) || m.Member != m.Voter {
				t.Errorf("member %+v", m)
			}
		}
		c.sameHash()
	})
}
