package controller_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
)

// A quorum whose disks are all lost goes on from its backup as a new generation:
// brokers of the old one are fenced, and old directories cannot come back into it.
func TestQuorumIsRestoredAsANewGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		wipe := c.disks()
		c.voters(3)
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
		}
		broker := c.start(9, false)
		before := c.broker(broker)
		kept := c.topic(broker, "kept", 3, 1)
		img, err := broker.Barrier(c.context())
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := (controller.Backup{Image: img, Taken: time.Now()}).WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		gone := c.topic(broker, "after-the-backup", 3, 1)
		for i := 1; i <= 3; i++ {
			c.crash(c.nodes[i])
		}
		backup, err := controller.ReadBackup(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		r := controller.Restoration{Backup: backup, Generation: 2, NodeID: 1, Address: "n1:9093", DataDir: t.TempDir() + "/restored"}
		if _, err := r.Run(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(); err == nil || !strings.Contains(err.Error(), "has files already") {
			t.Errorf("over a directory in use: %v", err)
		}
		tune := c.tune
		c.tune = func(cfg *controller.Config) {
			if tune(cfg); cfg.NodeID == 1 {
				cfg.DataDir = r.DataDir
			}
		}
		first := c.start(1, true)
		c.broker(first)
		if g := first.Image().Generation(); g != 2 {
			t.Errorf("generation %d", g)
		}
		// The broker of the old generation is ahead in index, and still follows.
		eventually(t, "the end of the old incarnation", func() bool { return broker.Image().Generation() == 2 && broker.Incarnation().IsZero() })
		c.broker(broker)
		if broker.Image().Live(before) {
			t.Errorf("%s lives on", before)
		}
		if _, ok := broker.Image().TopicByID(kept); !ok {
			t.Error("the backup's topic is gone")
		}
		if _, ok := broker.Image().TopicByID(gone); ok {
			t.Error("a topic from after the backup is there")
		}
		// A node with a directory of the old generation ends, one with an empty
		// directory gets a vote.
		old := c.start(2, true)
		select {
		case <-old.done:
		case <-time.After(time.Minute):
			t.Fatal("a voter of the old generation stands for election for ever")
		}
		if old.err == nil || !strings.Contains(old.err.Error(), "is of generation 1 of cluster") || !strings.Contains(old.err.Error(), "move the directory away") {
			t.Errorf("a voter of the old generation ended with %v", old.err)
		}
		if q := first.Quorum(); len(q) != 1 {
			t.Errorf("quorum %v", q)
		}
		for i := 2; i <= 3; i++ {
			wipe(i)
			c.broker(c.start(i, true))
			if err := first.AddVoter(c.context(), brokerID(i), controller.DirectoryID{}); err != nil {
				t.Fatal(err)
			}
		}
		c.votes(1, 2, 3)
		c.crash(first)
		c.topic(broker, "goes-on", 1, 1)
		c.start(1, true)
		c.sameHash()
	})
}

func TestDamagedBackupIsRefused(t *testing.T) {
	c := newCluster(t)
	c.voters(1)
	c.broker(c.nodes[1])
	c.topic(c.nodes[1], "t", 1, 1)
	var file bytes.Buffer
	if _, err := (controller.Backup{Image: c.nodes[1].Image()}).WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	b := file.Bytes()
	if got, err := controller.ReadBackup(b); err != nil || got.Image.Hash() != c.nodes[1].Image().Hash() && got.Image.Index() == c.nodes[1].Image().Index() {
		t.Fatalf("round trip: %v", err)
	}
	for _, at := range []int{0, 30, len(b) / 2, len(b) - 1} {
		bad := bytes.Clone(b)
		bad[at] ^= 1
		if _, err := controller.ReadBackup(bad); err == nil {
			t.Errorf("bit at byte %d: not noticed", at)
		}
	}
	for _, n := range []int{0, 10, len(b) - 1} {
		if _, err := controller.ReadBackup(b[:n]); err == nil {
			t.Errorf("%d bytes: not noticed", n)
		}
	}
}
