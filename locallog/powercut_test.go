package locallog_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/internal/powerloss"
	"ponor/locallog"
)

// cutLog is what is known of a log: batches from start to acked are there for
// sure, those after it and what a trim or a removal was about perhaps.
type cutLog struct {
	id           commitlog.ID
	epoch        commitlog.Epoch
	log          commitlog.Log
	batches      []commitlog.Batch // with base offsets, from start on
	start, acked commitlog.Offset
	trim         commitlog.Offset // the furthest that was asked for
	removing     bool
}

func (l *cutLog) end() commitlog.Offset {
	if len(l.batches) == 0 {
		return l.start
	}
	return l.batches[len(l.batches)-1].LastOffset() + 1
}

// cutRun is a machine whose power is cut in the middle of things, a few times.
type cutRun struct {
	ctx   context.Context
	rng   *rand.Rand
	disk  *powerFS
	store *locallog.Store
	logs  []*cutLog
	made  uint64 // batches
}

// stopped is whether the machine stands still, so that an error says nothing.
func (r *cutRun) stopped() bool {
	_, err := r.disk.boot().ReadDir("/")
	return err != nil
}

// live runs the store until the machine stops, or for some steps.
func (r *cutRun) live(steps int) (err error) {
	r.store, err = locallog.New(locallog.Config{Dir: "/node/logs", FS: r.disk.boot(), CheckpointBytes: 2000})
	if err != nil {
		return err
	}
	for _, l := range r.logs {
		if err := r.open(l); err != nil {
			return err
		}
	}
	for range steps {
		if err := r.step(r.logs[r.rng.IntN(len(r.logs))]); err != nil {
			return err
		}
	}
	return nil
}

func (r *cutRun) step(l *cutLog) error {
	switch n := r.rng.IntN(20); {
	case n < 14:
		return r.append(l)
	case n < 16:
		to := l.start + commitlog.Offset(r.rng.IntN(int(l.end()-l.start)+1))
		l.trim = max(l.trim, to)
		if err := l.log.Trim(r.ctx, to); err != nil {
			return err
		}
		l.drop(to)
		return nil
	case n < 19:
		if err := l.log.Close(r.ctx); err != nil {
			return err
		}
		l.epoch++
		return r.open(l)
	default:
		l.removing = true
		if err := l.log.Close(r.ctx); err != nil {
			return err
		}
		if err := r.store.Remove(r.ctx, l.id); err != nil {
			return err
		}
		*l = cutLog{id: l.id}
		return r.open(l)
	}
}

// drop forgets batches below the start of the log.
func (l *cutLog) drop(start commitlog.Offset) {
	l.batches = slices.DeleteFunc(l.batches, func(b commitlog.Batch) bool { return b.LastOffset() < start })
	l.start, l.acked = start, max(l.acked, start)
}

func (r *cutRun) append(l *cutLog) error {
	var last commitlog.Commit
	for range 1 + r.rng.IntN(3) {
		r.made++
		b := kbatch.Sized(int64(1000+r.made), 1+r.rng.IntN(3), 50+r.rng.IntN(900), r.made).Bytes()
		c, err := l.log.Append(b)
		if err != nil {
			return err
		}
		own := commitlog.Batch(slices.Clone(b))
		own.SetBase(c.Base, l.epoch)
		l.batches, last = append(l.batches, own), c
	}
	if err := last.Wait(r.ctx); err != nil {
		return err
	}
	l.acked = l.end()
	return nil
}

// open opens a log and compares it with what is known; faults are panics of
// type string, since an error only tells that the machine stopped.
func (r *cutRun) open(l *cutLog) (err error) {
	l.log, err = r.store.Open(r.ctx, l.id, l.epoch, commitlog.Options{
		Settings:    func() commitlog.Settings { return commitlog.Settings{SegmentBytes: 2500, IndexBytes: 300} },
		Checkpoints: folds{},
	})
	if err != nil {
		return err
	}
	got := l.log.Bounds()
	if l.removing && got == (commitlog.Bounds{}) {
		*l = cutLog{id: l.id, log: l.log, epoch: l.epoch}
		return nil
	}
	if got.Start < l.start || got.Start > max(l.start, l.trim) || got.End < l.acked || got.End > l.end() {
		panic(fmt.Sprintf("%v is %+v, but %d..%d was acknowledged, trim to %d and end at %d tried", l.id, got, l.start, l.acked, l.trim, l.end()))
	}
	l.drop(got.Start)
	l.batches = slices.DeleteFunc(l.batches, func(b commitlog.Batch) bool { return b.BaseOffset() >= got.End })
	l.acked, l.removing = got.End, false
	if len(l.batches) > 0 && l.end() != got.End {
		panic(fmt.Sprintf("%v ends at %d, within a batch", l.id, got.End))
	}
	return r.compare(l)
}

func (r *cutRun) compare(l *cutLog) error {
	at := l.start
	for _, want := range l.batches {
		recs, err := l.log.Read(r.ctx, at, commitlog.ReadOptions{MaxBytes: 1, MinOne: true})
		if err != nil {
			return err
		}
		got, _, err := commitlog.SplitBatch(bytes.Join(recs.Bufs, nil))
		recs.Release()
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			panic(fmt.Sprintf("%v holds at %d another batch than was appended", l.id, at))
		}
		at = want.LastOffset() + 1
	}
	return nil
}

// cutAnywhere is one seed; it says what was lost and how often the power was cut.
func cutAnywhere(ctx context.Context, seed uint64, lies func(string) bool) (cuts int, fault error) {
	r := &cutRun{ctx: ctx, rng: rand.New(rand.NewPCG(seed, 17)), disk: newPowerFS(seed)}
	r.disk.lies = lies
	for p := range int32(2) {
		r.logs = append(r.logs, &cutLog{id: commitlog.ID{Topic: "orders", TopicID: [16]byte{1}, Partition: p}})
	}
	defer func() {
		if p := recover(); p != nil {
			fault = fmt.Errorf("seed %d, after %d power cuts: %v", seed, r.disk.crashes, p)
		}
	}()
	for range 4 {
		r.disk.StopAfter(1 + r.rng.IntN(500))
		if err := r.live(40); err != nil && !r.stopped() {
			panic(err)
		}
		r.disk.Crash()
		if r.store != nil {
			_ = r.store.Close(ctx) // it is dead
			r.store = nil
		}
	}
	if err := r.live(0); err != nil {
		panic(err)
	}
	if err := r.store.Close(ctx); err != nil {
		panic(err)
	}
	return r.disk.crashes, nil
}

// The machine stops anywhere, in the middle of appends, rolls, checkpoints,
// trims, removals and recoveries; whatever was acknowledged is there afterwards.
func TestPowerCutsAnywhere(t *testing.T) {
	first, n := powerloss.Seeds(200)
	cuts := 0
	for seed := first; seed < first+uint64(n); seed++ {
		c, err := cutAnywhere(t.Context(), seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		cuts += c
	}
	t.Logf("%d power cuts anywhere under a local log", cuts)
}

// Without any of the syncs, something is lost.
func TestPowerCutsAnywhereNoticeSyncsThatDoNothing(t *testing.T) {
	for what, lies := range map[string]func(name string) bool{
		"a log":              func(name string) bool { return strings.HasSuffix(name, ".log") },
		"a checkpoint":       func(name string) bool { return strings.Contains(name, "checkpoint") },
		"a log's directory":  func(name string) bool { return strings.HasPrefix(name, "/node/logs/orders") },
		"the data directory": func(name string) bool { return name == "/node/logs" },
		"the one above it":   func(name string) bool { return name == "/node" },
	} {
		caught := false
		for seed := uint64(1); seed < 200 && !caught; seed++ {
			_, err := cutAnywhere(t.Context(), seed, lies)
			caught = err != nil
		}
		if !caught {
			t.Errorf("200 seeds do not show that syncs of %s do nothing", what)
		}
	}
}
