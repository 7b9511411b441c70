package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/metadata"
	"ponor/partition"
)

func TestAppendsAreDense(t *testing.T) {
	r := newRig(t)
	for i, want := range []commitlog.Offset{0, 3, 5} {
		if a := r.sent(plain(3 - min(i, 1))); a.Base != want || a.LogAppendTime != -1 || a.Duplicate {
			t.Errorf("append %d: %+v, want base %d", i, a, want)
		}
	}
	if r.p.HighWatermark() != 7 || r.p.End() != 7 || r.p.LastStable() != 7 {
		t.Errorf("high watermark %d, end %d", r.p.HighWatermark(), r.p.End())
	}
	if got := r.read(4, partition.ReadUncommitted); got != "3-4 5-6 " {
		t.Errorf("read %q", got)
	}
}

// TestSequences: kafka-behaviour 3 and 4.
func TestSequences(t *testing.T) {
	t.Run("an unknown producer may start anywhere", func(t *testing.T) {
		r := newRig(t)
		r.send(batch(0, 77, 2).Idempotent(0, 5, 77)) // producer id 0 is an id
		r.send(batch(0, 79, 1).Idempotent(0, 5, 79))
		r.refuse(batch(0, 81, 1).Idempotent(0, 5, 81), partition.ErrOutOfOrderSequence)
	})
	t.Run("a gap", func(t *testing.T) {
		r := newRig(t)
		r.send(batch(1, 0, 2))
		r.refuse(batch(1, 3, 1), partition.ErrOutOfOrderSequence)
		r.send(batch(1, 2, 1)) // and nothing was changed by the attempt
	})
	t.Run("a new epoch starts at 0 and a refused attempt does not fence", func(t *testing.T) {
		r := newRig(t)
		r.send(batch(1, 0, 2))
		r.refuse(batch(1, 2, 1).Idempotent(1, 1, 2), partition.ErrOutOfOrderSequence)
		r.send(batch(1, 2, 1))
		r.send(batch(1, 0, 1).Idempotent(1, 1, 0))
		r.refuse(batch(1, 3, 1), partition.ErrInvalidProducerEpoch)
	})
	t.Run("wrap", func(t *testing.T) {
		r := newRig(t)
		r.send(batch(1, math.MaxInt32-1, 2))
		r.send(batch(1, 0, 3))
		if a := r.send(batch(1, math.MaxInt32-1, 2)); !a.Duplicate || a.Base != 0 {
			t.Errorf("a retry across the wrap: %+v", a)
		}
	})
	t.Run("wrap inside a batch", func(t *testing.T) {
		r := newRig(t)
		r.send(batch(1, math.MaxInt32-1, 5)) // ...46, ...47, 0, 1, 2
		r.refuse(batch(1, 2, 1), partition.ErrOutOfOrderSequence)
		if a := r.send(batch(1, 3, 1)); a.Base != 5 {
			t.Errorf("%+v", a)
		}
		if a := r.send(batch(1, math.MaxInt32-1, 5)); !a.Duplicate || a.Base != 0 {
			t.Errorf("a retry of the wrapping batch: %+v", a)
		}
	})
	t.Run("the last five are recognised, older ones are duplicates", func(t *testing.T) {
		r := newRig(t)
		for seq := range int32(7) {
			r.sent(batch(1, 2*seq, 2))
		}
		for seq := int32(2); seq < 7; seq++ {
			a := r.send(batch(1, 2*seq, 2))
			if !a.Duplicate || a.Base != commitlog.Offset(2*seq) || a.Commit.Last != a.Base+1 || !a.Commit.Resolved() {
				t.Errorf("retry of sequence %d: %+v", 2*seq, a)
			}
		}
		r.refuse(batch(1, 2, 2), partition.ErrDuplicateSequence)
		r.refuse(batch(1, 5, 2), partition.ErrOutOfOrderSequence) // no batch like that
		if r.p.End() != 14 {
			t.Errorf("end %d, want 14", r.p.End())
		}
	})
}

// TestDuplicateAfterDeleteRecords: kafka-behaviour 4.
func TestDuplicateAfterDeleteRecords(t *testing.T) {
	r := newRig(t)
	r.sent(batch(1, 0, 2))
	if start, err := r.p.DeleteRecords(t.Context(), -1); start != 2 || err != nil {
		t.Fatal(start, err)
	}
	if a := r.send(batch(1, 0, 2)); !a.Duplicate || a.Base != 0 || a.LogStart != 2 {
		t.Errorf("%+v", a)
	}
}

// TestRetryWaitsForTheOriginal is ans-1: a duplicate is acknowledged only when
// the original is durable.
func TestRetryWaitsForTheOriginal(t *testing.T) {
	r := newRig(t)
	r.store.Hold()
	first := r.send(batch(1, 0, 2))
	retry := r.send(batch(1, 0, 2))
	if !retry.Duplicate || retry.Base != 0 || retry.Commit.Resolved() {
		t.Fatalf("%+v, resolved %v", retry, retry.Commit.Resolved())
	}
	r.store.Release()
	r.settle(first)
	r.settle(retry)
}

// TestRetryOfAnUnknownOutcomeFails: after a failed Commit no retry may be
// answered as if the original had succeeded.
func TestRetryOfAnUnknownOutcomeFails(t *testing.T) {
	for _, landed := range []bool{false, true} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			r := &rig{t: t, store: memlog.New(memlog.Config{LandFailed: landed}), set: defaults()}
			r.open()
			r.sent(batch(1, 0, 1))
			r.store.Fail(errors.New("lost"))
			a := r.send(batch(1, 1, 1))
			if err := a.Commit.Wait(t.Context()); err == nil {
				t.Fatal("the write should have failed")
			}
			retry, err := r.p.Append(batch(1, 1, 1).Bytes(), clientAt(nowMs))
			if err == nil {
				err = retry.Commit.Wait(t.Context())
			}
			if err == nil {
				t.Fatal("a retry of an unknown outcome was acknowledged")
			}
			// The next owner knows which it was.
			r.store.Fail(nil)
			r.open()
			got := r.sent(batch(1, 1, 1))
			if got.Base != 1 || got.Duplicate != landed {
				t.Errorf("at the next owner: %+v", got)
			}
			if r.p.End() != 2 {
				t.Errorf("end %d, want 2", r.p.End())
			}
		})
	}
}

// TestStateSurvivesReopen is prod-1 end to end, with segments rolled so that
// there is a checkpoint, too.
func TestStateSurvivesReopen(t *testing.T) {
	r := newRig(t)
	r.configure(func(s *metadata.TopicSettings) { s.SegmentBytes = 2000 })
	for i := range int32(60) {
		for id := range int64(3) {
			r.sent(batch(id, i*2, 2))
		}
		b := batch(9, i, 1)
		r.sent(b.InTransaction(9, 0, i))
		if i%7 == 6 {
			r.mark(9, i%2 == 0)
		}
		if i == 30 {
			r.open()
		}
	}
	before := r.p.State()
	r.open()
	if string(r.p.State()) != string(before) {
		t.Error("the state after a re-open is not the state before")
	}
	if a := r.send(batch(2, 59*2, 2)); !a.Duplicate {
		t.Errorf("a retry across the re-open: %+v", a)
	}
}

func TestLogErrorsComeThrough(t *testing.T) {
	t.Run("backpressure changes nothing", func(t *testing.T) {
		r := &rig{t: t, store: memlog.New(memlog.Config{Budget: 300}), set: defaults()}
		r.open()
		r.store.Hold()
		a := r.send(batch(1, 0, 20))
		r.refuse(batch(1, 20, 20), commitlog.ErrBackpressure)
		r.store.Release()
		r.settle(a)
		if a := r.sent(batch(1, 20, 20)); a.Base != 20 || a.Duplicate {
			t.Errorf("the refused batch was remembered: %+v", a)
		}
	})
	t.Run("fenced", func(t *testing.T) {
		r := newRig(t)
		old := r.p
		r.open()
		_, err := old.Append(plain(1).Bytes(), clientAt(nowMs))
		if !errors.Is(err, commitlog.ErrFenced) || !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("append: %v", err)
		}
		if _, err := old.Read(t.Context(), 0, partition.ReadOptions{MaxBytes: 1}); err != nil && !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("read: %v", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		r := newRig(t)
		if err := r.p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.refuse(plain(1), partition.ErrNotLeader)
		if _, err := r.p.Read(t.Context(), 0, partition.ReadOptions{}); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("read: %v", err)
		}
		if _, err := r.p.OffsetFor(t.Context(), time.Now(), -1, 0); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("offset: %v", err)
		}
		if _, err := r.p.DeleteRecords(t.Context(), 0); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("delete: %v", err)
		}
	})
	t.Run("a crash between append and commit", func(t *testing.T) {
		r := newRig(t)
		r.sent(batch(1, 0, 1))
		r.store.Hold()
		a := r.send(batch(1, 1, 1))
		r.store.Crash()
		r.store.Release()
		if err := a.Commit.Wait(t.Context()); err == nil {
			t.Fatal("acknowledged what crashed")
		}
		r.open()
		if a := r.sent(batch(1, 1, 1)); a.Duplicate || a.Base != 1 {
			t.Errorf("after the crash: %+v", a)
		}
	})
}

// TestRetriesRaceWithTheOriginal: whoever comes first, one copy is in the log
// and everyone gets its offset.
func TestRetriesRaceWithTheOriginal(t *testing.T) {
	r := newRig(t)
	const producers, batches, racers = 4, 30, 3
	var wg sync.WaitGroup
	for id := range int64(producers) {
		wg.Go(func() {
			for seq := range int32(batches) {
				bases := make(chan commitlog.Offset, racers)
				var race sync.WaitGroup
				for range racers {
					race.Go(func() {
						a, err := r.p.Append(batch(id, seq*2, 2).Bytes(), clientAt(nowMs))
						if err != nil {
							t.Error(err)
							return
						}
						if err := a.Commit.Wait(context.Background()); err != nil {
							t.Error(err)
						}
						bases <- a.Base
					})
				}
				race.Wait()
				close(bases)
				first := <-bases
				for b := range bases {
					if b != first {
						t.Errorf("one batch at two offsets, %d and %d", first, b)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := r.p.End(); got != producers*batches*2 {
		t.Errorf("end %d, want %d", got, producers*batches*2)
	}
}

// TestIdleProducersAreForgotten: producer.id.expiration.ms, by the broker's
// clock.
func TestIdleProducersAreForgotten(t *testing.T) {
	r := &rig{t: t, store: memlog.New(memlog.Config{}), set: defaults(), host: &partition.Host{ProducerExpiration: time.Hour}}
	r.configure(func(s *metadata.TopicSettings) { s.RetentionMs = -1 })
	r.open()
	r.sent(batch(1, 0, 1))
	r.sent(batch(2, 0, 1).InTransaction(2, 0, 0))
	at := func(ms int64) {
		if err := r.p.Retain(t.Context(), time.UnixMilli(ms)); err != nil {
			t.Fatal(err)
		}
	}
	at(nowMs + 3599_000)
	if n := len(r.p.Producers()); n != 2 {
		t.Fatalf("%d producers after 59 minutes, want 2", n)
	}
	at(nowMs + 3600_000)
	if p := r.p.Producers(); len(p) != 1 || p[0].ID != 2 || p[0].TxnStart != 1 {
		t.Fatalf("%+v, want the one with an open transaction", p)
	}
	r.send(batch(1, 55, 1)) // accepted at any sequence
}

func benchmarkAppend(b *testing.B, n, size int) {
	r := &rig{t: b, store: memlog.New(memlog.Config{Budget: 1 << 50}), set: defaults()}
	r.open()
	p := plain(n)
	for i := range p.Records {
		p.Records[i].Value = make([]byte, size)
	}
	bytes := p.Bytes()
	opts, set := clientAt(nowMs), defaults()
	b.SetBytes(int64(n * size))
	b.ReportAllocs()
	for b.Loop() {
		c, err := partition.Check(bytes, set, opts)
		if err != nil {
			b.Fatal(err)
		}
		c.Batch.SetBase(0, -1)
		if _, err := r.p.AppendChecked(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	b.Run("100x1KiB", func(b *testing.B) { benchmarkAppend(b, 100, 1024) })
	b.Run("1000x100B", func(b *testing.B) { benchmarkAppend(b, 1000, 100) })
	b.Run("1x100B", func(b *testing.B) { benchmarkAppend(b, 1, 100) })
}
