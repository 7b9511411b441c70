package systest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
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
	systest.Eventually(t, "partitions have moved", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	// A few ms on a quiet machine. One that is slow or stops for moments has long ones,
	// too; a move that waits for something that does not come would have no others.
	if p50 > 2*time.Second {
		t.Errorf("half of the pauses are longer than %v", p50)
	}
	h.Check()
}

// ponor runs a command of the binary against a cluster.
func ponor(t *testing.T, c *systest.Cluster, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, systest.Binary(t), args...)
	cmd.Env = append(os.Environ(), "PONOR_BOOTSTRAP="+c.Bootstrap())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ponor %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// An operator drains a broker, moves a partition by hand, and lets the broker
// take its partitions again; producers notice nothing.
func TestOperatorMovesAndDrains(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	h := systest.Produce(t, c, "ops", 6, 1)
	h.WaitAcked(50)
	led := func() map[int32]int {
		md, err := kadm.NewClient(c.Client()).Metadata(t.Context(), "ops")
		if err != nil {
			t.Fatal(err)
		}
		out := map[int32]int{}
		md.Topics.EachPartition(func(p kadm.PartitionDetail) { out[p.Leader]++ })
		return out
	}
	if out := ponor(t, c, "broker", "drain", "2"); !strings.Contains(out, "2 partitions moved") {
		t.Errorf("drain said %q", out)
	}
	if n := led()[2]; n != 0 {
		t.Errorf("the drained broker leads %d partitions", n)
	}
	ponor(t, c, "broker", "uncordon", "2")
	if out := ponor(t, c, "topic", "move", "ops/0", "--to", "3"); !strings.Contains(out, "to broker 3") || !strings.Contains(out, "0 bytes copied") {
		t.Errorf("move said %q", out)
	}
	systest.Eventually(t, "leaders go home", func() error {
		if n := led(); n[2] != 2 {
			return fmt.Errorf("led by %v", n)
		}
		return nil
	})
	before := led()
	away := before[1] + before[2]
	if out := ponor(t, c, "topic", "move", "ops", "ops/1", "--to", "3"); strings.Count(out, "to broker 3") != away || !strings.Contains(out, fmt.Sprintf("%d partitions in ", away)) {
		t.Errorf("move of all said %q, of %v", out, before)
	}
	systest.Eventually(t, "one leads all", func() error {
		if n := led(); n[3] != away+before[3] {
			return fmt.Errorf("led by %v", n)
		}
		return nil
	})
	h.WaitAcked(50)
	h.Stop()
	h.Check()
}

// A broker that has lost the quorum goes on with what it owns: acks need no
// quorum, and its own writes prove to readers that nobody else has the
// partition (ans-2).
func TestBrokerServesWithoutAQuorum(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	adm := kadm.NewClient(c.Client())
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "alone"); err != nil {
		t.Fatal(err)
	}
	if err := reassign(t.Context(), c.Client(), "alone", map[int32][]int32{0: {1}}); err != nil {
		t.Fatal(err)
	}
	waitLeader(t, c, adm, "alone", map[int32]int32{0: 1})
	only := kgo.SeedBrokers(c.Nodes[0].Address)
	cl := c.Client(only, kgo.DefaultProduceTopic("alone"), kgo.ConsumeTopics("alone"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	produced, consumed := 0, 0
	step := func() {
		ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
		defer cancel()
		if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatalf("produce after %d: %v", produced, err)
		}
		for produced++; consumed < produced; {
			f := cl.PollFetches(ctx)
			if err := f.Err0(); err != nil {
				t.Fatalf("consume after %d: %v", consumed, err)
			}
			consumed += f.NumRecords()
		}
	}
	step()
	c.Nodes[1].Kill()
	c.Nodes[2].Kill()
	// Longer than the 10 s for which an old proof would do, and with a silence in
	// it after which there is none.
	for begun := time.Now(); time.Since(begun) < 13*time.Second; time.Sleep(100 * time.Millisecond) {
		step()
	}
	time.Sleep(11 * time.Second)
	step()
}
