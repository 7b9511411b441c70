package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/coordinator"
)

// waitUntil is wait that is answered with "early" when early is closed.
func (r *rig) waitUntil(ctx context.Context, key string, early <-chan struct{}) (string, error) {
	var replied func(string)
	return coordinator.AskUntil(ctx, r.shards, key, time.Now(), func(m *machine, _ time.Time, reply func(string)) []coordinator.Record {
		replied = reply
		m.waits[key] = append(m.waits[key], reply)
		return nil
	}, coordinator.Until[*machine]{Early: early, Over: func(m *machine, _ time.Time) []coordinator.Record {
		delete(m.waits, key)
		replied("early")
		return nil
	}})
}

// A call that waits is answered by whoever comes first: another call, or what hurries it.
func TestACallIsAnsweredEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		early := make(chan struct{})
		got := make(chan string, 1)
		call := func(ctx context.Context) <-chan error {
			return later(func() error {
				v, err := r.waitUntil(ctx, "a", early)
				got <- v
				return err
			})
		}
		first := call(t.Context())
		pending(t, "a call that waits", first)
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		ended(t, "a call that another answered", first, nil)
		if v := <-got; v != "1" {
			t.Errorf("the answer is %q", v)
		}
		proofs := r.proofs()
		second := call(t.Context())
		pending(t, "a call that waits", second)
		time.Sleep(time.Millisecond) // after the last write, which is a proof too
		close(early)
		ended(t, "a call that was hurried", second, nil)
		if v := <-got; v != "early" {
			t.Errorf("the answer is %q", v)
		}
		if r.proofs() == proofs {
			t.Error("an early answer needed no proof (ans-2)")
		}
		r.setProof(errors.New("cut off"))
		ended(t, "a call without a proof", call(t.Context()), coordinator.ErrNotCoordinator)
	})
}

// Who waits for an early answer is told at once that the shard is lost; who has gone leaves
// nothing in the machine.
func TestACallThatWaitsEndsWithItsShardOrItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		ctx, cancel := context.WithCancel(t.Context())
		gone := later(func() error { _, err := r.waitUntil(ctx, "a", nil); return err })
		pending(t, "a call that waits", gone)
		cancel()
		if err := <-gone; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
			if len(m.waits) > 0 {
				t.Error("the machine still keeps the reply")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		moved := later(func() error { _, err := r.waitUntil(t.Context(), "a", nil); return err })
		pending(t, "a call that waits", moved)
		r.close()
		ended(t, "a call of a partition that moved", moved, coordinator.ErrNotCoordinator)
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}
