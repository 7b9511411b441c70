//go:build clients

package systest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/systest"
)

// Kafka's own tool and ours show the same group, and each takes the offsets that the
// other exports.
func TestClientConsumerGroupsToolAgrees(t *testing.T) {
	const tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	c := systest.Start(t, systest.Options{})
	if _, err := kadm.NewClient(c.Client()).CreateTopic(t.Context(), 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("orders"))
	for i := range 60 {
		cl.Produce(t.Context(), &kgo.Record{Partition: int32(i % 3), Value: []byte("x")}, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ponor(t, c, "group", "reset", "billing", "--topic", "orders", "--to", "start", "--execute")
	m := consume(c, "billing", "orders", "app", nil)
	var theirs []string
	systest.Eventually(t, "the tool shows the member", func() error {
		out := kafkaTool(t, "", tool, "--bootstrap-server", c.Bootstrap(), "--group", "billing", "--describe")
		theirs = nil
		for line := range strings.Lines(out) {
			// GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
			if f := strings.Fields(line); len(f) >= 9 && f[0] == "billing" && f[8] == "app" {
				theirs = append(theirs, fmt.Sprintf("%s/%s %s %s %s %s", f[1], f[2], f[3], f[4], f[5], f[6]))
			}
		}
		if len(theirs) != 3 {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	var ours []string
	var views []struct {
		Partitions []struct {
			Topic     string
			Partition int32
			Member    string
			Lag       int64
			Committed int64 `json:"committed_offset"`
			End       int64 `json:"end_offset"`
		}
	}
	if err := ponorJSON(t, c, &views, "group", "describe", "billing"); err != nil {
		t.Fatal(err)
	}
	for _, p := range views[0].Partitions {
		ours = append(ours, fmt.Sprintf("%s/%d %d %d %d %s", p.Topic, p.Partition, p.Committed, p.End, p.Lag, p.Member))
	}
	slices.Sort(theirs)
	if !slices.Equal(ours, theirs) {
		t.Errorf("ponor group describe:\n%s\nkafka-consumer-groups:\n%s", strings.Join(ours, "\n"), strings.Join(theirs, "\n"))
	}
	m.leave()

	file := filepath.Join(t.TempDir(), "offsets.csv")
	if err := os.WriteFile(file, []byte(ponor(t, c, "group", "reset", "billing", "--topic", "orders", "--to", "7", "--export")), 0o600); err != nil {
		t.Fatal(err)
	}
	kafkaTool(t, "", tool, "--bootstrap-server", c.Bootstrap(), "--group", "billing", "--reset-offsets", "--from-file", file, "--execute")
	csv := kafkaTool(t, "", tool, "--bootstrap-server", c.Bootstrap(), "--group", "billing", "--reset-offsets", "--to-current", "--all-topics", "--export", "--dry-run")
	if err := os.WriteFile(file, []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	ponor(t, c, "group", "reset", "billing", "--topic", "orders", "--to", "end", "--execute")
	ponor(t, c, "group", "reset", "billing", "--from-file", file, "--execute")
	offsets, err := kadm.NewClient(c.Client()).FetchOffsets(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range offsets.Sorted() {
		if o.At != 7 {
			t.Errorf("partition %d: offset %d, want the 7 that went through both tools\n%s", o.Partition, o.At, csv)
		}
	}
}

// Groups of the Java consumer: patterns, racks, members that do not poll, commits for
// topics that are deleted.
func TestClientJavaGroups(t *testing.T) {
	t.Parallel()
	c := systest.Start(t, systest.Options{})
	argv := java(filepath.Join("testdata", "Groups.java"), c.Bootstrap())
	out, err := tryCommand(t, "", argv[0], argv[1:]...)
	t.Log(out)
	if err != nil || !strings.Contains(out, "all good") {
		t.Errorf("%v", err)
	}
}

// kcat is a member of a group whose coordinator is killed: it reads on, and commits.
func TestClientKcatGroup(t *testing.T) {
	t.Parallel()
	const records = 300
	c := systest.Start(t, systest.Options{})
	createTopic(t, c, "kcat", 3)
	cl := c.Client(kgo.DefaultProduceTopic("kcat"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	var offsets groupOffsets
	defer offsets.close()
	sum := func() (n int64) {
		of, err := offsets.of(t.Context(), c, "cats")
		if err != nil {
			return -1
		}
		for _, o := range of {
			n += o
		}
		return n
	}
	v := run(t, "kcat", []string{"kcat", "-b", c.Bootstrap(), "-q", "-u", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=200",
		"-X", "heartbeat.interval.ms=300", "-f", `{"name":"read","partition":%p,"offset":%o}\n`, "-G", "cats", "kcat"})
	for i, n := range c.Nodes {
		for range records / 3 {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		systest.Eventually(t, "kcat has committed all", func() error {
			if got := sum(); got != int64(i+1)*records/3 {
				return fmt.Errorf("offsets are %d", got)
			}
			return nil
		})
		n.Kill()
		n.Start()
		c.WaitLive(3)
	}
	v.stop(t)
	seen := map[[2]int64]bool{}
	for _, e := range v.events {
		seen[[2]int64{int64(e.Partition), e.Offset}] = true
	}
	if len(seen) != records {
		t.Errorf("kcat read %d of %d records", len(seen), records)
	}
}
