package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writing is a node that writes to its quorum log and to another file all the time,
// and says in files how that ends. Size is that of one of them.
func writing(t *testing.T) (c *Processes, dir string, size func(file string) int) {
	t.Helper()
	if err := canTrace(); err != nil {
		t.Skip(err)
	}
	dir = t.TempDir()
	script := filepath.Join(dir, "writer")
	body := `#!/bin/sh
cd ` + dir + `
while :; do
	for f in node1/` + quorumLog + ` other; do
		dd if=/dev/zero of=$f bs=1 count=1 conv=fdatasync,notrunc 2>/dev/null && echo $f >>ok || echo $f >>failed
	done
done
`
	if err := os.MkdirAll(filepath.Join(dir, "node1", filepath.Dir(quorumLog)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Binary: script, Dir: dir}
	c = &Processes{cfg: cfg, nodes: []*node{newNode(cfg, 1, Link{})}}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		// What the writer has begun outlives it for a moment.
		eventually(t, "nobody writes any more", func() bool { return os.RemoveAll(dir) == nil })
	})
	size = func(file string) int {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0
		}
		return len(b)
	}
	eventually(t, "it writes", func() bool { return size("ok") > 50 })
	return c, dir, size
}

// tampered are the calls that gave something else, while they do.
func tampered(t *testing.T, c *Processes) int {
	t.Helper()
	n, err := c.Tampered(1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The calls of a node on its quorum log give what is asked for, and no others do.
func TestTamper(t *testing.T) {
	c, dir, size := writing(t)
	if err := c.Tamper(1, "fdatasync:error=EIO"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail", func() bool { return tampered(t, c) > 2 && size("failed") > 50 })
	if err := c.Untamper(1); err != nil || tampered(t, c) != 0 {
		t.Fatalf("%v, %d calls", err, tampered(t, c))
	}
	b, err := os.ReadFile(filepath.Join(dir, "failed"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(b)) {
		if line != "node1/"+quorumLog {
			t.Errorf("writes of %q failed", line)
		}
	}
	before := size("ok")
	eventually(t, "it goes on", func() bool { return size("ok") > before+50 })
}

// A fault that ended before it was to is told: it would count as one that lasted.
// One that ends with its node has done what it was to.
func TestTamperThatEndsEarly(t *testing.T) {
	c, _, _ := writing(t)
	if err := c.Tamper(1, "fdatasync:error=EIO"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail", func() bool { return tampered(t, c) > 0 })
	if err := c.tracers[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.tracers[1].exited
	if n, err := c.Tampered(1); n == 0 || err == nil {
		t.Errorf("%d calls, and the fault is on: %v", n, err)
	}
	if err := c.Untamper(1); err == nil {
		t.Error("it was undone as if it had lasted")
	}
	if err := c.Tamper(1, "no such thing"); err != nil {
		t.Fatal(err)
	}
	<-c.tracers[1].exited
	if _, err := c.Tampered(1); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("a fault that strace does not know is on: %v", err)
	}
	_ = c.Untamper(1) // it says so again
	if err := c.Tamper(1, "fdatasync:error=EIO"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail", func() bool { return tampered(t, c) > 0 })
	if err := c.Kill(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	<-c.tracers[1].exited
	if err := c.Untamper(1); err != nil {
		t.Errorf("its node had ended: %v", err)
	}
}

// Healing ends what is done to disks, also when the fault's own end did not come.
func TestHealEndsTampering(t *testing.T) {
	c, _, size := writing(t)
	if err := c.Tamper(1, "fdatasync:error=EIO"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail", func() bool { return tampered(t, c) > 0 })
	if err := c.Heal(); err != nil {
		t.Fatal(err)
	}
	before := size("ok")
	eventually(t, "both are written", func() bool { return size("ok") > before+500 })
	failed := size("failed")
	eventually(t, "it goes on", func() bool { return size("ok") > before+1000 })
	if n := size("failed"); n != failed {
		t.Errorf("%d bytes of failures, then %d", failed, n)
	}
}
