//go:build clients

package systest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/systest"
)

// command runs a client program and fails the test with its output if it
// fails.
func command(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	out, err := tryCommand(t, stdin, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func tryCommand(t *testing.T, stdin string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*systest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String() + errOut.String(), err
	}
	return out.String(), nil
}

// kafkaTool runs one of Apache Kafka's own tools.
func kafkaTool(t *testing.T, stdin, class string, args ...string) string {
	t.Helper()
	return command(t, stdin, "bash", append([]string{filepath.Join("..", "..", "deploy", "kafka", "kafka.sh"), "tool", class}, args...)...)
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// readAll consumes a topic with kgo, partition by partition in offset order.
func readAll(t *testing.T, c *systest.Cluster, topic string, want int) []*kgo.Record {
	t.Helper()
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < want {
		f := cl.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("consume %s after %d of %d records: %v", topic, len(got), want, err)
		}
		got = append(got, f.Records()...)
	}
	slices.SortStableFunc(got, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return got
}

func createTopic(t *testing.T, c *systest.Cluster, topic string, partitions int32) {
	t.Helper()
	if _, err := kadm.NewClient(c.Client()).CreateTopic(t.Context(), partitions, -1, nil, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

func TestClientKgoRoundTripsEveryCodecAndAcks(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	kgoCodecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	acks := map[string][]kgo.Opt{
		"all": {kgo.RequiredAcks(kgo.AllISRAcks())},
		"1":   {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"0":   {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
	}
	rng := rand.NewChaCha8([32]byte{7})
	for _, codec := range codecs {
		for _, a := range slices.Sorted(maps.Keys(acks)) {
			t.Run(codec+" acks "+a, func(t *testing.T) {
				topic := "kgo-" + codec + "-" + a
				createTopic(t, c, topic, 3)
				cl := c.Client(append(acks[a], kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgoCodecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
				var sent []*kgo.Record
				for i := range 300 {
					r := &kgo.Record{Partition: int32(i % 3), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)*1000)}
					size := []int{0, 1, 100, 1000, 200_000}[i%5]
					if i%7 != 0 {
						r.Value = make([]byte, size)
						if i%2 == 0 {
							_, _ = rng.Read(r.Value)
						}
					}
					if i%3 == 0 {
						r.Key = fmt.Appendf(nil, "key-%d", i)
					}
					for h := range i % 4 {
						r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprint("h", h), Value: fmt.Appendf(nil, "v%d", i)})
					}
					sent = append(sent, r)
				}
				if err := cl.ProduceSync(t.Context(), sent...).FirstErr(); err != nil {
					t.Fatalf("produce: %v", err)
				}
				got := readAll(t, c, topic, len(sent))
				slices.SortStableFunc(sent, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
				for i, want := range sent {
					g := got[i]
					if g.Partition != want.Partition || !bytes.Equal(g.Key, want.Key) || (g.Key == nil) != (want.Key == nil) || !bytes.Equal(g.Value, want.Value) || (g.Value == nil) != (want.Value == nil) || !g.Timestamp.Equal(want.Timestamp) || len(g.Headers) != len(want.Headers) {
						t.Fatalf("record %d: partition %d offset %d differs from what was produced", i, g.Partition, g.Offset)
					}
					for j, h := range want.Headers {
						if g.Headers[j].Key != h.Key || !bytes.Equal(g.Headers[j].Value, h.Value) {
							t.Fatalf("record %d header %d: %v, want %v", i, j, g.Headers[j], h)
						}
					}
				}
				checkOffsetsByTime(t, c, topic, got)
			})
		}
	}
}

// checkOffsetsByTime asks for the offset of the middle record's timestamp.
func checkOffsetsByTime(t *testing.T, c *systest.Cluster, topic string, records []*kgo.Record) {
	t.Helper()
	mid := records[len(records)/2]
	l, err := kadm.NewClient(c.Client()).ListOffsetsAfterMilli(t.Context(), mid.Timestamp.UnixMilli(), topic)
	if err != nil {
		t.Fatalf("list offsets: %v", err)
	}
	if o, _ := l.Lookup(topic, mid.Partition); o.Offset != mid.Offset || o.Timestamp != mid.Timestamp.UnixMilli() {
		t.Errorf("offset at %v of partition %d is %d (time %d), want %d", mid.Timestamp, mid.Partition, o.Offset, o.Timestamp, mid.Offset)
	}
}

func TestClientKcatRoundTripsEveryCodecAndAcks(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all"} {
			t.Run(codec+" acks "+acks, func(t *testing.T) {
				topic := "kcat-" + codec + "-" + acks
				createTopic(t, c, topic, 1)
				var in, want strings.Builder
				for i := range 500 {
					fmt.Fprintf(&in, "k%d:value %d %s\n", i, i, strings.Repeat("x", i%50))
					fmt.Fprintf(&want, "%d|k%d|value %d %s|h1=a,h2=b\n", i, i, i, strings.Repeat("x", i%50))
				}
				command(t, in.String(), "kcat", "-P", "-b", c.Bootstrap(), "-t", topic, "-z", codec, "-X", "acks="+acks, "-K", ":", "-H", "h1=a", "-H", "h2=b")
				if acks == "0" {
					readAll(t, c, topic, 500)
				}
				got := command(t, "", "kcat", "-C", "-q", "-b", c.Bootstrap(), "-t", topic, "-o", "beginning", "-e", "-f", "%o|%k|%s|%h\n")
				if got != want.String() {
					t.Errorf("kcat read back something else:\n%.500s", got)
				}
				tail := command(t, "", "kcat", "-C", "-q", "-b", c.Bootstrap(), "-t", topic, "-o", "-3", "-e", "-f", "%o\n")
				if tail != "497\n498\n499\n" {
					t.Errorf("the last three are %q", tail)
				}
			})
		}
	}
	t.Run("null value", func(t *testing.T) {
		createTopic(t, c, "kcat-null", 1)
		command(t, "k:\n", "kcat", "-P", "-b", c.Bootstrap(), "-t", "kcat-null", "-K", ":", "-Z")
		if r := readAll(t, c, "kcat-null", 1)[0]; r.Value != nil || string(r.Key) != "k" {
			t.Errorf("key %q value %v, want k and null", r.Key, r.Value)
		}
	})
	t.Run("by time", func(t *testing.T) {
		got := command(t, "", "kcat", "-Q", "-b", c.Bootstrap(), "-t", "kcat-none-all:0:1")
		if !strings.Contains(got, "offset 0") {
			t.Errorf("offset after time 1: %q", got)
		}
	})
	t.Run("metadata", func(t *testing.T) {
		got := command(t, "", "kcat", "-L", "-b", c.Bootstrap())
		if !strings.Contains(got, "3 brokers") || !strings.Contains(got, `topic "kcat-zstd-all" with 1 partitions`) {
			t.Errorf("kcat -L: %s", got)
		}
	})
}

func TestClientJavaTools(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	topics := func(args ...string) string {
		return kafkaTool(t, "", "org.apache.kafka.tools.TopicCommand", append([]string{"--bootstrap-server", c.Bootstrap()}, args...)...)
	}
	configs := func(args ...string) string {
		return kafkaTool(t, "", "org.apache.kafka.tools.ConfigCommand", append([]string{"--bootstrap-server", c.Bootstrap()}, args...)...)
	}
	mustHave := func(out string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(out, p) {
				t.Errorf("%q is missing in:\n%s", p, out)
			}
		}
	}
	mustHave(topics("--create", "--topic", "java", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=3600000"), "Created topic java")
	mustHave(topics("--list"), "java")
	out := topics("--describe", "--topic", "java")
	mustHave(out, "PartitionCount: 2", "ReplicationFactor: 3", "retention.ms=3600000", "Partition: 1", "Isr: ")
	if under := topics("--describe", "--under-replicated-partitions"); strings.TrimSpace(under) != "" {
		t.Errorf("a healthy cluster has under-replicated partitions:\n%s", under)
	}
	mustHave(configs("--alter", "--entity-type", "topics", "--entity-name", "java", "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]"), "Completed updating config")
	mustHave(configs("--describe", "--entity-type", "topics", "--entity-name", "java"), "max.message.bytes=2000000", "cleanup.policy=compact,delete", "retention.ms=3600000")
	mustHave(configs("--alter", "--entity-type", "topics", "--entity-name", "java", "--delete-config", "max.message.bytes,cleanup.policy"), "Completed updating config")
	if d := configs("--describe", "--entity-type", "topics", "--entity-name", "java"); strings.Contains(d, "max.message.bytes") {
		t.Errorf("a deleted config is still there:\n%s", d)
	}
	mustHave(configs("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"), "auto.create.topics.enable", "log.retention")
	topics("--alter", "--topic", "java", "--partitions", "3")
	mustHave(topics("--describe", "--topic", "java"), "PartitionCount: 3")
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all"} {
			topic := "java-" + codec + "-" + acks
			createTopic(t, c, topic, 1)
			var in strings.Builder
			for i := range 200 {
				fmt.Fprintf(&in, "k%d\tvalue %d\n", i, i)
			}
			kafkaTool(t, in.String(), "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", c.Bootstrap(), "--topic", topic,
				"--compression-codec", codec, "--command-property", "acks="+acks, "--command-property", "enable.idempotence="+fmt.Sprint(acks == "all"),
				"--reader-property", "parse.key=true")
			readAll(t, c, topic, 200)
			got := kafkaTool(t, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", c.Bootstrap(), "--topic", topic,
				"--partition", "0", "--offset", "earliest", "--max-messages", "200", "--formatter-property", "print.key=true")
			if got != in.String() {
				t.Errorf("%s: the console consumer read back something else:\n%.500s", topic, got)
			}
		}
	}
	mustHave(kafkaTool(t, "", "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", c.Bootstrap(), "--topic", "java-none-all"), "java-none-all:0:200")
	mustHave(kafkaTool(t, "", "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", c.Bootstrap(), "--describe", "--topic-list", "java-none-all"), "java-none-all-0")
	spec := filepath.Join(t.TempDir(), "delete.json")
	if err := os.WriteFile(spec, []byte(`{"partitions":[{"topic":"java-none-all","partition":0,"offset":50}],"version":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	mustHave(kafkaTool(t, "", "org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", c.Bootstrap(), "--offset-json-file", spec), "low_watermark: 50")
	topics("--delete", "--topic", "java")
	if l := topics("--list"); slices.Contains(strings.Fields(l), "java") {
		t.Errorf("a deleted topic is still listed:\n%s", l)
	}
}

func TestClientPython(t *testing.T) {
	python := os.Getenv("PYTHON_CLIENTS")
	if python == "" {
		t.Fatal("PYTHON_CLIENTS is not set to a Python that has kafka-python and confluent-kafka; 'make clients' sets it")
	}
	c := systest.Start(t, systest.Options{})
	for _, script := range []string{"kafka_python.py", "confluent.py"} {
		t.Run(script, func(t *testing.T) {
			if out := command(t, "", python, filepath.Join("testdata", script), c.Bootstrap()); !strings.Contains(out, "all good") {
				t.Errorf("output: %s", out)
			}
		})
	}
}

// kgoSkips are the tests of kgo's own suite that need what Ponor does not serve, or
// fail by chance with any broker.
// Tests of share groups, KIP-848 groups, SCRAM and OAUTHBEARER skip themselves,
// as ApiVersions or the environment does not have them, and so does one for
// brokers that do not list Produce version 2.
var kgoSkips = map[string]string{
	"TestTxnEtl": "needs transactions",
	"Test848RegexBrokerResolves": "ends early if a record of __consumer_offsets, which its own group writes, comes before those that it wants; " +
		"TestConsumerGroupMatchesInternalTopics has what it asks for",
}

// TestClientKgoSuite runs the suite that franz-go tests kgo with against real
// brokers. Its tests of one kind or the other cannot be told apart by name, so
// it runs the unit tests too. All brokers stay up: its groups take every error that a
// session with the coordinator ends in for a failure, and kgo reports each connection
// that breaks and each coordinator that moved as one, before it tries again.
// TestGroupsUnderKillsAndMoves has groups of kgo under faults.
func TestClientKgoSuite(t *testing.T) {
	c := systest.Start(t, systest.Options{Extra: []string{"--auto-create-topics=true"}})
	tests := runKgoSuite(t, c)
	for _, name := range slices.Sorted(maps.Keys(kgoSkips)) {
		t.Logf("not run: %s: %s", name, kgoSkips[name])
	}
	// A few that must have talked to the cluster: were they renamed, the suite
	// would pass without it.
	for _, name := range []string{"TestClient_Produce", "TestIssue769", "TestAddRemovePartitions", "TestPooling", "TestGroupETL", "TestGroupSimple"} {
		if !slices.Contains(tests["pass"], name) {
			t.Errorf("%s did not run and pass", name)
		}
	}
}

// runKgoSuite runs the tests of kgo and returns their names by how they ended.
func runKgoSuite(t *testing.T, c *systest.Cluster) map[string][]string {
	t.Helper()
	var skip []string
	for _, name := range slices.Sorted(maps.Keys(kgoSkips)) {
		skip = append(skip, "^"+name+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-json", "-timeout", "10m", "-skip", strings.Join(skip, "|"), "github.com/twmb/franz-go/pkg/kgo")
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+c.Bootstrap(), "KGO_TEST_RF=3", "KGO_TEST_RECORDS=50000", "KGO_LOG_LEVEL=none")
	out, err := cmd.CombinedOutput()
	tests := map[string][]string{} // top-level ones, by their last action
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &e) != nil {
			t.Log(line)
			continue
		}
		said[e.Test] += e.Output
		switch {
		case e.Action == "fail" && e.Test != "":
			t.Errorf("%s failed:\n%s", e.Test, said[e.Test])
		case e.Action == "skip" && strings.Contains(e.Test, "/"):
			tests["skip"] = append(tests["skip"], e.Test)
		}
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			tests[e.Action] = append(tests[e.Action], e.Test)
		}
	}
	for _, action := range []string{"pass", "fail"} {
		t.Logf("%s: %d: %s", action, len(tests[action]), strings.Join(slices.Sorted(slices.Values(tests[action])), " "))
	}
	for _, name := range slices.Sorted(slices.Values(tests["skip"])) {
		t.Logf("skipped itself: %s", said[name])
	}
	if err != nil {
		t.Errorf("go test: %v\n%s", err, said[""])
	}
	return tests
}
