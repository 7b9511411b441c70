package sharedlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

func isRetriable(err error) bool {
	return errors.Is(err, commitlog.ErrBackpressure) || errors.Is(err, commitlog.ErrUnavailable)
}

// Whatever goes wrong at a step of packing, nothing is lost or doubled, the next
// round does what is left, and what was uploaded in vain is swept.
func TestPackingSurvivesFaultsAtEveryStep(t *testing.T) {
	boom := errors.New("boom")
	isCommit := func(cmd *metadatapb.Command) bool { return cmd.GetCommitExtents() != nil }
	steps := map[string]func(f *fixture){
		"upload fails": func(f *fixture) {
			f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Times: 2, Before: boom})
		},
		"upload's reply is lost": func(f *fixture) {
			f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Times: 2, After: boom})
		},
		"commit is dropped": func(f *fixture) { f.c.Hook = times(2, isCommit, sharedlogtest.Dropped) },
		"commit's reply is lost": func(f *fixture) {
			f.c.Hook = times(2, isCommit, sharedlogtest.Lost)
		},
		"deletion of slots fails": func(f *fixture) {
			f.b.Add(fault.Rule{Ops: []fault.Op{fault.Delete}, Times: 2, Before: boom})
		},
		"every reply of the metadata is lost for a while": func(f *fixture) {
			f.c.Hook = times(6, func(*metadatapb.Command) bool { return true }, sharedlogtest.Lost)
		},
	}
	for name, inject := range steps {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			inject(f)
			n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond; c.CacheBytes = 1 })
			p := f.topic(3, n)
			l := f.open(n, p[0])
			var want [][]byte
			for range 5 {
				want = append(want, f.fill(l, 3, 300)...)
			}
			f.packed(p[0], l)
			f.until("the WAL is trimmed", func() bool { return n.Stats().UnpackedSlots == 0 })
			f.holds(l, want)
			f.until("a sweep gets through", func() bool {
				_, err := n.Sweep(f.ctx())
				return err == nil
			})
			for _, k := range append(f.keys("seg"), f.keys("wal")...) {
				if f.c.Image().References(k[len("AAAAAAAAAAAAAAAAAAAAAA/1/"):]) == 0 {
					t.Errorf("garbage: %s", k)
				}
			}
			// Another broker finds the same.
			m := f.start(2, nil)
			if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
				t.Fatal(err)
			}
			f.holds(f.open(m, p[0]), want)
		})
	}
}

// times makes a hook that gives the first n matching commands a fate.
func times(n int64, match func(*metadatapb.Command) bool, fate sharedlogtest.Fate) func(metadata.Incarnation, *metadatapb.Command) sharedlogtest.Fate {
	var left atomic.Int64
	left.Store(n)
	return func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if match(cmd) && left.Add(-1) >= 0 {
			return fate
		}
		return sharedlogtest.Applied
	}
}

// A process that dies at a step of packing leaves everything to its heir.
func TestCrashAtEveryStepOfPacking(t *testing.T) {
	steps := map[string]func(f *fixture, crash func()) (hook func(*metadatapb.Command) sharedlogtest.Fate, rule *fault.Rule){
		"before the upload": func(f *fixture, crash func()) (func(*metadatapb.Command) sharedlogtest.Fate, *fault.Rule) {
			return nil, &fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Before: errors.New("dead")}
		},
		"before the commit": func(*fixture, func()) (func(*metadatapb.Command) sharedlogtest.Fate, *fault.Rule) {
			return func(*metadatapb.Command) sharedlogtest.Fate { return sharedlogtest.Dropped }, nil
		},
		"after the commit": func(*fixture, func()) (func(*metadatapb.Command) sharedlogtest.Fate, *fault.Rule) {
			return func(*metadatapb.Command) sharedlogtest.Fate { return sharedlogtest.Lost }, nil
		},
		"before slots are deleted": func(*fixture, func()) (func(*metadatapb.Command) sharedlogtest.Fate, *fault.Rule) {
			return nil, &fault.Rule{Ops: []fault.Op{fault.Delete}, Before: errors.New("dead")}
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			hook, rule := step(f, nil)
			var first atomic.Uint64
			reached := make(chan struct{}, 100)
			f.c.Hook = func(from metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
				if from.Epoch != first.Load() || hook == nil {
					return sharedlogtest.Applied
				}
				reached <- struct{}{}
				return hook(cmd)
			}
			undo := func() {}
			if rule != nil {
				undo = f.b.Add(*rule)
			}
			n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond })
			first.Store(n.Incarnation.Epoch)
			p := f.topic(1, n)
			l := f.open(n, p[0])
			want := f.fill(l, 10, 200)
			if hook != nil {
				<-reached
			} else {
				time.Sleep(10 * time.Millisecond) // let it reach the step, if it does
			}
			n.Crash()
			undo()
			m := f.start(2, func(c *sharedlog.Config) { c.PackAge = time.Millisecond; c.MaintainEvery = time.Millisecond })
			if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
				t.Fatal(err)
			}
			l = f.open(m, p[0])
			f.holds(l, want)
			want = append(want, f.fill(l, 10, 200)...)
			f.packed(p[0], l)
			f.holds(l, want)
			f.until("inherited slots are repacked and swept", func() bool {
				if _, err := m.Sweep(f.ctx()); err != nil {
					t.Fatal(err)
				}
				return len(f.keys("wal")) == 1 // the fence, for ever (slot-3)
			})
			f.holds(l, want)
		})
	}
}

// ext-4: the newest checkpoint of a stream that was trimmed to its end lies in an
// extent that goes with the next commit. Packing waits rather than drop it.
func TestExt4PackingKeepsTheNewestCheckpoint(t *testing.T) {
	boom := errors.New("boom")
	for _, trimmed := range []bool{true, false} {
		for _, folds := range []bool{true, false} {
			t.Run(fmt.Sprintf("trimmed %t, folds %t", trimmed, folds), func(t *testing.T) {
				f := newFixture(t)
				n := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.ReadCacheBytes = time.Hour, 1 })
				p := f.topic(1, n)[0]
				var fail atomic.Pointer[error]
				l, err := n.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{Checkpoints: large{&fail}})
				if err != nil {
					t.Fatal(err)
				}
				f.fill(l, 3, 100)
				start := commitlog.Offset(1)
				if trimmed {
					start = l.Bounds().Stable
				}
				if err := l.Trim(f.ctx(), start); err != nil {
					t.Fatal(err)
				}
				before, _ := f.c.Image().PartitionByStream(p.Stream)
				undo := func() { fail.Store(nil) }
				if folds {
					undo = f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetTail, fault.GetRange}, Key: "/seg/", Before: commitlog.ErrCorrupt})
				} else {
					fail.Store(&boom)
				}
				f.fill(l, 3, 100)
				ctx := f.ctx()
				if trimmed { // which waits until it can be packed
					short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
					defer cancel()
					ctx = short
				}
				_ = l.Trim(ctx, l.Bounds().Stable) // has it packed
				now, _ := f.c.Image().PartitionByStream(p.Stream)
				if trimmed && now.End != before.End {
					t.Errorf("packed up to %d without a checkpoint, which was at %d", now.End, before.End)
				}
				if !trimmed && now.End == before.End {
					t.Error("one checkpoint keeps the whole WAL from being packed")
				}
				undo()
				if !trimmed {
					return
				}
				if err := l.Trim(f.ctx(), l.Bounds().Stable); err != nil {
					t.Fatal(err)
				}
				if err := l.Close(f.ctx()); err != nil {
					t.Fatal(err)
				}
				r, err := f.open(n, p).Recovered(f.ctx())
				if err != nil || r.CheckpointEnd != l.Bounds().Stable || !strings.HasPrefix(string(r.Checkpoint), strings.Repeat("x", 4000)) {
					t.Errorf("recovered a checkpoint at %d of %d bytes, %v", r.CheckpointEnd, len(r.Checkpoint), err)
				}
			})
		}
	}
}

// ext-4: while no checkpoint can be folded, the newest one is in an index, maybe below
// the start of the log. Folding that index again keeps it.
func TestExt4FoldsKeepTheNewestCheckpoint(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.MaxExtents = time.Millisecond, time.Millisecond, 4
	})
	p := f.topic(1, n)[0]
	var fail atomic.Pointer[error]
	l, err := n.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{Checkpoints: large{&fail}})
	if err != nil {
		t.Fatal(err)
	}
	size := func(i int) int { return 150 + i%2*(70<<10) } // runs that are not merged
	folded := func(to commitlog.Offset) {
		f.until("the older extents are folded", func() bool {
			now, _ := f.c.Image().PartitionByStream(p.Stream)
			return len(now.Extents) <= 4 && now.Extents[0].Indirect && now.Extents[0].End >= to
		})
	}
	f.grow(l, p, 2, size) // two records each
	boom := errors.New("boom")
	fail.Store(&boom)
	f.grow(l, p, 12, size)
	folded(12)
	if err := l.Trim(f.ctx(), 10); err != nil {
		t.Fatal(err)
	}
	f.grow(l, p, 12, size)
	folded(36)
	if err := l.Close(f.ctx()); err != nil {
		t.Fatal(err)
	}
	r, err := f.open(n, p).Recovered(f.ctx())
	if err != nil || r.CheckpointEnd != 4 || len(r.Checkpoint) != 4000 {
		t.Errorf("recovered a checkpoint at %d of %d bytes, %v, want that at 4", r.CheckpointEnd, len(r.Checkpoint), err)
	}
}

// large makes checkpoints of 2,000 bytes a fold, too large to be kept in memory.
type large struct{ fail *atomic.Pointer[error] }

func (l large) Fold(checkpoint []byte, _ []commitlog.BatchInfo) ([]byte, error) {
	if err := l.fail.Load(); err != nil {
		return nil, *err
	}
	return append(bytes.Clone(checkpoint), bytes.Repeat([]byte("x"), 2000)...), nil
}

// A full store refuses produce with the reason, loses nothing and resumes by
// itself.
func TestFullStore(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	p := f.topic(1, n)
	l := f.open(n, p[0])
	want := f.fill(l, 3, 100)
	undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: objstore.ErrFull})
	b := f.batch(1, 100)
	c, err := l.Append(b)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, b)
	f.until("appends are refused", func() bool {
		more := f.batch(1, 100)
		_, err := l.Append(more)
		if err == nil {
			want = append(want, more)
			return false
		}
		if !errors.Is(err, commitlog.ErrUnavailable) {
			t.Fatalf("append to a full store: %v, want ErrUnavailable", err)
		}
		return true
	})
	if c.Resolved() {
		t.Fatal("a commit resolved although the store takes nothing")
	}
	undo()
	if err := c.Wait(f.ctx()); err != nil {
		t.Fatalf("commit after the store has room again: %v", err)
	}
	want = append(want, f.fill(l, 3, 100)...)
	f.holds(l, want)
}

// While packing is stuck, unpacked WAL is bounded and appends are pushed back.
func TestUnpackedWALIsBounded(t *testing.T) {
	f := newFixture(t)
	undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Before: errors.New("stuck")})
	n := f.start(1, func(c *sharedlog.Config) { c.MaxSlots = 8 })
	p := f.topic(1, n)
	l := f.open(n, p[0])
	var want [][]byte
	f.until("appends are pushed back", func() bool {
		b := f.batch(1, 100)
		c, err := l.Append(b)
		if errors.Is(err, commitlog.ErrBackpressure) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Seal()
		if err := c.Wait(f.ctx()); err != nil {
			t.Fatal(err)
		}
		want = append(want, b)
		return false
	})
	if got := n.Stats().UnpackedSlots; got > 9 {
		t.Errorf("%d unpacked slots, the bound is 8", got)
	}
	undo()
	want = append(want, f.fill(l, 20, 100)...)
	f.holds(l, want)
}

// What recovery finds by checkpoints and deltas is what replaying every batch
// gives (prod-1), packed or not, across owners.
func TestDeltasEqualReplay(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, time.Millisecond} {
		f := newFixture(t)
		tune := func(c *sharedlog.Config) {
			c.PackAge, c.MaintainEvery, c.MaxExtents = age, time.Millisecond, 3
		}
		n := f.start(1, tune)
		p := f.topic(1, n)[0]
		var seq [3]int32
		for round := range 6 {
			l := f.open(n, p)
			if got, want := f.state(l), f.replayed(l); got != want {
				t.Fatalf("round %d: recovered %s, replay gives %s", round, got, want)
			}
			for i := range 25 {
				pid := int64(i % 3)
				b := kbatch.Values(int64(i), "a", "b").Idempotent(pid, 0, seq[pid])
				seq[pid] += 2
				if pid == 2 {
					b = kbatch.Values(int64(i), "a", "b").InTransaction(pid, 0, seq[pid]-2)
				}
				f.append(l, b.Bytes())
				if i%10 == 9 {
					f.append(l, kbatch.Marker(2, 0, i%20 == 9, 1, int64(i)).Bytes())
				}
			}
			f.fill(l, 1, 100)
			m := f.start(metadata.BrokerID(2+round), tune)
			if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
				t.Fatal(err)
			}
			n = m
		}
	}
}

// Requests to the store do not grow with the number of partitions.
func TestPackCostsFewRequests(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Hour })
	ps := f.topic(2500, n)
	var logs []commitlog.Log
	for _, p := range ps {
		logs = append(logs, f.open(n, p))
	}
	for range 3 {
		var last commitlog.Commit
		for _, l := range logs {
			last = f.append(l, f.batch(1, 100))
		}
		logs[0].Seal()
		if err := last.Wait(f.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if err := logs[0].Trim(f.ctx(), 1); err != nil { // packs first
		t.Fatal(err)
	}
	if got := len(f.keys("seg")); got != 1 {
		t.Errorf("2500 partitions were packed to %d objects, want 1", got)
	}
	for i, l := range logs {
		if got := len(f.all(l, 0+l.Bounds().Start)); got < 2 {
			t.Fatalf("log %d has %d batches", i, got)
		}
	}
}

// How many entries the quorum's log gets does not depend on how many partitions
// there are: a round of packing is one command.
func TestOneCommandForThePackOfManyStreams(t *testing.T) {
	f := newFixture(t)
	var commits atomic.Int64
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetCommitExtents() != nil {
			commits.Add(1)
		}
		return sharedlogtest.Applied
	}
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge, c.MaintainEvery = time.Hour, time.Hour })
	const streams = 3000
	parts := f.topic(streams, n)
	logs := make([]commitlog.Log, streams)
	var last commitlog.Commit
	for i, p := range parts {
		logs[i] = f.open(n, p)
	}
	for _, l := range logs {
		last = f.append(l, f.batch(1, 10))
	}
	logs[0].Seal()
	if err := last.Wait(f.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := logs[0].Trim(f.ctx(), logs[0].Bounds().Stable); err != nil { // makes packing due
		t.Fatal(err)
	}
	for i, p := range parts {
		f.packed(p, logs[i])
	}
	if got := commits.Load(); got != 1 {
		t.Errorf("%d commands commit the pack of %d streams", got, streams)
	}
}

// roomless has no room for segment objects, and counts them.
type roomless struct {
	objstore.Bucket
	tries atomic.Int64
}

func (r *roomless) PutNew(ctx context.Context, key string, body objstore.Body) error {
	if strings.Contains(key, "/seg/") {
		r.tries.Add(1)
		return objstore.ErrFull
	}
	return r.Bucket.PutNew(ctx, key, body)
}

// What a full store refuses again and again is logged once a minute.
func TestAFullStoreIsLoggedOnce(t *testing.T) {
	f := newFixture(t)
	full := &roomless{Bucket: f.b}
	var log strings.Builder
	n := f.start(1, func(c *sharedlog.Config) {
		c.Bucket, c.Logger = full, slog.New(slog.NewTextHandler(&log, nil))
		c.PackAge, c.PackBytes, c.RetryMin, c.RetryMax = time.Millisecond, 1, time.Millisecond, time.Millisecond
	})
	l := f.open(n, f.topic(1, n)[0])
	f.fill(l, 3, 100)
	f.until("packing was tried often", func() bool { return full.tries.Load() > 5 })
	n.Crash()
	if said := strings.Count(log.String(), "store does not take an object"); said != 1 {
		t.Errorf("said %d times in %d tries:\n%s", said, full.tries.Load(), log.String())
	}
}
