package systest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/systest"
)

var (
	outage     = flag.Duration("outage", 8*time.Second, "how long the metadata quorum is gone")
	outageRate = flag.Int("outage.rate", 0, "records of 1 KiB a second meanwhile, 0: as many as go")
)

// The whole quorum is gone at full load. What brokers own is produced and consumed
// all the same, also by producers, consumers, groups and connections that are new;
// afterwards nothing is missing, nothing has changed its owner, and the brokers
// pack what they could not.
func TestServiceThroughAMetadataOutage(t *testing.T) {
	c := systest.Start(t, systest.Options{Nodes: 3, Brokers: 2})
	voters, brokers := c.Nodes[:3], c.Nodes[3:]
	for _, n := range voters {
		ponor(t, c, "broker", "cordon", fmt.Sprint(n.ID))
	}
	h := systest.Produce(t, c, "watched", 4, 1)
	adm := kadm.NewClient(c.Client())
	if _, err := adm.CreateTopic(t.Context(), 4, -1, nil, "flood"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 1, -1, nil, "fresh"); err != nil {
		t.Fatal(err)
	}
	consumeInGroup(t, c, kgo.SeedBrokers(c.Nodes[0].Address), "before", "watched") // makes the topic of the offsets
	h.WaitAcked(100)
	before := epochs(t, adm)
	for _, n := range voters {
		n.Kill()
	}
	seeds := kgo.SeedBrokers(brokers[0].Address, brokers[1].Address)
	args := []string{"bench", "produce"}
	if *outageRate > 0 {
		args = []string{"bench", "latency", "--rate", fmt.Sprint(*outageRate), "--end-to-end=false"}
	}
	args = append(args, "--topic", "flood", "--warmup", "0s", "--duration", outage.String(), "--format", "json",
		"--bootstrap", brokers[0].Address+","+brokers[1].Address)
	flood := exec.CommandContext(t.Context(), systest.Binary(t), args...)
	var result, said strings.Builder
	flood.Stdout, flood.Stderr = &result, &said
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	read := readOn(t, c.Client(seeds, kgo.ConsumeTopics("flood"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	rounds := 0
	for begun := time.Now(); time.Since(begun) < *outage; time.Sleep(200 * time.Millisecond) {
		produceAndConsume(t, c, seeds, rounds)
		if rounds%25 == 0 {
			consumeInGroup(t, c, seeds, fmt.Sprint("group-", rounds), "fresh")
		}
		rounds++
	}
	var load struct {
		Records, Errors int64
	}
	if err := errors.Join(flood.Wait(), json.Unmarshal([]byte(result.String()), &load)); err != nil || load.Records == 0 || load.Errors > 0 {
		t.Errorf("load without a quorum: %v\n%s%s", err, result.String(), said.String())
	}
	ends, err := kadm.NewClient(c.Client(seeds)).ListEndOffsets(t.Context(), "flood")
	if err != nil || ends.Error() != nil {
		t.Fatalf("end of the load: %v, %v", err, ends.Error())
	}
	var end int64
	ends.Each(func(o kadm.ListedOffset) { end += o.Offset })
	if end < load.Records { // it may have more, for which the load did not wait
		t.Errorf("%d records were acknowledged, the log has %d", load.Records, end)
	}
	systest.Eventually(t, "all of the load is consumed", func() error {
		if n := read.Load(); n < end {
			return fmt.Errorf("%d of %d records so far", n, end)
		}
		return nil
	})
	h.WaitAcked(100)
	for _, n := range voters {
		n.Start()
	}
	c.WaitReady(5)
	// A command of before the outage and one of after it are the proof that all
	// is well with the metadata.
	systest.Eventually(t, "a topic is created", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := adm.CreateTopic(ctx, 1, -1, nil, "after")
		return err
	})
	h.WaitAcked(100)
	if after := epochs(t, adm); !maps.Equal(before, after) {
		t.Errorf("leader epochs were %v, are %v", before, after)
	}
	h.Stop()
	h.Check()
	if out, code := verifyStore(t, c, "--bootstrap", c.Bootstrap()); code != 0 {
		t.Errorf("verify store: exit %d\n%s", code, out)
	}
	t.Logf("%d rounds of a new producer and a new consumer; %d records consumed; %s", rounds, read.Load(), result.String())
}

// readOn counts the records that a consumer reads. Until the test ends, each
// partition gives every offset once and in order, and no error.
func readOn(t *testing.T, cl *kgo.Client) *atomic.Int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var read atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		next := map[int32]int64{}
		for ctx.Err() == nil {
			f := cl.PollFetches(ctx)
			f.EachError(func(topic string, partition int32, err error) {
				if ctx.Err() == nil {
					t.Errorf("read %s-%d: %v", topic, partition, err)
				}
			})
			f.EachRecord(func(r *kgo.Record) {
				if r.Offset != next[r.Partition] {
					t.Errorf("%s-%d: offset %d follows %d", r.Topic, r.Partition, r.Offset, next[r.Partition]-1)
				}
				next[r.Partition] = r.Offset + 1
			})
			read.Add(int64(f.NumRecords()))
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &read
}

// epochs are the leader epochs of all partitions that there are before the outage.
func epochs(t *testing.T, adm *kadm.Client) map[string]int32 {
	t.Helper()
	md, err := adm.Metadata(t.Context(), "watched", "flood", "fresh", "__consumer_offsets")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int32{}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) { out[fmt.Sprintf("%s-%d", p.Topic, p.Partition)] = p.LeaderEpoch })
	return out
}

// consumeInGroup uses a new group: it joins, reads a record of a topic and commits.
func consumeInGroup(t *testing.T, c *systest.Cluster, seeds kgo.Opt, group, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	cl := c.Client(seeds, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	defer cl.Close()
	f := cl.PollFetches(ctx)
	for ; f.NumRecords() == 0; f = cl.PollFetches(ctx) {
		f.EachError(func(_ string, _ int32, err error) {
			// The client tries nodes that are down, and says so.
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("group %s: %v", group, err)
			}
		})
	}
	if err := cl.CommitRecords(ctx, f.Records()...); err != nil {
		t.Fatalf("group %s: commit: %v", group, err)
	}
}

// produceAndConsume uses a new idempotent producer and a new consumer, over new
// connections, for record n of a topic.
func produceAndConsume(t *testing.T, c *systest.Cluster, seeds kgo.Opt, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	p := c.Client(seeds, kgo.DefaultProduceTopic("fresh"))
	if err := p.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
		t.Fatalf("new producer %d: %v", n, err)
	}
	p.Close()
	r := c.Client(seeds, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"fresh": {0: kgo.NewOffset().At(int64(n))}}))
	f := r.PollFetches(ctx)
	if err := f.Err(); err != nil || f.NumRecords() == 0 || string(f.Records()[0].Value) != fmt.Sprint(n) {
		t.Fatalf("new consumer %d: %v, %d records", n, err, f.NumRecords())
	}
	r.Close()
}
