//go:build clients

package systest_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/internal/systest"
)

// verifiableEvent is a line of kafka-verifiable-consumer or -producer.
type verifiableEvent struct {
	Timestamp  int64 // in ms
	Name       string
	Partitions []struct {
		Partition            int32
		MinOffset, MaxOffset int64
	}
	Offsets []struct {
		Partition int32
		Offset    int64
	}
	Success   bool
	Error     string
	Partition int32 // of a record that was acknowledged
	Offset    int64
	Value     string

	by string
}

// verifiable is a client process that says what it does.
type verifiable struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	events []verifiableEvent
	errors strings.Builder
}

// java is the command line of one of Kafka's tools as a small process.
func java(class string, args ...string) []string {
	return append([]string{"bash", filepath.Join("..", "..", "deploy", "kafka", "kafka.sh"), "tool", class}, args...)
}

// run starts a client; it is killed with the test.
func run(t *testing.T, name string, argv []string) *verifiable {
	t.Helper()
	v := &verifiable{name: name, done: make(chan struct{}), cmd: exec.CommandContext(t.Context(), argv[0], argv[1:]...)}
	v.cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k")
	v.cmd.Stderr = &v.errors
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(v.done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			e := verifiableEvent{by: name}
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue
			}
			v.mu.Lock()
			v.events = append(v.events, e)
			v.mu.Unlock()
		}
		_ = v.cmd.Wait() // whoever ended it knows
	}()
	t.Cleanup(func() { v.kill(); <-v.done })
	return v
}

func (v *verifiable) kill() { _ = v.cmd.Process.Kill() }

// crash kills the client: what it has is free from now on.
func (v *verifiable) crash() {
	v.kill()
	<-v.done
	v.events = append(v.events, verifiableEvent{Timestamp: time.Now().UnixMilli(), Name: "crashed", by: v.name})
}

// stop has the client end by itself.
func (v *verifiable) stop(t *testing.T) {
	t.Helper()
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.done:
	case <-time.After(systest.Patience):
		t.Errorf("%s does not end\n%s", v.name, v.errors.String())
	}
}

// assignments says what a member was given and gave back, in order, and what it has.
func (v *verifiable) assignments() (said string, has []int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.events {
		if e.Name != "partitions_assigned" && e.Name != "partitions_revoked" {
			continue
		}
		for _, p := range e.Partitions {
			said += fmt.Sprint(e.Name, " ", p.Partition, " ")
			has = slices.DeleteFunc(has, func(had int32) bool { return had == p.Partition })
			if e.Name == "partitions_assigned" {
				has = append(has, p.Partition)
			}
		}
	}
	slices.Sort(has)
	return said, has
}

// rank orders what members did in one millisecond: what ends comes first.
func (e verifiableEvent) rank() int {
	return slices.Index([]string{"offsets_committed", "partitions_revoked", "crashed", "partitions_assigned", "records_consumed"}, e.Name)
}

// verifiableGroup are the members of a group, those that have ended, too.
type verifiableGroup struct {
	name   string
	start  func(n int) []string // the command of a member
	live   []*verifiable
	all    []*verifiable
	failed int // commits
}

func (g *verifiableGroup) add(t *testing.T) *verifiable {
	t.Helper()
	v := run(t, fmt.Sprintf("%s-%d", g.name, len(g.all)), g.start(len(g.all)))
	g.live, g.all = append(g.live, v), append(g.all, v)
	return v
}

// check replays what all members said in the order of their clocks, which is one.
func (g *verifiableGroup) check(t *testing.T, ends map[int32]int64) *groupHistory {
	t.Helper()
	var left [][]verifiableEvent
	for _, v := range g.all {
		<-v.done
		left = append(left, v.events)
	}
	var events []verifiableEvent
	for {
		left = slices.DeleteFunc(left, func(l []verifiableEvent) bool { return len(l) == 0 })
		if len(left) == 0 {
			break
		}
		first := slices.MinFunc(left, func(a, b []verifiableEvent) int {
			return cmp.Or(cmp.Compare(a[0].Timestamp, b[0].Timestamp), cmp.Compare(a[0].rank(), b[0].rank()))
		})
		events = append(events, first[0])
		i := slices.IndexFunc(left, func(l []verifiableEvent) bool { return &l[0] == &first[0] })
		left[i] = left[i][1:]
	}
	h := newGroupHistory(g.name)
	has := map[string][]int32{}
	for _, e := range events {
		var parts []int32
		for _, p := range e.Partitions {
			parts = append(parts, p.Partition)
		}
		switch e.Name {
		case "partitions_assigned":
			h.assign(e.by, parts, 0)
			has[e.by] = append(has[e.by], parts...)
		case "partitions_revoked":
			h.revoke(e.by, parts)
		case "crashed":
			h.revoke(e.by, has[e.by])
		case "records_consumed":
			for _, p := range e.Partitions {
				h.process(e.by, p.Partition, p.MinOffset, p.MaxOffset)
			}
		case "offsets_committed":
			if !e.Success {
				g.failed++
			}
			for _, o := range e.Offsets {
				if e.Success {
					h.commit(o.Partition, o.Offset)
				}
			}
		}
	}
	for p, end := range ends {
		if h.processed[p] != end {
			t.Errorf("%s: partition %d ends at %d and was processed to %d", g.name, p, end, h.processed[p])
		}
	}
	for _, err := range h.errs {
		t.Error(err)
	}
	if h.errs != nil {
		for _, e := range events[max(0, len(events)-300):] {
			t.Logf("%s %d %s %v %v %v %s", e.by, e.Timestamp%1e6, e.Name, e.Partitions, e.Offsets, e.Success, e.Error)
		}
	}
	times := 0
	for _, n := range h.assigned {
		times += n
	}
	t.Logf("%s: %d members, %d assignments of partitions, %d commits failed, %d records read again", g.name, len(g.all), times, g.failed, h.again)
	return h
}

// rig is a cluster with a topic, producers and groups on it.
type verifiableRig struct {
	c          *systest.Cluster
	adm        *kadm.Client
	offsets    groupOffsets
	timeout    string
	partitions int32
	groups     []*verifiableGroup
	producers  []*verifiable
}

// newVerifiableRig starts a cluster on which members of consumer groups (KIP-848) that
// crash are gone after a time, in ms.
func newVerifiableRig(t *testing.T, partitions int32, timeout string) *verifiableRig {
	t.Helper()
	c := systest.Start(t, systest.Options{})
	r := &verifiableRig{c: c, adm: kadm.NewClient(c.Client()), partitions: partitions, timeout: timeout}
	createTopic(t, c, "verifiable", partitions)
	if _, err := r.adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "group.consumer.session.timeout.ms", Value: &timeout}}); err != nil {
		t.Fatal(err)
	}
	return r
}

// produce starts a producer of its own numbers.
func (r *verifiableRig) produce(t *testing.T) *verifiable {
	t.Helper()
	n := len(r.producers)
	v := run(t, fmt.Sprint("producer", n), java("org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", r.c.Bootstrap(),
		"--topic", "verifiable", "--throughput", "500", "--value-prefix", fmt.Sprint(n)))
	r.producers = append(r.producers, v)
	return v
}

// group adds a group of n members.
func (r *verifiableRig) group(t *testing.T, name string, n int, start func(n int) []string) *verifiableGroup {
	t.Helper()
	g := &verifiableGroup{name: name, start: start}
	for range n {
		g.add(t)
	}
	r.groups = append(r.groups, g)
	return g
}

// javaMember is the command of a kafka-verifiable-consumer.
func (r *verifiableRig) javaMember(t *testing.T, group string, args ...string) func(int) []string {
	t.Helper()
	all := append([]string{"--bootstrap-server", r.c.Bootstrap(), "--topic", "verifiable", "--group-id", group}, args...)
	if !slices.Contains(args, "--group-protocol") {
		config := filepath.Join(t.TempDir(), group+".properties")
		if err := os.WriteFile(config, []byte("heartbeat.interval.ms=500\nsession.timeout.ms="+r.timeout+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, "--command-config", config)
	}
	return func(int) []string { return java("org.apache.kafka.tools.VerifiableConsumer", all...) }
}

// progress waits until each group has committed more in each partition.
func (r *verifiableRig) progress(t *testing.T, what string) {
	t.Helper()
	before := map[string]map[int32]int64{}
	for _, g := range r.groups {
		systest.Eventually(t, what+": offsets are fetched", func() (err error) {
			before[g.name], err = r.offsets.of(t.Context(), r.c, g.name)
			return err
		})
	}
	begun := time.Now()
	late := slices.Clone(r.groups)
	var took []string
	systest.Eventually(t, what+": groups go on", func() error {
		var errs []error
		late = slices.DeleteFunc(late, func(g *verifiableGroup) bool {
			now, err := r.offsets.of(t.Context(), r.c, g.name)
			for p := range r.partitions {
				if now[p] < before[g.name][p]+10 {
					err = errors.Join(err, fmt.Errorf("%s: partition %d stays at %d", g.name, p, now[p]))
				}
			}
			if err == nil {
				took = append(took, fmt.Sprintf("%s %.1f s", g.name, time.Since(begun).Seconds()))
			}
			errs = append(errs, err)
			return err == nil
		})
		return errors.Join(errs...)
	})
	t.Logf("%s: %s", what, strings.Join(took, ", "))
}

// finish ends the producers, has everything read, ends the groups and checks all.
func (r *verifiableRig) finish(t *testing.T) map[string]*groupHistory {
	t.Helper()
	for _, p := range r.producers {
		p.stop(t)
	}
	listed, err := r.adm.ListEndOffsets(t.Context(), "verifiable")
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int32]int64{}
	total := 0
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset; total += int(o.Offset) })
	for _, g := range r.groups {
		systest.Eventually(t, g.name+" reads everything", func() error {
			now, err := r.offsets.of(t.Context(), r.c, g.name)
			if err == nil && !maps.Equal(now, ends) {
				err = fmt.Errorf("committed %v of %v", now, ends)
			}
			return err
		})
		for _, v := range g.live {
			_ = v.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	histories := map[string]*groupHistory{}
	for _, g := range r.groups {
		for _, v := range g.live {
			v.stop(t)
		}
		histories[g.name] = g.check(t, ends)
	}
	type place struct {
		partition int32
		offset    int64
	}
	is := map[place]string{}
	for _, rec := range readAll(t, r.c, "verifiable", total) {
		is[place{rec.Partition, rec.Offset}] = string(rec.Value)
	}
	acked := 0
	for _, p := range r.producers {
		for _, e := range p.events {
			if e.Name != "producer_send_success" { // it never tries again, so that some fail
				continue
			}
			acked++
			if got := is[place{e.Partition, e.Offset}]; got != e.Value {
				t.Errorf("%s: %s was acknowledged at %d/%d, where %q is", p.name, e.Value, e.Partition, e.Offset, got)
			}
		}
	}
	t.Logf("%d records acknowledged, %d in the log", acked, total)
	return histories
}

// bounceBrokers kills each broker once, and sees all groups go on without it and with
// it.
func (r *verifiableRig) bounceBrokers(t *testing.T) {
	t.Helper()
	for _, n := range r.c.Nodes {
		n.Kill()
		r.progress(t, fmt.Sprintf("node %d is dead", n.ID))
		n.Start()
		r.c.WaitLive(3)
	}
}

// Groups of Kafka's verifiable consumer, librdkafka and kafka-python, of every protocol
// and assignor, over hard bounces of brokers, members and the producer.
func TestClientVerifiableGroups(t *testing.T) {
	t.Parallel()
	python := os.Getenv("PYTHON_CLIENTS")
	if python == "" {
		t.Fatal("PYTHON_CLIENTS is not set; 'make clients' sets it")
	}
	r := newVerifiableRig(t, 4, "10000")
	const classic = "org.apache.kafka.clients.consumer."
	for name, args := range map[string][]string{
		"java-range":      {"--assignment-strategy", classic + "RangeAssignor"},
		"java-roundrobin": {"--assignment-strategy", classic + "RoundRobinAssignor"},
		"java-coop":       {"--assignment-strategy", classic + "CooperativeStickyAssignor"},
		"java-uniform":    {"--group-protocol", "consumer", "--group-remote-assignor", "uniform"},
		"java-848-range":  {"--group-protocol", "consumer", "--group-remote-assignor", "range"},
	} {
		r.group(t, name, 2, r.javaMember(t, name, args...))
	}
	script := func(client, group string, settings ...string) func(int) []string {
		return func(int) []string {
			return append([]string{python, filepath.Join("testdata", "verifiable.py"), client, group, "verifiable", "bootstrap.servers=" + r.c.Bootstrap()}, settings...)
		}
	}
	for name, settings := range map[string][]string{
		"rdkafka-range": {"partition.assignment.strategy=range", "heartbeat.interval.ms=500", "session.timeout.ms=10000"},
		"rdkafka-coop":  {"partition.assignment.strategy=cooperative-sticky", "heartbeat.interval.ms=500", "session.timeout.ms=10000"},
		"rdkafka-848":   {"group.protocol=consumer"},
	} {
		r.group(t, name, 2, script("librdkafka", name, settings...))
	}
	r.group(t, "kafka-python", 2, script("kafka-python", "kafka-python"))
	first := r.produce(t)
	r.progress(t, "at first")
	r.bounceBrokers(t)
	for _, g := range r.groups {
		g.live[0].crash()
		g.live = g.live[1:]
		g.add(t)
	}
	first.crash()
	r.produce(t)
	r.progress(t, "members crashed")
	r.finish(t)
}

// Static members that are restarted get their partitions again, and the others notice
// nothing (KIP-345), while the coordinators change.
func TestClientVerifiableStaticMembers(t *testing.T) {
	t.Parallel()
	r := newVerifiableRig(t, 4, "45000")
	static := func(group string, args ...string) *verifiableGroup {
		return r.group(t, group, 2, func(n int) []string {
			return r.javaMember(t, group, append(args, "--group-instance-id", fmt.Sprint("instance-", n%2))...)(n)
		})
	}
	classic := static("static-classic")
	static("static-848", "--group-protocol", "consumer", "--group-remote-assignor", "uniform")
	r.produce(t)
	r.progress(t, "at first")
	type member struct {
		said string
		has  []int32
	}
	before := map[*verifiableGroup][]member{}
	for _, g := range r.groups {
		// One alone may have got on with all of the partitions.
		systest.Eventually(t, g.name+" is shared", func() error {
			_, first := g.live[0].assignments()
			_, second := g.live[1].assignments()
			if len(first) != 2 || len(second) != 2 {
				return fmt.Errorf("its members have %d and %d", first, second)
			}
			return nil
		})
		for _, v := range g.live {
			said, has := v.assignments()
			before[g] = append(before[g], member{said, has})
		}
	}
	for i, n := range r.c.Nodes {
		for _, g := range r.groups {
			// A consumer of the new protocol has to say that it goes; a classic one
			// need not.
			if g == classic && i == 0 {
				g.live[0].crash()
			} else {
				g.live[0].stop(t)
			}
		}
		n.Kill()
		for _, g := range r.groups {
			v := run(t, fmt.Sprintf("%s-0-%d", g.name, i), g.start(0))
			g.all, g.live[0] = append(g.all, v), v
		}
		r.progress(t, fmt.Sprintf("node %d is dead and members are back", n.ID))
		n.Start()
		r.c.WaitLive(3)
		for _, g := range r.groups {
			if _, has := g.live[0].assignments(); !slices.Equal(has, before[g][0].has) {
				t.Errorf("%s has %d, before its restart %d", g.live[0].name, has, before[g][0].has)
			}
			if said, _ := g.live[1].assignments(); said != before[g][1].said {
				t.Errorf("%s noticed that the other restarted: %s", g.live[1].name, said)
			}
		}
	}
	r.finish(t)
}

// A group is rolled from the classic protocol to the new one and back, member by
// member (KIP-848), and loses nothing.
func TestClientVerifiableMigration(t *testing.T) {
	t.Parallel()
	r := newVerifiableRig(t, 4, "10000")
	classic := r.javaMember(t, "migrating", "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
	g := r.group(t, "migrating", 2, classic)
	r.produce(t)
	r.progress(t, "all are classic")
	roll := func(kind string, start func(int) []string) {
		g.start = start
		for i := range g.live {
			g.live[0].stop(t)
			g.live = g.live[1:]
			g.add(t)
			r.progress(t, fmt.Sprintf("%d members are %s", i+1, kind))
		}
		systest.Eventually(t, "the group is "+kind, func() error {
			var views []struct{ Type, State string }
			if err := ponorJSON(t, r.c, &views, "group", "describe", g.name); err != nil {
				return err
			}
			if views[0].Type != kind || views[0].State != "Stable" {
				return fmt.Errorf("it is %+v", views[0])
			}
			return nil
		})
	}
	roll("consumer", r.javaMember(t, "migrating", "--group-protocol", "consumer", "--group-remote-assignor", "uniform"))
	r.c.Nodes[0].Kill()
	r.progress(t, "a node is dead")
	r.c.Nodes[0].Start()
	r.c.WaitLive(3)
	roll("classic", classic)
	r.finish(t)
}
