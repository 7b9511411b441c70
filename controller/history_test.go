package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
)

func TestLateJoinerGetsASnapshot(t *testing.T) {
	c := newCluster(t)
	c.tune = func(cfg *controller.Config) { cfg.TailBytes = 2048 }
	c.voters(1)
	c.broker(c.nodes[1])
	for i := range 100 {
		c.topic(c.nodes[1], fmt.Sprintf("t%d", i), 10, 1)
	}
	late := c.start(2, false)
	img, err := late.Barrier(c.context())
	if err != nil {
		t.Fatal(err)
	}
	if img.TopicCount() != 100 {
		t.Errorf("%d topics", img.TopicCount())
	}
	c.broker(late)
	c.sameHash()
}

func TestVoterThatLostItsLogGetsARaftSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SnapshotEntries, cfg.TrailingLogs = 20, 10 }
		c.voters(3)
		c.broker(c.nodes[1])
		c.broker(c.nodes[2])
		lost := c.nodes[3]
		if c.leader() == lost {
			c.kill(lost)
			c.leader()
		} else {
			c.kill(lost)
		}
		for i := range 60 {
			c.topic(c.nodes[1], fmt.Sprintf("t%d", i), 3, 1)
			time.Sleep(10 * time.Second) // Raft looks every two minutes whether to snapshot
		}
		c.stop(lost)
		back := c.start(3, true)
		c.broker(back)
		eventually(t, "whole history", func() bool { return back.Image().TopicCount() == 60 })
		c.sameHash()
		// And it is a voter again: the quorum survives the loss of another.
		eventually(t, "vote", func() bool { return back.Status().State == "Follower" })
		victim := c.nodes[2]
		c.kill(victim)
		c.topic(c.nodes[1], "after", 1, 1)
	})
}

func TestRestartFromDiskReplaysToTheSameImage(t *testing.T) {
	dirs := map[metadata.BrokerID]string{1: t.TempDir(), 2: t.TempDir(), 3: t.TempDir()}
	c := newCluster(t)
	var addresses []string
	c.tune = func(cfg *controller.Config) {
		cfg.DataDir = dirs[cfg.NodeID]
		l := tcpListen(t)
		cfg.ControllerListener.Close()
		cfg.ControllerListener, cfg.Dial = l, nil
		addresses = append(addresses, l.Addr().String())
	}
	// Real TCP and real files; a quorum of one keeps its address free to change.
	c.voters(1)
	c.broker(c.nodes[1])
	for i := range 30 {
		c.topic(c.nodes[1], fmt.Sprintf("t%d", i), 5, 1)
	}
	before := c.nodes[1].Status()
	c.stop(c.nodes[1])
	again := c.start(1, true)
	eventually(t, "replay", func() bool { return again.Image().Index() >= before.Index })
	if got := again.Status(); got.Index == before.Index && got.Hash != before.Hash || got.ClusterID != before.ClusterID {
		t.Errorf("before: %v %s, after: %v %s", before, before.ClusterID, got, got.ClusterID)
	}
	if again.Image().TopicCount() != 30 {
		t.Errorf("%d topics after the restart", again.Image().TopicCount())
	}
}

func TestThreeVotersOverTCPSurviveAKillOfEach(t *testing.T) {
	listeners := map[metadata.BrokerID]string{}
	c := newCluster(t)
	for i := 1; i <= 3; i++ {
		l := tcpListen(t)
		listeners[metadata.BrokerID(i)] = l.Addr().String()
		c.join = append(c.join, l.Addr().String())
		l.Close()
	}
	dirs := map[metadata.BrokerID]string{1: t.TempDir(), 2: t.TempDir(), 3: t.TempDir()}
	c.tune = func(cfg *controller.Config) {
		cfg.ControllerListener.Close()
		cfg.ControllerListener, cfg.Dial = relisten(t, listeners[cfg.NodeID]), nil
		cfg.DataDir = dirs[cfg.NodeID]
	}
	for i := 1; i <= 3; i++ {
		c.start(i, true)
	}
	c.broker(c.nodes[1])
	for i := 1; i <= 3; i++ {
		c.stop(c.nodes[i])
		delete(c.nodes, i)
		n := c.leader()
		if _, err := n.CreateTopics(c.context(), []controller.TopicSpec{{Name: fmt.Sprintf("t%d", i), Partitions: 1, Assignments: nil, ReplicationFactor: -1}}, true); err != nil {
			t.Fatal(err)
		}
		back := c.start(i, true)
		c.broker(back)
	}
	c.sameHash()
}

func TestNodeStopsWhenTheClusterWentBack(t *testing.T) {
	dir := t.TempDir()
	c := newCluster(t)
	c.tune = func(cfg *controller.Config) {
		if cfg.Voter {
			cfg.DataDir = dir
		}
	}
	c.voters(1)
	c.broker(c.nodes[1])
	c.topic(c.nodes[1], "kept", 1, 1)
	c.stop(c.nodes[1])
	backup := t.TempDir()
	copyDir(t, dir, backup)

	c.start(1, true)
	c.broker(c.nodes[1])
	witness := c.start(2, false)
	c.broker(witness)
	for i := range 20 {
		c.topic(c.nodes[1], fmt.Sprintf("lost%d", i), 1, 1)
	}
	if _, err := witness.Barrier(c.context()); err != nil {
		t.Fatal(err)
	}
	c.kill(c.nodes[1])
	c.stop(c.all[1])
	dir = backup
	c.start(1, true)
	<-witness.done
	if !errors.Is(witness.err, controller.ErrWentBack) {
		t.Errorf("ended with %v", witness.err)
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "raft.db")); err != nil {
		t.Fatal(err)
	}
}
