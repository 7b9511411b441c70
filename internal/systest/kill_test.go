package systest_test

import (
	"testing"

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

func TestTerminatedNodeExitsCleanly(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "roll", 6, 1)
	for _, n := range c.Nodes {
		h.WaitAcked(100)
		if code := n.Stop(); code != 0 {
			t.Errorf("node %d exited with %d on SIGTERM", n.ID, code)
		}
		n.Start()
	}
	h.WaitAcked(100)
	h.Stop()
	h.Check()
}
