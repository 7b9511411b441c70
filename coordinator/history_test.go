package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/coordinator"
)

// history is a random one: counters that only grow, whatever happens to the log.
// What a call was told is a floor under all later calls.
type history struct {
	*rig
	rand *rand.Rand
	wg   sync.WaitGroup

	lock  sync.Mutex
	floor map[string]int
	acked map[string]bool // "key=n" of increments
}

// told notes that a call heard of a value; unique if it made it.
func (h *history) told(key, value string, least int, unique bool) {
	n, _ := strconv.Atoi(value)
	h.lock.Lock()
	defer h.lock.Unlock()
	if n < least {
		h.t.Errorf("%s is %d, and was %d before", key, n, least)
	}
	h.floor[key] = max(h.floor[key], n)
	if mark := key + "=" + value; unique {
		if h.acked[mark] {
			h.t.Errorf("two calls made %s", mark)
		}
		h.acked[mark] = true
	}
}

func (h *history) least(key string) int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.floor[key]
}

// expected are the errors that a call may end with.
func (h *history) expected(err error) {
	for _, e := range []error{coordinator.ErrNotCoordinator, coordinator.ErrLoading, coordinator.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return
		}
	}
	h.t.Errorf("a call ended with %v", err)
}

// increment, look and wait are calls.
func (h *history) increment(ctx context.Context, key string) {
	least := h.least(key)
	var made string
	err := h.shards.Do(ctx, key, time.Now(), func(m *machine, now time.Time) []coordinator.Record {
		n, _ := strconv.Atoi(m.values[key])
		made = strconv.Itoa(n + 1)
		if n%7 == 0 {
			m.ends["t"+key] = now.Add(20 * time.Millisecond)
			return append(m.set(key, made), m.set("t"+key, "1")...)
		}
		return m.set(key, made)
	})
	if err != nil {
		h.expected(err)
		return
	}
	h.told(key, made, least, true)
}

func (h *history) look(ctx context.Context, key string) {
	least := h.least(key)
	var value string
	err := h.shards.Do(ctx, key, time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
		value = m.values[key]
		return nil
	})
	if err != nil {
		h.expected(err)
		return
	}
	h.told(key, value, least, false)
}

func (h *history) await(ctx context.Context, key string) {
	least := h.least(key)
	value, err := h.wait(ctx, key)
	if err != nil {
		h.expected(err)
		return
	}
	h.told(key, value, least, false)
}

// call runs one call beside the others.
func (h *history) call() {
	key := string(rune('a' + h.rand.IntN(4)))
	kind := h.rand.IntN(6)
	h.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		switch kind {
		case 0:
			h.look(ctx, key)
		case 1:
			h.await(ctx, key)
		default:
			h.increment(ctx, key)
		}
	})
}

// step does one thing.
func (h *history) step() {
	switch h.rand.IntN(40) {
	case 0:
		h.store.Hold()
	case 1, 2:
		h.store.Release()
	case 3: // as if killed: what is not durable is lost
		h.close()
		h.store.Release()
		h.open()
	case 4: // the next owner comes while this one still thinks it is one
		h.open()
	case 5:
		h.store.Fail(errors.New("torn"))
		h.store.Release()
		h.call()
		time.Sleep(time.Duration(h.rand.IntN(5)) * time.Millisecond)
		h.store.Fail(nil)
		h.close()
		h.open()
	case 6:
		h.setProof(errors.New("cut off"))
	case 7, 8:
		h.setProof(nil)
	case 9, 10, 11:
		time.Sleep(time.Duration(h.rand.IntN(30)) * time.Millisecond)
	default:
		h.call()
	}
}

// After any history the state is what the calls were told, and what is read back
// from the log is the state.
func TestStateOutlivesAnyHistory(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 50
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlog.Config{Latency: time.Duration(seed%3) * time.Millisecond, LandFailed: seed%2 == 0}
				if seed%5 == 0 {
					store.Budget = 400
				}
				h := &history{rand: rand.New(rand.NewPCG(uint64(seed), 1)), floor: map[string]int{}, acked: map[string]bool{}}
				h.rig = newRig(t, store, func(c *coordinator.Config[*machine]) {
					if seed%2 == 1 {
						c.CompactBytes = 2000
					}
				})
				h.open()
				for range 300 {
					h.step()
				}
				h.setProof(nil)
				h.store.Release()
				h.wg.Wait()
				h.close()
				h.open()
				time.Sleep(time.Second)
				state := h.state()
				for key, floor := range h.floor {
					if n, _ := strconv.Atoi(state[key]); n < floor {
						t.Errorf("%s is %d in the end, a call was told %d", key, n, floor)
					}
				}
				h.close()
				h.open()
				if again := h.state(); !maps.Equal(again, state) {
					t.Errorf("the state was %v, and is %v when read again", state, again)
				}
			})
		})
	}
}
