package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// churned is a topic that is made, filled and deleted, some times over. One
// goroutine owns it.
type churned struct {
	name   string
	life   int
	exists bool // confirmed
}

const opTimeout = 4 * time.Second

// op counts an administrator's operation by its outcome.
func (w *workload) op(what string, err error) {
	outcome := "ok"
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused):
		outcome = refused.Message
	case err != nil:
		outcome = "no answer"
	}
	w.mu.Lock()
	w.mu.ops[what+": "+outcome]++
	w.mu.Unlock()
}

// create makes the fixed topics, before any fault.
func (w *workload) create() error {
	cl := w.client("c9")
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w.h.Expires(TP{Topic: oldTopic})
	tiny, short, age := "8192", "20000", "3000"
	configs := map[string]map[string]*string{oldTopic: {"internal.segment.bytes": &tiny, "retention.bytes": &short, "segment.ms": &age}}
	for topic, n := range map[string]int32{mainTopic: mainPartitions, trimTopic: trimPartitions, growTopic: 1, oldTopic: 1} {
		for {
			_, err := adm.CreateTopic(ctx, n, 3, configs[topic], topic)
			if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("create topic %s: %w", topic, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	w.mu.grown, w.mu.growAsk = 1, 1
	return nil
}

// administer performs operations, one after another, until the load ends.
func (w *workload) administer(rng *rand.Rand) {
	// One request per operation: a second attempt whose first one is still under
	// way could undo what came between.
	cl := w.client("c4", kgo.RequestRetries(0))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(int32(opTimeout.Milliseconds() / 2))
	for {
		select {
		case <-time.After(time.Duration(200+rng.IntN(1500)) * time.Millisecond):
		case <-w.done:
			return
		}
		switch rng.IntN(6) {
		case 0, 1:
			w.trim(adm, TP{Topic: trimTopic, Partition: rng.Int32N(trimPartitions)}, rng)
		case 2:
			w.grow(adm)
		default:
			w.churn(adm, rng.IntN(4))
		}
	}
}

// trim deletes some records from the beginning of a partition.
func (w *workload) trim(adm *kadm.Client, tp TP, rng *rand.Rand) {
	end := w.h.Floor(tp)
	if end == 0 {
		return
	}
	to := rng.Int64N(end)
	w.h.AskTrim(tp, to)
	ctx, cancel := context.WithTimeout(w.ctx, opTimeout)
	defer cancel()
	var o kadm.Offsets
	o.AddOffset(tp.Topic, tp.Partition, to, -1)
	resp, err := adm.DeleteRecords(ctx, o)
	if err == nil {
		err = resp.Error()
	}
	if w.op("delete records", err); err != nil {
		return
	}
	got, _ := resp.Lookup(tp.Topic, tp.Partition)
	if got.LowWatermark < to {
		w.h.Note("deletion of %s up to %d answered low watermark %d", tp, to, got.LowWatermark)
	}
	w.h.Trimmed(tp, got.LowWatermark)
}

// grow adds a partition.
func (w *workload) grow(adm *kadm.Client) {
	w.mu.Lock()
	n := max(w.mu.grown, w.mu.growAsk) + 1
	w.mu.Unlock()
	if n > 6 {
		return
	}
	w.mu.Lock()
	w.mu.growAsk = n
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.ctx, opTimeout)
	defer cancel()
	resp, err := adm.UpdatePartitions(ctx, int(n), growTopic)
	if err == nil {
		err = resp.Error()
	}
	if w.op("add partitions", err); err != nil {
		return
	}
	w.mu.Lock()
	w.mu.grown = n
	w.mu.Unlock()
}

// churn takes the topic of a slot to the next step of its life: make it and fill
// it, or delete it. A name is used again, for a new life of the topic, only
// while the outcome of every operation on it is known: an operation whose
// answer was lost may still happen later.
func (w *workload) churn(adm *kadm.Client, slot int) {
	w.mu.Lock()
	t := w.mu.topics[slot]
	if t == nil {
		w.mu.names++
		t = &churned{name: fmt.Sprintf("churn-%d", w.mu.names)}
		w.mu.topics[slot] = t
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.ctx, opTimeout)
	defer cancel()
	if t.exists {
		_, err := adm.DeleteTopic(ctx, t.name)
		w.op("delete topic", err)
		w.h.Drop(TP{Topic: t.name, Life: t.life})
		t.exists, t.life = false, t.life+1
		if err != nil {
			w.abandon(slot)
		}
		return
	}
	_, err := adm.CreateTopic(ctx, 1, 3, nil, t.name)
	if w.op("create topic", err); err != nil {
		w.abandon(slot)
		return
	}
	t.exists = true
	w.fill(ctx, t)
}

func (w *workload) abandon(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.topics, slot)
}

// fill sends a few records to a topic that was just made.
func (w *workload) fill(ctx context.Context, t *churned) {
	cl := w.client("c4", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	defer cl.Close()
	p := Producer{ID: 1000 + t.life, Idempotent: true}
	tp := TP{Topic: t.name, Life: t.life}
	for range 5 {
		r := w.h.Send(p, tp)
		res := cl.ProduceSync(ctx, &kgo.Record{Topic: t.name, Value: body(r)})
		if err := res.FirstErr(); err != nil {
			w.h.Fail(r)
			return
		}
		w.h.Ack(r, res[0].Record.Offset)
	}
}
