package systest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/systest"
)

// reassign gives partitions of a topic new replica lists, all in one request.
func reassign(ctx context.Context, cl *kgo.Client, topic string, replicas map[int32][]int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	for p, list := range replicas {
		rt.Partitions = append(rt.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: p, Replicas: list})
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return nil
}

// waitLeader waits until every node knows that a broker leads a partition.
func waitLeader(t *testing.T, c *systest.Cluster, adm *kadm.Client, topic string, leader map[int32]int32) {
	t.Helper()
	systest.Eventually(t, 30*time.Second, "partitions have moved", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		md, err := adm.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		for p, want := range leader {
			if got := md.Topics[topic].Partitions[p].Leader; got != want {
				return fmt.Errorf("partition %d is led by %d, not yet by %d", p, got, want)
			}
		}
		return nil
	})
}

// pinger produces to one partition, one record at a time, about 1,000 a second,
// and notes how long each took: a client's view of a move.
type pinger struct {
	mu    sync.Mutex
	worst time.Duration
	err   error
}

func (p *pinger) run(ctx context.Context, cl *kgo.Client, topic string, partition int32) {
	for ctx.Err() == nil {
		begun := time.Now()
		err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte("ping")}).FirstErr()
		took := time.Since(begun)
		p.mu.Lock()
		p.worst = max(p.worst, took)
		if err != nil && p.err == nil {
			p.err = err
		}
		p.mu.Unlock()
		time.Sleep(max(0, time.Millisecond-took))
	}
}

// take returns the longest time since the last call.
func (p *pinger) take() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.worst
	p.worst = 0
	return w
}

// Partitions go back and forth under idempotent producers: nothing is lost,
// doubled, reordered or refused, and the pause stays short.
func TestMovesUnderLoad(t *testing.T) {
	const rounds, partitions = 50, 6
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "moves", partitions, 2)
	cl := c.Client()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "ping"); err != nil {
		t.Fatal(err)
	}
	ping := &pinger{}
	run, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	pinging := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	wg.Go(func() { ping.run(run, pinging, "ping", 0) })
	h.WaitAcked(100)
	ping.take()
	var pauses []time.Duration
	for i := range rounds {
		lists, leaders := map[int32][]int32{}, map[int32]int32{}
		for p := range int32(partitions) {
			leaders[p] = (p+int32(i))%3 + 1
			lists[p] = []int32{leaders[p]}
		}
		if err := reassign(t.Context(), cl, "moves", lists); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		one := map[int32]int32{0: int32(i)%3 + 1}
		if err := reassign(t.Context(), cl, "ping", map[int32][]int32{0: {one[0]}}); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		waitLeader(t, c, adm, "moves", leaders)
		waitLeader(t, c, adm, "ping", one)
		time.Sleep(20 * time.Millisecond) // pings after the move belong to it
		pauses = append(pauses, ping.take())
	}
	stop()
	wg.Wait()
	if ping.err != nil {
		t.Errorf("a produce failed during a move: %v", ping.err)
	}
	h.WaitAcked(50)
	h.Stop()
	slices.Sort(pauses)
	p50, p99 := pauses[len(pauses)/2], pauses[len(pauses)*99/100]
	t.Logf("slowest ack around a move, of %d moves: p50 %v, p99 %v", len(pauses), p50, p99)
	if p99 > 2*time.Second {
		t.Errorf("pauses of up to %v", p99)
	}
	h.Check()
}
