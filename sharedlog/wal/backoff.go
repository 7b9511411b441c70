package wal

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// backoff paces retries: 50 ms doubling to 1 s, with jitter so that brokers
// that lost the store together do not come back together.
type backoff struct {
	rng  *rand.Rand
	step time.Duration
}

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)

func newBackoff(r io.Reader) *backoff {
	var seed [16]byte
	if _, err := io.ReadFull(r, seed[:]); err != nil {
		panic("wal: no randomness for jitter: " + err.Error())
	}
	return &backoff{rng: rand.New(rand.NewPCG(binary.BigEndian.Uint64(seed[:]), binary.BigEndian.Uint64(seed[8:]))), step: firstBackoff}
}

// wait sleeps the next step or until ctx ends.
func (b *backoff) wait(ctx context.Context) {
	d := b.step/2 + time.Duration(b.rng.Int64N(int64(b.step)))
	b.step = min(2*b.step, maxBackoff)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lockedReader makes any source of randomness usable from several goroutines.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}
