package logtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

// remembers is a Checkpointer whose checkpoint is a list of the batches that
// matter: enough to compare with what was appended.
type remembers struct{}

func (remembers) Fold(checkpoint []byte, batches []commitlog.BatchInfo) ([]byte, error) {
	all, err := recall(checkpoint)
	if err != nil {
		return nil, err
	}
	return json.Marshal(commitlog.KeepRelevant(append(all, batches...)))
}

func recall(checkpoint []byte) ([]commitlog.BatchInfo, error) {
	if len(checkpoint) == 0 {
		return nil, nil
	}
	var out []commitlog.BatchInfo
	if err := json.Unmarshal(checkpoint, &out); err != nil {
		return nil, fmt.Errorf("checkpoint %q is not one that Fold made: %w", checkpoint, err)
	}
	return out, nil
}

// story appends batches of several producers, with transactions, and returns
// what was stored.
func (e *env) story(l commitlog.Log, epoch commitlog.Epoch, rounds int) []commitlog.BatchInfo {
	e.Helper()
	var out []commitlog.BatchInfo
	var last commitlog.Commit
	for range rounds {
		e.seed++
		n := int32(e.seed)
		r := kbatch.KV("key", fmt.Sprint("value ", n)).At(int64(n))
		for _, b := range []kbatch.Batch{
			kbatch.New(r),
			kbatch.New(r, r).Idempotent(1, 0, 2*n),
			kbatch.New(r).Idempotent(int64(100+n%3), 1, n),
			kbatch.New(r, r, r).InTransaction(2, 4, 3*n),
			kbatch.New(r).InTransaction(3, 0, n),
			kbatch.Marker(2, 4, n%2 == 0, n, int64(n)),
		} {
			raw := b.Bytes()
			last = e.append(l, raw)
			stored := commitlog.Batch(raw)
			stored.SetBase(last.Base, epoch)
			out = append(out, stored.Info())
		}
	}
	l.Seal()
	e.succeeds(last)
	return out
}

// recovers wants what the log recovered to reduce to what history reduces to.
func (e *env) recovers(l commitlog.Log, history []commitlog.BatchInfo) commitlog.Recovery {
	e.Helper()
	r, err := l.Recovered(e.ctx())
	if err != nil {
		e.Fatalf("recovered: %v", err)
	}
	told, err := recall(r.Checkpoint)
	if err != nil {
		e.Fatal(err)
	}
	for i, b := range r.Batches {
		if b.LastOffset < r.CheckpointEnd {
			e.Errorf("recovered batch %d-%d lies below the checkpoint's end %d", b.BaseOffset, b.LastOffset, r.CheckpointEnd)
		}
		if i > 0 && b.BaseOffset <= r.Batches[i-1].LastOffset {
			e.Errorf("recovered batches are out of order at %d", b.BaseOffset)
		}
	}
	got, want := commitlog.KeepRelevant(append(told, r.Batches...)), commitlog.KeepRelevant(history)
	// What lies below the start may be forgotten, but for producers.
	start := e.bounds(l).Start
	below := func(b commitlog.BatchInfo) bool {
		return b.LastOffset < start && (b.ProducerID < 0 || b.Attributes&commitlog.AttrControl != 0)
	}
	got, want = slices.DeleteFunc(got, below), slices.DeleteFunc(want, below)
	if !slices.Equal(got, want) {
		e.Errorf("recovered %d batches that matter, want %d", len(got), len(want))
		for _, b := range want {
			if !slices.Contains(got, b) {
				e.Errorf("missing %+v", b)
			}
		}
		for _, b := range got {
			if !slices.Contains(want, b) {
				e.Errorf("unexpected %+v", b)
			}
		}
	}
	return r
}

func recoveredTellsAll(tb testing.TB, w World) {
	e := newEnv(tb, w)
	opts := commitlog.Options{Settings: smallSegments}
	l := e.openWith(0, opts)
	if r := e.recovers(l, nil); len(r.Batches) > 0 || len(r.Checkpoint) > 0 {
		e.Errorf("a new log recovers %+v", r)
	}
	history := e.story(l, 0, 8)
	for epoch := commitlog.Epoch(1); epoch < 4; epoch++ {
		e.close(l)
		l = e.openWith(epoch, opts)
		e.recovers(l, history)
		history = append(history, e.story(l, epoch, 2)...)
	}
	e.close(l)
}

func recoveredCheckpointTellsAll(tb testing.TB, w World) {
	e := newEnv(tb, w)
	opts := commitlog.Options{Settings: smallSegments, Checkpoints: remembers{}}
	l := e.openWith(0, opts)
	history := e.story(l, 0, 10)
	for epoch := commitlog.Epoch(1); epoch < 5; epoch++ {
		if epoch == 3 {
			if err := l.Trim(e.ctx(), e.bounds(l).Stable-5); err != nil {
				e.Fatalf("trim: %v", err)
			}
		}
		if epoch%2 == 0 { // every other one by a takeover
			next := e.openWith(epoch, opts)
			_ = l.Close(e.ctx())
			l = next
		} else {
			e.close(l)
			l = e.openWith(epoch, opts)
		}
		e.recovers(l, history)
		history = append(history, e.story(l, epoch, 3)...)
	}
	e.close(l)
}
