package dir_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/objtest"
)

// BenchmarkPutNew compares sizes, orders and writers in flight on the disk that
// has the temporary directory. The size with the most MB/s is what Kind should
// say; p99 is what an ack costs.
func BenchmarkPutNew(b *testing.B) {
	for _, order := range []string{"safe", "unnamed"} {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20} {
			for _, writers := range []int{1, 2, 4} {
				b.Run(fmt.Sprintf("%s/%dKiB/writers=%d", order, size>>10, writers), func(b *testing.B) {
					benchPut(b, objtest.Dir(b, dir.Options{Unnamed: order == "unnamed"}), size, writers)
				})
			}
		}
	}
}

func benchPut(b *testing.B, bk objstore.Bucket, size, writers int) {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 31)
	}
	body := objstore.BytesBody(data)
	b.SetBytes(int64(size))
	var next atomic.Int64
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				start := time.Now()
				if err := bk.PutNew(context.Background(), fmt.Sprintf("wal/1-1/0/%020d", i), body); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(start)
				if i >= 64 { // keep the disk from filling up
					bk.Delete(context.Background(), fmt.Sprintf("wal/1-1/0/%020d", i-64))
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
