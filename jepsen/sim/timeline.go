package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// timeline is what happened in a run, in virtual time.
type timeline struct {
	begin time.Time
	h     *History
	mu    struct {
		sync.Mutex
		lines []string
	}
}

func newTimeline(h *History) *timeline { return &timeline{begin: time.Now(), h: h} }

func (t *timeline) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Since(t.begin).Round(time.Millisecond)
	t.mu.lines = append(t.mu.lines, fmt.Sprintf("%9.3f s  %s", at.Seconds(), fmt.Sprintf(format, args...)))
}

// violation notes a broken promise, where it happened.
func (t *timeline) violation(format string, args ...any) {
	t.add("VIOLATION "+format, args...)
	t.h.Note(format, args...)
}

// String has a line per happening.
func (t *timeline) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.mu.lines, "\n")
}
