package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/coordinator/group"
)

func newTopic() *cobra.Command {
	return family("topic", "Create, list, describe, alter, delete and move topics", newTopicCreate(), newTopicList(), newTopicDescribe(), newTopicAlter(), newTopicDelete(), newTopicMove())
}

func newTopicCreate() *cobra.Command {
	var f clientFlags
	var partitions int32
	var replicas int16
	var configs []string
	var ifAbsent bool
	cmd := &cobra.Command{
		Use:   "create NAME...",
		Short: "Create topics",
		Example: `  ponor topic create orders --partitions 12
  ponor topic create audit --config retention.ms=604800000 --config compression.type=zstd`,
		Args: takes(1, -1),
		RunE: func(cmd *cobra.Command, names []string) error {
			cfg, err := configFlags(configs)
			if err != nil {
				return err
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				res, err := adm.CreateTopics(ctx, partitions, replicas, cfg, names...)
				if err != nil {
					return fmt.Errorf("create topics: %w", err)
				}
				return reportTopics(cmd, res.Sorted(), ifAbsent)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions; -1 is the cluster's default")
	cmd.Flags().Int16VarP(&replicas, "replication-factor", "r", -1, "replication factor; -1 is the cluster's default")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "a topic config, name=value; may be repeated")
	cmd.Flags().BoolVar(&ifAbsent, "if-not-exists", false, "succeed if a topic exists already")
	return cmd
}

// configFlags reads name=value.
func configFlags(list []string) (map[string]*string, error) {
	cfg := make(map[string]*string)
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usagef("--config %q: write name=value, such as retention.ms=86400000", kv)
		}
		cfg[k] = &v
	}
	return cfg, nil
}

func reportTopics(cmd *cobra.Command, res []kadm.CreateTopicResponse, ifAbsent bool) error {
	var errs []error
	for _, r := range res {
		switch {
		case r.Err == nil:
			cmd.Printf("created %s, %s\n", r.Topic, count(int(r.NumPartitions), "partition"))
			if r.Configs["cleanup.policy"].Value != nil && strings.Contains(*r.Configs["cleanup.policy"].Value, "compact") {
				cmd.PrintErrf("note: %s has cleanup.policy=compact, and logs of topics are not compacted yet: it keeps every record\n", r.Topic)
			}
		case ifAbsent && errors.Is(r.Err, kerr.TopicAlreadyExists):
			cmd.Printf("%s exists already\n", r.Topic)
		default:
			errs = append(errs, fmt.Errorf("create topic %s: %w", r.Topic, brokerError(r.Err, r.ErrMessage)))
		}
	}
	return errors.Join(errs...)
}

func newTopicDelete() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use: "delete NAME...", Short: "Delete topics and all their records", Args: takes(1, -1),
		ValidArgsFunction: f.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			if slices.Contains(names, group.OffsetsTopic) {
				return usagef("%s has the committed offsets of all groups: 'ponor group delete' deletes those of one; nothing was deleted", group.OffsetsTopic)
			}
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				res, err := adm.DeleteTopics(ctx, names...)
				if err != nil {
					return fmt.Errorf("delete topics: %w", err)
				}
				var errs []error
				for _, r := range res.Sorted() {
					if r.Err != nil {
						errs = append(errs, fmt.Errorf("delete topic %s: %w", r.Topic, topicError(ctx, adm, r.Topic, r.Err, r.ErrMessage)))
						continue
					}
					cmd.Printf("deleted %s\n", r.Topic)
				}
				return errors.Join(errs...)
			})
		},
	}
	f.register(cmd)
	return cmd
}

// topicError is brokerError that says of a topic that is not there which are.
func topicError(ctx context.Context, adm *kadm.Client, name string, err error, message string) error {
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return brokerError(err, message)
	}
	hint := ""
	if topics, e := adm.ListTopics(ctx); e == nil { // else without the hint
		hint = meant(name, topics.Names())
	}
	return fmt.Errorf("there is no such topic%s; 'ponor topic list' shows which there are (%s)", hint, kerr.UnknownTopicOrPartition.Message)
}

// topicsExist says which topic is not there.
func topicsExist(ctx context.Context, adm *kadm.Client, names []string) error {
	topics, err := adm.ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			return fmt.Errorf("topic %s: %w", t.Topic, topicError(ctx, adm, t.Topic, t.Err, ""))
		}
	}
	return nil
}

// topicView is one topic as 'topic list' and 'topic describe' print it.
type topicView struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	Partitions []partitionView   `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
}

type partitionView struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline,omitempty"`
	Start       int64   `json:"start_offset"`
	End         int64   `json:"end_offset"`
	Error       string  `json:"error,omitempty"`
}

func viewTopic(t kadm.TopicDetail) topicView {
	v := topicView{Name: t.Topic, ID: base64.RawURLEncoding.EncodeToString(t.ID[:]), Internal: t.IsInternal, Partitions: []partitionView{}}
	for _, p := range t.Partitions.Sorted() {
		pv := partitionView{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
			Replicas: p.Replicas, ISR: p.ISR, Offline: p.OfflineReplicas, Start: -1, End: -1}
		if p.Err != nil {
			pv.Error = p.Err.Error()
		}
		v.Partitions = append(v.Partitions, pv)
	}
	return v
}

func newTopicList() *cobra.Command {
	var f clientFlags
	var format string
	var internal bool
	cmd := &cobra.Command{
		Use: "list", Short: "List topics", Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				list := adm.ListTopics
				if internal {
					list = adm.ListTopicsWithInternal
				}
				topics, err := list(ctx)
				if err != nil {
					return fmt.Errorf("list topics: %w", err)
				}
				views := []topicView{}
				for _, t := range topics.Sorted() {
					views = append(views, viewTopic(t))
				}
				return render(cmd, format, views, func(p *printer) {
					p.row("NAME", "PARTITIONS", "REPLICAS")
					for _, v := range views {
						replicas := 0
						if len(v.Partitions) > 0 {
							replicas = len(v.Partitions[0].Replicas)
						}
						p.row(v.Name, len(v.Partitions), replicas)
					}
				})
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

func newTopicDescribe() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "describe NAME...", Short: "Show partitions, owners, offsets and changed configs", Args: takes(1, -1),
		ValidArgsFunction: f.completeTopics,
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				views, unknown, err := describeTopics(ctx, adm, names)
				if err != nil {
					return err
				}
				if err := render(cmd, format, views, func(p *printer) { printTopics(p, views) }); err != nil {
					return err
				}
				return unknown
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	return cmd
}

// describeTopics also says why offsets are not known, if so.
func describeTopics(ctx context.Context, adm *kadm.Client, names []string) (views []topicView, unknown, err error) {
	topics, err := adm.ListTopics(ctx, names...)
	if err != nil {
		return nil, nil, fmt.Errorf("describe topics: %w", err)
	}
	var errs []error
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			errs = append(errs, fmt.Errorf("describe topic %s: %w", t.Topic, topicError(ctx, adm, t.Topic, t.Err, "")))
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	starts, err := adm.ListStartOffsets(ctx, names...)
	if unknown, err = silentLeaders(err); err != nil {
		return nil, nil, fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if also, err := silentLeaders(err); err != nil {
		return nil, nil, fmt.Errorf("list end offsets: %w", err)
	} else if unknown == nil {
		unknown = also
	}
	configs, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, nil, fmt.Errorf("describe configs: %w", err)
	}
	views = []topicView{}
	for _, t := range topics.Sorted() {
		v := viewTopic(t)
		for i := range v.Partitions {
			p := &v.Partitions[i]
			if o, ok := starts.Lookup(v.Name, p.Partition); ok && o.Err == nil {
				p.Start = o.Offset
			}
			if o, ok := ends.Lookup(v.Name, p.Partition); ok && o.Err == nil {
				p.End = o.Offset
			}
		}
		if rc, err := configs.On(v.Name, nil); err == nil {
			v.Configs = changedConfigs(rc.Configs)
		}
		views = append(views, v)
	}
	return views, unknown, nil
}

// silentLeaders is, of the error of a request to the leaders of partitions, which of them
// did not answer; the others did. Another error is passed on.
func silentLeaders(err error) (silent, other error) {
	var parts *kadm.ShardErrors
	if !errors.As(err, &parts) {
		return nil, err
	}
	var who []string
	for _, s := range parts.Errs {
		if s.Broker.NodeID < 0 {
			return nil, err
		}
		who = append(who, fmt.Sprintf("broker %d at %s", s.Broker.NodeID, hostPort(s.Broker.Host, s.Broker.Port)))
	}
	slices.Sort(who)
	verb := "does"
	if who = slices.Compact(who); len(who) > 1 {
		verb = "do"
	}
	return fmt.Errorf("the offsets of -1 are not known: %s %s not answer (%w); others take over what a dead broker led within seconds, if a majority of the metadata quorum is there: %s",
		strings.Join(who, " and "), verb, parts.Errs[0].Err, quorumHint), nil
}

// changedConfigs keeps what was set on the topic itself.
func changedConfigs(all []kadm.Config) map[string]string {
	set := make(map[string]string)
	for _, c := range all {
		if c.Source == 1 && c.Value != nil { // DYNAMIC_TOPIC_CONFIG
			set[c.Key] = *c.Value
		}
	}
	return set
}

func printTopics(p *printer, views []topicView) {
	for i, v := range views {
		if i > 0 {
			p.line("")
		}
		p.line("%s  id %s", v.Name, v.ID)
		names := make([]string, 0, len(v.Configs))
		for k := range v.Configs {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			p.line("  %s = %s", k, v.Configs[k])
		}
		p.row("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END", "")
		for _, pt := range v.Partitions {
			p.row(pt.Partition, pt.Leader, pt.LeaderEpoch, pt.Replicas, pt.ISR, pt.Start, pt.End, pt.Error)
		}
	}
}
