package partition

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"ponor/metadata"
)

// traffic is what a partition counts since it was last asked: two numbers, so
// that 100,000 idle partitions cost little.
type traffic struct {
	bytes    atomic.Int64 // in and out
	requests atomic.Int64 // appends, and reads that found something
}

// add counts one request.
func (t *traffic) add(bytes int) {
	t.bytes.Add(int64(bytes))
	t.requests.Add(1)
}

// take returns what was counted since the last take.
func (t *traffic) take() (bytes, requests int64) {
	// An idle partition is only looked at, which leaves its cache line alone.
	if t.requests.Load() == 0 {
		return 0, 0
	}
	return t.bytes.Swap(0), t.requests.Swap(0)
}

// Load is what one partition had to do, per second, lately.
type Load struct {
	Topic     metadata.TopicID
	Partition int32
	Bytes     float64 // in and out
	Requests  float64
}

// Loads is how busy the partitions of a node are.
type Loads struct {
	Bytes, Requests float64 // of all of them, per second
	// Busiest are the partitions with most bytes and requests, as far as asked
	// for, the busiest first.
	Busiest []Load
}

const (
	// loadInterval is how often traffic is looked at. A look takes some 5 ms per
	// 100,000 partitions.
	loadInterval = 5 * time.Second
	// loadMemory is how long the traffic of a moment counts: a burst is not a
	// load.
	loadMemory = 15 * time.Second
	// idleLoad is what counts as nothing, in weight per second.
	idleLoad = 1
)

// requestWeight is what a request costs beside its bytes, in bytes: loads are
// compared by one number, because two could be evened out against each other
// for ever.
const requestWeight = 8 << 10

// Weight is the load as one number, about bytes per second.
func (l Load) Weight() float64 { return l.Bytes + requestWeight*l.Requests }

// Weight is the load as one number, about bytes per second.
func (l *Loads) Weight() float64 { return l.Bytes + requestWeight*l.Requests }

// Busier orders loads by weight, the heaviest first.
func Busier(a, b Load) int {
	return cmp.Or(cmp.Compare(b.Weight(), a.Weight()), slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// Meter smooths the traffic of a Set's partitions. It remembers those that are
// busy, and is used by one goroutine.
type Meter struct {
	set   *Set
	top   int
	last  time.Time
	rates map[key]Load
	now   *Loads
}

// NewMeter returns a Meter that lists the top busiest partitions.
func NewMeter(set *Set, top int) *Meter {
	return &Meter{set: set, top: top, last: time.Now(), rates: map[key]Load{}}
}

// Loads is the load as of the last look, at most 5 s ago; nil before the first
// one. It returns the same pointer until the next look.
func (m *Meter) Loads() *Loads {
	if now := time.Now(); now.Sub(m.last) >= loadInterval {
		m.look(now.Sub(m.last).Seconds())
		m.last = now
	}
	return m.now
}

// look takes the traffic of the last seconds.
func (m *Meter) look(seconds float64) {
	fresh := 1 - math.Exp(-seconds/loadMemory.Seconds())
	for k, l := range m.rates {
		l.Bytes, l.Requests = l.Bytes*(1-fresh), l.Requests*(1-fresh)
		m.rates[k] = l
	}
	m.set.serving.mu.RLock()
	for k, p := range m.set.serving.m {
		bytes, requests := p.traffic.take()
		if requests == 0 {
			continue
		}
		l := m.rates[k]
		l.Topic, l.Partition = k.topic, k.number
		l.Bytes += fresh * float64(bytes) / seconds
		l.Requests += fresh * float64(requests) / seconds
		m.rates[k] = l
	}
	for k := range m.rates { // moved away: it is the load of another node
		if m.set.serving.m[k] == nil {
			delete(m.rates, k)
		}
	}
	m.set.serving.mu.RUnlock()
	m.now = m.sum()
}

// sum adds up what is busy and forgets what is not any more.
func (m *Meter) sum() *Loads {
	out := &Loads{}
	for k, l := range m.rates {
		if l.Weight() < idleLoad {
			delete(m.rates, k)
			continue
		}
		out.Bytes += l.Bytes
		out.Requests += l.Requests
		// The list stays sorted and short, so most partitions cost one comparison.
		if n := len(out.Busiest); n < m.top || n > 0 && Busier(l, out.Busiest[n-1]) < 0 {
			at, _ := slices.BinarySearchFunc(out.Busiest, l, Busier)
			if n == m.top {
				out.Busiest = out.Busiest[:n-1]
			}
			out.Busiest = slices.Insert(out.Busiest, at, l)
		}
	}
	return out
}
