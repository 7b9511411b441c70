package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTopicAlter() *cobra.Command {
	var f clientFlags
	var configs, deletes []string
	var partitions int
	cmd := &cobra.Command{
		Use:   "alter NAME",
		Short: "Change configs of a topic, or give it more partitions",
		Example: `  ponor topic alter orders --config retention.ms=604800000
  ponor topic alter orders --delete-config retention.ms --partitions 24`,
		Args: takes(1, 1), ValidArgsFunction: f.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := configFlags(configs)
			if err != nil {
				return err
			}
			if len(configs)+len(deletes) == 0 && partitions == 0 {
				return usagef("nothing to change: give --config, --delete-config or --partitions")
			}
			a := topicAlter{cmd: cmd, topic: args[0], deletes: deletes, partitions: partitions}
			for _, k := range slices.Sorted(maps.Keys(cfg)) {
				a.set = append(a.set, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: cfg[k]})
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				if err := a.run(ctx, adm); err != nil {
					return fmt.Errorf("alter topic %s: %w", a.topic, err)
				}
				return nil
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "a config to set, name=value; may be repeated")
	cmd.Flags().StringArrayVar(&deletes, "delete-config", nil, "a config to put back to its default; may be repeated")
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "how many partitions the topic shall have in all, more than now")
	return cmd
}

// topicAlter is what to change of a topic.
type topicAlter struct {
	cmd        *cobra.Command
	topic      string
	set        []kadm.AlterConfig
	deletes    []string
	partitions int
}

// run changes the configs all or none, and then the number of partitions.
func (a *topicAlter) run(ctx context.Context, adm *kadm.Client) error {
	changes := slices.Clone(a.set)
	for _, k := range a.deletes {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	if len(changes) > 0 {
		res, err := adm.AlterTopicConfigs(ctx, changes, a.topic)
		if err != nil {
			return err
		}
		if r, err := res.On(a.topic, nil); err != nil || r.Err != nil {
			return topicError(ctx, adm, a.topic, cmp.Or(err, r.Err), r.ErrMessage)
		}
		for _, c := range a.set {
			a.cmd.Printf("%s: %s = %s\n", a.topic, c.Name, *c.Value)
		}
		for _, k := range a.deletes {
			a.cmd.Printf("%s: %s is the default again\n", a.topic, k)
		}
	}
	if a.partitions == 0 {
		return nil
	}
	res, err := adm.UpdatePartitions(ctx, a.partitions, a.topic)
	if err != nil {
		return err
	}
	if r, err := res.On(a.topic, nil); err != nil || r.Err != nil {
		return topicError(ctx, adm, a.topic, cmp.Or(err, r.Err), r.ErrMessage)
	}
	a.cmd.Printf("%s has %s\n", a.topic, count(a.partitions, "partition"))
	return nil
}
