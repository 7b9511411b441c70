package cluster

import (
	"sync"
	"time"

	"ponor/internal/wall"
)

// Clock is a file that says how far a node's time of day is off.
type Clock struct {
	file string

	mu     sync.Mutex
	serial int
}

// NewClock is of a file.
func NewClock(file string) *Clock { return &Clock{file: file} }

// Set has the clock be off from now on, by turns if strobe is not 0; 0 has it be
// right. The node may not have noticed when it returns.
func (c *Clock) Set(by, strobe time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return wall.Write(c.file, wall.Skew{Serial: c.serial, By: by, Strobe: strobe})
}

// Told is how often the node says that it took a time that was off, since it was
// changed or the node started.
func (c *Clock) Told() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, err := wall.ReadSeen(c.file)
	if err != nil || seen.Serial != c.serial {
		return 0
	}
	return seen.Told
}
