package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupTopic has groupParts partitions with a record in each.
const (
	groupTopic  = "grouped"
	groupParts  = 6
	groupsTopic = "__consumer_offsets"
)

// groups is one part of 'bench -groups' on one of the clusters.
type groups struct {
	ctx context.Context
	o   options
	*system
	*kgo.Client
	round int
	out   *groupTable
	topic [16]byte // the id of groupTopic
}

// runGroups measures consumer groups. Every cluster takes each part in turn.
func runGroups(ctx context.Context, o options) error {
	o.cache = "256MiB"
	systems, stop, err := startSystems(ctx, o)
	if err != nil {
		return err
	}
	defer stop()
	var table groupTable
	for _, s := range systems {
		if err := prepareGroups(ctx, o, s); err != nil {
			return fmt.Errorf("prepare %s: %w", s.name, err)
		}
	}
	for _, part := range []struct {
		name string
		once bool // it takes long and warms up by itself, or the cluster is not the same after it
		run  func(*groups) error
	}{
		{"join", true, (*groups).join},
		{"join-clients", true, (*groups).joinClients},
		{"commit", false, (*groups).commit},
		{"large", false, (*groups).large},
		{"many", true, (*groups).many},
		{"move", true, (*groups).move},
		{"move-full", true, (*groups).moveFull},
		{"takeover", true, (*groups).takeover},
	} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), part.name) {
			continue
		}
		first, last := 1, o.rounds
		if o.kafka && !part.once {
			first = 0 // Java compiles what it sees used
		}
		if part.once {
			last = 1
		}
		for round := first; round <= last; round++ {
			for _, s := range systems {
				if err := runGroupPart(ctx, o, s, round, &table, part.run); err != nil {
					return fmt.Errorf("%s on %s: %w", part.name, s.name, err)
				}
			}
		}
	}
	fmt.Fprintln(os.Stdout, machine())
	table.print(os.Stdout, systems)
	return nil
}

func runGroupPart(ctx context.Context, o options, s *system, round int, table *groupTable, run func(*groups) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.seeds()...))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	defer client.Close()
	g := &groups{ctx: ctx, o: o, system: s, Client: client, round: round, out: table}
	if g.topic, err = g.topicID(groupTopic); err != nil {
		return err
	}
	return run(g)
}

// prepareGroups makes the topic that is read, and has the cluster make its own.
func prepareGroups(ctx context.Context, o options, s *system) error {
	return runGroupPart(ctx, o, s, 0, nil, func(g *groups) (err error) {
		if err := g.makeTopic(groupTopic, groupParts); err != nil {
			return err
		}
		if g.topic, err = g.topicID(groupTopic); err != nil {
			return err
		}
		for p := range int32(groupParts) {
			r := &kgo.Record{Topic: groupTopic, Partition: p, Value: make([]byte, 100)}
			if err := g.produceTo(r); err != nil {
				return err
			}
		}
		return g.awaitCoordinators()
	})
}

// producer makes one that picks partitions itself. What it writes is not compressed:
// not every client that reads it has snappy.
func (g *groups) producer() (*kgo.Client, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(g.seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	return c, nil
}

func (g *groups) produceTo(r *kgo.Record) error {
	c, err := g.producer()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.ProduceSync(g.ctx, r).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// makeTopic returns once every partition of a new topic has a leader.
func (g *groups) makeTopic(name string, n int) error {
	s := &scale{ctx: g.ctx, o: g.o, system: g.system, Client: g.Client}
	if err := s.create([]string{name}, n, 1); err != nil {
		return err
	}
	return s.awaitAll([]string{name})
}

// topicID is the id of a topic, zero before there is one.
func (g *groups) topicID(name string) (id [16]byte, err error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(g.ctx, g.Client)
	if err != nil {
		return id, fmt.Errorf("ask for metadata: %w", err)
	}
	if len(resp.Topics) == 1 {
		id = resp.Topics[0].TopicID
	}
	return id, nil
}

// awaitCoordinators returns once commits to every partition of the groups' topic
// work.
func (g *groups) awaitCoordinators() error {
	ctx, cancel := context.WithTimeout(g.ctx, time.Minute)
	defer cancel()
	for i := range 200 { // groups hash to 50 partitions
		if err := g.commitAs(ctx, g.Client, fmt.Sprintf("warm-%d", i), 1); err != nil {
			return err
		}
	}
	return nil
}

// commitAs commits an offset of a group without members; the client tries again
// while the coordinator cannot be found.
func (g *groups) commitAs(ctx context.Context, c *kgo.Client, group string, offset int64) error {
	return g.commitOf(ctx, c, g.commitRequest(group, "", -1, offset))
}

// commitRequest commits the offset of one partition.
func (g *groups) commitRequest(group, member string, generation int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = groupTopic, g.topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 0, offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// commitOf commits.
func (g *groups) commitOf(ctx context.Context, c *kgo.Client, req *kmsg.OffsetCommitRequest) error {
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("commit for %s: %w", req.Group, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return &codeError{"commit for " + req.Group, p.ErrorCode}
			}
		}
	}
	return nil
}

// codeError is an error code in an answer.
type codeError struct {
	what string
	code int16
}

func (e *codeError) Error() string { return fmt.Sprintf("%s: error %d", e.what, e.code) }

// seeds are the addresses of the cluster.
func (s *system) seeds() []string { return strings.Split(s.bootstrap, ",") }

// note keeps a figure for the table; the warm-up round only shows it.
func (g *groups) note(name, unit string, v float64) {
	fmt.Fprintf(os.Stderr, "round %d %-6s %-52s %10.2f %s\n", g.round, g.name, name, v, unit)
	if g.round > 0 {
		g.out.add(name, unit, g.name, v)
	}
}

// seconds is note for a time.
func (g *groups) seconds(name string, d time.Duration) { g.note(name, "s", d.Seconds()) }

// groupTable has figures by name and system, in order.
type groupTable struct {
	order [][2]string // name, unit
	by    map[[2]string][]float64
}

func (t *groupTable) add(name, unit, system string, v float64) {
	if t.by == nil {
		t.by = map[[2]string][]float64{}
	}
	if n := [2]string{name, unit}; !slices.Contains(t.order, n) {
		t.order = append(t.order, n)
	}
	k := [2]string{name, system}
	t.by[k] = append(t.by[k], v)
}

// print writes medians, and the first system's as a multiple of the second's.
func (t *groupTable) print(w io.Writer, systems []*system) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "what\tunit\t")
	for _, s := range systems {
		fmt.Fprintf(tw, "%s\t", s.name)
	}
	fmt.Fprintln(tw, "ratio\t")
	for _, row := range t.order {
		fmt.Fprintf(tw, "%s\t%s\t", row[0], row[1])
		var medians []float64
		for _, s := range systems {
			all := t.by[[2]string{row[0], s.name}]
			if len(all) == 0 {
				fmt.Fprint(tw, "\t")
				continue
			}
			m := median(all)
			medians = append(medians, m)
			fmt.Fprintf(tw, "%s\t", strconv.FormatFloat(m, 'g', 4, 64))
		}
		if len(medians) == 2 && medians[1] > 0 {
			fmt.Fprintf(tw, "%.3f", medians[0]/medians[1])
		}
		fmt.Fprintln(tw, "\t")
	}
	_ = tw.Flush()
}

// median of some; of an even number the upper one.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
