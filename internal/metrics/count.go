package metrics

import (
	"sync/atomic"
	"time"
)

// Counter is a number that only grows.
type Counter struct{ n atomic.Int64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Add adds n, which is not negative.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Count is the sum so far.
func (c *Counter) Count() int64 { return c.n.Load() }

// durationBounds are the buckets of Durations: from what a local disk does in
// one go to what nobody waits for.
var durationBounds = [...]int64{
	int64(100 * time.Microsecond), int64(250 * time.Microsecond), int64(500 * time.Microsecond),
	int64(time.Millisecond), int64(2500 * time.Microsecond), int64(5 * time.Millisecond),
	int64(10 * time.Millisecond), int64(25 * time.Millisecond), int64(50 * time.Millisecond),
	int64(100 * time.Millisecond), int64(250 * time.Millisecond), int64(500 * time.Millisecond),
	int64(time.Second), int64(2500 * time.Millisecond), int64(5 * time.Second), int64(10 * time.Second),
}

// Durations is a histogram of times, in buckets from 100 us to 10 s.
type Durations struct {
	counts [len(durationBounds) + 1]atomic.Int64
	sum    atomic.Int64
}

// Observe counts one time.
func (h *Durations) Observe(d time.Duration) {
	h.counts[bucket(durationBounds[:], int64(d))].Add(1)
	h.sum.Add(int64(d))
}

// Count is how many were observed.
func (h *Durations) Count() int64 { return total(h.counts[:]) }

// sizeBounds are the buckets of Sizes, in bytes.
var sizeBounds = [...]int64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}

// Sizes is a histogram of bytes, in buckets from 256 bytes to 64 MiB.
type Sizes struct {
	counts [len(sizeBounds) + 1]atomic.Int64
	sum    atomic.Int64
}

// Observe counts one size.
func (h *Sizes) Observe(n int64) {
	h.counts[bucket(sizeBounds[:], n)].Add(1)
	h.sum.Add(n)
}

// Count is how many were observed.
func (h *Sizes) Count() int64 { return total(h.counts[:]) }

// bucket is the first bound that is not below v. The bounds are few and most
// values are small, so that going through them beats a binary search.
func bucket(bounds []int64, v int64) int {
	for i, b := range bounds {
		if v <= b {
			return i
		}
	}
	return len(bounds)
}

func total(counts []atomic.Int64) (sum int64) {
	for i := range counts {
		sum += counts[i].Load()
	}
	return sum
}
