package workload

import (
	"sync"

	"ponor/jepsen/history"
)

// ledger numbers values and knows which were acknowledged and which were
// polled. It may be used by many at once.
type ledger struct {
	mu      sync.Mutex
	state   []byte        // by value
	keyOf   []history.Key // by value
	unseen  map[history.Key]int
	ends    map[history.Key]int64 // offset behind the highest known
	acked   int64
	polled  int64
	waiting int64 // acknowledged and not polled
}

const (
	valueAcked = 1 << iota
	valuePolled
)

func newLedger() *ledger {
	return &ledger{state: make([]byte, 1), keyOf: make([]history.Key, 1), unseen: make(map[history.Key]int), ends: make(map[history.Key]int64)}
}

// next is a value that was never sent.
func (l *ledger) next(k history.Key) history.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.keyOf = append(l.state, 0), append(l.keyOf, k)
	return history.Value(len(l.state) - 1)
}

func (l *ledger) ack(s history.Sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked++
	l.ends[s.Key] = max(l.ends[s.Key], s.Offset+1)
	if l.state[s.Value]&valuePolled == 0 {
		l.waiting++
		l.unseen[s.Key]++
	}
	l.state[s.Value] |= valueAcked
}

func (l *ledger) poll(list []history.Polled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range list {
		l.polled++
		l.ends[p.Key] = max(l.ends[p.Key], p.Offset+1)
		if p.Value <= 0 || int(p.Value) >= len(l.state) {
			continue
		}
		if s := l.state[p.Value]; s&valueAcked != 0 && s&valuePolled == 0 {
			l.waiting--
			l.unseen[l.keyOf[p.Value]]--
		}
		l.state[p.Value] |= valuePolled
	}
}

// unseenKeys are the keys with values that were acknowledged and not polled.
func (l *ledger) unseenKeys() []history.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []history.Key
	for k, n := range l.unseen {
		if n > 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// end is the offset behind the highest that is known of a key.
func (l *ledger) end(k history.Key) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[k]
}

// count are the sums for a sample.
func (l *ledger) count() (acked, polled, unseen int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked, l.polled, l.waiting
}
