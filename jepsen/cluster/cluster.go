package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrCannot means that the cluster has no way to do this to its nodes.
var ErrCannot = errors.New("this cluster cannot do it")

// Cluster is a set of nodes. Its methods may be called by many at once, those
// that change one node by one at a time.
type Cluster interface {
	// Nodes are the broker ids, ascending.
	Nodes() []int32
	// Bootstrap are the addresses for clients, in the order of Nodes as far as
	// they are known.
	Bootstrap() []string
	// Can says whether a fault is possible: kill, pause, stop.
	Can(what string) bool

	// Start runs a node that was stopped or killed. It does not wait until the
	// node serves.
	Start(ctx context.Context, node int32) error
	// Stop ends a node in order (SIGTERM) and waits until it has ended.
	Stop(ctx context.Context, node int32) error
	// Kill ends it at once (SIGKILL).
	Kill(ctx context.Context, node int32) error
	Pause(ctx context.Context, node int32) error
	Resume(ctx context.Context, node int32) error
	// State is what the node's process is seen to be, in words: "pid 12 state T",
	// "pid 12 is gone". Empty: the cluster cannot see.
	State(node int32) string
	// Down says that the process is not there, Paused that it is stopped, as far
	// as the cluster can see.
	Down(node int32) bool
	Paused(node int32) bool

	// Exited are the nodes that ended though nobody told them to, with how.
	Exited() map[int32]string
	// Logs is the directory with the nodes' output, empty if there is none.
	Logs() string
	// Close ends what the cluster started.
	Close() error
}

// Client makes a client that asks only the given addresses first, which are
// the whole cluster's unless a node is meant.
func Client(seeds []string, opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("ponor-jepsen"), kgo.DisableClientMetrics(),
		kgo.DialTimeout(3 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryTimeout(10 * time.Second),
		kgo.RequestTimeoutOverhead(5 * time.Second),
	}, opts...)
	cl, err := kgo.NewClient(all...)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return cl, nil
}

// LeaderOf is the broker that leads a partition, -1 if none does.
func LeaderOf(ctx context.Context, adm *kadm.Client, topic string, partition int32) (int32, error) {
	md, err := adm.Metadata(ctx, topic)
	if err != nil {
		return -1, fmt.Errorf("ask for the leader of %s-%d: %w", topic, partition, err)
	}
	p, ok := md.Topics[topic].Partitions[partition]
	if !ok {
		return -1, fmt.Errorf("%s-%d is not there", topic, partition)
	}
	return p.Leader, nil
}

// ControllerLeader is the node that clients are told is the controller, -1 if
// none is known.
func ControllerLeader(ctx context.Context, cl *kgo.Client) (int32, error) {
	md, err := askBrokers(ctx, cl)
	if err != nil {
		return -1, fmt.Errorf("ask for the controller: %w", err)
	}
	return md.ControllerID, nil
}

// askBrokers asks for brokers alone. The client's own metadata may be of long
// ago, if it is asked for no topic.
func askBrokers(ctx context.Context, cl *kgo.Client) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req.RequestWith(ctx, cl)
}

// WaitReady waits until every node that answers lists all brokers.
func WaitReady(ctx context.Context, c Cluster) error {
	for _, seed := range c.Bootstrap() {
		cl, err := Client([]string{seed})
		if err != nil {
			return err
		}
		err = waitListed(ctx, cl, len(c.Nodes()), func() error {
			if p, ok := c.(*Processes); ok && p.lacks() {
				return errors.New("a node has ended")
			}
			return nil
		})
		cl.Close()
		if err != nil {
			return fmt.Errorf("wait for the node at %s: %w", seed, err)
		}
	}
	return nil
}

// waitListed waits until metadata has n brokers, or hopeless says why it never will.
func waitListed(ctx context.Context, cl *kgo.Client, n int, hopeless func() error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		md, err := askBrokers(attempt, cl)
		cancel()
		if err == nil && len(md.Brokers) >= n {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it lists %d of %d brokers", len(md.Brokers), n)
		}
		if why := hopeless(); why != nil {
			return why
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
