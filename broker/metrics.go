package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/internal/metrics"
)

// errorCounts are the partitions of requests that were answered with an error.
type errorCounts struct{ produce, fetch codeCounts }

// maxCode bounds Kafka's error codes that are counted by name.
const maxCode = 200

// codeCounts counts by error code, from -1 on.
type codeCounts [maxCode]metrics.Counter

func (c *codeCounts) count(code int16) {
	if i := int(code) + 1; i >= 0 && i < len(c) {
		c[i].Inc()
	}
}

// show writes the codes that occurred; Kafka has names for all.
func (c *codeCounts) show(p *metrics.Page, api string) {
	for i := range c {
		if c[i].Count() == 0 {
			continue
		}
		name := "UNKNOWN_SERVER_ERROR"
		if e := kerr.TypedErrorForCode(int16(i - 1)); e != nil {
			name = e.Message
		}
		p.Count(metrics.PartitionErrors, &c[i], api, name)
	}
}

// Show writes the numbers of the API surface to a page.
func (b *Broker) Show(p *metrics.Page) {
	b.errors.produce.show(p, "Produce")
	b.errors.fetch.show(p, "Fetch")
	b.sessions.mu.Lock()
	n := len(b.sessions.mu.byID)
	b.sessions.mu.Unlock()
	p.Set(metrics.FetchSessions, float64(n))
	p.Count(metrics.FetchSessionsEvicted, &b.sessions.evicted)
}
