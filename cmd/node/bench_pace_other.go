//go:build !linux

package main

import (
	"context"
	"time"
)

// sleepUntil sleeps until a moment. False: ctx ended.
func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	return d <= 0 || sleep(ctx, d)
}
