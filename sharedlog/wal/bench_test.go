package wal_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/objstore/objtest"
	"ponor/sharedlog/wal"
)

// deleting keeps the disk from filling up: it removes each slot some time after
// it was written.
type deleting struct{ objstore.Bucket }

func (d deleting) PutNew(ctx context.Context, key string, body objstore.Body) error {
	err := d.Bucket.PutNew(ctx, key, body)
	var seq uint64
	if _, serr := fmt.Sscanf(key[len(key)-20:], "%d", &seq); serr == nil && seq >= 128 {
		d.Delete(ctx, wal.SlotKey(prefix, inc, seq-128))
	}
	return err
}

func benchDir(b *testing.B) objstore.Bucket {
	return deleting{objtest.Dir(b, dir.Options{})}
}

// discarding takes everything at once, to see what the WAL itself costs.
type discarding struct{ objstore.Bucket }

func (discarding) PutNew(context.Context, string, objstore.Body) error { return nil }

func benchWriter(b *testing.B, store objstore.Bucket, change func(*wal.Config)) *wal.Writer {
	cfg := wal.Config{Bucket: store, Prefix: prefix, ClusterID: cluster, Generation: 1, Incarnation: inc}
	if change != nil {
		change(&cfg)
	}
	w, err := wal.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	go w.Run(context.Background())
	b.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return w
}

// BenchmarkAppend is the throughput from Append to durable, with several batch
// sizes and streams. "none" is a store that costs nothing, "mem" copies what it is
// given.
func BenchmarkAppend(b *testing.B) {
	for _, store := range []string{"none", "mem", "dir"} {
		for _, size := range []int{128, 1 << 10, 16 << 10, 256 << 10} {
			for _, streams := range []int{1, 100} {
				b.Run(fmt.Sprintf("%s/batch=%d/streams=%d", store, size, streams), func(b *testing.B) {
					var bucket objstore.Bucket = discarding{mem.New()}
					switch store {
					case "mem":
						bucket = deleting{mem.New()}
					case "dir":
						bucket = benchDir(b)
					}
					w := benchWriter(b, bucket, nil)
					data := batch(size, 0)
					next := make([]commitlog.Offset, streams)
					b.SetBytes(int64(len(data)))
					b.ReportAllocs()
					b.ResetTimer()
					var last *commitlog.Slot
					for i := 0; i < b.N; {
						s := i % streams
						_, slot, err := w.Append(commitlog.StreamID(s), 1, next[s], data)
						if errors.Is(err, commitlog.ErrBackpressure) {
							runtime.Gosched()
							continue
						}
						if err != nil {
							b.Fatal(err)
						}
						next[s] += commitlog.Offset(data.LastOffsetDelta()) + 1
						last = slot
						i++
					}
					w.Seal()
					<-last.Done()
				})
			}
		}
	}
}

// BenchmarkClosedLoop is the latency of one producer with one request in flight,
// and beside it that of a bare PutNew of an object of the same size, in turns,
// so that only their ratio counts.
func BenchmarkClosedLoop(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			store := benchDir(b)
			w := benchWriter(b, store, nil)
			data := batch(size, 0)
			body := objstore.BytesBody(append(slices.Clone(data), make([]byte, 300)...))
			var next commitlog.Offset
			through := make([]time.Duration, 0, b.N)
			bare := make([]time.Duration, 0, b.N)
			for i := range b.N {
				start := time.Now()
				_, slot, err := w.Append(1, 1, next, data)
				if err != nil {
					b.Fatal(err)
				}
				next += commitlog.Offset(data.LastOffsetDelta()) + 1
				<-slot.Done()
				through = append(through, time.Since(start))
				start = time.Now()
				if err := store.PutNew(context.Background(), fmt.Sprintf("bare/wal/%020d", i), body); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(start))
			}
			slices.Sort(through)
			slices.Sort(bare)
			b.ReportMetric(float64(through[len(through)/2].Microseconds()), "wal-p50-us")
			b.ReportMetric(float64(bare[len(bare)/2].Microseconds()), "bare-p50-us")
			b.ReportMetric(float64(through[len(through)*99/100].Microseconds()), "wal-p99-us")
			b.ReportMetric(float64(bare[len(bare)*99/100].Microseconds()), "bare-p99-us")
		})
	}
}

// BenchmarkSeal is the time to seal a WAL of 1,000 slots on a directory.
func BenchmarkSeal(b *testing.B) {
	d := objtest.Dir(b, dir.Options{})
	w := benchWriter(b, d, func(c *wal.Config) { c.MaxObject = 1 << 20 })
	data := batch(4<<10, 0)
	next := make([]commitlog.Offset, 40)
	for w.Durable() < 1000 {
		var last *commitlog.Slot
		for s := range next {
			_, slot, err := w.Append(commitlog.StreamID(s), 1, next[s], data)
			if err != nil {
				b.Fatal(err)
			}
			next[s] += commitlog.Offset(data.LastOffsetDelta()) + 1
			last = slot
		}
		<-last.Done()
	}
	if err := w.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for b.Loop() {
		got, err := wal.Seal(context.Background(), sealConfig(d))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(got.End), "slots")
	}
}
