package wal_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/wal"
)

var errStore = errors.New("503 slow down")

// Whatever the store answers, the same bytes are put again until they are there
// (slot-1), and the commit succeeds.
func TestStoreTroubleOnlyDelays(t *testing.T) {
	for name, rule := range map[string]fault.Rule{
		"error before the effect":         {Before: errStore, Times: 20},
		"lost response":                   {After: errStore, Times: 1},
		"lost response, then errors":      {After: errStore, Times: 5},
		"lands late, after the retry":     {After: errStore, Late: 10 * time.Second, Times: 1},
		"lands late, before the retry":    {After: errStore, Late: time.Millisecond, Times: 1},
		"full":                            {Before: objstore.ErrFull, Times: 20},
		"refused":                         {Before: objstore.ErrRefused, Times: 20},
		"hangs until the attempt's end":   {Delay: time.Hour, Times: 2},
		"exists, and reading back fails":  {After: objstore.ErrExists, Times: 1},
		"hangs longer than any attempt":   {Delay: 50 * time.Second, HoldHard: true, Times: 1},
		"slow":                            {Delay: 5 * time.Second, Times: 1},
		"error after its own time passed": {Delay: 40 * time.Second, HoldHard: true, After: context.DeadlineExceeded, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *wal.Config) { c.MaxObject = 1000 })
				rule.Ops = []fault.Op{fault.PutNew}
				r.faults.Add(rule)
				r.faults.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Before: errStore, Times: 2})
				all := []stored{r.append(1, 700), r.append(2, 700), r.append(1, 700)}
				mustCommit(t, all...)
				r.close()
				find(t, r.mem, r.w.Durable(), all)
			})
		})
	}
}

func fenceObject(seq uint64) objstore.Body {
	return objstore.BytesBody(wal.EncodeHeader(wal.Header{
		Kind: wal.Fence, ClusterID: cluster, Generation: 1, Incarnation: inc, Seq: seq, Author: sealer, Size: wal.HeaderBytes,
	}))
}

// slot-3: the writer that meets a fence never acknowledges anything again.
func TestSlot3AFenceEndsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject = 1000 })
		before := r.append(1, 700)
		mustCommit(t, before)
		if err := r.mem.PutNew(t.Context(), wal.SlotKey(prefix, inc, 1), fenceObject(1)); err != nil {
			t.Fatal(err)
		}
		var after []stored
		for i := range commitlog.StreamID(4) {
			s, err := r.tryAppend(1+i, batch(700, 0))
			if errors.Is(err, commitlog.ErrFenced) {
				break
			}
			after = append(after, s)
		}
		if len(after) == 0 {
			t.Fatal("fenced before anything was written")
		}
		for _, s := range after {
			if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) {
				t.Errorf("commit above a fence: %v, want ErrFenced", err)
			}
		}
		if err := <-r.ran; !errors.Is(err, commitlog.ErrFenced) || !strings.Contains(err.Error(), sealer.String()) {
			t.Errorf("run: %v, want ErrFenced by %s", err, sealer)
		}
		if !errors.Is(r.fenced, commitlog.ErrFenced) {
			t.Errorf("OnFenced: %v", r.fenced)
		}
		if _, err := r.tryAppend(1, batch(10, 0)); !errors.Is(err, commitlog.ErrFenced) {
			t.Errorf("append: %v", err)
		}
		r.close()
	})
}

// A fence below which slots are still in flight: those may succeed or not, the
// rest fails.
func TestSlot3AFenceAheadFailsWhatIsAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 4 })
		if err := r.mem.PutNew(t.Context(), wal.SlotKey(prefix, inc, 2), fenceObject(2)); err != nil {
			t.Fatal(err)
		}
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000000", Delay: time.Hour / 2, HoldHard: true})
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
		all := []stored{r.append(1, 700), r.append(1, 700), r.append(1, 700), r.append(1, 700)}
		r.w.Seal()
		close(hold)
		for _, s := range all {
			if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) {
				t.Errorf("commit: %v, want ErrFenced", err)
			}
		}
		r.close()
	})
}

func TestForeignContentIsAFenceAndIsReported(t *testing.T) {
	other := wal.Header{Kind: wal.Fence, ClusterID: "another", Generation: 1, Incarnation: inc, Seq: 0, Size: wal.HeaderBytes}
	data := wal.Header{Kind: wal.Data, ClusterID: cluster, Generation: 1, Incarnation: inc, Seq: 0, Size: 2 * wal.HeaderBytes}
	wrong := wal.Header{Kind: wal.Fence, ClusterID: cluster, Generation: 1, Incarnation: inc, Seq: 7, Size: wal.HeaderBytes}
	for name, content := range map[string][]byte{
		"not a slot":                     []byte("hello"),
		"a slot of another cluster":      wal.EncodeHeader(other),
		"data with another write id":     wal.EncodeHeader(data),
		"another slot's fence":           wal.EncodeHeader(wrong),
		"nothing":                        {},
		"a fence with a damaged header":  append([]byte("x"), wal.EncodeHeader(wrong)[1:]...),
		"a slot of a version to come":    append(append([]byte("PONORWAL"), 9), wal.EncodeHeader(wrong)[9:]...),
		"a longer object that is no WAL": make([]byte, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := newRig(t, func(c *wal.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				if err := r.mem.PutNew(t.Context(), wal.SlotKey(prefix, inc, 0), objstore.BytesBody(content)); err != nil {
					t.Fatal(err)
				}
				s := r.append(1, 100)
				if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) {
					t.Errorf("commit: %v, want ErrFenced", err)
				}
				r.close()
				if !strings.Contains(log.String(), "level=ERROR msg=\"WAL slot has foreign content\"") {
					t.Errorf("not reported (put-4):\n%s", log.String())
				}
			})
		})
	}
}

// Damage on the way of reading back our own attempt is not damage in the store.
func TestOneDamagedReadBackIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, After: errStore, Times: 1})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Corrupt: fault.FlipByte, Times: 1})
		mustCommit(t, r.append(1, 100))
		r.close()
	})
}

func TestASlotThatExistsAndIsNeverFoundIsAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: objstore.ErrExists})
		s := r.append(1, 100)
		if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) {
			t.Errorf("commit: %v, want ErrFenced", err)
		}
		r.close()
	})
}

// put-3: a store that says "exists" and then "not found" may be about to show
// what it has.
func TestASlotThatExistsAndIsNotFoundOnceIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, After: errStore, Times: 1})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Before: objstore.ErrNotFound, Times: 3})
		all := []stored{r.append(1, 100)}
		mustCommit(t, all...)
		r.close()
		find(t, r.mem, r.w.Durable(), all)
	})
}

func TestUnknownDurabilityEndsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, After: objstore.ErrUndurable, Times: 1})
		s := r.append(1, 100)
		if err := wait(t, s.slot); !errors.Is(err, commitlog.ErrFenced) || !errors.Is(err, objstore.ErrUndurable) {
			t.Errorf("commit: %v, want ErrFenced and ErrUndurable", err)
		}
		r.close()
	})
}

func TestTroubleRefusesAppendsAfterTwoSecondsAndPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		end := r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: objstore.ErrFull})
		a := r.append(1, 100)
		time.Sleep(1900 * time.Millisecond)
		b := r.append(1, 100)
		if since, err := r.w.Trouble(); !errors.Is(err, objstore.ErrFull) || time.Since(since) < 1800*time.Millisecond {
			t.Errorf("trouble: %v since %v, want ErrFull", err, since)
		}
		time.Sleep(200 * time.Millisecond)
		if _, err := r.tryAppend(1, batch(100, 0)); !errors.Is(err, commitlog.ErrUnavailable) || !errors.Is(err, objstore.ErrFull) {
			t.Errorf("append: %v, want ErrUnavailable because of ErrFull", err)
		}
		if d := r.w.OldestUnresolved(); d != 2100*time.Millisecond {
			t.Errorf("oldest unresolved: %v", d)
		}
		end()
		mustCommit(t, a, b)
		if _, err := r.w.Trouble(); err != nil {
			t.Errorf("trouble after the end: %v", err)
		}
		mustCommit(t, r.append(1, 100))
		if d := r.w.OldestUnresolved(); d != 0 {
			t.Errorf("oldest unresolved: %v", d)
		}
		r.close()
	})
}

func TestASilentStoreIsTroubleToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold, HoldHard: true})
		a := r.append(1, 100)
		time.Sleep(11 * time.Second)
		if _, err := r.tryAppend(1, batch(100, 0)); !errors.Is(err, commitlog.ErrUnavailable) {
			t.Errorf("append: %v, want ErrUnavailable", err)
		}
		close(hold)
		mustCommit(t, a, r.waitAppend())
		r.close()
	})
}

// waitAppend appends as soon as appends are taken again.
func (r *rig) waitAppend() stored {
	for {
		s, err := r.tryAppend(1, batch(100, 0))
		if err == nil {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		r := newRig(t, func(c *wal.Config) {
			c.Bucket = watched{c.Bucket, func() { mu.Lock(); at = append(at, time.Now()); mu.Unlock() }}
		})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: errStore, Times: 12})
		mustCommit(t, r.append(1, 100))
		r.close()
		for i := 1; i < len(at); i++ {
			step := min(50*time.Millisecond<<(i-1), time.Second)
			if gap := at[i].Sub(at[i-1]); gap < step/2 || gap > 2*step {
				t.Errorf("attempt %d came %v after the one before, want about %v", i, gap, step)
			}
		}
		if len(at) != 13 {
			t.Errorf("%d attempts, want 13", len(at))
		}
	})
}

// watched tells when puts begin.
type watched struct {
	objstore.Bucket
	put func()
}

func (w watched) PutNew(ctx context.Context, key string, body objstore.Body) error {
	w.put()
	return w.Bucket.PutNew(ctx, key, body)
}

func TestFenceFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: hold})
		a := r.append(1, 100)
		synctest.Wait()
		r.w.Fence(errors.New("the image says so"))
		if err := wait(t, a.slot); !errors.Is(err, commitlog.ErrFenced) || !strings.Contains(err.Error(), "the image says so") {
			t.Errorf("commit: %v", err)
		}
		if _, err := r.tryAppend(1, batch(100, 0)); !errors.Is(err, commitlog.ErrFenced) {
			t.Errorf("append: %v", err)
		}
		r.close()
	})
}

// A put that ends at the moment at which its silence becomes trouble leaves no
// trouble behind: nothing would ever end it, and appends would be refused for
// ever.
func TestPutThatEndsAsItBecomesTroubleLeavesNone(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: 10 * time.Second, Times: 1})
			mustCommit(t, r.append(1, 100))
			synctest.Wait()
			if _, err := r.w.Trouble(); err != nil {
				t.Errorf("the only slot is durable, and there is trouble: %v", err)
			}
			r.close()
		})
	}
}

// ans-2: a retry may create a slot a second time that was sealed, repacked and
// swept in between, so a slot proves nothing after its first attempt.
func TestRetryProvesNoMoreThanTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: time.Minute, Before: errStore, Times: 1})
		at := time.Now()
		mustCommit(t, r.append(1, 100))
		if p := r.w.Proven(); !p.Equal(at) {
			t.Errorf("proven %v after the slot's first attempt began", p.Sub(at))
		}
		r.close()
	})
}

// ans-2: a slot proves something once all lower ones are known to be ours.
func TestASlotProvesNothingBeforeTheLowerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.MaxObject, c.MaxInflight = 1000, 4 })
		hold := make(chan struct{})
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/0/00000000000000000000", Hold: hold})
		all := []stored{r.append(1, 800), r.append(1, 800)}
		r.w.Seal()
		synctest.Wait()
		if _, err := r.mem.Head(t.Context(), wal.SlotKey(prefix, inc, 1)); err != nil {
			t.Fatalf("the higher slot is not there: %v", err)
		}
		if p := r.w.Proven(); !p.IsZero() {
			t.Errorf("proven at %v by a slot above one that may be a fence", p)
		}
		close(hold)
		mustCommit(t, all...)
		if r.w.Proven().IsZero() {
			t.Error("two slots of our own prove nothing")
		}
		r.close()
	})
}

// ans-2: a proof is as old as the slot's first attempt, and there is none above
// a fence.
func TestOwnProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		prove := func() (time.Time, error) {
			t.Helper()
			before := time.Now()
			s, err := r.w.Prove()
			if err != nil {
				return before, err
			}
			return before, wait(t, s)
		}
		if !r.w.Proven().IsZero() {
			t.Error("proven before anything was written")
		}
		if at, err := prove(); err != nil || r.w.Proven().Before(at) {
			t.Errorf("proven at %v, asked at %v, %v", r.w.Proven(), at, err)
		}
		time.Sleep(time.Minute)
		// The first attempt creates the slot and its answer is lost: what comes a
		// minute later proves nothing about that minute.
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, After: errStore, Times: 1})
		at := time.Now()
		s := r.append(1, 100)
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: 20 * time.Second, Times: 1})
		mustCommit(t, s)
		if p := r.w.Proven(); !p.Equal(at) {
			t.Errorf("proven at %v after the start of the attempt that created the slot", p.Sub(at))
		}
		if at, err := prove(); err != nil || r.w.Proven().Before(at) {
			t.Errorf("proven at %v, asked at %v, %v", r.w.Proven(), at, err)
		}
		if err := r.mem.PutNew(t.Context(), wal.SlotKey(prefix, inc, r.w.Durable()), fenceObject(r.w.Durable())); err != nil {
			t.Fatal(err)
		}
		last := r.w.Proven()
		if _, err := prove(); !errors.Is(err, commitlog.ErrFenced) || r.w.Proven() != last {
			t.Errorf("proof above a fence: %v", err)
		}
		r.close()
		if _, _, repeated, data := object(t, r.mem, 0); len(data) > 300 || len(repeated) > 0 {
			t.Errorf("an empty slot has %d bytes", len(data))
		}
	})
}
