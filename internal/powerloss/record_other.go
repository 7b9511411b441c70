//go:build !linux || !(amd64 || arm64)

package powerloss

import (
	"runtime"
	"testing"
)

// Record skips the test: watching a process is written for Linux.
func Record(t *testing.T, _, _ string) *Recording {
	t.Helper()
	t.Skipf("power loss under real files is tested on Linux only, not on %s/%s", runtime.GOOS, runtime.GOARCH)
	return nil
}
