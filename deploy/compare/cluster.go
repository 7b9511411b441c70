package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/ports"
	"ponor/rpc"
)

// settings are the same for both, so that what is left are differences of behaviour.
// The times are as short as a conversation can bear.
var settings = map[string]string{
	"group.initial.rebalance.delay.ms":                 "300",
	"group.min.session.timeout.ms":                     "1000",
	"group.consumer.heartbeat.interval.ms":             "5000",
	"group.consumer.min.heartbeat.interval.ms":         "1000",
	"group.consumer.assignment.interval.ms":            "0",
	"group.consumer.min.assignment.interval.ms":        "0",
	"group.consumer.assignor.offload.enable":           "false",
	"group.coordinator.append.linger.ms":               "0",
	"offsets.topic.num.partitions":                     "4",
	"offset.metadata.max.bytes":                        "64",
	"group.coordinator.rebalance.protocols":            "classic,consumer",
	"group.coordinator.threads":                        "1",
	"auto.create.topics.enable":                        "false",
	"offsets.topic.replication.factor":                 "1",
	"transaction.state.log.replication.factor":         "1",
	"default.replication.factor":                       "1",
	"min.insync.replicas":                              "1",
	"transaction.state.log.min.isr":                    "1",
	"share.coordinator.state.topic.min.isr":            "1",
	"share.coordinator.state.topic.replication.factor": "1",
}

// shared are those of the settings that Ponor has, too; it takes them while it runs.
var shared = []string{
	"group.initial.rebalance.delay.ms", "group.min.session.timeout.ms", "group.consumer.heartbeat.interval.ms",
	"group.consumer.min.heartbeat.interval.ms", "group.consumer.assignment.interval.ms", "offset.metadata.max.bytes",
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// startPonor starts one node.
func startPonor(ctx context.Context, binary, dir string) (string, func(), error) {
	row, release, err := ports.Row(ctx, 2)
	if err != nil {
		return "", nil, err
	}
	addr, quorum := address(row[0]), address(row[1])
	node := exec.CommandContext(context.WithoutCancel(ctx), binary, "start", "--node-id", "1", "--listen", addr, "--controller-listen", quorum, "--log-level", "warn",
		"--store", "dir://"+filepath.Join(dir, "store"), "--data-dir", filepath.Join(dir, "data"))
	node.Stderr = os.Stderr
	node.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours, we stop it
	release()
	if err := node.Start(); err != nil {
		return "", nil, fmt.Errorf("start node: %w", err)
	}
	stop := func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait() // it was told to end
	}
	if err := awaitNode(ctx, addr); err != nil {
		return "", stop, err
	}
	return addr, stop, nil
}

// startKafka starts one node, see deploy/kafka.
func startKafka(ctx context.Context, _, dir string) (string, func(), error) {
	script := filepath.Join("deploy", "kafka", "kafka.sh")
	row, release, err := ports.Row(ctx, 2) // it takes the second one, too
	if err != nil {
		return "", nil, err
	}
	args := []string{script, "start", dir}
	for k, v := range settings {
		args = append(args, k+"="+v)
	}
	start := exec.CommandContext(ctx, "bash", args...)
	start.Env = append(os.Environ(), "KAFKA_NODES=1", fmt.Sprint("KAFKA_PORT=", row[0]), "KAFKA_HEAP=-Xms512m -Xmx512m")
	start.Stderr = os.Stderr
	stop := func() { _ = exec.CommandContext(context.WithoutCancel(ctx), "bash", script, "stop", dir).Run() }
	release()
	if err := start.Run(); err != nil {
		return "", stop, fmt.Errorf("start kafka: %w", err)
	}
	return address(row[0]), stop, awaitNode(ctx, address(row[0]))
}

// awaitNode returns once a node answers and knows itself.
func awaitNode(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		if resp, err := once[*kmsg.MetadataResponse](ctx, addr, 12, req); err == nil && len(resp.Brokers) == 1 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s does not answer", addr)
}

// once asks on a connection of its own.
func once[R kmsg.Response](ctx context.Context, addr string, version int16, req kmsg.Request) (none R, err error) {
	c, err := rpc.Dial(ctx, new(net.Dialer).DialContext, addr, rpc.ClientConfig{ClientID: clientID})
	if err != nil {
		return none, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = c.Close() }()
	req.SetVersion(version)
	resp, err := c.Do(ctx, req)
	if err != nil {
		return none, fmt.Errorf("ask: %w", err)
	}
	r, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("answered with %T", resp)
	}
	return r, nil
}

// setOnNode gives a node the settings that it can be given.
func setOnNode(ctx context.Context, addr string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeBroker
	for _, name := range shared {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, kmsg.StringPtr(settings[name])
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := once[*kmsg.IncrementalAlterConfigsResponse](ctx, addr, 1, req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		return fmt.Errorf("alter configs: %w", err)
	}
	return nil
}

// topics are there before the scripts, with their partitions.
var topics = map[string]int32{"t": 3, "u": 2}

// prepare makes the topics, and has the groups' coordinator ready.
func prepare(ctx context.Context, addr string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	for name, n := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, n, 1
		req.Topics = append(req.Topics, t)
	}
	made, err := once[*kmsg.CreateTopicsResponse](ctx, addr, 7, req)
	if err != nil {
		return err
	}
	for _, t := range made.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create %s: %w", t.Topic, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := 0; i < 100 && ctx.Err() == nil; {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKeys = []string{fmt.Sprint("warm-", i)}
		found, err := once[*kmsg.FindCoordinatorResponse](ctx, addr, 4, find)
		if err != nil {
			return err
		}
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: find.CoordinatorKeys[0], MemberEpoch: -1}}
		fetched, err := once[*kmsg.OffsetFetchResponse](ctx, addr, 8, fetch)
		if err != nil {
			return err
		}
		if found.Coordinators[0].ErrorCode == 0 && fetched.Groups[0].ErrorCode == 0 {
			i += 10 // groups hash to 4 partitions
			continue
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
