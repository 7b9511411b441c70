package systest

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// History produces numbered records and remembers what was acknowledged where,
// to compare with what consumers see afterwards.
type History struct {
	Topic string
	Acked atomic.Int64

	t          testing.TB
	c          *Cluster
	partitions int32
	mu         struct {
		sync.Mutex
		acked map[int32]map[int64]uint64 // partition, offset -> record number
		last  map[int32]time.Time        // of the last acknowledgement
		gaps  map[int32]time.Duration    // longest time between two of them
		errs  []error
	}
	next   atomic.Uint64
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// record number n, with a body that shows damage.
func numbered(n uint64) []byte {
	b := make([]byte, 64+n%512)
	binary.BigEndian.PutUint64(b, n)
	for i := 12; i < len(b); i++ {
		b[i] = byte(n + uint64(i)*7)
	}
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[12:]))
	return b
}

func parseNumbered(b []byte) (uint64, error) {
	if len(b) < 12 || binary.BigEndian.Uint32(b[8:]) != crc32.ChecksumIEEE(b[12:]) {
		return 0, fmt.Errorf("record of %d bytes is damaged", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// Produce starts idempotent producers on a new topic; they go on until Stop.
func Produce(t testing.TB, c *Cluster, topic string, partitions int32, producers int) *History {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if _, err := kadm.NewClient(c.Client()).CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	h := &History{Topic: topic, t: t, c: c, partitions: partitions}
	h.mu.acked, h.mu.last, h.mu.gaps = map[int32]map[int64]uint64{}, map[int32]time.Time{}, map[int32]time.Duration{}
	var run context.Context
	run, h.cancel = context.WithCancel(context.Background())
	for range producers {
		cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(0),
			kgo.MaxBufferedRecords(500), kgo.RecordRetries(1<<30), kgo.RecordDeliveryTimeout(2*Patience), kgo.ProduceRequestTimeout(2*time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.RetryTimeout(time.Minute))
		h.wg.Go(func() { h.load(run, cl) })
	}
	t.Cleanup(func() { h.cancel(); h.wg.Wait() })
	return h
}

func (h *History) load(ctx context.Context, cl *kgo.Client) {
	for ctx.Err() == nil {
		n := h.next.Add(1)
		cl.Produce(context.Background(), &kgo.Record{Value: numbered(n)}, func(r *kgo.Record, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if err != nil {
				h.mu.errs = append(h.mu.errs, err)
				return
			}
			p := h.mu.acked[r.Partition]
			if p == nil {
				p = map[int64]uint64{}
				h.mu.acked[r.Partition] = p
			}
			if old, ok := p[r.Offset]; ok {
				h.mu.errs = append(h.mu.errs, fmt.Errorf("partition %d offset %d acknowledged for records %d and %d", r.Partition, r.Offset, old, n))
			}
			p[r.Offset] = n
			now := time.Now()
			if last, ok := h.mu.last[r.Partition]; ok {
				h.mu.gaps[r.Partition] = max(h.mu.gaps[r.Partition], now.Sub(last))
			}
			h.mu.last[r.Partition] = now
			h.Acked.Add(1)
		})
		if n%64 == 0 {
			time.Sleep(time.Millisecond) // a steady load, not the most there is
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	if err := cl.Flush(ctx); err != nil {
		h.mu.Lock()
		h.mu.errs = append(h.mu.errs, fmt.Errorf("flush: %w", err))
		h.mu.Unlock()
	}
}

// WaitAcked waits until n more records were acknowledged in every partition, so
// that none is still without an owner.
func (h *History) WaitAcked(n int) {
	h.t.Helper()
	before := h.counts()
	Eventually(h.t, fmt.Sprintf("%d more acknowledged records in each partition", n), func() error {
		for p, got := range h.counts() {
			if got < before[p]+n {
				return fmt.Errorf("partition %d has %d more so far", p, got-before[p])
			}
		}
		return nil
	})
}

// counts are the acknowledged records per partition.
func (h *History) counts() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := make([]int, h.partitions)
	for p := range counts {
		counts[p] = len(h.mu.acked[int32(p)])
	}
	return counts
}

// LongestGap is the longest time that any partition went without an
// acknowledgement.
func (h *History) LongestGap() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var longest time.Duration
	for _, g := range h.mu.gaps {
		longest = max(longest, g)
	}
	return longest
}

// Stop ends the producers and waits for what they still have in flight.
func (h *History) Stop() {
	h.t.Helper()
	h.cancel()
	h.wg.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, err := range h.mu.errs {
		if i < 5 {
			h.t.Errorf("produce: %v", err)
		}
	}
}

// Check reads the whole topic: every acknowledged record is there, at its
// offset, undamaged; offsets are contiguous; nothing is there twice.
func (h *History) Check() {
	h.t.Helper()
	// A few thousand records a second at the least.
	ctx, cancel := context.WithTimeout(context.Background(), Patience+time.Duration(h.Acked.Load())*time.Millisecond/5)
	defer cancel()
	ends, err := kadm.NewClient(h.c.Client()).ListEndOffsets(ctx, h.Topic)
	if err != nil || ends.Error() != nil {
		h.t.Fatalf("list end offsets: %v, %v", err, ends.Error())
	}
	cl := h.c.Client(kgo.ConsumeTopics(h.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next := map[int32]int64{}
	seen := map[uint64]int32{}
	var total, want int64
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	for total < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			h.t.Fatalf("consume after %d of %d records: %v", total, want, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			total++
			if r.Offset != next[r.Partition] {
				h.t.Errorf("partition %d: offset %d follows %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition] = r.Offset + 1
			n, err := parseNumbered(r.Value)
			if err != nil {
				h.t.Errorf("partition %d offset %d: %v", r.Partition, r.Offset, err)
				return
			}
			if p, ok := seen[n]; ok {
				h.t.Errorf("record %d is in partition %d and again in %d at offset %d", n, p, r.Partition, r.Offset)
			}
			seen[n] = r.Partition
			if acked, ok := h.mu.acked[r.Partition][r.Offset]; ok {
				if acked != n {
					h.t.Errorf("partition %d offset %d was acknowledged for record %d and holds %d", r.Partition, r.Offset, acked, n)
				}
				delete(h.mu.acked[r.Partition], r.Offset)
			}
		})
	}
	for p, offsets := range h.mu.acked {
		for o, n := range offsets {
			h.t.Errorf("record %d acknowledged at partition %d offset %d is lost", n, p, o)
			break
		}
		if len(offsets) > 1 {
			h.t.Errorf("and %d more of partition %d", len(offsets)-1, p)
		}
	}
	h.t.Logf("%d records read, %d acknowledged, longest time without an acknowledgement per partition %v", total, h.Acked.Load(), h.mu.gaps)
}
