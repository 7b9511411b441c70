package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// runFailover measures what clients see when brokers die, partitions move and
// nodes restart, each part on a fresh cluster.
func runFailover(ctx context.Context, o options) error {
	fmt.Fprintln(os.Stdout, machine())
	o.cache = "256MiB"
	kill := []string{"--pack-bytes", "1GiB"} // so that nothing is packed before the death
	for _, part := range []struct {
		name     string
		settings []string
		kafka    bool // can do the same
		run      func(*failover) error
	}{
		{"kill", kill, true, func(f *failover) error { return f.death(killed, false) }},
		{"leader", kill, true, func(f *failover) error { return f.death(killed, true) }},
		{"pause", kill, true, func(f *failover) error { return f.death(paused, false) }},
		{"pause-leader", kill, true, func(f *failover) error { return f.death(paused, true) }},
		{"cut", kill, false, func(f *failover) error { return f.death(cutOff, false) }},
		{"cut-leader", kill, false, func(f *failover) error { return f.death(cutOff, true) }},
		{"moves", nil, true, (*failover).moves},
		{"many", nil, true, (*failover).many},
		{"drain", nil, true, (*failover).drain},
		{"roll", nil, true, (*failover).roll},
		// Small packs, so that a short run has many of them.
		{"entries", []string{"--pack-bytes", "8MiB"}, false, (*failover).entries},
	} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), part.name) {
			continue
		}
		starts := []func(context.Context, options) (*system, error){startPonor}
		if o.kafka && part.kafka {
			starts = append(starts, startKafka)
		}
		for _, start := range starts {
			for range o.rounds {
				o.settings, o.cuttable = part.settings, strings.HasPrefix(part.name, "cut")
				if err := runFailoverPart(ctx, o, part.name, start, part.run); err != nil {
					return fmt.Errorf("%s: %w", part.name, err)
				}
			}
		}
	}
	return nil
}

func runFailoverPart(ctx context.Context, o options, name string, start func(context.Context, options) (*system, error), run func(*failover) error) (err error) {
	if o.dir, err = os.MkdirTemp(o.dir, "failover-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	f := &failover{scale: scale{ctx: ctx, o: o}}
	if f.system, err = start(ctx, o); errors.Is(err, errNoNetwork) {
		row(name, "not measured: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { f.stop() }()
	fmt.Fprintf(os.Stdout, "\n%s, %s\n", name, f.name)
	if f.Client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...)); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	defer f.Close()
	return run(f)
}

// failover is one part of 'bench -failover', on a fresh cluster of its own.
type failover struct {
	scale
}

// signal sends a signal to the node at a place, from 0.
func (f *failover) signal(at int, sig syscall.Signal) error {
	if err := syscall.Kill(f.pids[at], sig); err != nil {
		return fmt.Errorf("signal node %d: %w", at+1, err)
	}
	return nil
}

// terminate stops a node in order and returns how long that took.
func (f *failover) terminate(at int) (time.Duration, error) {
	begun := time.Now()
	if err := f.signal(at, syscall.SIGTERM); err != nil {
		return 0, err
	}
	if f.procs != nil {
		err := f.procs[at].Wait()
		f.procs[at] = nil
		if err != nil {
			return 0, fmt.Errorf("node %d: %w", at+1, err)
		}
		return time.Since(begun), nil
	}
	for syscall.Kill(f.pids[at], 0) == nil && f.ctx.Err() == nil {
		pause(f.ctx, 10*time.Millisecond)
	}
	return time.Since(begun), nil
}

// again starts a node that has ended.
func (f *failover) again(at int) error {
	if f.script == "" {
		return f.launchOne(f.o, at)
	}
	if err := exec.CommandContext(f.ctx, "bash", f.script, "launch", f.data, strconv.Itoa(at+1)).Run(); err != nil {
		return fmt.Errorf("start node %d: %w", at+1, err)
	}
	b, err := os.ReadFile(filepath.Join(f.data, fmt.Sprintf("node%d.pid", at+1)))
	if err != nil {
		return fmt.Errorf("find node: %w", err)
	}
	f.pids[at], err = strconv.Atoi(strings.TrimSpace(string(b)))
	return err
}

// awaitBrokers returns once every node lists all of them.
func (f *failover) awaitBrokers() error {
	for _, address := range strings.Split(f.bootstrap, ",") {
		cl, err := kgo.NewClient(kgo.SeedBrokers(address))
		if err != nil {
			return fmt.Errorf("make client: %w", err)
		}
		for n := 0; n < nodes && f.ctx.Err() == nil; pause(f.ctx, 20*time.Millisecond) {
			ctx, cancel := context.WithTimeout(f.ctx, time.Second)
			resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
			cancel()
			if err == nil {
				n = len(resp.Brokers)
			}
		}
		cl.Close()
	}
	return f.ctx.Err()
}

// controller is the place of the node that leads the metadata quorum.
func (f *failover) controller() (int, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(f.ctx, f.Client)
	if err != nil {
		return 0, fmt.Errorf("describe quorum: %w", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("describe quorum: no answer (error %d)", resp.ErrorCode)
	}
	return int(resp.Topics[0].Partitions[0].LeaderID) - 1, nil
}

// reassign gives partitions new replica lists, the leader first, and returns
// when the first of each leads.
func (f *failover) reassign(topic string, replicas map[int32][]int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 30_000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	for p, list := range replicas {
		tp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		tp.Partition, tp.Replicas = p, list
		t.Partitions = append(t.Partitions, tp)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(f.ctx, f.Client)
	if err != nil {
		return fmt.Errorf("reassign: %w", err)
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return fmt.Errorf("reassign %s-%d: error %d", topic, p.Partition, p.ErrorCode)
		}
	}
	return f.awaitLeaders(topic, replicas)
}

func (f *failover) awaitLeaders(topic string, replicas map[int32][]int32) error {
	for f.ctx.Err() == nil {
		all, err := f.leaders([]string{topic})
		left := len(replicas)
		if err == nil {
			for b, list := range all {
				for _, l := range list {
					for _, n := range l.numbers {
						if r := replicas[n]; len(r) > 0 && r[0] == b {
							left--
						}
					}
				}
			}
			if left == 0 {
				return nil
			}
		}
		pause(f.ctx, 2*time.Millisecond)
	}
	return f.ctx.Err()
}

// topic makes a topic with one leader for all its partitions, and only one
// replica where there is more than one to choose.
func (f *failover) topic(name string, partitions int, replicas ...int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for i := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	if len(replicas) == 0 {
		t.NumPartitions, t.ReplicaAssignment = int32(partitions), nil
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(f.ctx, f.Client)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	if code := resp.Topics[0].ErrorCode; code != 0 {
		return fmt.Errorf("create topic %s: error %d", name, code)
	}
	return f.awaitAll([]string{name})
}

// metric sums a metric over those nodes that answer at their metrics addresses; labels are a part of its line.
func metric(nodes []string, name string, labels ...string) (sum float64, err error) {
	answered := false
	client := http.Client{Timeout: 2 * time.Second}
	for _, addr := range nodes {
		resp, err := client.Get("http://" + addr + "/metrics")
		if err != nil {
			continue // it is down or paused
		}
		answered = true
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			line := scan.Text()
			if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") ||
				slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
				continue
			}
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				resp.Body.Close()
				return 0, fmt.Errorf("read metrics: %w", err)
			}
			sum += v
		}
		resp.Body.Close()
	}
	if !answered {
		return 0, errors.New("read metrics: no node answers")
	}
	return sum, nil
}
