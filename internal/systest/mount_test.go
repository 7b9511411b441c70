package systest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/internal/systest"
)

// A node whose store is not there, or is not the cluster's (an empty directory where a
// mount is missing, a mistyped path), must not serve: it would seal full WALs as empty.
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
	said := func(words string) error {
		if log, _ := os.ReadFile(c.Nodes[0].Log); !strings.Contains(string(log), words) {
			return fmt.Errorf("its log does not say %q", words)
		}
		return nil
	}
	c.Nodes[0].Start()
	systest.Eventually(t, "the node waits for the directory", func() error { return said("should something be mounted there? Trying again") })
	if err := os.Mkdir(store, 0o755); err != nil { // none that the node has made
		t.Fatal(err)
	}
	systest.Eventually(t, "the node refuses and exits", func() error { return c.Nodes[0].Exited() })
	if err := said("is it mounted?"); err != nil {
		t.Error(err)
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
