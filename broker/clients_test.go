package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/broker"
)

// soleBroker has the other two brokers gone, so that real clients come here only.
func soleBroker(t *testing.T) *cluster {
	c := newCluster(t, func(_ *cluster, cfg *broker.Config) { cfg.AutoCreateTopics = true })
	c.fence(2)
	c.fence(3)
	return c
}

func TestFranzGo(t *testing.T) {
	c := soleBroker(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*long)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.DisableClientMetrics(), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if r, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("99999")}, "t"); err != nil || r.Err != nil {
		t.Fatalf("create: %v %v", err, r.Err)
	}
	const n = 300
	for i := range n { // idempotent and pipelined by default
		cl.Produce(ctx, &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	slices.Sort(got)
	is(t, "distinct records", len(slices.Compact(got)), n)

	offsets, err := adm.ListEndOffsets(ctx, "t")
	if err != nil || offsets.Error() != nil {
		t.Fatalf("list offsets: %v %v", err, offsets.Error())
	}
	sum := int64(0)
	offsets.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	is(t, "end offsets", sum, n)
	configs, err := adm.DescribeTopicConfigs(ctx, "t")
	if err != nil || configs[0].Err != nil {
		t.Fatalf("describe configs: %v %v", err, configs)
	}
	if r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("5")}}, "t"); err != nil || r[0].Err != nil {
		t.Fatalf("alter configs: %v %v", err, r)
	}
	if r, err := adm.CreatePartitions(ctx, 2, "t"); err != nil || r.Error() != nil {
		t.Fatalf("create partitions: %v %v", err, r.Error())
	}
	topics, err := adm.ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	is(t, "partitions", len(topics["t"].Partitions), 5)
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	is(t, "log dirs", len(dirs.Sorted()), 1)
	if r, err := adm.DeleteTopics(ctx, "t"); err != nil || r.Error() != nil {
		t.Fatalf("delete: %v %v", err, r.Error())
	}
}

// kcat runs Debian's kcat (librdkafka 2.0.2), which chooses by version ranges
// what it dares to do.
func kcat(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*long)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %v: %v\n%s", args, err, errs.String())
	}
	if strings.Contains(errs.String(), "ERROR") || strings.Contains(errs.String(), "not supported") {
		t.Errorf("kcat %v complains: %s", args, errs.String())
	}
	return out.String()
}

// Old librdkafka produces with every codec and consumes without a group; and it
// really compresses, which needs Produce v0 and FindCoordinator v0 in the ranges
// (KAFKA-18659).
func TestKcat(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is not installed")
	}
	c := soleBroker(t)
	line := strings.Repeat("the same again ", 200) + "\n"
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "kcat-" + codec
		kcat(t, line+line, "-P", "-b", c.addr, "-t", topic, "-z", codec, "-X", "enable.idempotence=true")
		is(t, codec, kcat(t, "", "-C", "-b", c.addr, "-t", topic, "-o", "beginning", "-e", "-q") == line+line, true)
		made, _ := c.Image().Topic(topic)
		part, err := c.Get(made.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && part.Bytes() > 1500 {
			t.Errorf("%s: %d bytes are stored, it did not compress", codec, part.Bytes())
		}
	}
	is(t, "lists topics", strings.Contains(kcat(t, "", "-L", "-b", c.addr), "kcat-zstd"), true)
}
