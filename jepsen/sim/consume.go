package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// finalConsumer is the number of the last reader.
const finalConsumer = 0

// catchUp bounds how long a reader may take to reach an end that stands still.
const catchUp = 60 * time.Second

// retained is when retention has done what it can, once nothing is sent.
const retained = 3 * retainEvery

// assigned asks for partitions of a topic from their beginning.
func assigned(topic string, n int32, from kgo.Offset) kgo.Opt {
	m := map[int32]kgo.Offset{}
	for p := range n {
		m[p] = from
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: m})
}

// tail follows a topic until the run ends. Its offsets never go back by
// themselves: an answer that its offset does not exist is a violation, but
// where records are deleted.
func (w *workload) tail(id int, host, topic string, n int32) {
	reset := kgo.NoResetOffset()
	if topic == trimTopic || topic == oldTopic {
		reset = kgo.NewOffset().AtStart()
	}
	cl := w.client(host, assigned(topic, n, kgo.NewOffset().At(0)), kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchMaxPartitionBytes(64<<10))
	defer cl.Close()
	for w.ctx.Err() == nil {
		fetches := cl.PollFetches(w.ctx)
		fetches.EachError(func(topic string, p int32, err error) {
			if errors.Is(err, kerr.OffsetOutOfRange) {
				w.h.Note("consumer %d of %s/%d: %v", id, topic, p, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) { w.h.Poll(polled(id, r)) })
	}
}

// tailLate begins later, so that what it reads first is only in the store.
func (w *workload) tailLate(id int, host, topic string, n int32, after time.Duration) {
	select {
	case <-time.After(after):
		w.tail(id, host, topic, n)
	case <-w.ctx.Done():
	}
}

func polled(id int, r *kgo.Record) Poll {
	n, damage := parseBody(r.Value)
	return Poll{Consumer: id, TP: TP{Topic: r.Topic, Partition: r.Partition}, Offset: r.Offset, Record: n, Damage: damage}
}

// watchEnds asks for the ends of a topic again and again.
func (w *workload) watchEnds(host, topic string, n int32) {
	cl := w.client(host)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for w.ctx.Err() == nil {
		floors := map[int32]int64{}
		for p := range n {
			floors[p] = w.h.AskEnd(TP{Topic: topic, Partition: p})
		}
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
		ends, err := adm.ListEndOffsets(ctx, topic)
		cancel()
		if err == nil {
			ends.Each(func(o kadm.ListedOffset) {
				if o.Err == nil && o.Topic == topic && o.Offset >= 0 {
					w.h.SawEnd(End{TP: TP{Topic: topic, Partition: o.Partition}, Floor: floors[o.Partition], Offset: o.Offset})
				}
			})
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

// available waits until a new client gets a record into every partition.
func (w *workload) available(within time.Duration) error {
	cl := w.client("c9", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	w.mu.Lock()
	w.mu.probes++
	p := Producer{ID: 500 + w.mu.probes, Idempotent: true}
	parts := append(sendTo(mainTopic, mainPartitions)(), sendTo(trimTopic, trimPartitions)()...)
	parts = append(parts, sendTo(growTopic, w.mu.grown)()...)
	parts = append(parts, TP{Topic: oldTopic})
	w.mu.Unlock()
	for _, tp := range parts {
		r := w.h.Send(p, tp)
		res := cl.ProduceSync(ctx, &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: body(r)})
		if err := res.FirstErr(); err != nil {
			w.h.Fail(r)
			return fmt.Errorf("%s takes no record within %v: %w", tp, within, err)
		}
		w.h.Ack(r, res[0].Record.Offset)
	}
	return nil
}

// readEverything reads all topics to their ends, and checks that those which
// were deleted are gone.
func (w *workload) readEverything() error {
	var errs []error
	time.Sleep(retained) // what is read must not expire meanwhile
	for _, topic := range []string{mainTopic, trimTopic, growTopic, oldTopic} {
		if err := w.readAll(topic, 0); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", topic, err))
		}
	}
	w.mu.Lock()
	topics := slices.Collect(maps.Values(w.mu.topics))
	w.mu.Unlock()
	cl := w.client("c9")
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	list, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list topics: %w", err))...)
	}
	for _, t := range topics {
		switch d, there := list[t.name]; {
		case t.exists:
			if err := w.readAll(t.name, t.life); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", t.name, err))
			}
		case there && d.Err == nil:
			w.h.Note("topic %s is there, though its deletion was confirmed", t.name)
		}
	}
	return errors.Join(errs...)
}

// readAll reads a topic from its beginning to its end with a client of its own
// and notes that as its final content.
func (w *workload) readAll(topic string, life int) error {
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	probe := w.client("c9")
	defer probe.Close()
	adm := kadm.NewClient(probe)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	logs, left := map[int32][]Poll{}, map[int32]bool{}
	from := map[int32]kgo.Offset{}
	starts.Each(func(o kadm.ListedOffset) {
		from[o.Partition] = kgo.NewOffset().At(o.Offset)
		end, _ := ends.Lookup(topic, o.Partition)
		left[o.Partition] = o.Offset < end.Offset
		logs[o.Partition] = nil
	})
	cl := w.client("c9", kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	refused := map[string]bool{}
	for reading(left) {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("read %s from %v to %v: partitions left %v, refused with %v: %w",
				topic, starts.Offsets(), ends.Offsets(), left, slices.Sorted(maps.Keys(refused)), ctx.Err())
		}
		fetches.EachError(func(_ string, p int32, err error) { refused[fmt.Sprintf("partition %d: %v", p, err)] = true })
		fetches.EachRecord(func(r *kgo.Record) {
			p := polled(finalConsumer, r)
			p.TP.Life = life
			logs[r.Partition] = append(logs[r.Partition], p)
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset >= end.Offset-1 {
				left[r.Partition] = false
			}
		})
	}
	for p, log := range logs {
		start, _ := starts.Lookup(topic, p)
		w.h.Final(TP{Topic: topic, Life: life, Partition: p}, start.Offset, log)
	}
	return nil
}

func reading(left map[int32]bool) bool {
	for _, l := range left {
		if l {
			return true
		}
	}
	return false
}
