package wal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/wal"
)

func sealConfig(b objstore.Bucket) wal.SealConfig {
	return wal.SealConfig{Bucket: b, Prefix: prefix, ClusterID: cluster, Generation: 1, Incarnation: inc, By: sealer}
}

// written makes a WAL of n slots, one batch each, and leaves it as a process
// that was killed does.
func written(t *testing.T, n int, change func(*wal.Config)) (*rig, []stored) {
	t.Helper()
	r := newRig(t, func(c *wal.Config) {
		c.MaxObject = 1000
		if change != nil {
			change(c)
		}
	})
	var all []stored
	for i := range n {
		all = append(all, r.append(commitlog.StreamID(i%3), 800))
	}
	mustCommit(t, all...)
	r.close()
	return r, all
}

func fenceAt(t *testing.T, b objstore.Bucket, seq uint64) {
	t.Helper()
	h, _, err := wal.ReadIndex(t.Context(), b, prefix, inc, seq)
	if err != nil || h.Kind != wal.Fence || h.Author.IsZero() || h.Seq != seq {
		t.Errorf("slot %d: %+v, %v, want a fence", seq, h, err)
	}
}

func TestSealPutsAFenceAfterTheData(t *testing.T) {
	for _, n := range []int{0, 1, 2, 31, 32, 33, 100} {
		for _, trim := range []int{0, 1, 30, 31, 32, 99, 100} {
			if trim > n {
				continue
			}
			t.Run(fmt.Sprintf("%d slots, trim %d", n, trim), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, all := written(t, n, nil)
					for seq := range trim { // packed and deleted
						if err := r.mem.Delete(t.Context(), wal.SlotKey(prefix, inc, uint64(seq))); err != nil {
							t.Fatal(err)
						}
					}
					cfg := sealConfig(r.mem)
					cfg.Trim = uint64(trim)
					got, err := wal.Seal(t.Context(), cfg)
					if err != nil {
						t.Fatal(err)
					}
					if got.End != uint64(n) || len(got.Slots) != n-trim {
						t.Fatalf("sealed at %d with %d slots, want %d and %d", got.End, len(got.Slots), n, n-trim)
					}
					fenceAt(t, r.mem, uint64(n))
					for i, s := range got.Slots {
						_, own, _, _ := object(t, r.mem, s.Seq)
						if s.Seq != uint64(trim+i) || !reflect.DeepEqual(s, own) {
							t.Fatalf("index %d: %+v, the slot has %+v", i, s, own)
						}
						if want := all[trim+i]; s.Chunks[0].Stream != want.stream || s.Chunks[0].Base != want.base {
							t.Fatalf("index %d: %+v", i, s)
						}
					}
					again, err := wal.Seal(t.Context(), cfg)
					if err != nil || !reflect.DeepEqual(again, got) {
						t.Errorf("sealing again: %+v, %v", again, err)
					}
				})
			})
		}
	}
}

// A writer repeats indexes so that sealing reads few objects.
func TestSealingALongWALTakesFewReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := written(t, 256, nil)
		c := counted.New(r.mem)
		got, err := wal.Seal(t.Context(), sealConfig(c))
		if err != nil || got.End != 256 {
			t.Fatalf("sealed at %d, %v", got.End, err)
		}
		// 8 repeaters, and per repeater at most the window that it did not know
		// to be durable.
		if n := c.Total(counted.GetTail).Requests; n > 8+8*2 {
			t.Errorf("%d reads for 256 slots", n)
		}
	})
}

// slot-3, slot-5: slots above a gap were not acknowledged; the fence goes into
// the gap.
func TestSlot3TheFenceGoesIntoTheFirstFreeSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 3 })
		acked := r.append(1, 800)
		mustCommit(t, acked)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000001", Before: errStore})
		lost := []stored{r.append(1, 800), r.append(1, 800), r.append(1, 800)}
		r.w.Seal()
		synctest.Wait()
		got, err := wal.Seal(t.Context(), sealConfig(r.mem))
		if err != nil {
			t.Fatal(err)
		}
		if got.End != 1 || len(got.Slots) != 1 {
			t.Fatalf("sealed at %d with %d slots, want 1 and 1", got.End, len(got.Slots))
		}
		r.faults.Clear()
		for _, s := range lost { // the paused owner wakes up
			if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) {
				t.Errorf("commit above the fence: %v", err)
			}
		}
		r.close()
	})
}

// slot-5: later slots that prove that earlier ones were durable stop sealing.
func TestSlot5LostSlotsStopSealing(t *testing.T) {
	for name, remove := range map[string][]uint64{
		"one in the middle":                    {40},
		"the first":                            {0},
		"one that only a repeated index shows": {5},
		"one before the last":                  {68},
		"many":                                 {10, 11, 12, 50, 51},
		"all but the last":                     seqs(0, 69),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := written(t, 70, func(c *wal.Config) { c.MaxInflight = 1 })
				for _, seq := range remove {
					if err := r.mem.Delete(t.Context(), wal.SlotKey(prefix, inc, seq)); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := wal.Seal(t.Context(), sealConfig(r.mem)); !errors.Is(err, wal.ErrLost) {
					t.Errorf("sealed at %d, %v, want ErrLost", got.End, err)
				}
			})
		})
	}
}

// slot-5: what proves that the free slot was durable once: a later slot that
// says so, or one that the writer could not have started otherwise.
func TestSlot5LaterSlotsProveALoss(t *testing.T) {
	for _, c := range []struct {
		seq, durableBelow uint64
		want              error
	}{
		{seq: 2, durableBelow: 0, want: nil},
		{seq: 2, durableBelow: 1, want: wal.ErrLost},
		{seq: 1, durableBelow: 1, want: wal.ErrLost},
		{seq: 3, durableBelow: 0, want: wal.ErrLost}, // the window is 3
		{seq: 1000, durableBelow: 0, want: wal.ErrLost},
	} {
		store := mem.New()
		h := wal.Header{Window: 3, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: c.seq, DurableBelow: c.durableBelow}
		putObject(t, store, wal.SlotKey(prefix, inc, c.seq), wal.EncodeEmptySlot(h))
		if _, err := wal.Seal(t.Context(), sealConfig(store)); !errors.Is(err, c.want) {
			t.Errorf("slot 0 is free, slot %d has durableBelow %d, window 3: %v, want %v", c.seq, c.durableBelow, err, c.want)
		}
	}
}

func putObject(t *testing.T, b objstore.Bucket, key string, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), key, objstore.BytesBody(data)); err != nil {
		t.Fatal(err)
	}
}

// slot-5: what is neither data of this WAL nor a fence stops sealing.
func TestSlot5DamageStopsSealing(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a flipped byte in the footer": func(b []byte) []byte { b[len(b)-50] ^= 1; return b },
		"a flipped byte in the index":  func(b []byte) []byte { b[len(b)-wal.HeaderBytes-3] ^= 1; return b },
		"cut off":                      func(b []byte) []byte { return b[:len(b)-10] },
		"empty":                        func([]byte) []byte { return nil },
		"another cluster's": func([]byte) []byte {
			return wal.EncodeEmptySlot(wal.Header{ClusterID: "another", Generation: 1, Incarnation: inc, Seq: 3})
		},
		"another generation's": func([]byte) []byte {
			return wal.EncodeEmptySlot(wal.Header{ClusterID: cluster, Generation: 2, Incarnation: inc, Seq: 3})
		},
		"another incarnation's": func([]byte) []byte {
			return wal.EncodeEmptySlot(wal.Header{ClusterID: cluster, Generation: 1, Incarnation: sealer, Seq: 3})
		},
		"another slot": func([]byte) []byte {
			return wal.EncodeEmptySlot(wal.Header{ClusterID: cluster, Generation: 1, Incarnation: inc, Seq: 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := written(t, 6, nil)
				_, _, _, data := object(t, r.mem, 3)
				putObject(t, r.mem, wal.SlotKey(prefix, inc, 3), damage(data))
				if _, err := wal.Seal(t.Context(), sealConfig(r.mem)); !errors.Is(err, commitlog.ErrCorrupt) {
					t.Errorf("seal: %v, want ErrCorrupt", err)
				}
			})
		})
	}
}

func TestSealRetriesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := written(t, 40, nil)
		flaky := fault.New(r.mem, 4)
		flaky.Add(fault.Rule{Chance: 0.3, Before: errStore})
		flaky.Add(fault.Rule{Chance: 0.3, After: errStore})
		flaky.Add(fault.Rule{Ops: []fault.Op{fault.GetTail}, Chance: 0.1, Corrupt: fault.FlipByte, Times: 1})
		got, err := wal.Seal(t.Context(), sealConfig(flaky))
		if err != nil || got.End != 40 || len(got.Slots) != 40 {
			t.Errorf("sealed at %d with %d slots, %v", got.End, len(got.Slots), err)
		}
	})
}

// A store that refuses one broker may serve another: the sealer must not sit on
// the WAL, and one that waits says so again and again.
func TestSealGivesUpWhatIsRefusedAndComplainsOfTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := written(t, 3, nil)
		deaf := fault.New(r.mem, 4)
		remove := deaf.Add(fault.Rule{Before: errStore})
		var log bytes.Buffer
		cfg := sealConfig(deaf)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := wal.Seal(ctx, cfg); err == nil {
			t.Errorf("sealed at %d without a store", got.End)
		}
		if n := strings.Count(log.String(), "does not answer the sealer"); n < 5 || n > 7 {
			t.Errorf("%d warnings in a minute", n)
		}
		remove()
		deaf.Add(fault.Rule{Before: objstore.ErrRefused})
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := wal.Seal(ctx, cfg); !errors.Is(err, objstore.ErrRefused) || ctx.Err() != nil {
			t.Errorf("refused: sealed at %d, %v", got.End, err)
		}
	})
}

// A listing that shows nothing yet must not hide data: only PutNew decides.
func TestSlot5NoDecisionRestsOnAListingOrAMissingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := written(t, 40, nil)
		got, err := wal.Seal(t.Context(), sealConfig(lagging{r.mem}))
		if err != nil || got.End != 40 || len(got.Slots) != 40 {
			t.Errorf("sealed at %d with %d slots, %v", got.End, len(got.Slots), err)
		}
	})
}

// A slot that exists and is not found is read until it is: taken for the end, it
// would cost what was acknowledged in it (slot-5).
func TestSlot5AReadThatFindsNothingDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := written(t, 3, nil)
		blind := fault.New(r.mem, 1)
		blind.Add(fault.Rule{Ops: []fault.Op{fault.GetTail}, Before: objstore.ErrNotFound, Times: 2})
		got, err := wal.Seal(t.Context(), sealConfig(lagging{blind}))
		if err != nil || got.End != 3 {
			t.Errorf("sealed at %d, %v, want 3", got.End, err)
		}
	})
}

// What is damaged where the fence should go is no end, also if no listing showed
// it before (slot-5).
func TestSlot5DamageThatNoListingShowsStopsSealing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		if err := b.PutNew(t.Context(), wal.SlotKey(prefix, inc, 0), objstore.BytesBody(make([]byte, 500))); err != nil {
			t.Fatal(err)
		}
		if got, err := wal.Seal(t.Context(), sealConfig(lagging{b})); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("sealed at %d, %v, want ErrCorrupt", got.End, err)
		}
	})
}

// A repeated index says what its slot would hold, not that it is there: a writer
// repeats what it has sent off (slot-5).
func TestSlot5ARepeatedIndexIsNotItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 4 })
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000030", Before: errStore})
		for range 32 {
			r.append(1, 800)
		}
		r.w.Seal()
		synctest.Wait()
		if _, _, repeated, _ := object(t, r.mem, 31); len(repeated) == 0 || repeated[len(repeated)-1].Seq != 30 {
			t.Fatal("slot 31 does not repeat the index of slot 30")
		}
		got, err := wal.Seal(t.Context(), sealConfig(r.mem))
		if err != nil || got.End != 30 {
			t.Errorf("sealed at %d, %v, want 30", got.End, err)
		}
		r.faults.Clear()
		r.close()
	})
}

// lagging lists nothing.
type lagging struct{ objstore.Bucket }

func (lagging) List(context.Context, string, string, func(objstore.Info) error) error { return nil }

// settling notes what was settled after the fence came.
type settling struct {
	objstore.Bucket
	fence   string
	mu      sync.Mutex
	settled []string
}

func (s *settling) Settle(ctx context.Context, p string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.Bucket.Head(ctx, s.fence); err == nil {
		s.settled = append(s.settled, p)
	}
	return s.Bucket.Settle(ctx, p)
}

// What the writer said to be durable is taken at its word; of the rest, which is
// a window at most, the sealer makes sure. Without any word it settles all.
func TestSealSettlesBeforeItReturns(t *testing.T) {
	slots := func(seqs ...uint64) (keys []string) {
		for _, seq := range seqs {
			keys = append(keys, wal.SlotKey(prefix, inc, seq))
		}
		return keys
	}
	for name, c := range map[string]struct {
		durableBelow []uint64 // of each slot
		trim         uint64
		want         []string
	}{
		"the last two":  {[]uint64{0, 0, 1, 3, 3}, 0, slots(3, 4)},
		"from the trim": {[]uint64{0, 0, 0, 1, 1}, 3, slots(3, 4)},
		"a window":      {[]uint64{0, 0, 0}, 0, slots(0, 1, 2)},
		"nobody knows":  {[]uint64{0, 0, 0, 0, 0}, 0, []string{wal.SlotPrefix(prefix, inc)}},
		"an empty one":  {nil, 0, nil},
		"many":          {[]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16}, 0, slots(16, 17)},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := mem.New()
			for seq, below := range c.durableBelow {
				h := wal.Header{Window: 3, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: uint64(seq), DurableBelow: below}
				putObject(t, store, wal.SlotKey(prefix, inc, uint64(seq)), wal.EncodeEmptySlot(h))
			}
			s := &settling{Bucket: store, fence: wal.SlotKey(prefix, inc, uint64(len(c.durableBelow)))}
			cfg := sealConfig(s)
			cfg.Trim, cfg.MaxInflight = c.trim, 3
			if _, err := wal.Seal(t.Context(), cfg); err != nil || !slices.Equal(s.settled, c.want) {
				t.Errorf("%s: %v, settled after the fence: %q, want %q", name, err, s.settled, c.want)
			}
		})
	}
}

// racing puts data of a fast writer into a slot just before a fence would.
type racing struct {
	objstore.Bucket
	mu    sync.Mutex
	slots map[uint64][]byte // what to put before a PutNew of this slot
	log   []string
}

func (r *racing) PutNew(ctx context.Context, key string, body objstore.Body) error {
	r.mu.Lock()
	for seq, data := range r.slots {
		if key == wal.SlotKey(prefix, inc, seq) {
			delete(r.slots, seq)
			r.Bucket.PutNew(ctx, key, objstore.BytesBody(data))
		}
	}
	r.log = append(r.log, key)
	r.mu.Unlock()
	return r.Bucket.PutNew(ctx, key, body)
}

func TestTwoLostRacesFenceAheadAndCloseUpward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &racing{Bucket: mem.New(), slots: map[uint64][]byte{}}
		// A writer that is always there first, at slots 0, 1, 2 and 4.
		for _, seq := range []uint64{0, 1, 2, 4} {
			r.slots[seq] = wal.EncodeEmptySlot(wal.Header{Window: 2, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: seq, DurableBelow: max(seq, 1) - 1})
		}
		cfg := sealConfig(r)
		cfg.MaxInflight = 2
		got, err := wal.Seal(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		// Races lost at 0 and 1; ahead at 1+2 is free and gets the fence; slot 2
		// is lost, too, and then the fence at 3 is the first after the data.
		if got.End != 3 {
			t.Errorf("sealed at %d, want 3; puts %v", got.End, r.log)
		}
		fenceAt(t, r, 3)
		// seal-1: the one ahead comes first, or a writer that is always faster would
		// never be stopped.
		ahead, upward := slices.Index(r.log, wal.SlotKey(prefix, inc, 3)), slices.Index(r.log, wal.SlotKey(prefix, inc, 2))
		if ahead < 0 || ahead > upward {
			t.Errorf("no fence ahead after two lost races; puts %v", r.log)
		}
	})
}

func TestAFenceAheadThatIsLostGoesFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &racing{Bucket: mem.New(), slots: map[uint64][]byte{}}
		for seq := range uint64(12) {
			r.slots[seq] = wal.EncodeEmptySlot(wal.Header{Window: 2, ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: seq, DurableBelow: 0})
		}
		// 0 and 1 lost; 3, 5, 9 lost; 17 is free. Then upward: 10 and 11 are still
		// there for the taking, and 2, 4, 6, 7, 8 come first.
		delete(r.slots, 2)
		got, err := wal.Seal(t.Context(), sealConfig(r))
		if err == nil && got.End != 2 || err != nil && !errors.Is(err, wal.ErrLost) {
			t.Errorf("sealed at %d, %v; puts %v", got.End, err, r.log)
		}
		fenceAt(t, r, 17)
	})
}

// The property behind it all, in random histories: a writer under load and store
// faults, killed or alive, and two sealers that start at any time and are
// killed and started again. Whatever was acknowledged is below the one end that
// all sealers find, and nothing is acknowledged afterwards (slot-2, slot-3, C5,
// C6).
func TestRandomSealing(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomSealing(t, seed) })
		})
	}
}

func randomSealing(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	r := newRig(t, func(c *wal.Config) {
		c.MaxObject, c.MaxInflight = 2000, 1+rng.IntN(4)
		c.AttemptTimeout = time.Duration(50+rng.IntN(500)) * ms
	})
	faults := func(b *fault.Bucket, rng *rand.Rand) {
		b.Add(fault.Rule{Chance: 0.1, Before: errStore})
		b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Chance: 0.1, After: errStore, Late: time.Duration(rng.IntN(2000)) * ms})
		b.Add(fault.Rule{Chance: 0.1, After: errStore})
		b.Add(fault.Rule{Chance: 0.3, Delay: time.Duration(rng.IntN(300)) * ms})
		b.Add(fault.Rule{Delay: time.Duration(1+rng.IntN(20)) * ms})
	}
	faults(r.faults, rng)
	var all []stored
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rng.IntN(30)) * ms):
			}
			s, err := r.tryAppend(commitlog.StreamID(rng.IntN(3)), batch(100+rng.IntN(1500), uint64(rng.IntN(1000))))
			if errors.Is(err, commitlog.ErrFenced) {
				return
			}
			if err == nil {
				all = append(all, s)
			}
		}
	})
	seal := rand.New(rand.NewPCG(seed, 4))
	var mu sync.Mutex
	var ends []wal.Sealed
	for range 2 {
		store := fault.New(r.mem, seal.Uint64())
		faults(store, seal)
		start, life := time.Duration(seal.IntN(3000))*ms, time.Duration(1+seal.IntN(2000))*ms
		wg.Go(func() {
			time.Sleep(start)
			for { // killed and started again, each life longer
				ctx, cancel := context.WithTimeout(t.Context(), life)
				got, err := wal.Seal(ctx, sealConfig(store))
				cancel()
				if err == nil {
					mu.Lock()
					ends = append(ends, got)
					mu.Unlock()
					break
				}
				if errors.Is(err, wal.ErrLost) || errors.Is(err, commitlog.ErrCorrupt) {
					t.Errorf("seal: %v", err)
					break
				}
				life *= 2
			}
			store.Land()
		})
	}
	time.Sleep(time.Minute)
	close(stop)
	wg.Wait()
	r.close()
	checkSealed(t, r, all, ends)
}

func checkSealed(t *testing.T, r *rig, all []stored, ends []wal.Sealed) {
	t.Helper()
	if len(ends) != 2 || !reflect.DeepEqual(ends[0], ends[1]) {
		t.Fatalf("sealers disagree: %+v", ends)
	}
	end := ends[0].End
	fenceAt(t, r.mem, end)
	acked := 0
	for _, s := range all {
		if err := wait(t, s.slot); err == nil {
			acked++
			if s.ref.Seq >= end {
				t.Errorf("slot %d was acknowledged, sealed at %d", s.ref.Seq, end)
			}
		}
	}
	// Everything below the end, acknowledged or not, is exactly what was
	// appended there.
	var below []stored
	for _, s := range all {
		if s.ref.Seq < end {
			below = append(below, s)
		}
	}
	find(t, r.mem, end, below)
	if uint64(len(ends[0].Slots)) != end {
		t.Errorf("%d indexes of %d slots", len(ends[0].Slots), end)
	}
}

func seqs(from, to uint64) (out []uint64) {
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}
