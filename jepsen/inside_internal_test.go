package jepsen

import "testing"

// A node may end because its disk failed, if the run has disks fail; whatever else
// it says before it ends is a fault.
func TestLastWords(t *testing.T) {
	const (
		bug  = "panic: index out of range"
		disk = "panic: failed to save current term: write /d/raft.db: input/output error"
		full = "panic: failed to save current term: write /d/raft.db: no space left on device"
	)
	for _, test := range []struct {
		output string
		may    bool
		line   string
		disk   bool
	}{
		{"level=INFO msg=stopped\n", true, "", false},
		{disk + "\n\ngoroutine 1", true, disk, true},
		{"x\n" + disk + "\n" + full + "\n", true, disk, true},
		{disk + "\n" + bug + "\n", true, disk, false},
		{disk, false, disk, false},
		{bug, true, bug, false},
	} {
		if line, disk := lastWords([]byte(test.output), test.may); line != test.line || disk != test.disk {
			t.Errorf("%q: %q, of the disk %v", test.output, line, disk)
		}
	}
}
