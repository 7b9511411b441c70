package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/kbatch"
)

const (
	deathPartitions = 1000
	deathProducers  = 10_000
	deathBulk       = 1000 << 20 // bytes of WAL that are not packed
	deathRate       = 4          // records/s in each partition
	bulkBatch       = 900 << 10  // bytes
)

// injury is what happens to a node.
type injury struct {
	hurt, heal func(f *failover, at int) error
	// silent: its clients hear nothing of it.
	silent bool
}

var (
	killed = injury{
		hurt: func(f *failover, at int) error { return f.signal(at, syscall.SIGKILL) },
		heal: func(f *failover, at int) error {
			if f.procs != nil {
				_ = f.procs[at].Wait() // it was killed
				f.procs[at] = nil
			}
			return nil
		},
	}
	paused = injury{
		hurt:   func(f *failover, at int) error { return f.signal(at, syscall.SIGSTOP) },
		heal:   func(f *failover, at int) error { return f.signal(at, syscall.SIGCONT) },
		silent: true,
	}
	// cutOff takes its network away, not its store: it could acknowledge records
	// if anyone reached it.
	cutOff = injury{
		hurt:   func(f *failover, at int) error { return f.network.cut(f.ctx, at, true) },
		heal:   func(f *failover, at int) error { return f.network.cut(f.ctx, at, false) },
		silent: true,
	}
)

// death hurts one of three nodes under load and looks how long each of its
// partitions takes no records. The node has 10,000 producers' state and 1 GiB of
// WAL that is not packed.
func (f *failover) death(what injury, leader bool) error {
	const topic = "death"
	victim, led, err := f.fillVictim(topic, leader)
	if err != nil {
		return err
	}
	broker := int32(victim + 1)
	patience := patient
	if what.silent {
		patience = impatient
	}
	p, err := f.newPace(topic, deathPartitions, deathRate, patience)
	if err != nil {
		return err
	}
	var other *librdkafka
	if what.silent && haveLibrdkafka() {
		if other, err = f.newLibrdkafka(topic, deathPartitions, 1, impatientLibrdkafka...); err != nil {
			return err
		}
		defer other.cancel()
		if err := other.awaitAfter(f.ctx, time.Now()); err != nil {
			return err
		}
	}
	p.calm()
	f.unpacked(victim)
	begun := time.Now()
	if err := what.hurt(f, victim); err != nil {
		return err
	}
	var served map[int32]time.Duration
	if what.silent {
		served = f.probe(topic, broker, led, begun)
	}
	if err := p.awaitAfter(f.ctx, begun); err != nil {
		return err
	}
	took := time.Since(begun)
	if other != nil {
		if err := other.awaitAfter(f.ctx, begun); err != nil {
			return err
		}
	}
	pause(f.ctx, time.Second)
	if err := what.heal(f, victim); err != nil {
		return err
	}
	firsts := p.firsts(begun)
	mine := func(n int32) bool { return slices.Contains(led, n) }
	if what.silent {
		row(fmt.Sprintf("its %d partitions are served by others", len(led)), "%s", spreadOf(served, nil))
	}
	row(fmt.Sprintf("its %d partitions take records again", len(led)), "%s", spreadOf(firsts, mine))
	if other != nil {
		row("they take librdkafka's records again", "%s", spreadOf(other.firsts(begun), mine))
		if err := other.stop(); err != nil {
			return err
		}
	}
	row("pause of the other partitions", "%s", spreadOf(p.pauses(begun, begun.Add(took)), func(n int32) bool { return !mine(n) }))
	f.steps()
	return p.finish()
}

// fillVictim makes the topic and gives the node that is to be hurt what its
// successors will have to deal with. led are the partitions that it leads.
func (f *failover) fillVictim(topic string, leader bool) (victim int, led []int32, err error) {
	if err := f.topic(topic, deathPartitions); err != nil {
		return 0, nil, err
	}
	victim, err = f.controller()
	if err != nil {
		return 0, nil, err
	}
	if !leader {
		victim = (victim + 1) % nodes
	}
	broker := int32(victim + 1)
	all, err := f.leaders([]string{topic})
	if err != nil {
		return 0, nil, err
	}
	for _, l := range all[broker] {
		led = append(led, l.numbers...)
	}
	if err := f.producers(broker, all[broker], deathProducers); err != nil {
		return 0, nil, err
	}
	if err := f.fill(broker, all[broker], deathBulk); err != nil {
		return 0, nil, err
	}
	return victim, led, nil
}

// probe asks the other brokers, again and again, who leads the partitions of one
// that went silent, and sends each new leader a record. It returns how long after
// begun each partition took one: what the cluster needs. What a client needs beside
// that to turn away from a broker that is silent is its own.
func (f *failover) probe(topic string, silent int32, parts []int32, begun time.Time) map[int32]time.Duration {
	out := map[int32]time.Duration{}
	record := kbatch.New(kbatch.Record{Timestamp: begun.UnixMilli(), Value: []byte("probe")}).Bytes()
	other := f.Broker(int(silent)%nodes + 1)
	for time.Since(begun) < time.Minute && len(out) < len(parts) && f.ctx.Err() == nil {
		pause(f.ctx, 20*time.Millisecond)
		all, err := leadersFrom(f.ctx, other, []string{topic})
		if err != nil {
			continue
		}
		for leader, lists := range all {
			if leader == silent || leader < 0 {
				continue
			}
			req := newProduce(lists[0])
			for _, n := range lists[0].numbers {
				if _, ok := out[n]; !ok && slices.Contains(parts, n) {
					tp := kmsg.NewProduceRequestTopicPartition()
					tp.Partition, tp.Records = n, record
					req.Topics[0].Partitions = append(req.Topics[0].Partitions, tp)
				}
			}
			if len(req.Topics[0].Partitions) == 0 {
				continue
			}
			resp, err := req.RequestWith(f.ctx, f.Broker(int(leader)))
			if err != nil {
				continue
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 {
						out[p.Partition] = time.Since(begun)
					}
				}
			}
		}
	}
	return out
}

// unpacked prints what the victim's successors will find.
func (f *failover) unpacked(victim int) {
	if f.metrics == nil {
		return
	}
	only := f.metrics[victim : victim+1]
	bytes, err := metric(only, "ponor_budget_used_bytes", `budget="unpacked"`)
	if err != nil {
		return // it is printed for information
	}
	slots, _ := metric(only, "ponor_unpacked_slots")
	row("unpacked WAL of the node", "%.0f MB in %.0f slots", bytes/1e6, slots)
}

// steps prints what the survivors say about the takeover.
func (f *failover) steps() {
	if f.metrics == nil {
		return
	}
	text := ""
	for _, step := range []string{"detect", "fence", "seal", "open"} {
		label := fmt.Sprintf("step=%q", step)
		sum, err := metric(f.metrics, "ponor_takeover_step_seconds_sum", label)
		if err != nil {
			return // it is printed for information
		}
		n, _ := metric(f.metrics, "ponor_takeover_step_seconds_count", label)
		if n > 0 {
			text += fmt.Sprintf("%s %.1f ms (mean of %.0f)  ", step, 1000*sum/n, n)
		}
	}
	row("steps, since the nodes began", "%s", text)
}

// producers has n idempotent producers write one record each to a broker's
// partitions in turn.
func (f *failover) producers(broker int32, parts []led, n int) error {
	ids := make([]*kmsg.InitProducerIDResponse, n)
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				req := kmsg.NewPtrInitProducerIDRequest()
				ids[i], errs[w] = req.RequestWith(f.ctx, f.Client)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("get producer ids: %w", err)
	}
	p := &producer{s: &f.scale}
	var numbers []part
	for _, l := range parts {
		for _, n := range l.numbers {
			numbers = append(numbers, part{l, n})
		}
	}
	for chunk := range slices.Chunk(ids, len(numbers)) {
		req := newProduce(numbers[0].led)
		for i, id := range chunk {
			tp := kmsg.NewProduceRequestTopicPartition()
			b := kbatch.New(kbatch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("one")}).Idempotent(id.ProducerID, id.ProducerEpoch, 0)
			tp.Partition, tp.Records = numbers[i].number, b.Bytes()
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, tp)
		}
		if err := p.produce(broker, req); err != nil {
			return err
		}
	}
	return nil
}

func newProduce(l led) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = l.topic, l.id
	req.Topics = append(req.Topics, t)
	return req
}

// fill writes so many bytes to a broker's partitions in turn.
func (f *failover) fill(broker int32, parts []led, bytes int64) error {
	value := make([]byte, bulkBatch)
	_, _ = rand.Read(value)
	p := &producer{s: &f.scale}
	var numbers []part
	for _, l := range parts {
		for _, n := range l.numbers {
			numbers = append(numbers, part{l, n})
		}
	}
	batch := kbatch.New(kbatch.Record{Timestamp: time.Now().UnixMilli(), Value: value}).Bytes()
	const atOnce = 8
	for i := 0; int64(i)*bulkBatch < bytes; i += atOnce {
		req := newProduce(parts[0])
		for j := range atOnce {
			tp := kmsg.NewProduceRequestTopicPartition()
			tp.Partition, tp.Records = numbers[(i+j)%len(numbers)].number, batch
			if n := len(req.Topics[0].Partitions); n > 0 && len(numbers) < atOnce {
				if err := p.produce(broker, req); err != nil {
					return err
				}
				req = newProduce(parts[0])
			}
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, tp)
		}
		if err := p.produce(broker, req); err != nil {
			return err
		}
	}
	return nil
}
