// Package wall is the time of day: what records are stamped with, and what they
// expire by. It is the machine's, except in a process that somebody tests: there a
// file says how far it is off, as the clocks of a cluster's machines may be. How
// long something lasts is measured with package time alone, which no clock moves.
package wall

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"ponor/internal/steer"
)

// Skew is how far a process's time of day is off, as a file says it; times are
// nanoseconds.
type Skew struct {
	Serial int           `json:"serial"` // of this content of the file
	By     time.Duration `json:"by"`
	// Strobe: it is off for so long, right for as long, and so on. 0: always off.
	Strobe time.Duration `json:"strobe,omitempty"`
}

// Seen is what a process says of a Skew's file; see steer.
type Seen struct {
	Serial int   `json:"serial"`
	Told   int64 `json:"told"` // how often it took a time that was off for the right one
}

// skewed is a Skew that is on.
type skewed struct {
	Skew
	since time.Time
	told  atomic.Int64
}

// current is this process's, nil where nobody tests it. A process has one clock.
var current atomic.Pointer[skewed]

// Milli is the time of day at t, which time.Now told in this process, in ms since
// 1970.
func Milli(t time.Time) int64 {
	s := current.Load()
	if s == nil || s.By == 0 || s.Strobe > 0 && t.Sub(s.since)/s.Strobe%2 != 0 {
		return t.UnixMilli()
	}
	s.told.Add(1)
	return t.Add(s.By).UnixMilli()
}

// Follow does what a file says and, until the context ends, what later contents of
// it say; then the time is right again. The file must be there and right; a later
// content that is not changes nothing. What was told is written beside it.
func Follow(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = use(text)
	}
	if err != nil {
		return fmt.Errorf("read the clock's skew: %w", err)
	}
	go func() { // ends with the context
		defer current.Store(nil)
		steer.Follow(ctx, file, text, seen, use)
	}()
	return nil
}

func use(text []byte) error {
	s := &skewed{since: time.Now()}
	if err := json.Unmarshal(text, &s.Skew); err != nil {
		return err
	}
	current.Store(s)
	return nil
}

func seen() any {
	s := current.Load()
	return Seen{Serial: s.Serial, Told: s.told.Load()}
}

// Write replaces a Skew's file whole.
func Write(file string, s Skew) error {
	if err := steer.Write(file, s); err != nil {
		return fmt.Errorf("write a clock's skew: %w", err)
	}
	return nil
}

// ReadSeen reads what a process says of the Skew in a file.
func ReadSeen(file string) (Seen, error) {
	var s Seen
	return s, steer.ReadSeen(file, &s)
}
