package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// counted sends as much as it is told to, for as long as one likes, in constant
// memory: nothing is written down of a record. Each key has one producer at a
// time, which counts its records. A reader follows all keys and must see the
// counts of each producer in order, each once, and all that were acknowledged. A
// little of the queue goes on beside, on keys of its own, for the checks of
// histories.
type counted struct {
	mu struct {
		sync.Mutex
		producers map[int32]*counting // by process
		anomalies []check.Anomaly
		found     int
		read      int64
	}
}

// counting is one producer's records.
type counting struct {
	key   history.Key
	acked []span // in the order of their acknowledgement
	seen  int32  // highest count
	gaps  []gap
}

// span is a range of counts.
type span struct{ from, to int32 }

// gap is a range of counts that a reader did not see. They may be of records whose
// time was over before they were sent: the client then goes on with what it had
// been given behind them.
type gap struct {
	span
	offset int64 // of the record behind it
}

// ack notes that a record was acknowledged. As good as all follow each other.
func (c *counting) ack(n int32) {
	if k := len(c.acked) - 1; k >= 0 && c.acked[k].to+1 == n {
		c.acked[k].to = n
		return
	}
	c.acked = append(c.acked, span{n, n})
}

// see notes that a reader saw a count, and returns the highest that it saw before.
func (c *counting) see(n int32, offset int64) int32 {
	was := c.seen
	if n > was+1 {
		c.gaps = append(c.gaps, gap{span{was + 1, n - 1}, offset})
	}
	c.seen = max(was, n)
	return was
}

// lost is how many records of a range were acknowledged.
func (c *counting) lost(in span) (n int32) {
	for _, s := range c.acked {
		n += max(0, min(in.to, s.to)-max(in.from, s.from)+1)
	}
	return n
}

const (
	countedRate   = 5000 // records a second
	countedKeys   = 6
	countedFiller = 1000 - valueLeast
	besideKeys    = 2
)

// Plan implements Workload.
func (w *counted) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, countedRate)
	o.Keys = cmp.Or(o.Keys, countedKeys)
	o.Keys += o.Keys % 2
	o.Concurrency = o.Keys
	keysOf(h, besideKeys+o.Keys)
	w.mu.producers = make(map[int32]*counting)
}

// Prepare implements Workload.
func (w *counted) Prepare(ctx context.Context, env *Env) error { return env.createAll(ctx) }

func (w *counted) keys(env *Env) []history.Key { return env.allKeys()[besideKeys:] }

// Load implements Workload.
func (w *counted) Load(ctx context.Context, env *Env) error {
	reading, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	readers.Go(func() { w.follow(reading, env, nil) })
	env.besideSends(ctx, "counted", env.allKeys()[:besideKeys], func(i int, rng *rand.Rand) {
		w.produce(ctx, env, newPacer(env.Rate/float64(env.Concurrency)/burst), rng, w.keys(env)[i])
	})
	stop()
	readers.Wait()
	return nil
}

// burst is how many records are handed to the client at once.
const burst = 10

// produce counts records of a key, with a new producer whenever one fails.
func (w *counted) produce(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand, k history.Key) {
	part := env.partition(k)
	for ctx.Err() == nil {
		p := env.newProcess(rng, env.Cluster.Bootstrap())
		mine := &counting{key: k}
		w.mu.Lock()
		w.mu.producers[p.id] = mine
		w.mu.Unlock()
		opts := []kgo.Opt{
			kgo.Dialer(p.wire.dial), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond),
			kgo.RecordDeliveryTimeout(env.OpTimeout), kgo.ProduceRequestTimeout(5 * time.Second), kgo.MaxBufferedRecords(10_000),
			kgo.AllowIdempotentProduceCancellation(), kgo.ProducerBatchCompression(kgo.NoCompression()),
		}
		cl, err := cluster.Client(p.seeds, opts...)
		if err != nil {
			return
		}
		p.others = append(p.others, cl)
		var failed atomic.Bool
		for pace.wait(ctx) && !failed.Load() {
			for range burst {
				p.counter++
				n := p.counter
				o := origin{run: env.Run, value: history.Value(p.id)<<32 | history.Value(n), key: k, process: p.id, counter: n, at: time.Now()}
				cl.Produce(context.Background(), record(o, part.Topic, part.Partition, countedFiller), func(_ *kgo.Record, err error) {
					if err != nil {
						failed.Store(true)
						env.outcomes.info.Add(1)
						return
					}
					env.outcomes.ok.Add(1)
					env.counted.acked.Add(1)
					w.mu.Lock()
					mine.ack(n)
					w.mu.Unlock()
				})
			}
		}
		flush, cancel := context.WithTimeout(context.Background(), env.OpTimeout+time.Second)
		_ = cl.Flush(flush) // what is not acknowledged then may be seen or not
		cancel()
		p.crash()
	}
}

// follow reads all counted keys from the start until the context ends, or until
// the given ends.
func (w *counted) follow(ctx context.Context, env *Env, ends map[history.Key]int64) {
	pos := make(map[history.Key]int64)
	for ctx.Err() == nil {
		parts := make(map[string]map[int32]kgo.Offset)
		for _, k := range w.keys(env) {
			part := env.partition(k)
			if parts[part.Topic] == nil {
				parts[part.Topic] = make(map[int32]kgo.Offset)
			}
			parts[part.Topic][part.Partition] = kgo.NewOffset().At(pos[k])
		}
		cl, err := cluster.Client(env.Cluster.Bootstrap(), kgo.ConsumePartitions(parts), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
		if err != nil {
			return
		}
		w.read(ctx, env, cl, pos, ends)
		env.closing.Go(cl.Close)
		if ends != nil && reached(pos, ends) {
			return
		}
	}
}

func reached(pos, ends map[history.Key]int64) bool {
	for k, end := range ends {
		if pos[k] < end {
			return false
		}
	}
	return true
}

// read polls with one client until it cannot go on.
func (w *counted) read(ctx context.Context, env *Env, cl *kgo.Client, pos, ends map[history.Key]int64) {
	for ctx.Err() == nil && (ends == nil || !reached(pos, ends)) {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		fetches := cl.PollFetches(attempt)
		cancel()
		fatal := false
		fetches.EachError(func(topic string, partition int32, err error) {
			if topic == "" && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
				return
			}
			fatal = true
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				w.anomaly(env, -1, "%s-%d: %v", topic, partition, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			k, _ := env.key(r.Topic, r.Partition)
			if want := pos[k]; r.Offset != want {
				w.anomaly(env, k, "offset %d follows %d", r.Offset, want-1)
			}
			pos[k] = r.Offset + 1
			w.see(env, k, r)
		})
		if fatal {
			return
		}
	}
}

// see compares one record with its producer's count.
func (w *counted) see(env *Env, k history.Key, r *kgo.Record) {
	o, damage := parse(env.Run, k, r)
	if damage != "" {
		w.anomaly(env, k, "offset %d: %s", r.Offset, damage)
		return
	}
	w.mu.Lock()
	c := w.mu.producers[o.process]
	w.mu.read++
	var seen int32
	if c != nil {
		seen = c.see(o.counter, r.Offset)
	}
	w.mu.Unlock()
	env.counted.polled.Add(1)
	switch {
	case c == nil:
		w.anomaly(env, k, "offset %d is of process %d, which never was", r.Offset, o.process)
	case o.counter <= seen:
		w.anomaly(env, k, "offset %d: record %d of process %d comes again, after %d", r.Offset, o.counter, o.process, seen)
	}
}

func (w *counted) anomaly(env *Env, k history.Key, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.found++
	if len(w.mu.anomalies) < check.MaxWorst {
		text := fmt.Sprintf(format, args...)
		if k >= 0 {
			text = env.partition(k).String() + ": " + text
		}
		w.mu.anomalies = append(w.mu.anomalies, check.Anomaly{Text: text, Key: k, At: env.Now()})
	}
}

// Final implements Workload: everything is read from the start once more.
func (w *counted) Final(ctx context.Context, env *Env) error {
	w.gaps(env)
	if err := env.readBack(ctx, env.allKeys()[:besideKeys]); err != nil {
		return err
	}
	p := env.newProcess(env.rng("ends", 0), env.Cluster.Bootstrap())
	ends, err := p.endsAtLast(ctx, env.Admin, w.keys(env))
	if err != nil {
		return err
	}
	w.mu.Lock()
	for _, c := range w.mu.producers {
		c.seen = 0
	}
	w.mu.read = 0
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, env.FinalTimeout)
	defer cancel()
	began := time.Now()
	w.follow(ctx, env, ends)
	if ctx.Err() != nil {
		return fmt.Errorf("%d records were not read to their end within %v", w.mu.read, env.FinalTimeout)
	}
	env.Say("final read of what was counted: %d records in %v", w.mu.read, time.Since(began).Round(10*time.Millisecond))
	w.gaps(env)
	for id, c := range w.mu.producers {
		if n := c.lost(span{c.seen + 1, math.MaxInt32 - 1}); n > 0 {
			w.anomaly(env, c.key, "process %d: %d records behind record %d were acknowledged and are not there", id, n, c.seen)
		}
	}
	return nil
}

// gaps judges what readers did not see, once it is known what was acknowledged.
func (w *counted) gaps(env *Env) {
	for id, c := range w.mu.producers {
		for _, g := range c.gaps {
			if n := c.lost(g.span); n > 0 {
				w.anomaly(env, c.key, "offset %d: record %d of process %d follows %d, and %d between them were acknowledged", g.offset, g.to+1, id, g.from-1, n)
			}
		}
		c.gaps = nil
	}
}

// Results implements Workload.
func (w *counted) Results() []check.Result {
	r := check.Result{ID: "V8", Name: "counted-records", Count: w.mu.found, Checked: w.mu.read, Worst: w.mu.anomalies}
	return []check.Result{r.Judged()}
}
