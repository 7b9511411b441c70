package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type resetFlags struct {
	clientFlags
	topics    []string
	allTopics bool
	to        string
	from      string // a CSV file
	export    bool
	execute   bool
	format    string
}

func newGroupReset() *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use: "reset NAME {--topic TOPIC[:PARTITION,...] | --all-topics} --to WHERE [--execute]", Short: "Move a group's offsets",
		Long: `Move the offsets of a group that has no members. Without --execute it only shows
what it would do. WHERE is

  start, end      of each partition's log
  current         where it is (to export, or to bring it back inside the log)
  1234            an offset
  +100, -100      relative to where it is
  @TIME           the first record from then on: RFC 3339 (@2026-01-31T12:00:00Z),
                  Unix milliseconds, or how long ago (@-2h)

Offsets outside of the log are moved to its start or end. A group that does not
exist is made. --export prints the new offsets as CSV lines TOPIC,PARTITION,OFFSET,
which --from-file takes, as kafka-consumer-groups does.`,
		Example: `  ponor group reset billing --topic orders --to @2026-01-31T12:00:00Z
  ponor group reset billing --topic orders:0,3 --to -100 --execute
  ponor group reset billing --all-topics --to current --export > billing.csv
  ponor group reset billing --from-file billing.csv --execute`,
		Args: takes(1, 1), ValidArgsFunction: f.completeGroups,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.register(cmd)
	formatFlag(cmd, &f.format)
	cmd.Flags().StringArrayVar(&f.topics, "topic", nil, "a topic, or TOPIC:PARTITION,...; may be repeated")
	cmd.Flags().BoolVar(&f.allTopics, "all-topics", false, "every topic that the group has an offset of")
	cmd.Flags().StringVar(&f.to, "to", "", "start, end, current, an offset, +N, -N or @TIME")
	cmd.Flags().StringVar(&f.from, "from-file", "", "take the offsets from this CSV file; - is standard input")
	cmd.Flags().BoolVar(&f.export, "export", false, "print the new offsets as CSV")
	cmd.Flags().BoolVar(&f.execute, "execute", false, "do it")
	_ = cmd.RegisterFlagCompletionFunc("topic", f.completeTopics)
	return cmd
}

// check refuses flags that contradict each other, before anything is asked.
func (f *resetFlags) check() (where target, wanted scope, err error) {
	switch {
	case f.from != "" && (f.to != "" || f.allTopics || len(f.topics) > 0):
		return where, nil, usagef("--from-file says which offsets: leave out --to, --topic and --all-topics")
	case f.from != "":
		return where, nil, nil
	case f.to == "":
		return where, nil, usagef("--to is missing: start, end, current, an offset, +N, -N or @TIME")
	case f.allTopics == (len(f.topics) > 0):
		return where, nil, usagef("say either --topic TOPIC[:PARTITION,...] or --all-topics")
	}
	if where, err = parseTarget(f.to, time.Now()); err != nil {
		return where, nil, err
	}
	wanted, err = parseScope(f.topics)
	return where, wanted, err
}

func (f *resetFlags) run(cmd *cobra.Command, name string) error {
	where, wanted, err := f.check()
	if err != nil {
		return err
	}
	var file []move
	if f.from != "" {
		if file, err = f.readFile(cmd.InOrStdin(), name); err != nil {
			return err
		}
		wanted = scopeOf(file)
	}
	return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
		if err := checkInactive(ctx, adm, name, f.execute); err != nil {
			return err
		}
		moves, err := planReset(ctx, adm, name, wanted, where, file)
		if err != nil {
			return fmt.Errorf("reset group %s: %w", name, err)
		}
		if f.execute {
			if err := commitMoves(ctx, adm, name, moves); err != nil {
				return err
			}
		}
		return f.report(cmd, name, moves)
	})
}

func (f *resetFlags) readFile(in io.Reader, name string) ([]move, error) {
	if f.from != "-" {
		file, err := os.Open(f.from)
		if err != nil {
			return nil, fmt.Errorf("read offsets: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	moves, err := readMoves(in, name)
	if err != nil {
		return nil, fmt.Errorf("read offsets of %s: %w", f.from, err)
	}
	return moves, nil
}

// checkInactive refuses to move the offsets of members at work: they would not
// notice, and their next commit undoes it. A plan may be shown all the same.
func checkInactive(ctx context.Context, adm *kadm.Client, name string, execute bool) error {
	views, err := lookAtGroups(ctx, adm, []string{name})
	if err != nil {
		return err
	}
	v := &views[0]
	switch {
	case errors.Is(v.Err, errNoGroup):
		return nil // the first commit makes it
	case v.Err != nil:
		return fmt.Errorf("reset group %s: %w", name, v.Err)
	case len(v.Members) == 0 || !execute:
		return nil
	}
	var who []string
	for _, m := range v.Members[:min(3, len(v.Members))] {
		who = append(who, m.name()+" at "+strings.TrimPrefix(m.Host, "/"))
	}
	if more := len(v.Members) - len(who); more > 0 {
		who = append(who, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("reset group %s: it has %s (%s), whose next commit would undo it; stop them first, then reset",
		name, count(len(v.Members), "member"), strings.Join(who, ", "))
}

// planReset looks up where the offsets are and where they shall be.
func planReset(ctx context.Context, adm *kadm.Client, name string, wanted scope, where target, file []move) ([]move, error) {
	committed, err := adm.FetchOffsets(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", groupError(err))
	}
	topics := wanted.topics()
	if topics == nil { // --all-topics
		topics = committed.Partitions().Topics()
	}
	if len(topics) == 0 {
		return nil, errors.New("it has no offsets; name the topics with --topic")
	}
	if wanted != nil {
		if err := topicsExist(ctx, adm, topics); err != nil {
			return nil, err
		}
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	var times kadm.ListedOffsets
	if where.kind == toTime {
		if times, err = adm.ListOffsetsAfterMilli(ctx, where.n, topics...); err != nil {
			return nil, fmt.Errorf("list offsets by time: %w", err)
		}
	}
	logs, err := rangesOf(starts, ends, times)
	if err != nil {
		return nil, err
	}
	var moves []move
	for _, l := range logs {
		m := move{Topic: l.topic, Partition: l.partition, Old: -1}
		if o, ok := committed.Lookup(l.topic, l.partition); ok && o.Err == nil {
			m.Old = o.At
		}
		ask := where
		switch {
		case !wanted.has(l.topic, l.partition), wanted == nil && m.Old < 0:
			continue
		case file != nil:
			i := slices.IndexFunc(file, func(f move) bool { return f.Topic == l.topic && f.Partition == l.partition })
			ask = target{kind: toOffset, n: file[i].New}
		}
		m.New, m.Remark = ask.resolve(m.Old, l)
		if m.New < 0 {
			continue // relative to an offset that it does not have
		}
		moves = append(moves, m)
	}
	if missing := wanted.missing(logs); missing != "" {
		return nil, fmt.Errorf("there is no partition %s; 'ponor topic describe' shows which there are", missing)
	}
	if len(moves) == 0 {
		return nil, errors.New("it has no offset there to move from; use --to start, end, @TIME or an offset")
	}
	return moves, nil
}

// rangesOf joins what was listed, sorted.
func rangesOf(starts, ends, times kadm.ListedOffsets) ([]logRange, error) {
	var logs []logRange
	var failed error
	ends.Each(func(o kadm.ListedOffset) {
		s, _ := starts.Lookup(o.Topic, o.Partition)
		l := logRange{topic: o.Topic, partition: o.Partition, start: s.Offset, end: o.Offset, at: o.Offset}
		err := errors.Join(o.Err, s.Err)
		if t, ok := times.Lookup(o.Topic, o.Partition); ok {
			l.at, err = t.Offset, errors.Join(err, t.Err)
		}
		if err != nil {
			failed = fmt.Errorf("find offsets of topic %s: %w", o.Topic, brokerError(err, ""))
		}
		logs = append(logs, l)
	})
	slices.SortFunc(logs, logRange.compare)
	return logs, failed
}

func commitMoves(ctx context.Context, adm *kadm.Client, name string, moves []move) error {
	var offsets kadm.Offsets
	for _, m := range moves {
		offsets.AddOffset(m.Topic, m.Partition, m.New, -1)
	}
	res, err := adm.CommitOffsets(ctx, name, offsets)
	if err != nil {
		return fmt.Errorf("reset group %s: %w", name, groupError(err))
	}
	var errs []error
	for _, r := range res.Sorted() {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("reset group %s on %s/%d: %w", name, r.Topic, r.Partition, groupError(r.Err)))
		}
	}
	return errors.Join(errs...)
}

func (f *resetFlags) report(cmd *cobra.Command, name string, moves []move) error {
	if f.export {
		return writeMoves(cmd.OutOrStdout(), moves)
	}
	result := struct {
		Group    string `json:"group"`
		Executed bool   `json:"executed"`
		Offsets  []move `json:"offsets"`
	}{name, f.execute, moves}
	return render(cmd, f.format, result, func(p *printer) {
		p.row("PARTITION", "OFFSET", "NEW OFFSET", "")
		for _, m := range moves {
			p.row(fmt.Sprintf("%s/%d", m.Topic, m.Partition), offsetText(m.Old), m.New, m.Remark)
		}
		if f.execute {
			p.line("moved %s of group %s", count(len(moves), "offset"), name)
			return
		}
		p.line("nothing was changed; add --execute to do it")
	})
}
