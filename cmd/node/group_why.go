package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// unreadPatience bounds the search for the first record that was not read.
const unreadPatience = 5 * time.Second

func newGroupWhy() *cobra.Command {
	var f clientFlags
	var format string
	var watch time.Duration
	cmd := &cobra.Command{
		Use: "why NAME", Short: "Say why a group lags, in one sentence, and show the evidence", Args: takes(1, 1),
		Long: `Say why a group lags: one sentence, then what led to it. It looks at the group
twice, --watch apart, to compare the rate of production with that of commits; reads
the first unread record of each partition for its age; and, from a Ponor cluster,
asks what the members did lately and what each rebalance was for.

Consumers that commit less often than every --watch look stuck: watch longer.`,
		Example:           "  ponor group why billing --watch 30s",
		ValidArgsFunction: f.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch < 0 {
				return usagef("--watch %v: 0 or more", watch)
			}
			cl, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout+watch)
			defer cancel()
			r, err := f.why(ctx, kadm.NewClient(cl), args[0], watch, func() {
				if format == formatText {
					cmd.PrintErrf("watching group %s for %s, to compare production with commits (--watch)\n", args[0], spanText(watch))
				}
			})
			if err != nil {
				return fmt.Errorf("look at group %s: %w", args[0], err)
			}
			return render(cmd, format, r, r.print)
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().DurationVar(&watch, "watch", 10*time.Second, "time between the two looks; 0 looks once")
	return cmd
}

// why looks at the group and says why it lags. It calls waits before it waits for the
// second look, if there is one.
func (f *clientFlags) why(ctx context.Context, adm *kadm.Client, name string, watch time.Duration, waits func()) (*groupReport, error) {
	begun := time.Now()
	before, err := lookAtGroup(ctx, adm, name)
	if err != nil {
		return nil, err
	}
	after, watched := before, time.Duration(0)
	if watch > 0 {
		waits()
		select {
		case <-time.After(watch):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		second := time.Now()
		if after, err = lookAtGroup(ctx, adm, name); err != nil {
			return nil, err
		}
		watched = second.Sub(begun)
	}
	more, noHistory := inspectGroup(ctx, &after)
	ages := f.unreadAges(ctx, after.Partitions)
	r := compareLooks(before, after, watched, ages, time.Now())
	if noHistory != nil {
		r.History = noHistory.Error()
	} else {
		r.remember(more)
	}
	r.Verdict = diagnose(r)
	return r, nil
}

// lookAtGroup is lookAtGroups for one that must be there, with its bare partitions.
func lookAtGroup(ctx context.Context, adm *kadm.Client, name string) (groupView, error) {
	views, err := lookAtGroups(ctx, adm, []string{name})
	if err != nil {
		return groupView{}, err
	}
	v := views[0]
	v.Partitions = append(v.Partitions, v.bare...)
	sortPartitions(v.Partitions)
	return v, v.Err
}

// unreadAges reads the first unread record of each partition: how old it is. What
// does not come in time is left out.
func (f *clientFlags) unreadAges(ctx context.Context, partitions []groupPartition) map[string]time.Duration {
	from := map[string]map[int32]kgo.Offset{}
	left := 0
	for _, p := range partitions {
		if p.Lag <= 0 {
			continue
		}
		if from[p.Topic] == nil {
			from[p.Topic] = map[int32]kgo.Offset{}
		}
		from[p.Topic][p.Partition] = kgo.NewOffset().At(max(p.Committed, p.Start))
		left++
	}
	ages := make(map[string]time.Duration, left)
	if left == 0 {
		return ages
	}
	ctx, cancel := context.WithTimeout(ctx, unreadPatience)
	defer cancel()
	// Control records (of transactions) count as lag too.
	cl, err := f.connect(ctx, kgo.ConsumePartitions(from), kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(1<<16), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return ages
	}
	defer cl.Close()
	now := time.Now()
	for left > 0 && ctx.Err() == nil {
		done := map[string][]int32{}
		cl.PollFetches(ctx).EachPartition(func(p kgo.FetchTopicPartition) {
			name := groupPartition{Topic: p.Topic, Partition: p.Partition}.name()
			if _, ok := ages[name]; ok || p.Topic == "" || len(p.Records) == 0 && p.Err == nil {
				return
			}
			if len(p.Records) > 0 {
				ages[name] = max(0, now.Sub(p.Records[0].Timestamp))
			}
			done[p.Topic] = append(done[p.Topic], p.Partition)
			left--
		})
		cl.PauseFetchPartitions(done)
	}
	return ages
}
