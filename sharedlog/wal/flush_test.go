package wal_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/wal"
)

// clocked is a store whose puts take a fixed time; it notes when each began and
// how large it was.
type clocked struct {
	objstore.Bucket
	took time.Duration
	mu   sync.Mutex
	puts []put
}

type put struct {
	at   time.Duration // since the store was made
	size int64
}

func (c *clocked) PutNew(ctx context.Context, key string, body objstore.Body) error {
	c.mu.Lock()
	c.puts = append(c.puts, put{time.Since(epoch), body.Len()})
	c.mu.Unlock()
	time.Sleep(c.took)
	return c.Bucket.PutNew(ctx, key, body)
}

// epoch is when a synctest bubble's clock starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const ms = time.Millisecond

func flushRig(t *testing.T, took time.Duration, change func(*wal.Config)) (*rig, *clocked) {
	var store *clocked
	r := newRig(t, func(c *wal.Config) {
		store = &clocked{Bucket: c.Bucket, took: took}
		c.Bucket = store
		if change != nil {
			change(c)
		}
	})
	return r, store
}

// wantPuts compares when puts began.
func (c *clocked) wantPuts(t *testing.T, at ...time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := len(c.puts) == len(at)
	for i := 0; ok && i < len(at); i++ {
		ok = c.puts[i].at >= at[i] && c.puts[i].at < at[i]+ms
	}
	if !ok {
		t.Errorf("puts began at %v, want %v", c.puts, at)
	}
}

func sleepUntil(d time.Duration) { time.Sleep(d - time.Since(epoch)) }

func TestALoneProducerGetsAnAckPerPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 20*ms, nil)
		for range 3 { // one request in flight
			mustCommit(t, r.append(1, 100))
		}
		store.wantPuts(t, 0, 20*ms, 40*ms)
		r.close()
	})
}

func TestGatherWindowWhenNothingIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 20*ms, func(c *wal.Config) { c.Gather = 5 * ms })
		a := r.append(1, 100)
		sleepUntil(4 * ms)
		b := r.append(2, 100)
		mustCommit(t, a, b)
		if a.slot != b.slot {
			t.Error("what came within the window got another slot")
		}
		store.wantPuts(t, 5*ms)
		r.close()
	})
}

func TestAWaitingSlotGoesWhenAPutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 20*ms, nil)
		all := []stored{r.append(1, 100)}
		for i := time.Duration(1); i < 10; i++ {
			sleepUntil(i * ms)
			all = append(all, r.append(1, 100))
		}
		mustCommit(t, all...)
		store.wantPuts(t, 0, 20*ms) // not one per append, not at the linger
		r.close()
	})
}

func TestAFullSlotGoesBesideOneInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 20*ms, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 2 })
		all := []stored{r.append(1, 600)}
		sleepUntil(1 * ms)
		all = append(all, r.append(1, 600))
		sleepUntil(2 * ms)
		all = append(all, r.append(1, 600)) // fills the second
		sleepUntil(3 * ms)
		all = append(all, r.append(1, 600)) // fills the third, which has to wait
		mustCommit(t, all...)
		store.wantPuts(t, 0, 2*ms, 20*ms, 22*ms)
		r.close()
	})
}

func TestLingerBoundsTheWaitBehindASlowPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, time.Second, func(c *wal.Config) { c.Linger = 250 * ms })
		a := r.append(1, 100)
		sleepUntil(100 * ms)
		b := r.append(1, 100)
		mustCommit(t, a, b)
		store.wantPuts(t, 0, 350*ms)
		r.close()
	})
}

func TestWithoutATokenASlotLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 10*ms, func(c *wal.Config) { c.PutsPerSecond, c.PutBurst, c.Linger = 2, 3, 400*ms })
		for range 3 { // the burst
			mustCommit(t, r.append(1, 100))
		}
		mustCommit(t, r.append(1, 100)) // lingers: the next token comes later, at 500 ms
		mustCommit(t, r.append(1, 100)) // has waited for its token from 440 ms on
		store.wantPuts(t, 0, 10*ms, 20*ms, 430*ms, 500*ms)
		r.close()
	})
}

func TestATokenThatComesBeforeTheLingerIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 5*ms, func(c *wal.Config) { c.PutsPerSecond, c.PutBurst = 20, 1 })
		for range 4 {
			mustCommit(t, r.append(1, 100))
		}
		store.wantPuts(t, 0, 50*ms, 100*ms, 150*ms)
		r.close()
	})
}

func TestSealNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 10*ms, func(c *wal.Config) { c.PutsPerSecond, c.PutBurst, c.Gather = 0.1, 1, 5*ms })
		for range 3 {
			a := r.append(1, 100)
			r.w.Seal()
			mustCommit(t, a)
		}
		store.wantPuts(t, 0, 10*ms, 20*ms)
		r.close()
	})
}

func TestAnIdleWriterDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := flushRig(t, 10*ms, nil)
		mustCommit(t, r.append(1, 100))
		r.w.Seal()
		time.Sleep(24 * time.Hour)
		store.wantPuts(t, 0)
		r.close()
		store.wantPuts(t, 0)
	})
}
