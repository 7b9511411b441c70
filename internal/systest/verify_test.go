package systest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ponor/internal/systest"
)

// verifyStore runs 'ponor verify store' and returns what it printed and its exit
// code.
func verifyStore(t *testing.T, c *systest.Cluster, args ...string) (string, int) {
	t.Helper()
	args = append([]string{"verify", "store", "dir://" + filepath.Join(c.Dir, "store")}, args...)
	cmd := exec.CommandContext(t.Context(), systest.Binary(t), args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("run verify: %v", err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A store is verified again and again while brokers write, pack, move, die and
// come back: nothing is reported. Then the cluster stops, an object is damaged,
// and that is.
func TestVerifyStoreOnlineAndOffline(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "verified", 6, 2)
	h.WaitAcked(500)
	runs := 0
	for begun := time.Now(); time.Since(begun) < 6*time.Second; runs++ {
		switch runs {
		case 2:
			c.Nodes[1].Kill()
		case 6:
			c.Nodes[1].Start()
		}
		if out, code := verifyStore(t, c, "--bootstrap", c.Bootstrap()); code != 0 {
			t.Fatalf("run %d under load: exit %d\n%s", runs, code, out)
		}
	}
	h.Stop()
	t.Logf("%d runs, %d records", runs, h.Acked.Load())

	if out, code := verifyStore(t, c, "--metadata", filepath.Join(c.Dir, "1")); code != 2 || !strings.Contains(out, "is running") {
		t.Errorf("metadata of a running node: exit %d\n%s", code, out)
	}
	var dirs []string
	for _, n := range c.Nodes {
		n.Kill()
		dirs = append(dirs, filepath.Join(c.Dir, fmt.Sprint(n.ID)))
	}
	offline := []string{"--metadata", strings.Join(dirs, ",")}
	if out, code := verifyStore(t, c, offline...); code != 0 || !strings.Contains(out, "sound") {
		t.Fatalf("offline: exit %d\n%s", code, out)
	}
	victims, err := filepath.Glob(filepath.Join(c.Dir, "store", "*", "1", "wal", "*", "0", "*"))
	if err != nil || len(victims) == 0 {
		t.Fatalf("no slot to damage: %v", err)
	}
	for _, name := range victims { // the trim says which of them are needed
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 1000 {
			b[200] ^= 1
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := verifyStore(t, c, offline...); code != 1 || !strings.Contains(out, "PROBLEM  damaged object: ") {
		t.Errorf("damaged slots: exit %d\n%s", code, out)
	}
	if out, code := verifyStore(t, c, "--bootstrap", c.Nodes[0].Address, "--timeout", "1s"); code != 2 {
		t.Errorf("nobody answers: exit %d\n%s", code, out)
	}
}
