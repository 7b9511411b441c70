package powerloss

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// The environment of a child, and the descriptor its marks go to.
const (
	envDir = "PONOR_POWERLOSS_DIR"
	envArg = "PONOR_POWERLOSS_ARG"
	markFD = 3
)

// Process is the child's side of a recording.
type Process struct {
	// Dir is the directory that is watched, Arg what Record was given.
	Dir, Arg string

	mu    sync.Mutex
	t     *testing.T
	marks *os.File
}

// Child is not nil in the process that Record started. The test must then do
// what is to be recorded, and return.
func Child(t *testing.T) *Process {
	dir := os.Getenv(envDir)
	if dir == "" {
		return nil
	}
	p := &Process{Dir: dir, Arg: os.Getenv(envArg), t: t, marks: os.NewFile(markFD, "marks")}
	t.Cleanup(func() { _ = p.marks.Close() })
	return p
}

// Mark notes a promise: whatever crash comes later, what the text stands for
// must not be lost. Safe for concurrent use.
func (p *Process) Mark(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintf(p.marks, format, args...); err != nil {
		p.t.Errorf("mark: %v", err)
	}
}
