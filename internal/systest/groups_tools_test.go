//go:build clients

package systest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/ports"
	"ponor/internal/systest"
)

// kafkaTools is one process that runs Kafka's tools, one after another.
type kafkaTools struct {
	in  io.Writer
	out *bufio.Reader
}

func startKafkaTools(t *testing.T) *kafkaTools {
	t.Helper()
	argv := java(filepath.Join("testdata", "Tools.java"))
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &kafkaTools{in, bufio.NewReader(out)}
}

// run returns what a tool printed.
func (k *kafkaTools) run(t *testing.T, class string, args ...string) []string {
	t.Helper()
	if _, err := fmt.Fprintln(k.in, strings.Join(append([]string{class}, args...), "\t")); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for {
		line, err := k.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s %v: %v", class, args, err)
		}
		if line = strings.TrimSpace(line); line == "----" {
			return lines
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
}

// startKafka starts Apache Kafka and returns where it is, without waiting for it.
func startKafka(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	row, release, err := ports.Row(t.Context(), 6)
	if err != nil {
		t.Fatal(err)
	}
	release()
	script := func(verb string, args ...string) string {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", append([]string{filepath.Join("..", "..", "deploy", "kafka", "kafka.sh"), verb, dir}, args...)...)
		cmd.Env = append(os.Environ(), fmt.Sprint("KAFKA_PORT=", row[0]), "KAFKA_HEAP=-Xmx320m -XX:TieredStopAtLevel=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kafka.sh %s: %v\n%s", verb, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	t.Cleanup(func() { script("stop") })
	return script("start", "group.initial.rebalance.delay.ms=300", "auto.create.topics.enable=false")
}

// toolSide is a cluster with the groups that the tools look at.
type toolSide struct {
	bootstrap string
	adm       *kadm.Client
	members   []*kgo.Client
}

const toolRecords = 20 // in each partition, a second apart

// fill makes topics and groups: billing is classic and has a member, fresh is of the new
// protocol and has one, idle has offsets alone.
func (s *toolSide) fill(t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(s.bootstrap, ",")...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s.adm = kadm.NewClient(cl)
	for topic, partitions := range map[string]int32{"orders": 3, "refunds": 1} {
		systest.Eventually(t, "topics are made", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := s.adm.CreateTopic(ctx, partitions, 3, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, topic) // the records are of 2023
			return err
		})
		for i := range toolRecords * partitions {
			cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: i % partitions, Value: []byte("x"), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i/partitions)*1000)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 3, -1)
	offsets.AddOffset("refunds", 0, 5, -1)
	systest.Eventually(t, "offsets are committed", func() error { return s.adm.CommitAllOffsets(t.Context(), "idle", offsets) })
	for group, opts := range map[string][]kgo.Opt{"billing": {kgo.Balancers(kgo.RangeBalancer())}, "fresh": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}} {
		m, err := kgo.NewClient(append(opts, kgo.SeedBrokers(strings.Split(s.bootstrap, ",")...), kgo.DisableClientMetrics(), kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"),
			kgo.ClientID("app"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		s.members = append(s.members, m)
		ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
		defer cancel()
		for read := 0; read < 3*toolRecords; {
			f := m.PollFetches(ctx)
			if err := f.Err0(); err != nil {
				t.Fatalf("%s: group %s has read %d: %v", s.bootstrap, group, read, err)
			}
			read += f.NumRecords()
		}
		if err := m.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// what differs between any two clusters.
var toolNoise = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\s+`), " "},
	{regexp.MustCompile(`app-[0-9a-f-]{36}|[A-Za-z0-9+/_-]{22}==`), "MEMBER"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+ \(\d\)`), "COORDINATOR"},
	// Kafka's first generation of a new group is the second one here and there, as its
	// metadata come in.
	{regexp.MustCompile(`(fresh MEMBER .*) \d+ (\S*) \d+ (\S+)$`), "$1 EPOCH $2 EPOCH $3"},
	{regexp.MustCompile(`(fresh COORDINATOR .*) \d+ \d+ (\d+)$`), "$1 EPOCH EPOCH $2"},
}

// said are the lines of a tool without what differs between any two clusters, in an
// order of their own.
func said(lines []string) []string {
	var out []string
	for _, l := range lines {
		for _, n := range toolNoise {
			l = n.re.ReplaceAllString(l, n.with)
		}
		out = append(out, strings.TrimSpace(l))
	}
	slices.Sort(out)
	return out
}

// Every verb of kafka-consumer-groups, kafka-groups and kafka-get-offsets says of Ponor
// what it says of Apache Kafka.
func TestClientGroupToolsSayTheSameOfKafka(t *testing.T) {
	t.Parallel()
	sides := []*toolSide{{bootstrap: startKafka(t)}, {bootstrap: systest.Start(t, systest.Options{}).Bootstrap()}}
	tools := startKafkaTools(t)
	var wg sync.WaitGroup
	for _, s := range sides {
		wg.Go(func() { s.fill(t) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	compare := func(class string, args ...string) {
		t.Helper()
		var both [2][]string
		var took [2]time.Duration
		for i, s := range sides {
			begun := time.Now()
			both[i] = said(tools.run(t, class, append(args, "--bootstrap-server", s.bootstrap)...))
			took[i] = time.Since(begun).Round(time.Millisecond)
		}
		kafka, ours := both[0], both[1]
		if max(took[0], took[1]) > 5*time.Second {
			t.Logf("%s: %v of Kafka, %v of Ponor", strings.Join(args, " "), took[0], took[1])
		}
		if !slices.Equal(kafka, ours) {
			t.Errorf("%s\nof Kafka:\n\t%s\nof Ponor:\n\t%s", strings.Join(args, " "), strings.Join(kafka, "\n\t"), strings.Join(ours, "\n\t"))
		}
		if len(kafka) == 0 {
			t.Logf("%s: says nothing", strings.Join(args, " "))
		}
	}
	groups := func(args string) {
		t.Helper()
		compare("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", strings.Fields(args)...)
	}
	list := func(args string) {
		t.Helper()
		compare("org.apache.kafka.tools.GroupsCommand", strings.Fields(args)...)
	}
	look := func() {
		t.Helper()
		groups("--list")
		groups("--list --state")
		groups("--list --type")
		groups("--list --state stable")
		groups("--list --state empty,dead --type classic")
		groups("--list --type consumer")
		groups("--list --type nonsense")
		list("--list")
		list("--list --consumer")
		list("--list --group-type consumer")
		list("--list --protocol consumer")
		for _, g := range []string{"--group billing", "--group fresh", "--group idle", "--group nobody", "--group billing --group fresh", "--all-groups"} {
			for _, what := range []string{"", "--members", "--members --verbose", "--offsets", "--offsets --verbose", "--state", "--state --verbose"} {
				groups("--describe " + g + " " + what)
			}
		}
	}
	look()
	for _, g := range []string{"billing", "fresh"} {
		groups("--reset-offsets --group " + g + " --topic orders --to-earliest --execute")
		groups("--delete --group " + g)
		groups("--delete-offsets --group " + g + " --topic orders")
		groups("--delete-offsets --group " + g + " --topic refunds")
	}
	for _, s := range sides {
		for _, m := range s.members {
			m.Close()
		}
	}
	look()
	dir := t.TempDir()
	for _, g := range []string{"billing", "fresh", "idle"} {
		specs := []string{
			"--to-earliest", "--to-latest", "--to-offset 7", "--to-offset 700", "--shift-by -3", "--shift-by 2", "--shift-by -700", "--by-duration PT1H", "--by-duration P10000D",
			"--to-datetime 2023-11-14T22:13:25.000", "--to-datetime 2023-11-14T22:13:25.500+01:00", "--to-datetime yesterday", "--to-current",
		}
		if g != "billing" {
			specs = []string{"--to-latest", "--shift-by -3", "--to-current"}
		}
		for _, spec := range specs {
			groups("--reset-offsets --group " + g + " --topic orders " + spec)
			groups("--reset-offsets --group " + g + " --topic orders:0,1 " + spec + " --execute")
			groups("--describe --group " + g + " --offsets")
		}
		groups("--reset-offsets --group " + g + " --all-topics --to-offset 4 --execute")
		groups("--reset-offsets --group " + g + " --all-topics --to-current --export --dry-run")
		file := filepath.Join(dir, g+".csv")
		if err := os.WriteFile(file, []byte("orders,0,11\norders,2,12\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		groups("--reset-offsets --group " + g + " --from-file " + file + " --execute")
		groups("--describe --group " + g + " --offsets")
		groups("--delete-offsets --group " + g + " --topic orders:0")
		groups("--delete-offsets --group " + g + " --topic nothing")
		groups("--describe --group " + g + " --offsets")
	}
	groups("--reset-offsets --group newcomer --topic orders --to-offset 2 --execute")
	groups("--reset-offsets --all-groups --all-topics --to-earliest")
	groups("--delete --group newcomer --group nobody")
	groups("--list")
	groups("--delete --all-groups")
	groups("--list")
	for _, re := range []string{"orders.*", "or(ders", "(?=x)", "[[:alpha:]]+"} {
		if out := tools.run(t, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--validate-regex", re); len(out) == 0 {
			t.Errorf("nothing said of %s", re)
		}
	}
	for _, args := range []string{"--topic orders", "--topic-partitions orders:0-2,refunds --time earliest", "--topic orders --time max-timestamp", "--topic orders --time 1700000005000", "--topic orders --time earliest-local", "--topic-partitions or.* --time latest"} {
		compare("org.apache.kafka.tools.GetOffsetShell", strings.Fields(args)...)
	}
}
