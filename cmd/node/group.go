package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroup() *cobra.Command {
	return family("group", "List, describe, reset and delete consumer groups; say why one lags", newGroupList(), newGroupDescribe(), newGroupWhy(), newGroupReset(), newGroupDelete(), newGroupDeleteOffsets())
}

func newGroupList() *cobra.Command {
	var f clientFlags
	var format string
	var states, types []string
	cmd := &cobra.Command{
		Use: "list", Short: "List groups with their members and lag", Args: takes(0, 0),
		Example: "  ponor group list --state Stable,Empty --type consumer",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				views, err := listGroups(ctx, adm, states, types)
				if err != nil {
					return err
				}
				return render(cmd, format, views, func(p *printer) {
					p.row("GROUP", "TYPE", "STATE", "PROTOCOL", "MEMBERS", "LAG")
					for _, v := range views {
						p.row(v.Name, orDash(v.Type), v.State, orDash(v.Protocol), len(v.Members), v.lagText())
					}
				})
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states, such as Stable, Empty or PreparingRebalance")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only groups of these types: classic or consumer")
	return cmd
}

// listGroups looks at every group that the filters let through. Older clusters
// cannot filter, so it is done here.
func listGroups(ctx context.Context, adm *kadm.Client, states, types []string) ([]groupView, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	has := func(list []string, name string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
	}
	var names []string
	kinds := make(map[string]kadm.ListedGroup)
	for _, g := range listed.Sorted() {
		if has(states, g.State) && has(types, g.GroupType) {
			names = append(names, g.Group)
			kinds[g.Group] = g
		}
	}
	views, err := lookAtGroups(ctx, adm, names)
	for i, v := range views {
		if errors.Is(v.Err, errNoGroup) { // of a type that has no members here, or gone meanwhile
			g := kinds[v.Name]
			views[i].Type, views[i].State, views[i].Err = g.GroupType, g.State, nil
		}
	}
	return views, err
}

func newGroupDelete() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use: "delete NAME...", Short: "Delete groups without members, and their offsets", Args: takes(1, -1),
		ValidArgsFunction: f.completeGroups,
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				res, err := adm.DeleteGroups(ctx, names...)
				if err != nil {
					return fmt.Errorf("delete groups: %w", err)
				}
				var errs []error
				for _, r := range res.Sorted() {
					if r.Err != nil {
						errs = append(errs, fmt.Errorf("delete group %s: %w", r.Group, groupError(r.Err)))
						continue
					}
					cmd.Printf("deleted %s\n", r.Group)
				}
				return errors.Join(errs...)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newGroupDeleteOffsets() *cobra.Command {
	var f clientFlags
	var topics []string
	cmd := &cobra.Command{
		Use: "delete-offsets NAME --topic TOPIC[:PARTITION,...]", Short: "Delete offsets of topics that no member reads", Args: takes(1, 1),
		Example:           "  ponor group delete-offsets billing --topic orders --topic audit:0,3",
		ValidArgsFunction: f.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(topics) == 0 {
				return usagef("--topic is missing: say of which topics")
			}
			wanted, err := parseScope(topics)
			if err != nil {
				return err
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				return deleteOffsets(ctx, cmd, adm, args[0], wanted)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "a topic, or TOPIC:PARTITION,...; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("topic", f.completeTopics)
	return cmd
}

func deleteOffsets(ctx context.Context, cmd *cobra.Command, adm *kadm.Client, name string, wanted scope) error {
	committed, err := adm.FetchOffsets(ctx, name)
	if err != nil {
		return fmt.Errorf("delete offsets of group %s: %w", name, groupError(err))
	}
	set := kadm.TopicsSet{}
	committed.Each(func(o kadm.OffsetResponse) {
		if wanted.has(o.Topic, o.Partition) {
			set.Add(o.Topic, o.Partition)
		}
	})
	if len(set) == 0 {
		return fmt.Errorf("delete offsets of group %s: it has none there; 'ponor group describe %s' shows which it has", name, name)
	}
	res, err := adm.DeleteOffsets(ctx, name, set)
	if err != nil {
		return fmt.Errorf("delete offsets of group %s: %w", name, groupError(err))
	}
	var errs []error
	for _, tp := range set.Sorted() {
		for _, p := range slices.Sorted(slices.Values(tp.Partitions)) {
			if err, _ := res.Lookup(tp.Topic, p); err != nil {
				errs = append(errs, fmt.Errorf("delete offset of group %s for %s/%d: %w", name, tp.Topic, p, groupError(err)))
				continue
			}
			cmd.Printf("deleted offset of %s for %s/%d\n", name, tp.Topic, p)
		}
	}
	return errors.Join(errs...)
}

// groupError says what to do about an error of a group's coordinator.
func groupError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, kerr.NonEmptyGroup):
		hint = "it has members; stop them first"
	case errors.Is(err, kerr.GroupIDNotFound):
		hint = "there is no such group; 'ponor group list' shows which there are"
	case errors.Is(err, kerr.GroupSubscribedToTopic):
		hint = "a member reads this topic; stop it or have it read others first"
	case errors.Is(err, kerr.UnknownMemberID):
		hint = "it has members now; stop them first"
	default:
		return brokerError(err, "")
	}
	var ke *kerr.Error
	errors.As(err, &ke)
	return fmt.Errorf("%s (%s)", hint, ke.Message)
}

// completeGroups offers the names of the cluster's groups to the shell.
func (f *clientFlags) completeGroups(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return f.complete(func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		groups, err := adm.ListGroups(ctx)
		return groups.Groups(), err
	})
}
