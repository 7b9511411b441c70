package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ponor/coordinator"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
)

// nodes are brokers over one shared log, each with its Set and its Shards, in
// real time.
type nodes struct {
	t      testing.TB
	meta   *sharedlogtest.Cluster
	faults *fault.Bucket
	topic  metadata.TopicID
	plain  metadata.TopicID // for comparison: nobody coordinates it
	// ahead has moves wait until the target has the log.
	ahead bool
	tune  func(*coordinator.Config[*machine])

	mu   sync.Mutex
	live map[metadata.Incarnation]*member
}

// member is one broker.
type member struct {
	*sharedlogtest.Node
	set    *partition.Set
	shards *coordinator.Shards[*machine]
	stop   func()
}

// setMeta is partition.Meta.
type setMeta struct {
	*sharedlogtest.Meta
	cluster *sharedlogtest.Cluster
}

func (m setMeta) Changed() <-chan struct{} { return m.cluster.Changed() }

func newNodes(t testing.TB, count int, tune func(*coordinator.Config[*machine])) *nodes {
	c := &nodes{t: t, meta: sharedlogtest.New(), faults: fault.New(mem.New(), 1), live: map[metadata.Incarnation]*member{}, tune: tune}
	var first *member
	for i := range count {
		if m := c.start(metadata.BrokerID(i + 1)); first == nil {
			first = m
		}
	}
	c.topic = c.meta.CreateTopic(topicName, 1, first.Incarnation)[0].Topic
	c.plain = c.meta.CreateTopic("plain", 1, first.Incarnation)[0].Topic
	t.Cleanup(func() {
		for _, m := range c.live {
			m.stop()
		}
	})
	return c
}

// start runs a new incarnation of a broker.
func (c *nodes) start(id metadata.BrokerID) *member {
	n := sharedlogtest.Start(c.t, c.meta, c.faults, id, nil)
	m := &member{Node: n}
	cfg := coordinator.Config[*machine]{Topic: topicName, New: newMachine, Image: c.meta.Image, Partitions: m, AheadBytes: 1}
	if c.tune != nil {
		c.tune(&cfg)
	}
	m.shards = coordinator.New(cfg)
	m.set = partition.NewSet(partition.SetConfig{Meta: setMeta{n.Meta, c.meta}, Incarnation: n.Incarnation, Shared: n.Store, Proof: n.Store,
		Opened: m.shards.Opened, Closed: m.shards.Closed, CloseTimeout: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.set.Run(ctx) })
	m.stop = func() { cancel(); wg.Wait(); m.shards.Close() }
	c.mu.Lock()
	c.live[n.Incarnation] = m
	c.mu.Unlock()
	return m
}

// Await is coordinator.Partitions.
func (m *member) Await(ctx context.Context, topic metadata.TopicID, number int32) (*partition.Partition, error) {
	return m.set.Await(ctx, topic, number)
}

// CatchUp is coordinator.Partitions.
func (m *member) CatchUp(ctx context.Context) error { return m.set.CatchUp(ctx) }

// owner is who has the partition by the image; nil if it is dead.
func (c *nodes) owner() (*member, metadata.Partition) {
	p, _ := c.meta.Image().Partition(c.topic, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[p.Owner], p
}

// other is a broker that does not have it.
func (c *nodes) other() *member {
	_, p := c.owner()
	c.mu.Lock()
	defer c.mu.Unlock()
	for inc, m := range c.live {
		if inc != p.Owner {
			return m
		}
	}
	return nil
}

// move hands the partition to another broker.
func (c *nodes) move() {
	from, p := c.owner()
	to := c.other()
	if c.ahead {
		if err := from.shards.SendAhead(context.Background(), c.topic, 0, func(_ context.Context, piece coordinator.Piece) error {
			return to.shards.TakeAhead(piece)
		}); err != nil {
			c.t.Errorf("send ahead: %v", err)
		}
	}
	for _, h := range from.set.Handover(context.Background(), []partition.Handover{{Topic: c.topic, Partition: 0, Epoch: p.Epoch, Target: to.Incarnation}}) {
		if h.Err != nil {
			c.t.Errorf("move: %v", h.Err)
		}
	}
}

// kill ends the owner; another takes over at once, and the broker comes back.
func (c *nodes) kill() {
	dead, _ := c.owner()
	heir := c.other()
	c.mu.Lock()
	delete(c.live, dead.Incarnation)
	c.mu.Unlock()
	dead.Crash()
	if err := c.meta.Takeover(context.Background(), dead.Incarnation, heir.Node); err != nil {
		c.t.Errorf("take over: %v", err)
	}
	dead.stop()
	c.start(dead.Incarnation.Broker)
}

// retry does one call at whoever is the owner until it is answered.
func (c *nodes) retry(ctx context.Context, f func(m *machine) []coordinator.Record) error {
	for {
		err := errors.New("the owner is dead")
		if m, _ := c.owner(); m != nil {
			err = m.shards.Do(ctx, "", time.Now(), func(m *machine, _ time.Time) []coordinator.Record { return f(m) })
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// load is workers that increment counters, each its own.
type load struct {
	last        []int // acknowledged, by worker
	count       atomic.Int64
	longest, at atomic.Int64 // nanoseconds between two acknowledgements, of the last
	stop        func()
}

func (c *nodes) load(workers int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{last: make([]int, workers)}
	l.at.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	l.stop = func() { cancel(); wg.Wait() }
	for w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := 0
				err := c.retry(ctx, func(m *machine) []coordinator.Record {
					v, _ := strconv.Atoi(m.values[fmt.Sprint("w", w)])
					n = v + 1
					return m.set(fmt.Sprint("w", w), strconv.Itoa(n))
				})
				if err != nil {
					continue // at the end; it may have happened
				}
				if n <= l.last[w] {
					c.t.Errorf("worker %d made %d after %d", w, n, l.last[w])
				}
				l.last[w] = n
				now := time.Now().UnixNano()
				if gap := now - l.at.Swap(now); gap > l.longest.Load() {
					l.longest.Store(gap)
				}
				l.count.Add(1)
			}
		})
	}
	return l
}

// some waits for some more acknowledgements.
func (l *load) some(ctx context.Context) {
	for to := l.count.Load() + 50; l.count.Load() < to && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
}

// pause is the longest time without an acknowledgement since the last call.
func (l *load) pause() time.Duration { return time.Duration(l.longest.Swap(0)) }

// fill gives the state some size: keys of 100 bytes.
func (c *nodes) fill(keys int) {
	for at := 0; at < keys; at += 1000 {
		err := c.retry(c.t.Context(), func(m *machine) (out []coordinator.Record) {
			for i := range 1000 {
				out = append(out, m.set(fmt.Sprint("key", at+i), strings.Repeat("x", 80))...)
			}
			return out
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// A partition moves, and its owners die, while calls go on: none that was answered
// is lost, and none happens twice.
func TestMovesAndDeathsUnderLoad(t *testing.T) {
	for name, tune := range map[string]func(*coordinator.Config[*machine]){
		"":                nil,
		"compacted often": func(c *coordinator.Config[*machine]) { c.CompactBytes = 100 },
	} {
		for _, ahead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ahead=%v", name, ahead), func(t *testing.T) {
				c := newNodes(t, 3, tune)
				c.ahead = ahead
				moveAndKill(t, c)
			})
		}
	}
}

func moveAndKill(t *testing.T, c *nodes) {
	c.fill(1000)
	l := c.load(8)
	for i := range 12 {
		l.some(t.Context())
		l.pause()
		what, do := "move", c.move
		if i%4 == 3 {
			what, do = "death", c.kill
		}
		do()
		l.some(t.Context())
		t.Logf("%s: longest pause between answers %v", what, l.pause())
	}
	l.stop()
	want := l.last
	err := c.retry(t.Context(), func(m *machine) []coordinator.Record {
		for w, least := range want {
			if n, _ := strconv.Atoi(m.values[fmt.Sprint("w", w)]); n < least {
				t.Errorf("worker %d: %d, and %d was acknowledged", w, n, least)
			}
		}
		if len(m.values) != 1000+len(want) {
			t.Errorf("%d values", len(m.values))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkPause reports how long nothing is answered when the owner of a state of
// so many keys hands it over, or dies.
func BenchmarkPause(b *testing.B) {
	for _, k := range []struct {
		what  string
		keys  int
		store time.Duration // latency
	}{
		{"move", 1000, 0}, {"death", 1000, 0}, {"move", 100_000, 0}, {"ahead", 100_000, 0}, {"death", 100_000, 0},
		{"move", 1000, 20 * time.Millisecond}, {"ahead", 1000, 20 * time.Millisecond}, {"death", 1000, 20 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("%s/keys=%d/store=%v", k.what, k.keys, k.store), func(b *testing.B) {
			c := newNodes(b, 3, nil)
			c.ahead = k.what == "ahead"
			c.faults.Add(fault.Rule{Latency: fault.Latency{Median: k.store, P99: 3 * k.store}})
			c.fill(k.keys)
			l := c.load(8)
			defer l.stop()
			do := map[string]func(){"move": c.move, "ahead": c.move, "death": c.kill}[k.what]
			sum, most := time.Duration(0), time.Duration(0)
			for b.Loop() {
				l.some(b.Context())
				l.pause()
				do()
				l.some(b.Context())
				p := l.pause()
				sum, most = sum+p, max(most, p)
			}
			b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "pause-ms")
			b.ReportMetric(float64(most.Milliseconds()), "most-ms")
		})
	}
}
