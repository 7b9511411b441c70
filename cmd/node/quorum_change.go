package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ponor/controller"
	"ponor/metadata"
	"ponor/rpc"
)

func newQuorumAdd() *cobra.Command {
	return newQuorumChange("add NODE", "Give a running node a vote", `Give a running node a vote. The node was started with the controller role, a
--controller-listen address, a --data-dir, and --join naming any controller of
the cluster; until now it only follows. It first gets the log, then the vote.
Asking again is safe, also after a failure.`, controller.AddVoter, "node %d votes now")
}

func newQuorumRemove() *cobra.Command {
	return newQuorumChange("remove NODE", "Take a node's vote", `Take a node's vote; it goes on as a broker. Refused if those that are left would
have no majority that answers. A node that is gone for good can be removed too.`,
		controller.RemoveVoter, "node %d has no vote now")
}

func newQuorumTransfer() *cobra.Command {
	return newQuorumChange("transfer [NODE]", "Make another voter lead", "Make another voter lead: NODE, or the one that lags least.",
		controller.TransferLeadership, "node %d leads now")
}

func newQuorumChange(use, short, long string, change controller.VoterChange, done string) *cobra.Command {
	var f clientFlags
	args := takes(1, 1)
	if change == controller.TransferLeadership {
		args = takes(0, 1)
	}
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			node := int64(-1)
			if len(args) == 1 {
				var err error
				if node, err = strconv.ParseInt(args[0], 10, 32); err != nil || node < 0 {
					return usagef("%q is not a node id", args[0])
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return f.withBroker(ctx, func(c *rpc.Client) error {
				last := ""
				err := controller.AskVoters(ctx, c, change, metadata.BrokerID(node), func(progress string) {
					if progress != last {
						cmd.PrintErrln(progress)
					}
					last = progress
				})
				if err != nil {
					return err
				}
				info, err := settledQuorum(ctx, c)
				if err != nil {
					return err
				}
				if change == controller.TransferLeadership {
					node = int64(info.Leader)
				}
				cmd.Printf(done+"; %s\n", node, votersText(info))
				return nil
			})
		},
	}
	f.register(cmd)
	return cmd
}

// settledQuorum asks until it is known who leads: right after a change of the
// leader it may not be.
func settledQuorum(ctx context.Context, c *rpc.Client) (controller.QuorumInfo, error) {
	for {
		info, err := controller.AskQuorum(ctx, c)
		if err != nil || info.Leader >= 0 {
			return info, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return info, fmt.Errorf("find out who leads: %w; 'ponor quorum status' shows it", ctx.Err())
		}
	}
}

// votersText says who votes, and whether that many make sense.
func votersText(info controller.QuorumInfo) string {
	var ids []metadata.BrokerID
	for _, m := range info.Members {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	text := fmt.Sprintf("voters are %v", ids)
	if n := len(ids); n%2 == 0 {
		text += fmt.Sprintf("; with %d the quorum survives no more losses than with %d, add or remove one", n, n-1)
	}
	return text
}

// withBroker runs fn with a connection to a broker that answers. Its
// errors are final: they are the cluster's.
func (f *clientFlags) withBroker(ctx context.Context, fn func(*rpc.Client) error) error {
	seed, err := f.answering(ctx)
	if err != nil {
		return err
	}
	c, err := dialBroker(ctx, seed)
	if err != nil {
		return f.silence(err)
	}
	defer func() { _ = c.Close() }()
	return fn(c)
}
