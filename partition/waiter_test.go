package partition_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/metadata"
	"ponor/partition"
)

// woken waits for news in virtual or real time.
func woken(t *testing.T, w *partition.Waiter) []*partition.Partition {
	t.Helper()
	select {
	case <-w.C():
		return w.Take(nil)
	case <-time.After(time.Minute):
		t.Fatal("nobody woke the waiter")
		return nil
	}
}

func asleep(t *testing.T, w *partition.Waiter) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.C():
		t.Fatal("woken without news")
	default:
	}
}

func TestWaiterHearsOfEverythingThatEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := partition.NewWaiter()
		defer w.Close()
		r.p.Watch(w)
		r.p.Watch(w) // twice is once
		asleep(t, w)

		r.store.Hold()
		a := r.send(plain(3))
		asleep(t, w) // appended is not stable
		r.store.Release()
		r.settle(a)
		if got := woken(t, w); len(got) != 1 || got[0] != r.p {
			t.Fatalf("took %v", got)
		}
		if _, err := r.p.DeleteRecords(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		woken(t, w) // its offset may be out of range now

		r.p.Unwatch(w)
		r.sent(plain(1))
		asleep(t, w)

		r.p.Watch(w)
		old := r.p
		r.open() // moved: the log is fenced
		if got := woken(t, w); got[0] != old {
			t.Fatal("not the old owner")
		}
		if err := old.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		woken(t, w)
		old.Watch(w) // closed already
		woken(t, w)
	})
}

func TestWaiterTakesEachPartitionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlog.New(memlog.Config{})
		w := partition.NewWaiter()
		var all []*partition.Partition
		for i := range 100 {
			p, err := partition.Open(t.Context(), partition.Config{ID: commitlog.ID{Topic: "t", Partition: int32(i)}, Store: store, Settings: defaults})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close(context.Background()) }()
			p.Watch(w)
			all = append(all, p)
		}
		for _, i := range []int{7, 3, 7, 50, 3} {
			if _, err := all[i].Append(plain(1).Bytes(), clientAt(nowMs)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := w.Take(nil)
		if len(got) != 3 || got[0] != all[7] || got[1] != all[3] || got[2] != all[50] {
			t.Errorf("took %d partitions", len(got))
		}
		if got := w.Take(nil); len(got) != 0 {
			t.Errorf("took %d again", len(got))
		}
		// Ready but unwatched before it was taken.
		<-w.C()
		if _, err := all[9].Append(plain(1).Bytes(), clientAt(nowMs)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all[9].Unwatch(w)
		if got := w.Take(nil); len(got) != 0 {
			t.Errorf("took %d that are not watched", len(got))
		}
		w.Close()
		all[1].Watch(w) // used up: nothing happens
	})
}

func TestWaitersComeAndGoUnderLoad(t *testing.T) {
	r := newRig(t)
	stop := make(chan struct{})
	var load, waiters sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a, err := r.p.Append(plain(1).Bytes(), clientAt(nowMs)); err != nil || a.Commit.Wait(t.Context()) != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 4 {
		waiters.Go(func() {
			for i := range 200 {
				w := partition.NewWaiter()
				r.p.Watch(w)
				<-w.C()
				if got := w.Take(nil); len(got) != 1 {
					t.Errorf("took %d", len(got))
				}
				if i%2 == 0 {
					r.p.Unwatch(w)
				}
				w.Close()
			}
		})
	}
	waiters.Wait()
	close(stop)
	load.Wait()
}

// TestIdlePartitionIsSmall: little heap, no goroutine and no timer for a
// partition that nobody uses, beside what its log takes.
func TestIdlePartitionIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 100,000 partitions")
	}
	const n = 100_000
	heap := func() (uint64, int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	id := func(i int) commitlog.ID { return commitlog.ID{Topic: "t", Partition: int32(i)} }

	store := memlog.New(memlog.Config{})
	logs := make([]commitlog.Log, n)
	before, goroutines := heap()
	for i := range logs {
		l, err := store.Open(t.Context(), id(i), 0, commitlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = l
	}
	bare, _ := heap()
	bare -= before
	runtime.KeepAlive(logs)
	logs, store = nil, memlog.New(memlog.Config{})

	all := make([]*partition.Partition, n)
	host := &partition.Host{}
	before, _ = heap()
	for i := range all {
		settings := func() metadata.TopicSettings { return defaults() }
		p, err := partition.Open(t.Context(), partition.Config{ID: id(i), Store: store, Settings: settings, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = p
	}
	after, now := heap()
	each := int64(after-before-bare) / n
	t.Logf("a log in memory takes %d bytes, the partition over it %d", bare/n, each)
	if each > 260 {
		t.Errorf("an idle partition takes %d bytes of heap", each)
	}
	if now > goroutines {
		t.Errorf("%d goroutines for idle partitions", now-goroutines)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(logs)
}

// TestHostedIdlePartitionIsSmall: likewise with what the Set keeps of it.
func TestHostedIdlePartitionIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 20,000 partitions")
	}
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	c := newCluster(t, 1)
	owners := make([]metadata.Incarnation, n)
	for i := range owners {
		owners[i] = c.incs[0]
	}
	c.create("t", 1, owners...)
	before := heap()
	s, stop := c.run(c.incs[0], partition.SetConfig{Shared: memlog.New(memlog.Config{})})
	defer stop()
	for deadline := time.Now().Add(time.Minute); len(s.All()) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d are open after a minute", len(s.All()), n)
		}
		time.Sleep(10 * time.Millisecond)
	}
	const memlogBytes = 800 // what TestIdlePartitionIsSmall measures
	each := int64(heap()-before)/n - memlogBytes
	t.Logf("a hosted partition takes %d bytes beside its log", each)
	if each > 495 { // with 380 in the log, some 900 in all
		t.Errorf("an idle hosted partition takes %d bytes of heap", each)
	}
}
