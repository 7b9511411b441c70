package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicMove() *cobra.Command {
	var f clientFlags
	var to int32
	cmd := &cobra.Command{
		Use: "move TOPIC[/PARTITION]... --to NODE", Short: "Move partitions to another broker, without copying",
		Long: `Move partitions to another broker, or all of a topic. Their records stay where they
are on the shared store; the new leader takes over after a pause of milliseconds. The
broker becomes the preferred leader: the first of the replica list.`,
		Example: "  ponor topic move orders/0 orders/3 --to 2\n  ponor topic move orders --to 2",
		Args:    takes(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to < 0 {
				return usagef("--to is missing: say to which node")
			}
			m := topicMove{cmd: cmd, to: to}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				if err := m.plan(ctx, adm, args); err != nil {
					return err
				}
				return m.run(ctx, adm)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().Int32Var(&to, "to", -1, "the node that shall lead")
	return cmd
}

// topicMove makes a broker the preferred leader of partitions and has it elected, of all at
// once.
type topicMove struct {
	cmd  *cobra.Command
	to   int32
	list []kadm.PartitionDetail // without those that it leads already
}

// plan finds the partitions that the arguments name.
func (m *topicMove) plan(ctx context.Context, adm *kadm.Client, args []string) error {
	var names []string
	for _, arg := range args {
		topic, _, _ := strings.Cut(arg, "/")
		names = append(names, topic)
	}
	slices.Sort(names)
	md, err := adm.Metadata(ctx, slices.Compact(names)...)
	if err != nil {
		return fmt.Errorf("move partitions: %w", err)
	}
	if !slices.ContainsFunc(md.Brokers, func(b kadm.BrokerDetail) bool { return b.NodeID == m.to }) {
		return fmt.Errorf("move %s: broker %d is not in the cluster, or is down; the brokers are %v", strings.Join(args, " "), m.to, md.Brokers.NodeIDs())
	}
	seen := kadm.TopicsSet{}
	for _, arg := range args {
		name, text, one := strings.Cut(arg, "/")
		t := md.Topics[name]
		if t.Err != nil {
			return fmt.Errorf("move %s: %w", arg, topicError(ctx, adm, name, t.Err, ""))
		}
		some := t.Partitions.Sorted()
		if one {
			number, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return usagef("%q: write TOPIC/PARTITION, such as orders/0, or TOPIC", arg)
			}
			p, ok := t.Partitions[int32(number)]
			if !ok {
				return fmt.Errorf("move %s: the topic has %s, 0 to %d", arg, count(len(some), "partition"), len(some)-1)
			}
			some = []kadm.PartitionDetail{p}
		}
		for _, p := range some {
			switch {
			case seen.Lookup(p.Topic, p.Partition):
				continue
			case p.Leader == m.to:
				m.cmd.Printf("%s/%d is led by broker %d already\n", p.Topic, p.Partition, m.to)
			default:
				m.list = append(m.list, p)
			}
			seen.Add(p.Topic, p.Partition)
		}
	}
	return nil
}

func (m *topicMove) run(ctx context.Context, adm *kadm.Client) error {
	if len(m.list) == 0 {
		return nil
	}
	begun := time.Now()
	var req kadm.AlterPartitionAssignmentsReq
	for _, p := range m.list {
		req.Assign(p.Topic, p.Partition, ledBy(p.Replicas, p.Leader, m.to))
	}
	assigned, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return fmt.Errorf("move partitions: %w", err)
	}
	var errs []error
	set := kadm.TopicsSet{}
	for _, p := range m.list {
		if r := assigned[p.Topic][p.Partition]; r.Err != nil {
			errs = append(errs, fmt.Errorf("move %s/%d: %w", p.Topic, p.Partition, brokerError(r.Err, r.ErrMessage)))
		} else {
			set.Add(p.Topic, p.Partition)
		}
	}
	if len(set) == 0 {
		return errors.Join(errs...)
	}
	elected, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("move partitions: %w", err))...)
	}
	took := time.Since(begun).Round(time.Millisecond)
	moved := 0
	for _, p := range m.list {
		if !set.Lookup(p.Topic, p.Partition) {
			continue
		}
		if r := elected[p.Topic][p.Partition]; r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
			errs = append(errs, fmt.Errorf("move %s/%d: %w", p.Topic, p.Partition, brokerError(r.Err, r.ErrMessage)))
			continue
		}
		moved++
		m.cmd.Printf("moved %s/%d from broker %d to broker %d\n", p.Topic, p.Partition, p.Leader, m.to)
	}
	if moved > 0 {
		m.cmd.Printf("%s in %v, 0 bytes copied\n", count(moved, "partition"), took)
	}
	return errors.Join(errs...)
}

// ledBy puts a broker first in a replica list: it changes places with the
// first if it is in the list, and takes the leader's place otherwise.
func ledBy(replicas []int32, leader, to int32) []int32 {
	list := slices.Clone(replicas)
	if i := slices.Index(list, to); i >= 0 {
		list[i] = list[0]
		list[0] = to
		return list
	}
	i := max(slices.Index(list, leader), 0)
	list[i] = list[0]
	list[0] = to
	return list
}
