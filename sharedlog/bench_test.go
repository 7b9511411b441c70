package sharedlog_test

import (
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/objtest"
	"ponor/sharedlog/sharedlogtest"
)

// BenchmarkAppend appends 16 KiB batches as fast as the budget lets it, packing
// behind, onto a store that costs nothing.
func BenchmarkAppend(b *testing.B) {
	f := newFixture(b)
	n := f.start(1, func(c *sharedlog.Config) { c.CacheBytes = 256 << 20 })
	p := f.topic(1, n)[0]
	l, err := n.Open(f.ctx(), p.ID(), p.Epoch, commitlog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	batch := f.batch(10, 16<<10)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	var last commitlog.Commit
	for b.Loop() {
		for {
			c, err := l.Append(batch)
			if err == nil {
				last = c
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	l.Seal()
	<-last.Done()
}

// BenchmarkReadHot reads 1 MiB from the WAL's memory.
func BenchmarkReadHot(b *testing.B) {
	f := newFixture(b)
	n := f.start(1, func(c *sharedlog.Config) { c.CacheBytes = 256 << 20 })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	f.fill(l, 1000, 16<<10)
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	from := commitlog.Offset(0)
	for b.Loop() {
		r, err := l.Read(b.Context(), from, commitlog.ReadOptions{MaxBytes: 1 << 20})
		if err != nil || r.Bytes == 0 {
			b.Fatal(err, r.Bytes)
		}
		if from += 100; from > 1500 {
			from = 0
		}
		r.Release()
	}
}

// BenchmarkReadCold scans packed data through the block cache.
func BenchmarkReadCold(b *testing.B) {
	f := newFixture(b)
	n := f.start(1, func(c *sharedlog.Config) { c.CacheBytes = 1; c.PackAge = time.Millisecond; c.ReadCacheBytes = 8 << 20 })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	f.fill(l, 4000, 16<<10)
	f.packed(p, l)
	b.SetBytes(1 << 20)
	from := commitlog.Offset(0)
	for b.Loop() {
		r, err := l.Read(b.Context(), from, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
		if err != nil {
			b.Fatal(err)
		}
		from += commitlog.Offset(r.Bytes / (16 << 10) * 2)
		if r.Bytes == 0 || from > 7800 {
			from = 0
		}
		r.Release()
	}
}

// BenchmarkReadSlots scans a log of small slots that are not packed and not in
// memory, of this incarnation ("own") or of one that it took over from: a
// directory as it is, and as slow as S3. Compare records/s.
func BenchmarkReadSlots(b *testing.B) {
	const slots = 4000
	for _, own := range []bool{true, false} {
		for _, slow := range []bool{false, true} {
			name := map[bool]string{true: "own", false: "inherited"}[own] + map[bool]string{true: ",s3", false: ""}[slow]
			b.Run(name, func(b *testing.B) {
				raw := objtest.Dir(b, dir.Options{})
				f := &fixture{TB: b, c: sharedlogtest.New(), raw: raw, b: fault.New(raw, 1)}
				tune := func(c *sharedlog.Config) {
					c.CacheBytes, c.ReadCacheBytes, c.MaxSlots = 1, 2<<20, 4*slots
					c.PackAge, c.MaintainEvery = time.Hour, time.Hour
				}
				n := f.start(1, tune)
				p := f.topic(1, n)[0]
				l := f.open(n, p)
				for range slots {
					f.fill(l, 1, 100)
				}
				if !own {
					m := f.start(2, tune)
					if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
						b.Fatal(err)
					}
					l = f.open(m, p)
				}
				end := l.Bounds().Stable
				if slow {
					f.b.Add(fault.Rule{
						Ops:     []fault.Op{fault.GetRange, fault.GetTail},
						Latency: fault.Latency{Median: 20 * time.Millisecond, P99: 100 * time.Millisecond},
					})
				}
				from, read := commitlog.Offset(0), commitlog.Offset(0)
				b.ReportAllocs()
				for b.Loop() {
					r, err := l.Read(b.Context(), from, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
					if err != nil || r.Bytes == 0 {
						b.Fatal(err, r.Bytes)
					}
					last, _ := f.count(r)
					read += last + 1 - from
					if from = last + 1; from == end {
						from = 0
					}
					r.Release()
				}
				b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}
