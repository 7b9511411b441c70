package sharedlog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/sharedlogtest"
)

// slowQuorum takes 10 ms for an exchange of extents; those that come meanwhile
// share an entry of its log.
type slowQuorum struct {
	sharedlog.Meta
	waiting atomic.Int32
	entries atomic.Int32
}

func (q *slowQuorum) SubmitOwn(ctx context.Context, c *metadatapb.Command) (metadata.Result, error) {
	if c.GetReplaceExtents() != nil {
		if q.waiting.Add(1) == 1 {
			q.entries.Add(1)
		}
		time.Sleep(10 * time.Millisecond)
		q.waiting.Add(-1)
	}
	return q.Meta.SubmitOwn(ctx, c)
}

// TestMaintenanceCostsNoMoreForMorePartitions: what merging and folding ask of
// the store and of the quorum does not grow with the streams that need it.
func TestMaintenanceCostsNoMoreForMorePartitions(t *testing.T) {
	for name, size := range map[string]func(round int) int{
		"small runs are merged": func(int) int { return 200 },
		"runs are folded":       func(round int) int { return 200 + round%2*(70<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			few, fewEntries := maintained(t, 2, size)
			many, manyEntries := maintained(t, 200, size)
			t.Logf("2 streams: %d requests, %d entries; 200 streams: %d requests, %d entries", few, fewEntries, many, manyEntries)
			// Runs of 200 streams may lie in more pieces; one each would be 1,600.
			if many > 3*few {
				t.Errorf("200 streams cost %d requests, 2 cost %d", many, few)
			}
			if manyEntries > fewEntries {
				t.Errorf("200 streams cost %d entries of the quorum's log, 2 cost %d", manyEntries, fewEntries)
			}
		})
	}
}

// maintained packs some streams again and again and returns what the maintenance
// after it cost: requests to the store, and entries.
func maintained(t *testing.T, streams int, size func(round int) int) (requests int64, entries int) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		count, quorum := counted.New(f.b), &slowQuorum{}
		n, err := sharedlogtest.StartAs(f.c, count, f.c.Register(1), func(c *sharedlog.Config) {
			quorum.Meta, c.Meta = c.Meta, quorum
			c.PackAge, c.MaintainEvery, c.MaxExtents, c.CacheBytes = time.Second, time.Minute, 4, 1
		})
		if err != nil {
			t.Fatal(err)
		}
		var logs []commitlog.Log
		ps := f.topic(streams, n)
		for _, p := range ps {
			logs = append(logs, f.open(n, p))
		}
		for round := range 8 {
			var last commitlog.Commit
			for _, l := range logs {
				last = f.append(l, f.batch(1, size(round)))
			}
			logs[0].Seal()
			if err := last.Wait(f.ctx()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		sum := func() (all int64) {
			for op := range counted.Ops {
				all += count.Total(op).Requests
			}
			return all
		}
		before := sum()
		time.Sleep(10 * time.Minute)
		requests, entries = sum()-before, int(quorum.entries.Load())
		for _, p := range ps {
			if now, _ := f.c.Image().PartitionByStream(p.Stream); len(now.Extents) > 4 {
				t.Fatalf("stream %d has %d extents", p.Stream, len(now.Extents))
			}
		}
		n.Crash()
	})
	return requests, entries
}
