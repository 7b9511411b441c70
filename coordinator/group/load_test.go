package group_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

// BenchmarkLoad reports how long another coordinator takes to load a partition, of which
// nothing is superseded.
func BenchmarkLoad(b *testing.B) {
	for _, groups := range []int{200, 10_000} {
		b.Run(fmt.Sprintf("groups=%d/offsets=100", groups), func(b *testing.B) {
			d := newDeath(b, 0, noFault)
			fill(b, d, groups, 100)
			for b.Loop() {
				d.takeOver()
				if _, err := d.offsets(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReplay reports how long the machine takes for the record of an offset.
func BenchmarkReplay(b *testing.B) {
	d := newDeath(b, 0, noFault)
	fill(b, d, 1000, 100)
	var log []coordinator.Record
	_ = d.current().Do(context.Background(), "", time.Now(), func(m *group.Machine, _ time.Time) []coordinator.Record {
		m.Live(func(r coordinator.Record) bool {
			log = append(log, coordinator.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)})
			return true
		})
		return nil
	})
	for b.Loop() {
		m := group.New(d.cfg)
		for i, r := range log {
			if err := m.Replay(r, int64(i), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(log)), "ns/record")
}

// fill has groups commit offsets, some at a time.
func fill(tb testing.TB, d *death, groups, offsets int) {
	request := func(i int) *kmsg.OffsetCommitRequest {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 9, fmt.Sprintf("application-%d", i), -1
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = "orders-of-customers"
		for p := range offsets {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: int32(p), Offset: int64(i)})
		}
		req.Topics = append(req.Topics, rt)
		return req
	}
	for i := 0; i < groups; i += 100 {
		if err := d.current().Do(context.Background(), "", time.Now(), func(m *group.Machine, now time.Time) (all []coordinator.Record) {
			for k := range 100 {
				_, records := m.OffsetCommit(now, request(i+k))
				all = append(all, records...)
			}
			return all
		}); err != nil {
			tb.Fatal(err)
		}
	}
}
