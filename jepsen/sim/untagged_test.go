//go:build !synctests

package sim_test

import (
	"os"
	"os/exec"
	"testing"
)

const tagged = false

// TestWithTheTag runs this package's tests again with the tag that lets the
// client work on virtual time.
func TestWithTheTag(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "synctests", ".")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}
