package controller

import (
	"testing"
	"time"
)

// What a node says that does not lead takes nothing from what another one said,
// and cannot make a node take itself for the leader.
func TestRedirect(t *testing.T) {
	const self = "n3:9093"
	c := newClient(&Node{cfg: Config{Voter: true, AdvertiseController: self}})
	for _, step := range []struct{ from, to, want string }{
		{"n1:9093", "n4:9093", "n4:9093"},
		{"n2:9093", "", "n4:9093"},        // it knows of no leader
		{self, "", "n4:9093"},             // nor do we, of our own
		{"n2:9093", "n1:9093", "n4:9093"}, // an older one
		{"n4:9093", "n1:9093", "n1:9093"}, // it is deposed
		{"n1:9093", self, ""},             // we led once
		{"n2:9093", self, ""},
		{"n1:9093", "n4:9093", "n4:9093"},
		{"n4:9093", "", ""},
	} {
		c.redirect(step.from, step.to)
		if got := c.known(); got != step.want {
			t.Errorf("%s names %q, the leader is taken to be %q, want %q", step.from, step.to, got, step.want)
		}
	}
}

// Calls that go on at the same time, as many as there are seeds and in step, each
// come to every seed.
func TestCallersInStepReachEverySeed(t *testing.T) {
	seeds := []string{"n1:9093", "n2:9093", "n3:9093"}
	n := &Node{cfg: Config{Join: seeds}, images: newImages(0)}
	c := newClient(n)
	callers := []turn{anyTurn(), anyTurn(), anyTurn()}
	reached := make([]map[string]bool, len(callers))
	for range seeds {
		for i := range callers {
			if reached[i] == nil {
				reached[i] = map[string]bool{}
			}
			reached[i][c.target(&callers[i])] = true
		}
	}
	for i, r := range reached {
		if len(r) != len(seeds) {
			t.Errorf("caller %d came to %v only", i, r)
		}
	}
}

// A new leader asks the other voters how they are while the others learn of it:
// that ends calls to the leader before, not these.
func TestLeaderThatChangesCutsNoHelloShort(t *testing.T) {
	n := &Node{cfg: Config{SessionTimeout: time.Hour}, role: newSignal()}
	c := newClient(n)
	hello, stop := c.bound(t.Context(), laneHello, "n3:9093")
	defer stop()
	command, stop := c.bound(t.Context(), laneCommand, "n3:9093")
	defer stop()
	c.redirect("n3:9093", "n2:9093")
	n.role.notify()
	if command.Err() == nil {
		t.Error("a command to the old leader goes on")
	}
	if err := hello.Err(); err != nil {
		t.Errorf("a Hello ended: %v", err)
	}
}
