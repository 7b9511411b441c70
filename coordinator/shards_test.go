package coordinator_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/coordinator"
	"ponor/partition"
)

func TestStateIsThereAfterAReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		for _, kv := range [][2]string{{"a", "1"}, {"b", "2"}, {"a", "3"}, {"b", ""}, {"c", "4"}} {
			if err := r.set(kv[0], kv[1]); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]string{"a": "3", "c": "4"}
		for range 3 {
			if got := r.state(); !maps.Equal(got, want) {
				t.Fatalf("state is %v, want %v", got, want)
			}
			r.close()
			r.open()
		}
	})
}

// ans-1: what a call did, what it saw, and what it answered to others waits.
func TestNothingIsAnsweredBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		if err := r.set("a", "0"); err != nil {
			t.Fatal(err)
		}
		parked := later(func() error { _, err := r.wait(t.Context(), "a"); return err })
		other := later(func() error { _, err := r.wait(t.Context(), "b"); return err })
		pending(t, "a call that waits for others", parked)
		r.store.Hold()
		set := later(func() error { return r.set("a", "1") })
		pending(t, "a call that changed something", set)
		get := later(func() error { _, err := r.get("a"); return err })
		pending(t, "a call that saw what is not durable", get)
		pending(t, "a call that was answered by what is not durable", parked)
		r.store.Release()
		ended(t, "set", set, nil)
		ended(t, "get", get, nil)
		ended(t, "wait", parked, nil)
		pending(t, "a call that nobody has answered", other)
		r.close()
		ended(t, "wait", other, coordinator.ErrNotCoordinator)
	})
}

func TestAnAnswerThatComesOfATickWaitsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, now time.Time) []coordinator.Record {
			m.ends["a"] = now.Add(time.Minute)
			return m.set("a", "1")
		})
		if err != nil {
			t.Fatal(err)
		}
		parked := later(func() error { _, err := r.wait(t.Context(), "a"); return err })
		time.Sleep(time.Minute - time.Millisecond)
		pending(t, "before its time", parked)
		r.store.Hold()
		time.Sleep(time.Second)
		pending(t, "before the tick is durable", parked)
		r.store.Release()
		ended(t, "wait", parked, nil)
		if got := r.state(); len(got) != 0 {
			t.Fatalf("state is %v after its end", got)
		}
		r.close()
		r.open()
		if got := r.state(); len(got) != 0 {
			t.Fatalf("state is %v after its end and a reload", got)
		}
	})
}

// ans-2: who cannot prove that it is the owner answers nothing. A write proves it.
func TestWithoutProofNothingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		parked := later(func() error { _, err := r.wait(t.Context(), "x"); return err })
		synctest.Wait()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		if n := r.proofs(); n > 0 {
			t.Errorf("%d proofs beside a write, which is one", n)
		}
		r.setProof(errors.New("cut off"))
		if _, err := r.get("a"); !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Errorf("get without a proof: %v", err)
		}
		// Answered by a call that writes nothing.
		_ = r.shards.Do(t.Context(), "x", time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
			m.set("x", "not written")
			return nil
		})
		ended(t, "parked call without a proof", parked, coordinator.ErrNotCoordinator)
		if err := r.set("a", "2"); err != nil {
			t.Errorf("a write needs no other proof: %v", err)
		}
		r.setProof(nil)
		if v, err := r.get("a"); v != "2" || err != nil {
			t.Errorf("get with a proof again: %q, %v", v, err)
		}
	})
}

// A failed commit throws the state away, with everyone who waits.
func TestAfterAFailedCommitNobodyIsAnswered(t *testing.T) {
	for _, landed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memlog.Config{LandFailed: landed})
			r.open()
			if err := r.set("a", "0"); err != nil {
				t.Fatal(err)
			}
			parked := later(func() error { _, err := r.wait(t.Context(), "a"); return err })
			other := later(func() error { _, err := r.wait(t.Context(), "b"); return err })
			synctest.Wait()
			r.store.Hold()
			set := later(func() error { return r.set("a", "1") })
			pending(t, "set", set)
			get := later(func() error { _, err := r.get("a"); return err })
			synctest.Wait()
			r.store.Fail(errors.New("disk is gone"))
			r.store.Release()
			for name, done := range map[string]<-chan error{"set": set, "get": get, "answered": parked, "parked": other} {
				ended(t, name, done, coordinator.ErrNotCoordinator)
			}
			if _, err := r.get("a"); !errors.Is(err, coordinator.ErrNotCoordinator) {
				t.Fatalf("get of a shard that is lost: %v", err)
			}
			r.store.Fail(nil)
			r.close()
			r.open()
			want := map[bool]string{false: "0", true: "1"}[landed]
			if v, err := r.get("a"); v != want || err != nil {
				t.Fatalf("after the failure: %q, %v, want %q", v, err, want)
			}
		})
	}
}

func TestCallsOfACallerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		ctx, cancel := context.WithCancel(t.Context())
		parked := later(func() error { _, err := r.wait(ctx, "a"); return err })
		synctest.Wait()
		cancel()
		ended(t, "wait", parked, context.Canceled)
		if err := r.set("a", "1"); err != nil { // replies to nobody
			t.Fatal(err)
		}
	})
}

// Who gives up just when what it waits for is durable costs nobody anything.
func TestACallerThatGoesAsTheLogAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 200 {
			err := r.set("a", "1")
			if err == nil {
				err = r.shards.Do(gone, "a", time.Now(), func(*machine, time.Time) []coordinator.Record { return nil })
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if err := r.set("a", "2"); err != nil {
			t.Fatal(err)
		}
	})
}

// The log may have no room for a while; the order of records stays.
func TestRecordsWaitForRoomInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Budget: 300, Latency: time.Millisecond})
		r.open()
		r.store.Hold()
		var calls []<-chan error
		value := func(i int) string { return strings.Repeat("x", i+1) }
		for i := range 20 {
			calls = append(calls, later(func() error { return r.set("a", value(i)) }))
			synctest.Wait() // one after another
		}
		pending(t, "the last call", calls[19])
		r.store.Release()
		for _, c := range calls {
			ended(t, "set", c, nil)
		}
		r.close()
		r.open()
		if v, err := r.get("a"); v != value(19) || err != nil {
			t.Fatalf("after a reload: %q, %v", v, err)
		}
	})
}

func TestCallsAreRefusedWhileTheLogTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Budget: 100})
		r.open()
		r.store.Hold()
		var calls []<-chan error
		for range 3 {
			calls = append(calls, later(func() error { return r.set("a", "1") }))
		}
		time.Sleep(3 * time.Second)
		if err := r.set("a", "2"); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Fatalf("set: %v", err)
		}
		r.store.Release()
		for _, c := range calls {
			ended(t, "set", c, nil)
		}
		if err := r.set("a", "2"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARecordThatIsTooLargeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		parked := later(func() error { _, err := r.wait(t.Context(), "b"); return err })
		synctest.Wait()
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
			return append(m.set("a", "2"), m.set("b", strings.Repeat("x", 5<<20))...)
		})
		if !errors.Is(err, coordinator.ErrTooLarge) {
			t.Fatalf("set: %v", err)
		}
		ended(t, "who waits", parked, coordinator.ErrNotCoordinator)
		if got, want := r.state(), map[string]string{"a": "1"}; !maps.Equal(got, want) {
			t.Fatalf("state is %v, want %v", got, want)
		}
		// Many records that are too large together are several batches.
		err = r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, _ time.Time) (out []coordinator.Record) {
			for _, k := range []string{"a", "b", "c"} {
				out = append(out, m.set(k, strings.Repeat(k, 3<<20))...)
			}
			return out
		})
		if err != nil {
			t.Fatal(err)
		}
		want := r.state()
		r.close()
		r.open()
		if got := r.state(); len(got) != 3 || !maps.Equal(got, want) {
			t.Fatal("state is another after a reload")
		}
	})
}

func TestALogThatMakesNoSenseIsNotServed(t *testing.T) {
	for _, key := range []string{"poison", "panic"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memlog.Config{})
			r.open()
			if err := r.set(key, "1"); err != nil {
				t.Fatal(err)
			}
			r.close()
			r.open()
			if err := r.set("a", "1"); !errors.Is(err, coordinator.ErrNotCoordinator) {
				t.Fatalf("set: %v", err)
			}
		})
	}
}

// Who had the partition before may cut its log while it is loaded: what was deleted in
// the part that is gone is not known, so the load begins anew.
func TestALogThatIsCutWhileItLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut func()
		r := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) {
			cfg.New = func(n int32) *machine {
				m := newMachine(n)
				m.replays = cut
				return m
			}
		})
		r.open()
		big := strings.Repeat("x", 3<<20) // one at a time is read
		for _, kv := range [][2]string{{"a", big}, {"b", big}, {"a", ""}, {"c", big}} {
			if err := r.set(kv[0], kv[1]); err != nil {
				t.Fatal(err)
			}
		}
		r.close()
		cut = sync.OnceFunc(func() {
			for r.partition() == nil { // until open has it
				time.Sleep(time.Millisecond)
			}
			if err := r.partition().Trim(t.Context(), 3); err != nil {
				t.Error(err)
			}
		})
		r.open()
		if got := r.state(); len(got) != 1 || got["c"] != big {
			t.Fatalf("keys %v, want c alone", slices.Collect(maps.Keys(got)))
		}
	})
}

// all lists the values of every shard.
func (r *rig) all() (values []map[string]string, err error) {
	return coordinator.All(r.t.Context(), r.shards, time.Now(), func(m *machine, _ time.Time) (map[string]string, []coordinator.Record) {
		return maps.Clone(m.values), nil
	})
}

// ans-2: what the node cannot prove to own it does not show, nor that there is nothing.
func TestAllWithoutProofIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		if got, err := r.all(); err != nil || len(got) != 1 || got[0]["a"] != "1" {
			t.Fatalf("all: %v, %v", got, err)
		}
		time.Sleep(time.Second) // a write proves as much
		r.setProof(errors.New("cut off"))
		if got, err := r.all(); !errors.Is(err, coordinator.ErrUnavailable) || len(got) > 0 {
			t.Fatalf("all without a proof: %v, %v", got, err)
		}
		r.setProof(nil)
		r.close()
		if got, err := r.all(); err != nil || len(got) > 0 {
			t.Fatalf("all of a node that has no partition: %v, %v", got, err)
		}
	})
}

// A list of all but what still loads, or opens, would say that the rest is not there.
func TestAllOfWhatIsNotLoadedIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		_ = r.shards.Do(t.Context(), "a", time.Now(), func(*machine, time.Time) []coordinator.Record { panic("anew") })
		if got, err := r.all(); !errors.Is(err, coordinator.ErrLoading) {
			t.Fatalf("all: %v, %v", got, err)
		}
		opening := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) {
			cfg.Partitions = absent{errors.Join(partition.ErrNotLeader, partition.ErrOpening)}
		})
		if got, err := opening.all(); !errors.Is(err, coordinator.ErrLoading) {
			t.Fatalf("all: %v, %v", got, err)
		}
	})
}

// While the log takes nothing nobody can be answered, and so nobody is late.
func TestTimeStandsStillWhileTheLogTakesNothing(t *testing.T) { standsStill(t, time.Minute) }

// The same if nobody calls meanwhile, and if the log goes on before anybody would have
// been late.
func TestTimeStandsStillWhileNobodyCalls(t *testing.T) { standsStill(t, 9*time.Second) }

// standsStill wants a key to have its ten seconds beside the time for which the log
// takes nothing.
func standsStill(t *testing.T, held time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond})
		r.open()
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, now time.Time) []coordinator.Record {
			m.ends["a"] = now.Add(10 * time.Second)
			return m.set("a", "1")
		})
		if err != nil {
			t.Fatal(err)
		}
		r.store.Hold()
		b := later(func() error { return r.set("b", "1") })
		time.Sleep(held)
		r.store.Release()
		ended(t, "set", b, nil)
		time.Sleep(9 * time.Second)
		if got := r.state()["a"]; got != "1" {
			t.Fatalf("the time of a is over after %v less than it had", time.Second)
		}
		time.Sleep(2 * time.Second)
		if got, ok := r.state()["a"]; ok {
			t.Fatalf("a is %q after its time", got)
		}
	})
}

// warnings counts what is worth a warning.
type warnings struct{ atomic.Int64 }

func (*warnings) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelWarn }
func (w *warnings) Handle(context.Context, slog.Record) error  { w.Add(1); return nil }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler         { return w }
func (w *warnings) WithGroup(string) slog.Handler              { return w }

// A log that cannot be read for long is no news ten times a second.
func TestALogThatCannotBeReadIsSaidNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(warnings)
		r := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) { cfg.Logger = slog.New(said) })
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		r.close()
		time.Sleep(time.Minute) // no proof is fresh enough
		r.setProof(errors.New("cut off"))
		r.open()
		time.Sleep(25 * time.Second)
		if n := said.Load(); n != 3 {
			t.Errorf("%d warnings within 25 s", n)
		}
		r.setProof(nil)
		time.Sleep(time.Second)
		if got := r.state()["a"]; got != "1" {
			t.Errorf("a is %q", got)
		}
	})
}

// arriving are partitions that come to this node when it asks.
type arriving struct {
	*rig
	err error // of asking
}

// CatchUp is coordinator.Partitions.
func (a *arriving) CatchUp(context.Context) error {
	if a.err == nil && a.partition() == nil {
		a.open()
	}
	return a.err
}

// What came a moment ago is listed, and if it cannot be known what came there is no list.
func TestAllOfWhatHasJustCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts := new(arriving)
		r := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) { cfg.Partitions = parts })
		parts.rig = r
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		r.close()
		parts.err = errors.New("the quorum does not answer")
		if got, err := r.all(); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Errorf("all of who knows nothing: %v, %v", got, err)
		}
		parts.err = nil
		if got, err := r.all(); err != nil || len(got) != 1 || got[0]["a"] != "1" {
			t.Errorf("all: %v, %v", got, err)
		}
	})
}

// A list without what cannot be loaded would say that this is not there.
func TestAllOfWhatMakesNoSenseIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		if err := r.set("poison", "1"); err != nil {
			t.Fatal(err)
		}
		r.close()
		r.open()
		for range 2 { // while it loads, and after that
			if got, err := r.all(); !errors.Is(err, coordinator.ErrUnavailable) {
				t.Fatalf("all: %v, %v", got, err)
			}
			synctest.Wait()
		}
	})
}

func TestOtherPartitionsAreNoShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		if err := r.set("a", "1"); !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Fatalf("set elsewhere: %v", err)
		}
		r.id.Topic = "clients"
		r.open()
		if err := r.set("a", "1"); !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Fatalf("set on a partition of another topic: %v", err)
		}
	})
}

func TestErrorsOfPartitionsThatAreNotHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ err, want error }{
			{errors.Join(partition.ErrNotLeader, partition.ErrOpening), coordinator.ErrLoading},
			{partition.ErrNotLeader, coordinator.ErrNotCoordinator},
			{partition.ErrUnknown, coordinator.ErrUnavailable},
		} {
			r := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) { cfg.Partitions = absent{c.err} })
			if err := r.set("a", "1"); !errors.Is(err, c.want) {
				t.Errorf("with %v: %v", c.err, err)
			}
		}
		r := newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) { cfg.Topic = "not made" })
		if err := r.set("a", "1"); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Errorf("without a topic: %v", err)
		}
	})
}

// panics has something panic on a shard in which a is "1" in the log and somebody waits:
// who waits is told to look for the coordinator anew, and the next shard is what the
// log has.
func panics(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{})
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		parked := later(func() error { _, err := r.wait(t.Context(), "b"); return err })
		pending(t, "a call that waits for others", parked)
		f(t, r)
		ended(t, "wait", parked, coordinator.ErrNotCoordinator)
		time.Sleep(2 * time.Second)
		if got := r.state()["a"]; got != "1" {
			t.Fatalf("a is %q, which the log does not have", got)
		}
	})
}

// A call that panics has changed the machine and not the log.
func TestAPanicLeavesNothing(t *testing.T) {
	panics(t, func(t *testing.T, r *rig) {
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
			m.set("a", "2")
			panic("half way")
		})
		if err == nil || errors.Is(err, coordinator.ErrNotCoordinator) || !strings.Contains(err.Error(), "half way") {
			t.Errorf("the call that panicked ended with %v; it must not be tried again", err)
		}
	})
}

// A Tick that panics ends the shard, not the process; it begins anew.
func TestAPanicOfATickLeavesNothing(t *testing.T) {
	panics(t, func(t *testing.T, r *rig) {
		err := r.shards.Do(t.Context(), "a", time.Now(), func(m *machine, now time.Time) []coordinator.Record {
			m.ends["panic"] = now.Add(time.Minute)
			m.waits["panic"] = append(m.waits["panic"], func(string) { panic("half way") })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// onLog is a slog.Handler that calls a function for every error.
type onLog func()

func (onLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f onLog) Handle(context.Context, slog.Record) error  { f(); return nil }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler         { return f }
func (f onLog) WithGroup(string) slog.Handler              { return f }

// Between the loss of a shard and its new beginning its partition may have gone.
func TestAShardDoesNotBeginAnewOnAPartitionThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, memlog.Config{}, func(cfg *coordinator.Config[*machine]) {
			cfg.Logger = slog.New(onLog(func() { r.close() })) // told between the two
		})
		r.open()
		err := r.shards.Do(t.Context(), "a", time.Now(), func(*machine, time.Time) []coordinator.Record { panic("half way") })
		if err == nil || r.part != nil {
			t.Fatalf("set: %v, and the partition is %v", err, r.part)
		}
		synctest.Wait()
		if err := r.set("a", "1"); !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Fatalf("set on a partition that is gone: %v", err)
		}
		r.open()
		if err := r.set("a", "1"); err != nil {
			t.Fatal(err)
		}
	})
}
