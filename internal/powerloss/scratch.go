package powerloss

import (
	"os"
	"testing"
)

// Scratch is a new directory that is removed when the test ends, in memory
// where the machine has a place for that: thousands of crashes are written and
// read once, and what fsync does there is played by package crashfs.
func Scratch(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	if i, err := os.Stat(memory); err != nil || !i.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "powerloss")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
