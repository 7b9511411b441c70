package main

import (
	"context"
	"syscall"
	"time"
)

// sleepUntil sleeps until a moment, at most 0.1 ms too long: Go's own timers wait
// in whole milliseconds when nothing else goes on, which would count as latency of
// whatever is measured. The caller has its thread for itself. False: ctx ended.
func sleepUntil(ctx context.Context, at time.Time) bool {
	for ctx.Err() == nil {
		d := time.Until(at)
		if d <= 0 {
			return true
		}
		ts := syscall.NsecToTimespec(int64(min(d, 50*time.Millisecond)))
		_ = syscall.Nanosleep(&ts, nil) // cut short by a signal: the loop goes on
	}
	return false
}
