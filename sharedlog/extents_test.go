package sharedlog_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// grow packs many small runs of one stream.
func (f *fixture) grow(l commitlog.Log, p metadata.Partition, packs int, size func(int) int) [][]byte {
	f.Helper()
	var want [][]byte
	for i := range packs {
		want = append(want, f.fill(l, 1, size(i))...)
		f.packed(p, l)
	}
	return want
}

// However often a stream was packed, few extents stay in the metadata, all of it
// is readable, and trimming it lets the objects go.
func TestExtentsStayFew(t *testing.T) {
	for name, tc := range map[string]struct {
		packs int
		size  func(i int) int
		adopt int64
	}{
		"small runs are merged": {300, func(int) int { return 150 }, 0},
		// Neighbours of different size are not worth merging; with enough of them
		// the index gets leaves.
		"runs are folded":   {700, func(i int) int { return 150 + i%2*(70<<10) }, 0},
		"slots are adopted": {300, func(int) int { return 150 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			n := f.start(1, func(c *sharedlog.Config) {
				c.PackAge, c.MaintainEvery, c.CacheBytes, c.MaxExtents = time.Millisecond, time.Millisecond, 1, 4
				c.AdoptBytes = tc.adopt
			})
			p := f.topic(1, n)[0]
			l := f.open(n, p)
			want := f.grow(l, p, tc.packs, tc.size)
			f.until("few extents are left", func() bool {
				now, _ := f.c.Image().PartitionByStream(p.Stream)
				return len(now.Extents) <= 4
			})
			f.holds(l, want)
			if err := l.Close(f.ctx()); err != nil {
				t.Fatal(err)
			}
			l = f.open(n, p)
			if got, want := f.state(l), f.replayed(l); got != want {
				t.Errorf("recovered %s, replay gives %s", got, want)
			}
			end := l.Bounds().Stable
			for _, to := range []commitlog.Offset{end / 3, end - 1, end} {
				if err := l.Trim(f.ctx(), to); err != nil {
					t.Fatal(err)
				}
				if got := f.all(l, to); to < end && got[len(got)-1].LastOffset() != end-1 {
					t.Errorf("after a trim to %d the log ends at %d", to, got[len(got)-1].LastOffset()+1)
				}
			}
			f.until("garbage is swept", func() bool {
				if _, err := n.Sweep(f.ctx()); err != nil {
					t.Fatal(err)
				}
				return len(f.keys("seg"))+len(f.keys("idx")) <= 1
			})
		})
	}
}

// Trimming never loses the checkpoint: what an owner inherited without one is
// packed first (ext-4).
func TestTrimKeepsState(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	f.fill(l, 3, 100)
	f.packed(p, l)
	if err := l.Trim(f.ctx(), 6); err != nil {
		t.Fatal(err)
	}
	for broker := range 3 {
		f.fill(l, 3, 100)
		m := f.start(metadata.BrokerID(broker+2), func(c *sharedlog.Config) { c.MaintainEvery = time.Hour })
		if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
			t.Fatal(err)
		}
		n = m
		l = f.open(n, p)
		if err := l.Trim(f.ctx(), l.Bounds().Stable); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(f.ctx()); err != nil {
			t.Fatal(err)
		}
		l = f.open(n, p)
		r, err := l.Recovered(f.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if want := l.Bounds().Stable; r.CheckpointEnd != want || len(r.Checkpoint) == 0 {
			t.Fatalf("after trimming everything the checkpoint covers %d, want %d", r.CheckpointEnd, want)
		}
	}
}

// Damage anywhere is found and named, never served; what is intact still reads.
func TestDamageIsNeverServed(t *testing.T) {
	damage := map[string]func(f *fixture, key string, pos int64) error{
		"bit flip": func(f *fixture, key string, pos int64) error { return sharedlogtest.Flip(f.ctx(), f.raw, key, pos+70) },
		"truncated": func(f *fixture, key string, pos int64) error {
			body := make([]byte, pos+70)
			if _, err := f.raw.GetRange(f.ctx(), key, 0, body); err != nil {
				return err
			}
			return f.raw.Put(f.ctx(), key, objstore.BytesBody(body))
		},
		"missing": func(f *fixture, key string, pos int64) error { return f.raw.Delete(f.ctx(), key) },
	}
	for _, packed := range []bool{true, false} {
		for name, hurt := range damage {
			t.Run(map[bool]string{true: "segment ", false: "WAL "}[packed]+name, func(t *testing.T) {
				f := newFixture(t)
				n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Hour })
				p := f.topic(1, n)[0]
				l := f.open(n, p)
				f.fill(l, 40, 10<<10)
				if packed {
					if err := l.Trim(f.ctx(), 1); err != nil {
						t.Fatal(err)
					}
				}
				var log text
				m := f.start(2, func(c *sharedlog.Config) {
					c.MaintainEvery, c.Logger = time.Hour, slog.New(slog.NewTextHandler(&log, nil))
				})
				if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
					t.Fatal(err)
				}
				l = f.open(m, p)
				const bad = 77
				key, pos, err := sharedlogtest.Locate(f.ctx(), f.c, f.raw, p.Stream, bad)
				if err != nil {
					t.Fatal(err)
				}
				if err := hurt(f, key, pos); err != nil {
					t.Fatal(err)
				}
				for range 3 { // as a consumer would
					_, err = l.Read(f.ctx(), bad, commitlog.ReadOptions{MaxBytes: 1, MinOne: true})
					if !errors.Is(err, commitlog.ErrCorrupt) {
						t.Fatalf("read of damaged data: %v, want ErrCorrupt", err)
					}
				}
				if n := strings.Count(log.String(), "corrupt or missing data"); n != 1 || !strings.Contains(log.String(), key) {
					t.Errorf("the damage was reported %d times:\n%s", n, log.String())
				}
				if packed && name == "bit flip" {
					if r, err := l.Read(f.ctx(), 3, commitlog.ReadOptions{MaxBytes: 1, MinOne: true}); err != nil || r.Bytes == 0 {
						t.Errorf("read of an intact part: %d bytes, %v", r.Bytes, err)
					}
				}
			})
		}
	}
}

// A store that does not answer is not corruption.
func TestUnavailableIsNotCorrupt(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond; c.CacheBytes = 1 })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	want := f.fill(l, 3, 100)
	f.packed(p, l)
	m := f.start(2, nil)
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	l = f.open(m, p)
	undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange, fault.GetTail}, Before: errors.New("connection reset")})
	if _, err := l.Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1, MinOne: true}); !errors.Is(err, commitlog.ErrUnavailable) || errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("read from a store that does not answer: %v, want ErrUnavailable", err)
	}
	undo()
	f.holds(l, want)
}

// Readers that wait for their turn at a slow store hold no memory for what they
// will read.
func TestWaitingColdReadsHoldNoBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		n := f.start(1, func(c *sharedlog.Config) {
			c.PackAge, c.CacheBytes, c.ColdReads, c.ReadAhead = time.Millisecond, 1, 1, 1<<20
		})
		const readers = 24
		parts := f.topic(readers, n)
		logs := make([]commitlog.Log, readers)
		for i, p := range parts {
			logs[i] = f.open(n, p)
			f.fill(logs[i], 16, 64<<10)
			f.packed(p, logs[i])
		}
		hold := make(chan struct{})
		f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Hold: hold})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var wg sync.WaitGroup
		for i := range logs {
			wg.Go(func() {
				r, err := logs[i].Read(f.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
				if err != nil || r.Bytes < 500<<10 {
					t.Errorf("read gives %d bytes, %v", r.Bytes, err)
				}
				r.Release()
			})
		}
		synctest.Wait()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > readers<<20/3 {
			t.Errorf("%d readers that wait took %d MiB", readers, got>>20)
		}
		close(hold)
		wg.Wait()
		n.Crash()
	})
}

// A waiting read ends with its context.
func TestReadHonoursContext(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	p := f.topic(1, n)[0]
	f.fill(f.open(n, p), 3, 100)
	m := f.start(2, nil)
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	l := f.open(m, p)
	defer f.b.Add(fault.Rule{Ops: []fault.Op{fault.GetRange}, Hold: make(chan struct{})})()
	ctx, cancel := context.WithTimeout(f.ctx(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Read(ctx, 0, commitlog.ReadOptions{MaxBytes: 1, MinOne: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read from a hung store: %v, want the context's error", err)
	}
}

// An open but idle stream costs little memory, no goroutine and no request.
func TestIdleStreamsCostLittle(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	ps := f.topic(10_000, n)
	ctx, logs := f.ctx(), make([]commitlog.Log, len(ps))
	before, goroutines := heap(), runtime.NumGoroutine()
	for i, p := range ps {
		l, err := n.Open(ctx, p.ID(), p.Epoch, commitlog.Options{Checkpoints: remembers{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Recovered(ctx); err != nil {
			t.Fatal(err)
		}
		logs[i] = l
	}
	if got := (heap() - before) / int64(len(ps)); got > 380 {
		t.Errorf("an idle log costs %d bytes, at most 380 are allowed", got)
	} else {
		t.Logf("an idle log costs %d bytes", got)
	}
	if got := runtime.NumGoroutine() - goroutines; got > 2 {
		t.Errorf("10,000 idle logs cost %d goroutines", got)
	}
	runtime.KeepAlive(logs)
	runtime.KeepAlive(ps)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Appending allocates nothing per batch, growth of the index aside.
func TestAppendAllocates(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) {
		c.Linger = time.Hour
		c.CacheBytes, c.Budget = 256<<20, 256<<20
		c.MaxObject = 256 << 20
	})
	p := f.topic(1, n)[0]
	l, err := n.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Hold: make(chan struct{})})()
	b := f.batch(1, 200)
	for range 4 {
		f.append(l, b)
		l.Seal()
	}
	time.Sleep(20 * time.Millisecond)
	if got := testing.AllocsPerRun(20_000, func() { f.append(l, b) }); got > 0.1 {
		t.Errorf("an append makes %v allocations", got)
	}
}
