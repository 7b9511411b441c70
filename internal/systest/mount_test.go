package systest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/internal/systest"
)

// A node whose store is not the cluster's (an empty directory where a mount is
// missing, a mistyped path) must not serve: it would seal full WALs as empty.
func TestNodeRefusesAStoreThatIsNotTheClusters(t *testing.T) {
	c := systest.Start(t, systest.Options{Nodes: 1})
	h := systest.Produce(t, c, "mounted", 1, 1)
	h.WaitAcked(100)
	h.Stop()
	c.Nodes[0].Kill()
	store, away := filepath.Join(c.Dir, "store"), filepath.Join(c.Dir, "away")
	if err := os.Rename(store, away); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Start()
	systest.Eventually(t, "the node refuses and exits", func() error { return c.Nodes[0].Exited() })
	if log, _ := os.ReadFile(c.Nodes[0].Log); !strings.Contains(string(log), "is it mounted?") {
		t.Errorf("the log does not say what is wrong")
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, store); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Start()
	c.WaitReady(1)
	h.Check()
}
