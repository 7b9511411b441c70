package engine

import (
	"time"

	"ponor/internal/metrics"
	"ponor/sharedlog/wal"
)

// Metrics are what Engines count, one incarnation after another. The zero value
// is ready.
type Metrics struct {
	WAL wal.Metrics

	readsHot, readsCold                    metrics.Counter
	cacheHits, cacheMisses, cacheEvictions metrics.Counter
	packs, swept                           metrics.Counter
	seals                                  metrics.Durations
	flipIndex, flipDrain, flipCommit       metrics.Durations
}

// step ends a step that began then and returns when the next one begins.
func (m *Metrics) step(h *metrics.Durations, begun time.Time) time.Time {
	now := time.Now()
	h.Observe(now.Sub(begun))
	return now
}

// Show writes the counts to a page.
func (m *Metrics) Show(p *metrics.Page) {
	m.WAL.Show(p)
	p.Count(metrics.Reads, &m.readsHot, "memory")
	p.Count(metrics.Reads, &m.readsCold, "store")
	p.Count(metrics.CacheHits, &m.cacheHits)
	p.Count(metrics.CacheMisses, &m.cacheMisses)
	p.Count(metrics.CacheEvictions, &m.cacheEvictions)
	p.Count(metrics.Packs, &m.packs)
	p.Count(metrics.Swept, &m.swept)
	p.Durations(metrics.TakeoverSeconds, &m.seals, "seal")
	p.Durations(metrics.MoveSeconds, &m.flipIndex, "index")
	p.Durations(metrics.MoveSeconds, &m.flipDrain, "drain")
	p.Durations(metrics.MoveSeconds, &m.flipCommit, "commit")
}

// Show writes what is so now to a page: the bounds and how far they are used.
func (e *Engine) Show(p *metrics.Page) {
	e.wal.Show(p)
	s := e.Stats()
	p.Set(metrics.Streams, float64(s.Streams))
	p.Set(metrics.UnpackedSlots, float64(s.UnpackedSlots))
	p.Set(metrics.UnpackedAge, s.UnpackedAge.Seconds())
	p.Flag(metrics.UnpackedFull, s.Full)
	p.Set(metrics.BudgetUsed, float64(s.UnpackedBytes), "unpacked")
	p.Set(metrics.BudgetLimit, float64(e.cfg.MaxUnpacked), "unpacked")
	p.Set(metrics.BudgetUsed, float64(s.ReadCache), "read")
	p.Set(metrics.BudgetLimit, float64(e.cfg.ReadCacheBytes), "read")
	p.Set(metrics.ColdReads, float64(len(e.reader.sem)))
	p.Set(metrics.ColdReadsLimit, float64(cap(e.reader.sem)))
}
