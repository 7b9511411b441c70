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
		Use: "move TOPIC/PARTITION... --to NODE", Short: "Move partitions to another broker, without copying",
		Long: `Move partitions to another broker. Their records stay where they are on the
shared store; the new leader takes over after a pause of milliseconds. The broker
becomes the preferred leader: the first of the replica list.`,
		Example: "  ponor topic move orders/0 orders/3 --to 2",
		Args:    takes(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to < 0 {
				return usagef("--to is missing: say to which node")
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				var errs []error
				for _, arg := range args {
					errs = append(errs, movePartition(ctx, cmd, adm, arg, to))
				}
				return errors.Join(errs...)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().Int32Var(&to, "to", -1, "the node that shall lead")
	return cmd
}

// movePartition makes a broker the preferred leader of a partition and has it
// elected.
func movePartition(ctx context.Context, cmd *cobra.Command, adm *kadm.Client, arg string, to int32) error {
	topic, text, ok := strings.Cut(arg, "/")
	number, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil {
		return usagef("%q: write TOPIC/PARTITION, such as orders/0", arg)
	}
	partition := int32(number)
	md, err := adm.Metadata(ctx, topic)
	if err != nil {
		return fmt.Errorf("move %s: %w", arg, err)
	}
	if err := md.Topics[topic].Err; err != nil {
		return fmt.Errorf("move %s: %w", arg, topicError(ctx, adm, topic, err, ""))
	}
	p, ok := md.Topics[topic].Partitions[partition]
	switch {
	case !ok:
		return fmt.Errorf("move %s: the topic has %s, 0 to %d", arg, count(len(md.Topics[topic].Partitions), "partition"), len(md.Topics[topic].Partitions)-1)
	case !slices.ContainsFunc(md.Brokers, func(b kadm.BrokerDetail) bool { return b.NodeID == to }):
		return fmt.Errorf("move %s: broker %d is not in the cluster, or is down; the brokers are %v", arg, to, md.Brokers.NodeIDs())
	case p.Leader == to:
		cmd.Printf("%s is led by broker %d already\n", arg, to)
		return nil
	}
	begun := time.Now()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, ledBy(p.Replicas, p.Leader, to))
	assigned, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return fmt.Errorf("move %s: %w", arg, err)
	}
	if r := assigned[topic][partition]; r.Err != nil {
		return fmt.Errorf("move %s: %w", arg, brokerError(r.Err, r.ErrMessage))
	}
	set := kadm.TopicsSet{}
	set.Add(topic, partition)
	elected, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	if err != nil {
		return fmt.Errorf("move %s: %w", arg, err)
	}
	if r := elected[topic][partition]; r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) {
		return fmt.Errorf("move %s: %w", arg, brokerError(r.Err, r.ErrMessage))
	}
	cmd.Printf("moved %s from broker %d to broker %d in %v, 0 bytes copied\n", arg, p.Leader, to, time.Since(begun).Round(time.Millisecond))
	return nil
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
