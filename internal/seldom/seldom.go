// Package seldom bounds how often a log says the same thing: what goes wrong again and
// again, such as writes to a store that is full, is news once a minute.
package seldom

import (
	"sync"
	"time"
)

// Every is how often a Log with none of its own lets a place through.
const Every = time.Minute

// Log remembers what was said when. The zero value is ready; safe for concurrent use.
// It keeps one entry for each place, of which there must be few.
type Log struct {
	// Every is the least time between two lines of one place, default Every.
	Every time.Duration

	mu   sync.Mutex
	last map[string]time.Time
}

// Allow says whether a line of this place is due, and notes it as said then.
func (l *Log) Allow(place string) bool {
	every := l.Every
	if every == 0 {
		every = Every
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, ok := l.last[place]; ok && now.Sub(at) < every {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[place] = now
	return true
}
