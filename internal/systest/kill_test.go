package systest_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"ponor/internal/systest"
)

func TestKillingAllNodesLosesNothingAcknowledged(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "killall", 6, 2)
	for range 2 {
		h.WaitAcked(300)
		for _, n := range c.Nodes {
			n.Kill()
		}
		for _, n := range c.Nodes {
			n.Start()
		}
	}
	h.WaitAcked(300)
	h.Stop()
	h.Check()
}

func TestKillingOneNodeLosesNothingAcknowledged(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "killone", 6, 2)
	for i := range 3 {
		h.WaitAcked(200)
		c.Nodes[i].Kill()
		h.WaitAcked(200)
		c.Nodes[i].Start()
	}
	h.WaitAcked(200)
	h.Stop()
	h.Check()
}

func TestPausedNodeWakesUpHarmless(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "pause", 6, 2)
	for i := range 3 {
		h.WaitAcked(200)
		c.Nodes[i].Pause()
		h.WaitAcked(200)
		c.Nodes[i].Resume()
	}
	h.WaitAcked(200)
	h.Stop()
	h.Check()
}

// A rolling restart is seen by nobody: each node hands its partitions over
// before it stops, so no produce fails and none waits for a takeover.
func TestTerminatedNodeExitsCleanly(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "roll", 6, 1)
	for _, n := range c.Nodes {
		h.WaitAcked(100)
		begun := time.Now()
		if code := n.Stop(); code != 0 {
			t.Errorf("node %d exited with %d on SIGTERM", n.ID, code)
		}
		t.Logf("node %d stopped in %v", n.ID, time.Since(begun).Round(time.Millisecond))
		log, err := os.ReadFile(n.Log)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(log, []byte("partitions moved to other brokers")) || bytes.Contains(log, []byte("hand-over is stuck")) {
			t.Errorf("node %d did not hand its partitions over:\n%s", n.ID, log)
		}
		h.WaitAcked(100)
		n.Start()
		c.WaitLive(3)
	}
	h.WaitAcked(100)
	h.Stop()
	// 100 ms on a quiet machine.
	t.Logf("a partition took nothing for %v during the restart", h.LongestGap())
	h.Check()
}

// The last node has nobody to hand over to and stops at once; a cluster that is
// stopped as a whole comes back with everything.
func TestTerminatedClusterStopsAndComesBack(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "stop", 6, 1)
	h.WaitAcked(200)
	for _, n := range c.Nodes {
		begun := time.Now()
		if code := n.Stop(); code != 0 {
			t.Errorf("node %d exited with %d on SIGTERM", n.ID, code)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("node %d took %v to stop", n.ID, took)
		}
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	h.WaitAcked(200)
	h.Stop()
	h.Check()
}
