package coordinator

import "ponor/internal/metrics"

// Metrics are what Shards count. The zero value is ready.
type Metrics struct {
	loaded      metrics.Counter // shards now
	loads       metrics.Durations
	ahead       metrics.Counter // records that were replayed before the partition came here
	after       metrics.Counter // and those that were not
	batches     metrics.Counter
	bytes       metrics.Counter
	compactions metrics.Counter
	freed       metrics.Counter
}

func (m *Metrics) appended(bytes int) {
	m.batches.Inc()
	m.bytes.Add(int64(bytes))
}

// compacted counts a log that was written anew, and the bytes that it had.
func (m *Metrics) compacted(before int64) {
	m.compactions.Inc()
	m.freed.Add(before)
}

// Show writes the counts to a page.
func (m *Metrics) Show(p *metrics.Page) {
	p.Set(metrics.CoordinatorShards, float64(m.loaded.Count()))
	p.Durations(metrics.CoordinatorLoadSeconds, &m.loads)
	p.Count(metrics.CoordinatorReplayed, &m.ahead, "ahead")
	p.Count(metrics.CoordinatorReplayed, &m.after, "after")
	p.Count(metrics.CoordinatorBatches, &m.batches)
	p.Count(metrics.CoordinatorBytes, &m.bytes)
	p.Count(metrics.CoordinatorCompactions, &m.compactions)
	p.Count(metrics.CoordinatorFreed, &m.freed)
}
