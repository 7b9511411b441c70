package sim

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"ponor/internal/kbatch"
)

const (
	// askEvery is how often each broker is asked, askPatience how long for an
	// answer: a question may wait in a paused process and be answered after it was
	// replaced.
	askEvery    = 500 * time.Millisecond
	askPatience = 40 * time.Second
	// asking bounds the questions to one broker that wait for an answer.
	asking = 16
)

// Asker is the consumer of ask: it sees records here and there.
const Asker = 9

// question is one request to one broker.
type question func(ctx context.Context, b *kgo.Broker, tp TP)

// ask asks one broker again and again until stop, whether or not it owns the
// partitions: one that lost them must not answer as if it had them.
func (w *workload) ask(broker int, stop <-chan struct{}, every time.Duration, questions ...question) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 11)
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), 12) // the last ones that name topics
	cl := w.client("c6", kgo.MaxVersions(versions), kgo.RequestTimeoutOverhead(askPatience), kgo.ConnIdleTimeout(2*askPatience), kgo.RequestRetries(0))
	defer cl.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, asking)
	for turn := 0; ; turn++ {
		select {
		case <-time.After(every):
		case <-stop:
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(w.ctx, askPatience)
			defer cancel()
			n := len(questions)
			questions[turn%n](ctx, cl.Broker(broker), TP{Topic: mainTopic, Partition: int32(turn / n % mainPartitions)})
		})
	}
}

// askEnd asks for the end of a partition.
func (w *workload) askEnd(ctx context.Context, b *kgo.Broker, tp TP) {
	req := kmsg.NewPtrListOffsetsRequest()
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	req.ReplicaID, t.Topic, p.Partition, p.Timestamp = -1, tp.Topic, tp.Partition, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	floor := w.h.AskEnd(tp)
	resp, err := b.Request(ctx, req)
	if err != nil {
		return
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				w.h.SawEnd(End{TP: tp, Floor: floor, Offset: p.Offset})
			}
		}
	}
}

// askRecords asks for records near the end.
func (w *workload) askRecords(ctx context.Context, b *kgo.Broker, tp TP) {
	req := kmsg.NewPtrFetchRequest()
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	req.ReplicaID, req.MaxBytes, t.Topic = -1, 16<<10, tp.Topic
	p.Partition, p.PartitionMaxBytes, p.FetchOffset = tp.Partition, 16<<10, max(0, w.h.Floor(tp)-5)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	asked := w.h.Now()
	resp, err := b.Request(ctx, req)
	if err != nil {
		return
	}
	for _, t := range resp.(*kmsg.FetchResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				continue
			}
			w.h.SawMark(Mark{TP: tp, Asked: asked, Offset: p.HighWatermark})
			for _, r := range w.batches(tp, p.RecordBatches) {
				if w.h.Poll(r); r.Offset >= p.HighWatermark {
					w.h.Note("broker gave offset %d of %s above its high watermark %d", r.Offset, tp, p.HighWatermark)
				}
			}
		}
	}
}

// batches decodes what a fetch gave.
func (w *workload) batches(tp TP, b []byte) (polls []Poll) {
	for len(b) > 0 {
		batch, rest, err := kbatch.Decode(b)
		if err != nil {
			w.h.Note("batch of %s: %v", tp, err)
			return polls
		}
		b = rest
		for i, r := range batch.Records {
			n, damage := parseBody(r.Value)
			polls = append(polls, Poll{Consumer: Asker, TP: tp, Offset: batch.BaseOffset + int64(i), Record: n, Damage: damage})
		}
	}
	return polls
}

// askToAppend sends one record. An answer, however late, is an acknowledgement
// like any other.
func (w *workload) askToAppend(ctx context.Context, b *kgo.Broker, tp TP) {
	req := kmsg.NewPtrProduceRequest()
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	r := w.h.Send(Producer{ID: 900}, tp)
	req.Acks, req.TimeoutMillis, t.Topic, p.Partition = -1, int32(askPatience.Milliseconds()), tp.Topic, tp.Partition
	p.Records = kbatch.New(kbatch.Record{Value: body(r)}.At(time.Now().UnixMilli())).Bytes()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := b.Request(ctx, req)
	if err == nil {
		for _, t := range resp.(*kmsg.ProduceResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					w.h.Ack(r, p.BaseOffset)
					return
				}
			}
		}
	}
	w.h.Fail(r)
}
