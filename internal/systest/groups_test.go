package systest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// tryPonor runs a command of the binary against a cluster.
func tryPonor(t *testing.T, c *systest.Cluster, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, systest.Binary(t), args...)
	cmd.Env = append(os.Environ(), "PONOR_BOOTSTRAP="+c.Bootstrap())
	return cmd.CombinedOutput()
}

// refused runs a command that must not succeed, and returns what it says.
func refused(t *testing.T, c *systest.Cluster, args ...string) string {
	t.Helper()
	out, err := tryPonor(t, c, args...)
	if err == nil {
		t.Fatalf("ponor %s succeeded:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

// ponorJSON decodes what a command prints.
func ponorJSON(t *testing.T, c *systest.Cluster, v any, args ...string) error {
	t.Helper()
	out, err := tryPonor(t, c, append(args, "--format", "json")...)
	if err == nil {
		err = json.Unmarshal(out, v)
	}
	if err != nil {
		return fmt.Errorf("ponor %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// says fails unless a text has all the words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

// consumer is a member of a group, as a client writes one.
type consumer struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}
}

// consume joins a group. Each batch that was polled is given to handle and committed
// after it; handle nil never polls.
func consume(c *systest.Cluster, group, topic, id string, handle func([]*kgo.Record)) *consumer {
	m := &consumer{done: make(chan struct{})}
	m.cl = c.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ClientID(id), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(30*time.Second))
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		for handle != nil && ctx.Err() == nil {
			records := m.cl.PollRecords(ctx, 20).Records()
			handle(records)
			_ = m.cl.CommitRecords(ctx, records...) // the next commit says it again
		}
	}()
	return m
}

// leave ends the member.
func (m *consumer) leave() {
	m.stop()
	<-m.done
	m.cl.Close()
}

// groupReport is what 'group why' prints.
type groupReport struct {
	Verdict struct{ Code, Text string }
	Group   struct {
		Name, State string
		Lag         int64
		Members     []struct {
			Client     string
			Assignment map[string][]int32
		}
	}
	Partitions []struct {
		Partition   int32
		Lag         int64
		Oldest      float64 `json:"oldest_unread_seconds"`
		Committed   int64   `json:"committed_offset"`
		CommittedAt int64   `json:"committed_at"`
	}
	Rebalances []struct {
		Members int
		Changes []struct{ What, Client string }
	}
}

// awaitVerdict asks why until the verdict is the one expected, in these words.
func awaitVerdict(t *testing.T, c *systest.Cluster, group, code string, words ...string) groupReport {
	t.Helper()
	var r groupReport
	systest.Eventually(t, "the verdict is "+code, func() error {
		r = groupReport{}
		if err := ponorJSON(t, c, &r, "group", "why", group, "--watch", "1s"); err != nil {
			return err
		}
		if r.Verdict.Code != code || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.Verdict.Text, w) }) {
			return fmt.Errorf("it is %s: %s; %+v", r.Verdict.Code, r.Verdict.Text, r.Rebalances)
		}
		return nil
	})
	return r
}

// produceSteadily sends a record to each partition every 10 ms until it is stopped.
func produceSteadily(t *testing.T, c *systest.Cluster, topic string, partitions int32) (stop func()) {
	t.Helper()
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for p := range partitions {
				cl.Produce(ctx, &kgo.Record{Partition: p, Value: []byte("x")}, nil)
			}
			<-tick.C
		}
	}()
	return func() { cancel(); <-done }
}

// An operator asks why a group lags: it is healthy, one of its members is slow, one
// has stopped to read, all are gone.
func TestOperatorAsksWhyAGroupLags(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	if _, err := kadm.NewClient(c.Client()).CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	stop := produceSteadily(t, c, "orders", 2)
	defer stop()
	fast := consume(c, "billing", "orders", "fast", func([]*kgo.Record) {})
	awaitVerdict(t, c, "billing", "healthy")

	sluggish := consume(c, "billing", "orders", "sluggish", func([]*kgo.Record) { time.Sleep(time.Second) })
	r := awaitVerdict(t, c, "billing", "slow", "consumer sluggish is slower than production on orders/")
	last := r.Rebalances[len(r.Rebalances)-1]
	if len(r.Group.Members) != 2 || last.Members != 2 {
		t.Errorf("two members read, but the report has %+v", r)
	}
	sluggish.leave()

	paused := consume(c, "billing", "orders", "paused", nil)
	r = awaitVerdict(t, c, "billing", "stuck", "consumer paused has committed nothing on orders/", "records wait, the oldest for")
	for _, p := range r.Partitions {
		if p.Lag > 0 && p.Oldest <= 0 || p.CommittedAt == 0 {
			t.Errorf("a partition with lag has no age or time: %+v", p)
		}
	}
	paused.leave()
	fast.leave()

	awaitVerdict(t, c, "billing", "no-members", "no member for", "the last, fast, left", "wait")
	says(t, ponor(t, c, "group", "why", "billing", "--watch", "0"), "billing: no member for", "orders/0", "paused joined", "paused left")
}

// An operator lists and describes groups, moves their offsets and deletes them.
func TestOperatorManagesGroups(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	adm := kadm.NewClient(c.Client())
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("orders"))
	for i := range 300 {
		cl.Produce(t.Context(), &kgo.Record{Partition: int32(i % 3), Value: []byte("x")}, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := consume(c, "billing", "orders", "app", func([]*kgo.Record) {})
	systest.Eventually(t, "everything is read", func() error {
		var views []struct {
			Name, Type, State string
			Lag               int64
			Members           []struct{ Client, Host string }
			Partitions        []struct {
				Committed int64 `json:"committed_offset"`
			}
		}
		if err := ponorJSON(t, c, &views, "group", "describe", "billing"); err != nil {
			return err
		}
		v := views[0]
		if v.State != "Stable" || v.Type != "classic" || len(v.Members) != 1 || v.Members[0].Client != "app" || v.Members[0].Host != "/127.0.0.1" || len(v.Partitions) != 3 {
			return fmt.Errorf("it is %+v", v)
		}
		for _, p := range v.Partitions {
			if p.Committed != 100 {
				return fmt.Errorf("it is %+v", v)
			}
		}
		return nil
	})
	says(t, ponor(t, c, "group", "list", "--state", "stable", "--type", "classic"), "billing", "Stable")
	if out := ponor(t, c, "group", "list", "--state", "Empty"); strings.Contains(out, "billing") {
		t.Errorf("the filter let it through:\n%s", out)
	}

	says(t, refused(t, c, "group", "reset", "billing", "--topic", "orders", "--to", "start", "--execute"), "it has 1 member (app at 127.0.0.1)", "stop them first")
	says(t, refused(t, c, "group", "delete", "billing"), "it has members; stop them first")
	says(t, refused(t, c, "group", "delete-offsets", "billing", "--topic", "orders"), "a member reads this topic")
	m.leave()

	committed := func() string {
		offsets, err := adm.FetchOffsets(t.Context(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, o := range offsets.Sorted() {
			all = append(all, fmt.Sprintf("%d=%d", o.Partition, o.At))
		}
		return strings.Join(all, " ")
	}
	step := func(want string, args ...string) {
		t.Helper()
		ponor(t, c, append([]string{"group"}, args...)...)
		if got := committed(); got != want {
			t.Errorf("after %s the offsets are %s, want %s", strings.Join(args, " "), got, want)
		}
	}
	step("0=100 1=100 2=100", "reset", "billing", "--topic", "orders", "--to", "start")
	step("0=90 1=90 2=100", "reset", "billing", "--topic", "orders:0,1", "--to", "-10", "--execute")
	step("0=100 1=90 2=100", "reset", "billing", "--topic", "orders:0", "--to", "+50", "--execute")
	csv := t.TempDir() + "/offsets.csv"
	if err := os.WriteFile(csv, []byte(ponor(t, c, "group", "reset", "billing", "--all-topics", "--to", "current", "--export")), 0o600); err != nil {
		t.Fatal(err)
	}
	step("0=0 1=0 2=0", "reset", "billing", "--all-topics", "--to", "@-1h", "--execute")
	step("0=100 1=90 2=100", "reset", "billing", "--from-file", csv, "--execute")
	step("0=100 2=100", "delete-offsets", "billing", "--topic", "orders:1")
	step("0=100 1=100 2=100", "reset", "billing", "--topic", "orders", "--to", "@"+fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()), "--execute")
	says(t, refused(t, c, "group", "reset", "billing", "--topic", "orders:7", "--to", "3"), "there is no partition orders/7")

	if out := ponor(t, c, "consume", "orders", "--group", "other", "--from", "start", "--count", "250"); strings.Count(out, "\n") != 250 {
		t.Errorf("consumed %d lines, want 250", strings.Count(out, "\n"))
	}
	if out := ponor(t, c, "consume", "orders", "--group", "other", "--count", "50"); strings.Count(out, "\n") != 50 {
		t.Errorf("consumed %d lines, want the 50 that are left", strings.Count(out, "\n"))
	}
	says(t, ponor(t, c, "group", "delete", "billing", "other"), "deleted billing", "deleted other")
	says(t, refused(t, c, "group", "describe", "billing"), "there is no such group")
}

// Settings of groups count as soon as they are altered.
func TestOperatorAltersSettingsOfGroups(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	cl := c.Client()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	interval := func() int32 {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.RebalanceTimeoutMillis = "billing", "m", 60000
		req.SubscribedTopicNames, req.Topics = []string{"orders"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			t.Fatal(err)
		}
		return resp.HeartbeatIntervalMillis
	}
	if got := interval(); got != 3000 {
		t.Errorf("the interval of heartbeats is %d ms by default", got)
	}
	value := "1234"
	if _, err := adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "group.consumer.heartbeat.interval.ms", Value: &value}}); err != nil {
		t.Fatal(err)
	}
	systest.Eventually(t, "members are told another interval", func() error {
		if got := interval(); got != 1234 {
			return fmt.Errorf("it is %d ms", got)
		}
		return nil
	})
}

// A regular expression that the coordinator resolves (KIP-848) matches whole names, of
// internal topics, too, and of topics that are made later.
func TestConsumerGroupMatchesInternalTopics(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	adm := kadm.NewClient(c.Client())
	create := func(topics ...string) {
		t.Helper()
		if _, err := adm.CreateTopics(t.Context(), 1, 1, nil, topics...); err != nil {
			t.Fatal(err)
		}
	}
	create("orders-a", "my-orders-a", "other")
	var mu sync.Mutex
	has := map[string]bool{}
	m := c.Client(kgo.ServerSideBalancer(), kgo.ConsumerGroup("matching"), kgo.ConsumeRegex(), kgo.ConsumeTopics("^orders-.*$", "^__consumer_offsets$"),
		kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			mu.Lock()
			defer mu.Unlock()
			for topic := range topics {
				has[topic] = true
			}
		}))
	defer m.Close()
	await := func(want ...string) {
		t.Helper()
		systest.Eventually(t, "topics are assigned", func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Sorted(maps.Keys(has)); !slices.Equal(got, want) {
				return fmt.Errorf("it has %s, not %s", got, want)
			}
			return nil
		})
	}
	await("__consumer_offsets", "orders-a")
	create("orders-b")
	await("__consumer_offsets", "orders-a", "orders-b")
}

// The offsets of topics that lived for a moment go with them, and topics of the same
// names begin without.
func TestOffsetsGoWithTheirTopics(t *testing.T) {
	c := systest.Start(t, systest.Options{})
	adm := kadm.NewClient(c.Client())
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "stays"); err != nil {
		t.Fatal(err)
	}
	commit := func(topic string) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 5, -1)
		systest.Eventually(t, "the topic is known", func() error { return adm.CommitAllOffsets(t.Context(), "billing", offsets) })
	}
	commit("stays")
	for i := range 5 {
		topic := fmt.Sprint("brief", i)
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
		commit(topic)
		if _, err := adm.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		systest.Eventually(t, "the topic is made again", func() error {
			_, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic)
			return err
		})
	}
	systest.Eventually(t, "offsets of deleted topics go", func() error {
		offsets, err := adm.FetchOffsets(t.Context(), "billing")
		if err != nil {
			return err
		}
		if topics := slices.Sorted(maps.Keys(offsets)); !slices.Equal(topics, []string{"stays"}) {
			return fmt.Errorf("there are offsets of %s", topics)
		}
		return nil
	})
}
