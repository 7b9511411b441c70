package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/cmd/node/process"
	"ponor/coordinator/group"
)

func newGroupDescribe() *cobra.Command {
	var f clientFlags
	var format string
	cmd := &cobra.Command{
		Use: "describe NAME...", Short: "Show a group's members, offsets and lag", Args: takes(1, -1),
		Long: `Show a group's members and, of each partition that it reads or has read, the
committed offset, the end, and the lag in records. When an offset was committed is
known from Ponor clusters only, as is whether a coordinator that moved has heard from a
member. 'ponor group why' also measures lag in seconds.`,
		ValidArgsFunction: f.completeGroups,
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
				views, err := describeGroups(ctx, adm, names)
				if len(views) == 0 {
					return err
				}
				rerr := render(cmd, format, views, func(p *printer) { printGroups(p, time.Now(), views) })
				if err != nil && format == formatJSON {
					err = silentError{err} // the views have it
				}
				return cmp.Or(rerr, err)
			})
		},
	}
	f.register(cmd)
	formatFlag(cmd, &format)
	return cmd
}

// describeGroups is lookAtGroups where each group should be there, with the times of
// commits if the cluster tells them. Beside an error are the groups that are.
func describeGroups(ctx context.Context, adm *kadm.Client, names []string) ([]groupView, error) {
	views, err := lookAtGroups(ctx, adm, names)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range views {
		v := &views[i]
		if v.Err != nil {
			errs = append(errs, fmt.Errorf("describe group %s: %w", v.Name, v.Err))
			continue
		}
		if more, err := inspectGroup(ctx, v); err == nil {
			v.know(more)
		}
	}
	return views, errors.Join(errs...)
}

// inspectGroup asks the coordinator for what Kafka's protocol cannot say. Only a
// Ponor broker knows.
func inspectGroup(ctx context.Context, v *groupView) (group.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := dialBroker(ctx, v.address)
	if err != nil {
		return group.Inspection{}, fmt.Errorf("ask the coordinator of group %s: %w", v.Name, err)
	}
	defer func() { _ = c.Close() }()
	return process.AskGroup(ctx, c, v.Name)
}

// know fills in when the offsets were committed, and who has not been heard from.
func (v *groupView) know(more group.Inspection) {
	for _, u := range more.Unheard {
		if m := v.member(u.Member); m != nil {
			m.Unheard, m.Until = u.Since, u.Until
		}
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		for _, c := range more.Commits {
			if c.Topic == p.Topic && c.Partition == p.Partition {
				p.CommittedAt = c.At
			}
		}
	}
}

func printGroups(p *printer, now time.Time, views []groupView) {
	first := true
	for i := range views {
		v := &views[i]
		if v.Err != nil {
			continue // it is in the error
		}
		if !first {
			p.line("")
		}
		first = false
		p.line("%s  %s group, %s, protocol %s, coordinator %d, %s, lag %d", v.Name, v.Type, v.State, orDash(v.Protocol), v.Coordinator, count(len(v.Members), "member"), v.Lag)
		if len(v.Members) > 0 {
			p.row("  MEMBER", "CLIENT", "HOST", "STATIC ID", "PARTITIONS", "")
			for _, m := range v.Members {
				p.row("  "+m.ID, orDash(m.Client), m.Host, orDash(m.Instance), assignmentText(m.Assignment), m.remark(now))
			}
			p.line("")
		}
		if len(v.Partitions) == 0 {
			p.line("  no offsets")
			continue
		}
		p.row("  PARTITION", "READ BY", "COMMITTED", "END", "LAG", "COMMITTED AT", "")
		for _, pt := range v.Partitions {
			p.row("  "+pt.name(), v.readerText(pt.Member), offsetText(pt.Committed), offsetText(pt.End), offsetText(pt.Lag), agoText(now, pt.CommittedAt), pt.remark())
		}
	}
}

// remark is what is not certain of a member.
func (m groupMember) remark(now time.Time) string {
	if m.Unheard == 0 {
		return ""
	}
	return fmt.Sprintf("not heard from since the coordinator moved or started %s; its session ends in %s", agoText(now, m.Unheard), spanText(time.UnixMilli(m.Until).Sub(now)))
}

// readerText names who reads a partition.
func (v *groupView) readerText(id string) string {
	if m := v.member(id); m != nil {
		return m.name()
	}
	return "-"
}

// remark is what is wrong with a partition's offset.
func (p groupPartition) remark() string {
	switch {
	case p.Error != "":
		return p.Error
	case p.lost() > 0:
		return fmt.Sprintf("%d records were deleted unread", p.lost())
	case p.End >= 0 && p.Committed > p.End:
		return "committed beyond the end"
	}
	return ""
}

// count prints "1 member", "3 members".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
