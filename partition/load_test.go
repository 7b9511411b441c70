package partition_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/metadata"
	"ponor/partition"
)

// A Meter tells what lately went in and out, the busiest first, forgets it
// slowly, and at once what has moved away.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: memlog.New(memlog.Config{})})
		defer stop()
		var owners []metadata.Incarnation
		for range 5 {
			owners = append(owners, c.incs[0])
		}
		topic := c.create("t", 1, owners...)
		synctest.Wait()
		m := partition.NewMeter(s, 2)
		if m.Loads() != nil {
			t.Error("a load was known before anything was counted")
		}
		size := len(plain(1).Bytes())
		// Partition n gets n batches a second, and 3 is read as often.
		for range 60 {
			for n := range int32(4) {
				p, err := s.Get(topic, n)
				if err != nil {
					t.Fatal(err)
				}
				for range n {
					mustAppend(t, p)
				}
				if n == 3 {
					for range 3 {
						r, err := p.Read(t.Context(), p.HighWatermark()-1, partition.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
						if err != nil || r.Records.Bytes != size {
							t.Fatal(r.Records.Bytes, err)
						}
						r.Records.Release()
					}
				}
			}
			time.Sleep(time.Second)
			m.Loads()
		}
		got := m.Loads()
		if again := m.Loads(); again != got {
			t.Error("the load changed without a look")
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 0.05*b }
		if want := 9.0; !near(got.Requests, want) || !near(got.Bytes, want*float64(size)) {
			t.Errorf("%.1f requests/s and %.0f bytes/s, want %.0f and %.0f", got.Requests, got.Bytes, want, want*float64(size))
		}
		if b := got.Busiest; len(b) != 2 || b[0].Partition != 3 || b[1].Partition != 2 || !near(b[0].Requests, 6) || !near(b[1].Requests, 2) {
			t.Errorf("busiest: %+v", b)
		}
		time.Sleep(15 * time.Second)
		if after := m.Loads(); !near(after.Requests, got.Requests/math.E) {
			t.Errorf("%.1f requests/s 15 s later, want a third of %.1f", after.Requests, got.Requests)
		}
		c.fence(c.incs[0], c.incs[1], topic, 3)
		synctest.Wait()
		time.Sleep(5 * time.Second)
		for _, l := range m.Loads().Busiest {
			if l.Partition == 3 {
				t.Error("a partition that moved away is still counted")
			}
		}
		time.Sleep(time.Hour)
		if idle := m.Loads(); len(idle.Busiest) > 0 || idle.Bytes > 0 {
			t.Errorf("after an hour of nothing: %+v", idle)
		}
	})
}
