package partition

import (
	"ponor/internal/metrics"
)

// Metrics are what Sets count, one incarnation after another. The zero value is
// ready.
type Metrics struct {
	open       metrics.Durations // from openable to open
	absent     metrics.Durations // from ours to open
	openErrors metrics.Counter
	moves      metrics.Counter
	moveErrors metrics.Counter
	pauses     metrics.Durations

	bytesIn, recordsIn, batchesIn, bytesOut metrics.Counter
}

// appended counts a batch that was taken; a nil m does not.
func (m *Metrics) appended(bytes int, records int64) {
	if m == nil {
		return
	}
	m.bytesIn.Add(int64(bytes))
	m.recordsIn.Add(records)
	m.batchesIn.Inc()
}

// read counts what was handed to a reader; a nil m does not.
func (m *Metrics) read(bytes int) {
	if m != nil {
		m.bytesOut.Add(int64(bytes))
	}
}

// moved counts the end of a hand-over.
func (m *Metrics) moved(h HandedOver) {
	if h.Err != nil {
		m.moveErrors.Inc()
		return
	}
	m.moves.Inc()
	m.pauses.Observe(h.Pause)
}

// Show writes the counts to a page.
func (m *Metrics) Show(p *metrics.Page) {
	p.Count(metrics.ProduceBytes, &m.bytesIn)
	p.Count(metrics.ProduceRecords, &m.recordsIn)
	p.Count(metrics.ProduceBatches, &m.batchesIn)
	p.Count(metrics.FetchBytes, &m.bytesOut)
	p.Durations(metrics.TakeoverSeconds, &m.open, "open")
	p.Durations(metrics.PartitionAbsent, &m.absent)
	p.Count(metrics.OpenErrors, &m.openErrors)
	p.Count(metrics.Moves, &m.moves, "moved")
	p.Count(metrics.Moves, &m.moveErrors, "stayed")
	p.Durations(metrics.MovePause, &m.pauses)
}

// state is what a hosted partition is at, for people.
type state uint8

const (
	stateOpen state = iota
	stateMoving
	stateOpening
	stateUnsealed
	stateFailing
	stateClosing
	states
)

// String is the state as a label.
func (s state) String() string {
	return [...]string{"open", "moving", "opening", "unsealed", "failing", "closing"}[s]
}

// state is where the partition is. Set.hosting.mu is held.
func (h *hosted) state() state {
	switch {
	case !h.wanted || h.part != nil && h.part.epoch != h.epoch:
		return stateClosing
	case h.part != nil && h.part.frozen.Load() != nil:
		return stateMoving
	case h.part != nil:
		return stateOpen
	case !h.openable:
		return stateUnsealed
	case h.trouble() != nil:
		return stateFailing
	}
	return stateOpening
}

// Show writes how many partitions are in which state to a page. It looks at all
// of them, which takes some 5 ms per 100,000.
func (s *Set) Show(p *metrics.Page) {
	var count [states]int
	s.hosting.mu.Lock()
	for _, h := range s.hosting.m {
		count[h.state()]++
	}
	s.hosting.mu.Unlock()
	for i, n := range count {
		p.Set(metrics.Partitions, float64(n), state(i).String())
	}
}
