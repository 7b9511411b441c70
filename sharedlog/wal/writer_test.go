package wal_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/wal"
)

func TestWhatIsAppendedIsInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject = 40_000 })
		rng := rand.New(rand.NewPCG(1, 1))
		var all []stored
		for i := range 400 {
			size := 100 + rng.IntN(3000)
			if i%100 == 50 {
				size = 3 << 20 // larger than a slot and than a slab
			}
			all = append(all, r.append(commitlog.StreamID(rng.IntN(7)), size))
			if rng.IntN(5) == 0 {
				synctest.Wait()
			}
		}
		mustCommit(t, all...)
		r.close()
		find(t, r.mem, r.w.Durable(), all)
		if n := r.w.Unresolved(); n != 0 {
			t.Errorf("%d bytes unresolved", n)
		}
		if n := r.w.CachedBytes(); n != 0 {
			t.Errorf("%d bytes of slabs in use after Close", n)
		}
	})
}

func TestProducerDeltasAreInTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: time.Second, Times: 1})
		all := []stored{r.append(9, 100)} // keeps the store busy
		synctest.Wait()
		add := func(b kbatch.Batch) {
			s, err := r.tryAppend(4, b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		add(kbatch.Values(1, "plain"))
		add(kbatch.Values(2, "plain", "second"))
		for i := range int32(8) {
			add(kbatch.Values(3, "idempotent").Idempotent(70, 2, i))
		}
		for i := range int32(7) {
			add(kbatch.Values(4, "in a transaction").InTransaction(71, 3, i))
		}
		add(kbatch.Marker(71, 3, true, 6, 5))
		mustCommit(t, all...)
		r.close()
		find(t, r.mem, 2, all)
		_, own, _, _ := object(t, r.mem, 1)
		c := own.Chunks[0]
		var kinds []commitlog.Offset
		for _, b := range c.Batches {
			kinds = append(kinds, b.BaseOffset)
		}
		want := []commitlog.Offset{0, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18}
		if len(kinds) != len(want) {
			t.Fatalf("deltas at %v, want %v", kinds, want)
		}
		if last := c.Batches[len(c.Batches)-1]; last.Marker != 1 || last.CoordinatorEpoch != 6 || last.ProducerID != 71 {
			t.Errorf("marker: %+v", last)
		}
	})
}

func TestAppendRefusesGapsAndNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: time.Second, Times: 1})
		r.append(1, 100)
		synctest.Wait()
		s := r.append(1, 100)
		if _, _, err := r.w.Append(1, 5, r.next[1]+1, batch(100, 0)); err == nil {
			t.Error("a gap within a chunk was accepted")
		}
		if _, _, err := r.w.Append(1, 5, r.next[1], commitlog.Batch("short")); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("append of nonsense: %v", err)
		}
		// The same stream at another epoch is another chunk.
		if _, _, err := r.w.Append(1, 6, 500, batch(100, 0)); err != nil {
			t.Error(err)
		}
		mustCommit(t, s)
		r.close()
		_, own, _, _ := object(t, r.mem, 1)
		if len(own.Chunks) != 2 || own.Chunks[0].Epoch != 5 || own.Chunks[1].Epoch != 6 || own.Chunks[1].Base != 500 {
			t.Errorf("chunks %+v", own.Chunks)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []wal.Config{
		{}, {Prefix: "x", Incarnation: inc},
		{Bucket: fault.New(nil, 1), Prefix: prefix},
		{Bucket: fault.New(nil, 1), Prefix: prefix, Incarnation: inc, ClusterID: "an id that is longer than the header has room for"},
	} {
		if _, err := wal.New(c); err == nil {
			t.Errorf("config %+v was accepted", c)
		}
	}
	if got, want := wal.SlotKey("c/1", metadata.Incarnation{Broker: 3, Epoch: 17}, 42), "c/1/wal/3-17/0/00000000000000000042"; got != want {
		t.Errorf("key %s, want %s", got, want)
	}
}

// slot-2: a slot that is durable waits for those below it.
func TestSlot2CommitsResolveInSlotOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 3 })
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000000", Hold: hold})
		a, b, c := r.append(1, 900), r.append(2, 900), r.append(1, 900)
		r.w.Seal()
		synctest.Wait()
		for seq := range uint64(3) {
			_, err := r.mem.Head(t.Context(), wal.SlotKey(prefix, inc, seq))
			if there := err == nil; there != (seq > 0) {
				t.Fatalf("slot %d in the store: %t", seq, there)
			}
		}
		if resolved(a.slot) || resolved(b.slot) || resolved(c.slot) || r.w.Durable() != 0 {
			t.Fatal("acknowledged above a slot that is not durable")
		}
		close(hold)
		mustCommit(t, a, b, c)
		r.close()
		for i, s := range r.order {
			if s.Seq() != uint64(i) {
				t.Errorf("OnDurable number %d was of slot %d", i, s.Seq())
			}
		}
	})
}

// slot-5 rests on it: no slot is started a window above one that is not
// durable, however many between are.
func TestSlot5TheWindowCountsFromTheLowestUnresolvedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 3 })
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000001", Hold: hold})
		var all []stored
		for range 10 {
			all = append(all, r.append(1, 900))
		}
		r.w.Seal()
		synctest.Wait()
		var seen []string
		if err := r.mem.List(t.Context(), "", "", func(i objstore.Info) error { seen = append(seen, i.Key); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 3 || seen[2] != wal.SlotKey(prefix, inc, 3) {
			t.Errorf("slots in the store while slot 1 is not: %v, want 0, 2 and 3", seen)
		}
		if h, _, _, _ := object(t, r.mem, 3); h.DurableBelow != 1 || h.Window != 3 {
			t.Errorf("slot 3: durableBelow %d window %d, want 1 and 3", h.DurableBelow, h.Window)
		}
		close(hold)
		mustCommit(t, all...)
		r.close()
		find(t, r.mem, 10, all)
	})
}

func TestEvery32ndSlotRepeatsTheIndexesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject = 1000 })
		for range 70 {
			r.append(commitlog.StreamID(r.next[1]%3), 700)
			r.append(1, 900)
		}
		synctest.Wait()
		r.close()
		var own []wal.Index
		for seq := range r.w.Durable() {
			_, i, repeated, _ := object(t, r.mem, seq)
			own = append(own, i)
			want := 0
			if seq%32 == 31 {
				want = 31
			}
			if len(repeated) != want {
				t.Fatalf("slot %d repeats %d indexes, want %d", seq, len(repeated), want)
			}
			for k, rep := range repeated {
				same := own[int(seq)-31+k]
				if rep.Seq != same.Seq || len(rep.Chunks) != len(same.Chunks) || rep.Chunks[0].CRC32C != same.Chunks[0].CRC32C || rep.Chunks[0].Pos != same.Chunks[0].Pos {
					t.Fatalf("slot %d repeats %+v, want %+v", seq, rep, same)
				}
			}
		}
	})
}

func TestBudgetPushesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.Budget, c.MaxObject = 5000, 1000 })
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
		var all []stored
		var err error
		for err == nil {
			var s stored
			if s, err = r.tryAppend(1, batch(900, 0)); err == nil {
				all = append(all, s)
			}
		}
		if !errors.Is(err, commitlog.ErrBackpressure) || len(all) != 5 {
			t.Fatalf("append number %d: %v, want ErrBackpressure at the sixth", len(all)+1, err)
		}
		close(hold)
		mustCommit(t, all...)
		// A batch larger than the budget passes when nothing is outstanding.
		mustCommit(t, r.append(1, 9000))
		r.close()
	})
}

func TestCloseFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.Gather, c.Linger = time.Hour, time.Hour })
		a := r.append(1, 100)
		synctest.Wait()
		if resolved(a.slot) {
			t.Fatal("slot went before its time")
		}
		r.close()
		mustCommit(t, a)
		if _, err := r.tryAppend(1, batch(100, 0)); !errors.Is(err, commitlog.ErrClosed) {
			t.Errorf("append after Close: %v", err)
		}
		if err := <-r.ran; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := r.w.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		find(t, r.mem, 1, []stored{a})
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: errors.New("down")})
		a := r.append(1, 100)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.w.Close(ctx); !errors.Is(err, commitlog.ErrClosed) {
			t.Errorf("close: %v, want ErrClosed", err)
		}
		if err := wait(t, a.slot); !errors.Is(err, commitlog.ErrClosed) {
			t.Errorf("commit: %v, want ErrClosed", err)
		}
		if n := r.w.CachedBytes(); n != 0 {
			t.Errorf("%d bytes of slabs in use after Close", n)
		}
	})
}

func TestAWriterThatNeverRanCloses(t *testing.T) {
	w, err := wal.New(wal.Config{Bucket: fault.New(counted.New(nil2{}), 1), Prefix: prefix, Incarnation: inc})
	if err != nil {
		t.Fatal(err)
	}
	_, slot, err := w.Append(1, 0, 0, batch(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("close that loses an append: %v", err)
	}
	if err := wait(t, slot); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("run after close: %v", err)
	}
	if n := w.CachedBytes(); n != 0 {
		t.Errorf("%d bytes of slabs in use after Close", n)
	}
}

// nil2 is a store that nobody may call.
type nil2 struct{ objstore.Bucket }

func (nil2) Kind() objstore.Kind { return objstore.Kind{Name: "none", URL: "none:"} }

// The cache: memory stays valid while it is referenced and is bounded.
func TestDurableSlotsAreCachedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 8 << 20
		r := newRig(t, func(c *wal.Config) { c.CacheBytes, c.MaxObject = limit, 100_000 })
		first := r.append(1, 90_000)
		mustCommit(t, first)
		if !first.ref.Slot.Acquire() {
			t.Fatal("a slot that just became durable is not cached")
		}
		var last stored
		for range 300 {
			last = r.append(1, 90_000)
			mustCommit(t, last)
		}
		if n := r.w.CachedBytes(); n > limit+4<<20 {
			t.Errorf("%d bytes of slabs in use, limit %d", n, limit)
		}
		if !bytes.Equal(first.ref.Bytes, first.bytes) {
			t.Error("memory changed under a reference")
		}
		first.ref.Slot.Release()
		for range 60 {
			last = r.append(1, 90_000)
			mustCommit(t, last)
		}
		if first.ref.Slot.Acquire() {
			t.Error("the oldest slot is still cached")
		}
		if first.ref.Slot.Cached() || !last.ref.Slot.Cached() {
			t.Error("Cached is wrong")
		}
		if !last.ref.Slot.Acquire() {
			t.Fatal("the newest slot is not cached")
		}
		if !bytes.Equal(last.ref.Bytes, last.bytes) {
			t.Error("cached bytes differ from what was appended")
		}
		r.close()
		if !bytes.Equal(last.ref.Bytes, last.bytes) {
			t.Error("memory changed under a reference when the writer closed")
		}
		last.ref.Slot.Release()
		if n := r.w.CachedBytes(); n != 0 {
			t.Errorf("%d bytes of slabs in use after Close", n)
		}
	})
}

func TestRangesAreTheChunksBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject = 5 << 20; c.Gather = time.Second })
		for range 40 {
			r.append(7, 50_000)
			r.append(3, 80_000)
			r.append(3, 10)
		}
		r.w.Seal()
		mustCommit(t, r.append(9, 10))
		for _, s := range r.order {
			_, _, _, data := object(t, r.mem, s.Seq())
			if !s.Acquire() {
				t.Fatal("slot is not cached")
			}
			for i, c := range s.Index().Chunks {
				if got := bytes.Join(s.Ranges(nil, i), nil); !bytes.Equal(got, data[c.Pos:c.Pos+c.Len]) {
					t.Errorf("slot %d chunk %d: memory differs from the object", s.Seq(), i)
				}
			}
			s.Release()
		}
		r.close()
	})
}

func TestConcurrentAppendsAndReaders(t *testing.T) {
	r := newRig(t, func(c *wal.Config) { c.MaxObject, c.CacheBytes = 64<<10, 4<<20 })
	var mu sync.Mutex
	var all []stored
	var wg sync.WaitGroup
	for stream := range commitlog.StreamID(4) {
		wg.Go(func() {
			var own []stored
			var base commitlog.Offset
			for i := range 300 {
				b := batch(500+i*10, uint64(i))
				ref, slot, err := r.w.Append(stream, 5, base, b)
				if err != nil {
					t.Error(err)
					return
				}
				b.SetBase(base, 5)
				own = append(own, stored{stream, base, b, slot, ref})
				base += commitlog.Offset(b.LastOffsetDelta()) + 1
				if i%7 == 0 {
					<-slot.Done()
				}
				if old := own[len(own)/2]; old.ref.Slot.Acquire() {
					if !bytes.Equal(old.ref.Bytes, old.bytes) {
						t.Error("cached bytes differ")
					}
					old.ref.Slot.Release()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	r.close()
	find(t, r.mem, r.w.Durable(), all)
}

func TestAppendAllocatesNothing(t *testing.T) {
	r := newRig(t, func(c *wal.Config) { c.MaxObject, c.Linger = 1<<20, time.Hour })
	hold := make(chan struct{})
	r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
	warm := r.append(1, 10)
	for r.w.Durable() == 0 && r.w.Unresolved() > 0 { // until the put holds
		if _, err := r.mem.Head(t.Context(), wal.SlotKey(prefix, inc, 0)); err == nil {
			t.Fatal("put did not hold")
		}
		if s := r.append(1, 10); s.ref.Seq > 0 {
			break
		}
	}
	b := batch(200, 0)
	n := commitlog.Offset(b.LastOffsetDelta()) + 1
	// The first draft grows its slices.
	allocs := testing.AllocsPerRun(2000, func() {
		if _, _, err := r.w.Append(1, 5, r.next[1], b); err != nil {
			t.Fatal(err)
		}
		r.next[1] += n
	})
	if allocs != 0 {
		t.Errorf("%v allocations per Append", allocs)
	}
	close(hold)
	mustCommit(t, warm)
	r.close()
}
