package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeFlags struct {
	clientFlags
	from       string
	group      string
	partitions []int32
	count      int64
	untilEnd   bool
	keys       bool
	format     string
}

func newConsume() *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print records, from the end on or from where --from says",
		Example: `  ponor consume orders --from start --until-end
  ponor consume orders --from @2026-01-31T12:00:00Z --format json
  ponor consume orders --group billing --from start`,
		Args: takes(1, 1), ValidArgsFunction: f.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.from, "from", "end", "start, end, an offset, -N (the last N of each partition) or @TIME (RFC 3339 or Unix milliseconds)")
	cmd.Flags().StringVarP(&f.group, "group", "g", "", "join this consumer group and commit what was printed; --from is for partitions without an offset")
	_ = cmd.RegisterFlagCompletionFunc("group", f.completeGroups)
	cmd.Flags().Int32SliceVar(&f.partitions, "partitions", nil, "only these partitions")
	cmd.Flags().Int64VarP(&f.count, "count", "n", 0, "stop after this many records; 0 means never")
	cmd.Flags().BoolVarP(&f.untilEnd, "until-end", "e", false, "stop at the end as it was at the start")
	cmd.Flags().BoolVarP(&f.keys, "keys", "k", false, "print keys too (text)")
	formatFlag(cmd, &f.format)
	return cmd
}

// offset translates --from.
func (f *consumeFlags) offset() (kgo.Offset, error) {
	at := kgo.NewOffset()
	switch {
	case f.from == "start":
		return at.AtStart(), nil
	case f.from == "end":
		return at.AtEnd(), nil
	case strings.HasPrefix(f.from, "@"):
		if ms, err := strconv.ParseInt(f.from[1:], 10, 64); err == nil {
			return at.AfterMilli(ms), nil
		}
		t, err := time.Parse(time.RFC3339, f.from[1:])
		if err != nil {
			return at, usagef("--from %q: after @ write a time such as 2026-01-31T12:00:00Z or Unix milliseconds", f.from)
		}
		return at.AfterMilli(t.UnixMilli()), nil
	}
	n, err := strconv.ParseInt(f.from, 10, 64)
	if err != nil {
		return at, usagef("--from %q: start, end, an offset, -N or @TIME", f.from)
	}
	if n < 0 {
		return at.AtEnd().Relative(n), nil
	}
	return at.At(n), nil
}

func (f *consumeFlags) run(cmd *cobra.Command, topic string) error {
	if f.format != formatText && f.format != formatJSON {
		return usagef("unknown format %q: text or json", f.format)
	}
	from, err := f.offset()
	if err != nil {
		return err
	}
	if f.group != "" {
		return f.runGroup(cmd, topic, from)
	}
	cl, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	setup, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	if err := topicsExist(setup, adm, []string{topic}); err != nil {
		return err
	}
	assign, remaining, err := f.plan(setup, adm, topic, from)
	if err != nil {
		return err
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: assign})
	return f.poll(cmd.Context(), cl, cmd.OutOrStdout(), remaining)
}

// runGroup reads as a member of a group. What others read is not known to it, so it
// cannot know when everything was read.
func (f *consumeFlags) runGroup(cmd *cobra.Command, topic string, from kgo.Offset) error {
	if len(f.partitions) > 0 || f.untilEnd {
		return usagef("--group shares the topic with other members: leave out --partitions and --until-end")
	}
	cl, err := f.connect(cmd.Context(), kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(from), kgo.AutoCommitMarks(),
		kgo.Balancers(kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(), kgo.CooperativeStickyBalancer())) // whatever the group's members have
	if err != nil {
		return err
	}
	defer cl.Close() // leaves the group
	if err := f.topicExists(cmd.Context(), cl, topic); err != nil {
		return err
	}
	if err := f.poll(cmd.Context(), cl, cmd.OutOrStdout(), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), f.timeout)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil {
		return fmt.Errorf("commit offsets of group %s: %w; the records printed last come again", f.group, brokerError(err, ""))
	}
	return nil
}

// topicExists asks before a group is joined: a member of a topic that is not there
// waits without a word.
func (f *consumeFlags) topicExists(ctx context.Context, cl *kgo.Client, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return topicsExist(ctx, kadm.NewClient(cl), []string{topic})
}

// plan says where to begin in each partition, and which partitions have records
// from there on, up to which end.
func (f *consumeFlags) plan(ctx context.Context, adm *kadm.Client, topic string, from kgo.Offset) (assign map[int32]kgo.Offset, remaining map[int32]int64, err error) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, nil, fmt.Errorf("list end offsets: %w", err)
	}
	begins, err := f.begins(ctx, adm, topic, from)
	if err != nil {
		return nil, nil, err
	}
	assign, remaining = make(map[int32]kgo.Offset), make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if len(f.partitions) > 0 && !slices.Contains(f.partitions, o.Partition) {
			return
		}
		assign[o.Partition] = from
		begin, ok := begins.Lookup(topic, o.Partition)
		if ok && begin.Offset >= 0 && begin.Offset < o.Offset && f.from != "end" {
			remaining[o.Partition] = o.Offset
		}
	})
	for _, p := range f.partitions {
		if _, ok := assign[p]; !ok {
			return nil, nil, usagef("--partitions: topic %s has no partition %d; it has %d, from 0 on", topic, p, len(ends[topic]))
		}
	}
	return assign, remaining, nil
}

// begins are the first offsets to be read, as far as they are not below the
// log's start.
func (f *consumeFlags) begins(ctx context.Context, adm *kadm.Client, topic string, from kgo.Offset) (kadm.ListedOffsets, error) {
	if strings.HasPrefix(f.from, "@") {
		l, err := adm.ListOffsetsAfterMilli(ctx, from.EpochOffset().Offset, topic)
		if err != nil {
			return nil, fmt.Errorf("list offsets by time: %w", err)
		}
		return l, nil
	}
	l, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	for _, p := range l[topic] {
		p.Offset = max(p.Offset, from.EpochOffset().Offset)
		l[topic][p.Partition] = p
	}
	return l, nil
}

// poll prints records until the command's end condition.
func (f *consumeFlags) poll(ctx context.Context, cl *kgo.Client, out io.Writer, remaining map[int32]int64) error {
	w := bufio.NewWriterSize(out, 1<<16)
	defer func() { _ = w.Flush() }()
	var printed int64
	for !f.untilEnd || len(remaining) > 0 {
		pollCtx, cancel := ctx, context.CancelFunc(func() {})
		if f.untilEnd {
			pollCtx, cancel = context.WithTimeout(ctx, f.timeout)
		}
		fetches := cl.PollFetches(pollCtx)
		over := pollCtx.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case over:
			return fmt.Errorf("nothing arrived for %v, and these partitions are not at the end they had: %s", f.timeout, f.behind(remaining))
		}
		for _, e := range fetches.Errors() {
			return f.failed(e)
		}
		var read []*kgo.Record
		for it := fetches.RecordIter(); !it.Done() && !f.enough(printed); printed++ {
			r := it.Next()
			if end, ok := remaining[r.Partition]; ok && r.Offset+1 >= end {
				delete(remaining, r.Partition)
			}
			if err := f.print(w, r); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			if f.group != "" {
				read = append(read, r)
			}
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		cl.MarkCommitRecords(read...)
		if f.enough(printed) {
			return nil
		}
	}
	return nil
}

// failed says what could not be read; an error without a topic is one of the group.
func (f *consumeFlags) failed(e kgo.FetchError) error {
	switch {
	case e.Topic != "":
		return fmt.Errorf("consume partition %d of %s: %w", e.Partition, e.Topic, brokerError(e.Err, ""))
	case errors.Is(e.Err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("join group %s: its members share partitions in a way that this command does not know (it offers range, roundrobin, sticky and cooperative-sticky), or are of another kind: 'ponor group describe %s' shows them: %w", f.group, f.group, e.Err)
	}
	return fmt.Errorf("read as a member of group %s: %w", f.group, brokerError(e.Err, ""))
}

// enough says whether --count records were printed.
func (f *consumeFlags) enough(printed int64) bool { return f.count > 0 && printed >= f.count }

// behind lists partitions that were not read to their end.
func (f *consumeFlags) behind(remaining map[int32]int64) string {
	var parts []string
	for p, end := range remaining {
		parts = append(parts, fmt.Sprintf("%d (end %d)", p, end))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// recordView is a record in JSON; bytes that are not UTF-8 come as base64 in
// the fields that say so.
type recordView struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       any          `json:"key"`
	Value     any          `json:"value"`
	Headers   []headerView `json:"headers,omitempty"`
}

type headerView struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

type binaryView struct {
	Base64 []byte `json:"base64"`
}

func viewBytes(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return binaryView{b}
}

func (f *consumeFlags) print(w *bufio.Writer, r *kgo.Record) error {
	if f.format == formatJSON {
		v := recordView{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
			Key: viewBytes(r.Key), Value: viewBytes(r.Value)}
		for _, h := range r.Headers {
			v.Headers = append(v.Headers, headerView{h.Key, viewBytes(h.Value)})
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	var errs []error
	if f.keys {
		_, err := w.Write(r.Key)
		errs = append(errs, err, w.WriteByte('\t'))
	}
	_, err := w.Write(r.Value)
	return errors.Join(append(errs, err, w.WriteByte('\n'))...)
}
