package systest_test

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strings"
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

// The whole quorum is gone at full load. What brokers own is served all the same,
// also to producers, consumers and connections that are new; afterwards nothing
// is missing and the brokers pack what they could not.
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
	h.WaitAcked(100)
	for _, n := range voters {
		n.Kill()
	}
	seeds := kgo.SeedBrokers(brokers[0].Address, brokers[1].Address)
	load := []string{"bench", "produce"}
	if *outageRate > 0 {
		load = []string{"bench", "latency", "--rate", fmt.Sprint(*outageRate), "--end-to-end=false"}
	}
	load = append(load, "--topic", "flood", "--warmup", "0s", "--duration", outage.String(), "--format", "json",
		"--bootstrap", brokers[0].Address+","+brokers[1].Address)
	flood := exec.CommandContext(t.Context(), systest.Binary(t), load...)
	var said strings.Builder
	flood.Stdout, flood.Stderr = &said, &said
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for begun := time.Now(); time.Since(begun) < *outage; time.Sleep(200 * time.Millisecond) {
		produceAndConsume(t, c, seeds, rounds)
		rounds++
	}
	if err := flood.Wait(); err != nil {
		t.Errorf("full load without a quorum: %v\n%s", err, said.String())
	}
	h.WaitAcked(100)
	for _, n := range voters {
		n.Start()
	}
	c.WaitReady(5)
	// A command of before the outage and one of after it are the proof that all
	// is well with the metadata.
	systest.Eventually(t, time.Minute, "a topic is created", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := adm.CreateTopic(ctx, 1, -1, nil, "after")
		return err
	})
	h.WaitAcked(100)
	h.Stop()
	h.Check()
	if out, code := verifyStore(t, c, "--bootstrap", c.Bootstrap()); code != 0 {
		t.Errorf("verify store: exit %d\n%s", code, out)
	}
	t.Logf("%d rounds of a new producer and a new consumer; %s", rounds, said.String())
}

// produceAndConsume uses a new idempotent producer and a new consumer, over new
// connections, for record n of a topic.
func produceAndConsume(t *testing.T, c *systest.Cluster, seeds kgo.Opt, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
