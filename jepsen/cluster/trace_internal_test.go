package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The calls of a node on its quorum log give what is asked for, and no others do.
func TestTamper(t *testing.T) {
	if err := canTrace(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
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
	c := &Processes{cfg: cfg, nodes: []*node{newNode(cfg, 1, Link{})}}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		// What the writer has begun outlives it for a moment.
		eventually(t, "nobody writes any more", func() bool { return os.RemoveAll(dir) == nil })
	})
	size := func(file string) int {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0
		}
		return len(b)
	}
	eventually(t, "it writes", func() bool { return size("ok") > 50 })
	if err := c.Tamper(1, "fdatasync:error=EIO"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail", func() bool { return c.Tampered(1) > 2 && size("failed") > 50 })
	if err := c.Untamper(1); err != nil || c.Tampered(1) != 0 {
		t.Fatalf("%v, %d calls", err, c.Tampered(1))
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
