package sharedlog_test

import (
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
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
