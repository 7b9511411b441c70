package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
	"ponor/rpc"
)

func newBroker() *cobra.Command {
	cmd := &cobra.Command{Use: "broker", Short: "Cordon, drain and unregister brokers", Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(
		newBrokerState("cordon", "Give a broker no new partitions, also after it restarts", true, false),
		newBrokerState("uncordon", "Let a broker take partitions again", false, false),
		newBrokerState("drain", "Cordon a broker and move all its partitions to others", true, true),
		newBrokerUnregister(),
	)
	return cmd
}

func newBrokerState(verb, short string, cordoned, draining bool) *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use: verb + " NODE", Short: short, Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil {
				return usagef("%q is not a node id; 'ponor cluster status' shows them", args[0])
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				led := 0 // what it leads can be gone as soon as it is asked
				if draining {
					if led, err = leads(ctx, adm, int32(id)); err != nil {
						return err
					}
				}
				begun := time.Now()
				if err := setBrokerState(ctx, adm, metadata.BrokerID(id), cordoned, draining); err != nil {
					hint := "'ponor cluster status' shows the brokers"
					if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
						hint = quorumHint
					}
					return fmt.Errorf("%s broker %d: %w; %s", verb, id, err, hint)
				}
				if draining {
					return awaitDrained(ctx, cmd, adm, int32(id), led, begun)
				}
				cmd.Printf("%sed broker %d\n", verb, id)
				return nil
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newBrokerUnregister() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use: "unregister NODE", Aliases: []string{"remove"}, Short: "Forget a broker that is gone for good", Args: takes(1, 1),
		Long: `Forget a broker that is gone for good. It must be down, without a vote ('ponor quorum
remove') and without partitions, which others take when it goes down. Other brokers
take its place in replica lists. A process that is started with its id registers anew.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil {
				return usagef("%q is not a node id; 'ponor cluster status' shows them", args[0])
			}
			return f.withClient(cmd, func(ctx context.Context, cl *kgo.Client) error {
				if err := unregister(ctx, cl, int32(id)); err != nil {
					return fmt.Errorf("unregister broker %d: %w", id, err)
				}
				cmd.Printf("unregistered broker %d\n", id)
				return nil
			})
		},
	}
	f.register(cmd)
	return cmd
}

func unregister(ctx context.Context, cl *kgo.Client, id int32) error {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	message := ""
	if resp.ErrorMessage != nil {
		message = *resp.ErrorMessage
	}
	return brokerError(kerr.ErrorForCode(resp.ErrorCode), message)
}

// setEach is how long a broker may take to have the cluster change something.
const setEach = 5 * time.Second

// setBrokerState asks any broker, over its listener for clients. To ask another one again
// changes nothing more.
func setBrokerState(ctx context.Context, adm *kadm.Client, id metadata.BrokerID, cordoned, draining bool) error {
	addresses, err := brokerAddresses(ctx, adm)
	if err != nil {
		return err
	}
	_, err = askAny(ctx, addresses, setEach, func(ctx context.Context, c *rpc.Client) (struct{}, error) {
		return struct{}{}, controller.AskBrokerState(ctx, c, id, cordoned, draining)
	})
	return err
}

// leads is how many partitions a broker leads.
func leads(ctx context.Context, adm *kadm.Client, id int32) (n int, err error) {
	md, err := adm.Metadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask what broker %d leads: %w", id, err)
	}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader == id {
			n++
		}
	})
	return n, nil
}

// awaitDrained waits until a broker leads nothing, which led so many when it began.
func awaitDrained(ctx context.Context, cmd *cobra.Command, adm *kadm.Client, id int32, led int, begun time.Time) error {
	for {
		left, err := leads(ctx, adm, id)
		if err != nil {
			return err
		}
		if left == 0 {
			cmd.Printf("drained broker %d: %s moved in %v, 0 bytes copied; it stays cordoned until 'ponor broker uncordon %d'\n", id, count(led, "partition"), time.Since(begun).Round(time.Millisecond), id)
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("broker %d still leads %s: %w; the drain goes on", id, count(left, "partition"), ctx.Err())
		}
	}
}
