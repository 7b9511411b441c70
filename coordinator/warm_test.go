package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/coordinator"
	"ponor/partition"
)

// view is what another node sees of a partition.
type view struct {
	p    *partition.Partition
	most int    // bytes of a read
	read func() // before each, if set
	err  error  // of each, if set
}

// Bounds implements coordinator.Source.
func (v view) Bounds() commitlog.Bounds {
	end := v.p.HighWatermark()
	return commitlog.Bounds{Start: v.p.Start(), Stable: end, End: end}
}

// Read implements coordinator.Source.
func (v view) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	if v.read != nil {
		v.read()
	}
	if v.err != nil {
		return commitlog.Records{}, v.err
	}
	got, err := v.p.Read(ctx, from, partition.ReadOptions{MaxBytes: min(opts.MaxBytes, v.most), MinOne: true})
	return got.Records, err
}

// target is another node, which may get the rig's partition; replayed counts records.
func (r *rig) target() (s *coordinator.Shards[*machine], replayed *atomic.Int64) {
	cfg, replayed := r.cfg, new(atomic.Int64)
	fresh := cfg.New
	cfg.New = func(n int32) *machine {
		m := fresh(n)
		before := m.replays
		m.replays = func() {
			replayed.Add(1)
			if before != nil {
				before()
			}
		}
		return m
	}
	s = coordinator.New(cfg)
	r.t.Cleanup(s.Close)
	return s, replayed
}

// moveTo has the target open the partition.
func (r *rig) moveTo(s *coordinator.Shards[*machine]) {
	r.close()
	r.shards = s
	r.open()
}

// put sets values, all of which the log has durable in the end.
func (r *rig) put(n int, format string) {
	r.t.Helper()
	for i := range n {
		if err := r.set(fmt.Sprintf(format, i), "1"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// After any history a shadow and what is loaded after it are what the log says.
func TestAShadowIsAsGoodAsALoad(t *testing.T) {
	runs := 200
	if testing.Short() {
		runs = 30
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(seed), 7))
				r := newRig(t, memlog.Config{Latency: time.Millisecond}, compactAt(int64(300+rnd.IntN(3000))))
				r.open()
				want := map[string]string{}
				turn := make(chan struct{}, 1) // a token of who does something
				turn <- struct{}{}
				change := func() {
					key, value := fmt.Sprint("k", rnd.IntN(15)), fmt.Sprint(rnd.IntN(1000))
					if rnd.IntN(3) == 0 {
						value = ""
					}
					if err := r.set(key, value); err != nil {
						t.Error(err)
					}
					if want[key] = value; value == "" {
						delete(want, key)
					}
				}
				for range 5 {
					next, _ := r.target()
					for range rnd.IntN(4) {
						v := view{p: r.part, most: 100 + rnd.IntN(1000), read: func() {
							select {
							case turn <- struct{}{}:
								if rnd.IntN(3) == 0 {
									change()
								}
								<-turn
							default:
							}
						}}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(20))*time.Millisecond)
						if rnd.IntN(2) == 0 {
							cancel()
							ctx = t.Context()
						}
						<-turn
						_ = next.Warm(ctx, r.id, v)
						turn <- struct{}{}
						cancel()
						for range rnd.IntN(30) {
							change()
						}
					}
					for range rnd.IntN(60) {
						change()
					}
					r.moveTo(next)
					if got := r.state(); !maps.Equal(got, want) {
						t.Fatalf("state is %v, want %v", got, want)
					}
				}
			})
		})
	}
}

// Only what came after the shadow is loaded.
func TestAShadowSavesALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		r.put(100, "a%d")
		next, replayed := r.target()
		for range 2 { // the second goes on where the first was
			if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 1000}); err != nil {
				t.Fatal(err)
			}
		}
		r.put(10, "b%d")
		if n := replayed.Load(); n != 100 {
			t.Errorf("%d records in the shadow, want 100", n)
		}
		r.moveTo(next)
		if got := r.state(); len(got) != 110 {
			t.Errorf("%d values", len(got))
		}
		if n := replayed.Load(); n != 110 {
			t.Errorf("%d records replayed in all, want 110", n)
		}
		if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 1000}); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Errorf("warm of a partition that is here: %v", err)
		}
	})
}

// A log that was cut behind the shadow is loaded as if there were none: what the
// records between say, tombstones too, is not known.
func TestAShadowOfALogThatWasCutIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		r.put(10, "a%d")
		next, _ := r.target()
		if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 1000}); err != nil {
			t.Fatal(err)
		}
		if err := r.set("a0", ""); err != nil {
			t.Fatal(err)
		}
		cut := r.part.End()
		r.put(1, "b%d")
		if err := r.part.Trim(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		r.moveTo(next)
		if got := r.state(); !maps.Equal(got, map[string]string{"b0": "1"}) {
			t.Errorf("state is %v", got)
		}
	})
}

// A partition that does not come costs nothing for long, nor does one whose incarnation
// has ended; both are loaded plainly then.
func TestAShadowEnds(t *testing.T) {
	for _, why := range []string{"time", "life"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memlog.Config{Latency: time.Millisecond})
			r.open()
			r.put(100, "a%d")
			next, replayed := r.target()
			life, end := context.WithCancel(t.Context())
			defer end()
			if err := next.Warm(life, r.id, view{p: r.part, most: 1000}); err != nil {
				t.Fatal(err)
			}
			if why == "time" {
				time.Sleep(time.Minute)
			} else {
				end()
			}
			r.moveTo(next)
			if got := r.state(); len(got) != 100 || replayed.Load() != 200 {
				t.Errorf("%s: %d values, %d records replayed, want 200", why, len(got), replayed.Load())
			}
		})
	}
}

// Shadows are few, whoever asks for them.
func TestShadowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		r.put(1, "a%d")
		next, _ := r.target()
		refused := 0
		for n := range int32(100) {
			id := r.id
			id.Partition = n
			if err := next.Warm(t.Context(), id, view{p: r.part, most: 1000}); errors.Is(err, coordinator.ErrUnavailable) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 84 {
			t.Errorf("%d of 100 were refused", refused)
		}
		time.Sleep(time.Minute)
		if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 1000}); err != nil {
			t.Errorf("after all had their time: %v", err)
		}
	})
}

// A shadow that fails, whatever way, is an error to who asked, and no more.
func TestAShadowThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		bad := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		r.put(10, "a%d")
		for _, key := range []string{"poison", "panic"} {
			bad.open()
			bad.put(5, "lie%d")
			if err := bad.set(key, "1"); err != nil {
				t.Fatal(err)
			}
			next, _ := r.target()
			if err := next.Warm(t.Context(), r.id, view{p: bad.part, most: 100}); err == nil {
				t.Errorf("%s: no error", key)
			}
			r.moveTo(next)
			if got := r.state(); len(got) != 10 {
				t.Errorf("%s: %d values, want 10", key, len(got))
			}
			bad.close()
			bad = newRig(t, memlog.Config{Latency: time.Millisecond})
		}
		next, _ := r.target()
		begun := time.Now()
		err := next.Warm(t.Context(), r.id, view{p: r.part, most: 100, err: errors.New("the store is away")})
		if took := time.Since(begun); err == nil || took > 15*time.Second {
			t.Errorf("a log that cannot be read: %v after %v", err, took)
		}
		next.Close()
		if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 100}); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Errorf("warm after Close: %v", err)
		}
	})
}

// What is replayed into shadows is bounded in bytes, and counts no longer than they
// last.
func TestShadowsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		big := strings.Repeat("x", 3<<20)
		for i := range 4 {
			if err := r.set(fmt.Sprint("k", i), big); err != nil {
				t.Fatal(err)
			}
		}
		next, replayed := r.target()
		coordinator.SetShadowBudget(next, 6<<20)
		for range 3 {
			before := replayed.Load()
			if err := next.Warm(t.Context(), r.id, view{p: r.part, most: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			if n := replayed.Load() - before; n == 0 || n == 4 {
				t.Errorf("%d of 4 records were replayed", n)
			}
			time.Sleep(time.Minute)
		}
		r.moveTo(next)
		if got := r.state(); len(got) != 4 {
			t.Errorf("%d values", len(got))
		}
	})
}
