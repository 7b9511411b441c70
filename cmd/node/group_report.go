package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ponor/coordinator/group"
)

// groupReport is what 'group why' found: two looks at a group, and what its
// coordinator remembers.
type groupReport struct {
	Group   groupView   `json:"group"`
	Verdict verdictView `json:"verdict"`
	// Watched is the time between the two looks in seconds, 0 for one look only.
	Watched    float64        `json:"watched_seconds"`
	Partitions []partitionLag `json:"partitions"`
	Members    []memberLag    `json:"members"`
	// Since is when the group's state began, Unix ms, 0 for not known.
	Since      int64             `json:"state_since,omitempty"`
	Awaited    []group.Awaited   `json:"awaited,omitempty"`
	Unheard    []group.Unheard   `json:"unheard,omitempty"`
	Rebalances []group.Rebalance `json:"rebalances,omitempty"`
	// History is why there is none.
	History string `json:"history,omitempty"`

	now time.Time
}

// partitionLag is a partition's lag and where it goes.
type partitionLag struct {
	groupPartition
	// Oldest is the age in seconds of the first record that was not read; 0 for
	// none, -1 for not known.
	Oldest float64 `json:"oldest_unread_seconds"`
	// Produced and Consumed are records per second while it was watched.
	Produced float64 `json:"produced_per_second"`
	Consumed float64 `json:"consumed_per_second"`

	lagBefore, committedBefore, produced int64
}

// far says whether the lag is more than commits that come now and then explain.
func (p partitionLag) far() bool { return p.Lag > 0 && p.Lag > p.produced }

// memberLag is what one member has to do.
type memberLag struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Host       string  `json:"host"`
	Partitions int     `json:"partitions"`
	Lag        int64   `json:"lag"`
	Oldest     float64 `json:"oldest_unread_seconds"`
	Produced   float64 `json:"produced_per_second"`
	Consumed   float64 `json:"consumed_per_second"`
}

// compareLooks makes a report of two looks at a group, which are the same if it was
// not watched, and the ages of what it has not read, by partition.
func compareLooks(before, after groupView, watched time.Duration, ages map[string]time.Duration, now time.Time) *groupReport {
	r := &groupReport{Group: after, Watched: watched.Seconds(), now: now, Partitions: []partitionLag{}, Members: []memberLag{}}
	for _, p := range after.Partitions {
		l := partitionLag{groupPartition: p, Oldest: -1, committedBefore: -1}
		if age, ok := ages[p.name()]; ok {
			l.Oldest = max(age, 0).Seconds()
		} else if p.Lag == 0 {
			l.Oldest = 0
		}
		i := slices.IndexFunc(before.Partitions, func(b groupPartition) bool { return b.name() == p.name() })
		if i >= 0 && watched > 0 {
			b := before.Partitions[i]
			l.lagBefore, l.committedBefore = b.Lag, b.Committed
			if b.End >= 0 {
				l.produced = max(0, p.End-b.End)
				l.Produced = float64(l.produced) / watched.Seconds()
			}
			if b.Committed >= 0 {
				l.Consumed = float64(max(0, p.Committed-b.Committed)) / watched.Seconds()
			}
		}
		r.Partitions = append(r.Partitions, l)
	}
	for _, m := range after.Members {
		l := memberLag{ID: m.ID, Name: r.who(m.ID), Host: m.Host}
		for _, p := range r.Partitions {
			if p.Member != m.ID {
				continue
			}
			l.Partitions++
			l.Lag += max(p.Lag, 0)
			l.Oldest = max(l.Oldest, p.Oldest)
			l.Produced += p.Produced
			l.Consumed += p.Consumed
		}
		r.Members = append(r.Members, l)
	}
	return r
}

// remember adds what the coordinator knows.
func (r *groupReport) remember(i group.Inspection) {
	r.Since, r.Awaited, r.Unheard, r.Rebalances = i.Since, i.Awaited, i.Unheard, i.Rebalances
	for n := range r.Partitions {
		for _, c := range i.Commits {
			if p := &r.Partitions[n]; c.Topic == p.Topic && c.Partition == p.Partition {
				p.CommittedAt = c.At
			}
		}
	}
}

func (r *groupReport) print(p *printer) {
	v := r.Group
	p.line("%s: %s", v.Name, r.Verdict.Text)
	if r.Verdict.Next != "" {
		p.line("  %s", r.Verdict.Next)
	}
	p.line("")
	state := v.State
	if r.Since > 0 {
		state += " for " + spanText(r.now.Sub(time.UnixMilli(r.Since)))
	}
	p.line("%s group, %s, protocol %s, coordinator %d, %s, lag %d", v.Type, state, orDash(v.Protocol), v.Coordinator, count(len(v.Members), "member"), v.Lag)
	if len(r.Partitions) > 0 {
		p.line("")
		p.row("PARTITION", "READ BY", "COMMITTED", "END", "LAG", "OLDEST", "PRODUCED/s", "CONSUMED/s", "COMMITTED AT", "")
		for _, l := range r.Partitions {
			p.row(l.name(), r.readerText(l.Member), offsetText(l.Committed), offsetText(l.End), offsetText(l.Lag), oldestText(l.Oldest),
				r.rate(l.Produced), r.rate(l.Consumed), agoText(r.now, l.CommittedAt), l.remark())
		}
	}
	if len(r.Members) > 0 {
		p.line("")
		p.row("MEMBER", "HOST", "PARTITIONS", "LAG", "OLDEST", "PRODUCED/s", "CONSUMED/s")
		for _, m := range r.Members {
			p.row(m.Name, m.Host, m.Partitions, m.Lag, oldestText(m.Oldest), r.rate(m.Produced), r.rate(m.Consumed))
		}
	}
	r.printRebalances(p)
}

func (r *groupReport) readerText(id string) string {
	if id == "" {
		return "-"
	}
	return r.who(id)
}

func (r *groupReport) printRebalances(p *printer) {
	p.line("")
	switch {
	case r.History != "":
		p.line("no history of rebalances: %s", r.History)
		return
	case len(r.Rebalances) == 0:
		p.line("no rebalance since the coordinator began to serve the group")
		return
	}
	p.row("REBALANCE", "BEGUN", "JOIN", "ASSIGN", "MEMBERS", "BECAUSE")
	for _, b := range r.Rebalances {
		generation, members := "under way", "-"
		if b.Joined > 0 {
			generation, members = fmt.Sprint(b.Generation), fmt.Sprint(b.Members)
		}
		p.row(generation, agoText(r.now, b.Begun), betweenText(b.Begun, b.Joined), betweenText(b.Joined, b.Assigned), members, causes(b))
	}
}

// betweenText is the time between two moments in Unix ms, of which 0 has not come.
func betweenText(from, to int64) string {
	if from == 0 || to == 0 {
		return "-"
	}
	return spanText(time.Duration(to-from) * time.Millisecond)
}

// causes says what led to a rebalance.
func causes(b group.Rebalance) string {
	var list []string
	for _, c := range b.Changes {
		list = append(list, changeName(c)+" "+c.What)
	}
	if b.More > 0 {
		list = append(list, fmt.Sprintf("%d more", b.More))
	}
	return orDash(strings.Join(list, ", "))
}

func oldestText(s float64) string {
	switch {
	case s < 0:
		return "-"
	case s == 0:
		return "0"
	}
	return spanText(seconds(s))
}

func (r *groupReport) rate(f float64) string {
	if r.Watched == 0 {
		return "-"
	}
	return rateText(f)
}

func rateText(f float64) string {
	if f == 0 || f >= 10 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}
