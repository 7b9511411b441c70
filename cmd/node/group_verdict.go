package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ponor/coordinator/group"
)

// verdictView is one sentence on how a group does, and what to do about it.
type verdictView struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Next string `json:"next,omitempty"`
}

// Verdicts. Scripts compare them.
const (
	verdictHealthy    = "healthy"
	verdictNoMembers  = "no-members"
	verdictRebalances = "rebalancing"
	verdictForever    = "rebalancing-for-ever"
	verdictUnheard    = "members-unheard"
	verdictRestless   = "restless"
	verdictLost       = "records-lost"
	verdictBeyond     = "beyond-end"
	verdictStuck      = "stuck"
	verdictSlow       = "slow"
	verdictUnread     = "unread"
	verdictBehind     = "behind"
	verdictCatchingUp = "catching-up"
	verdictNoCommits  = "no-commits"
)

const (
	// restlessSpan is how far back rebalances count as the group's present state,
	// restlessCount how many of them a deployment or a restart does not explain.
	restlessSpan  = 5 * time.Minute
	restlessCount = 6
	// heardWithin is how long it may take live members to find their coordinator and
	// send a heartbeat.
	heardWithin = 5 * time.Second
	// offences is how often one member must hold the others up to be named.
	offences = 2
)

// diagnose looks for the first thing that is wrong, the gravest first.
func diagnose(r *groupReport) verdictView {
	for _, look := range []func(*groupReport) (verdictView, bool){
		noMembers, heldUp, rebalancing, unheard, restless, lost, beyond, stuck, slow, unread, behind, noCommits,
	} {
		if v, ok := look(r); ok {
			return v
		}
	}
	text := fmt.Sprintf("healthy: %s and nothing waits", keepUp(len(r.Group.Members)))
	if r.Group.Lag > 0 {
		text = fmt.Sprintf("healthy: %s; %s", keepUp(len(r.Group.Members)), r.waiting(r.Partitions))
	}
	return verdictView{Code: verdictHealthy, Text: text}
}

func keepUp(members int) string {
	if members == 1 {
		return "1 member keeps up"
	}
	return fmt.Sprintf("%d members keep up", members)
}

// waiting is "12 records wait, the oldest for 3 s".
func (r *groupReport) waiting(list []partitionLag) string {
	var lag int64
	oldest := -1.0
	for _, p := range list {
		lag += max(p.Lag, 0)
		if p.Lag > 0 {
			oldest = max(oldest, p.Oldest)
		}
	}
	verb := "records wait"
	if lag == 1 {
		verb = "record waits"
	}
	text := fmt.Sprintf("%d %s", lag, verb)
	if oldest >= 0 {
		text += ", the oldest for " + spanText(seconds(oldest))
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// who names a member so that nobody is confused with it.
func (r *groupReport) who(id string) string {
	m := r.Group.member(id)
	if m == nil {
		return "nobody"
	}
	same := 0
	for _, o := range r.Group.Members {
		if o.name() == m.name() {
			same++
		}
	}
	if same > 1 {
		return m.ID
	}
	return m.name()
}

// where names the partitions: the first and how many more.
func where(list []partitionLag) string {
	return list[0].name() + andMore(len(list)-1)
}

// andMore says how many are not named beside the one that is.
func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", n)
}

// which are the partitions that f picks, worst first.
func (r *groupReport) which(f func(p partitionLag) bool, worst func(p partitionLag) float64) []partitionLag {
	var list []partitionLag
	for _, p := range r.Partitions {
		if p.Error == "" && f(p) {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b partitionLag) int { return cmp.Compare(worst(b), worst(a)) })
	return list
}

func byLag(p partitionLag) float64 { return float64(p.Lag) }

func noMembers(r *groupReport) (verdictView, bool) {
	if len(r.Group.Members) > 0 || r.busy() {
		return verdictView{}, false
	}
	text := "no member"
	if r.Since > 0 {
		text += " for " + spanText(r.now.Sub(time.UnixMilli(r.Since)))
	}
	if n := len(r.Rebalances); n > 0 {
		if c := r.Rebalances[n-1].Changes; len(c) > 0 {
			last := c[len(c)-1]
			text += fmt.Sprintf(": the last, %s, %s", changeName(last), endedBy(last.What))
		}
	}
	never := r.neverCommitted()
	if r.Group.Lag > 0 {
		text += "; " + r.waiting(r.Partitions)
	}
	if len(never) > 0 {
		text += fmt.Sprintf("; it has never committed on %s, where there are records", where(never))
	}
	if r.Group.Lag == 0 && len(never) == 0 {
		text += "; nothing waits"
	}
	return verdictView{verdictNoMembers, text, "start a consumer of the group, or 'ponor group delete " + r.Group.Name + "' if it is not needed any more"}, true
}

// neverCommitted are the partitions with records and without an offset.
func (r *groupReport) neverCommitted() []partitionLag {
	return r.which(func(p partitionLag) bool { return p.Committed < 0 && p.End > p.Start },
		func(p partitionLag) float64 { return float64(p.End - p.Start) })
}

// endedBy is how a member's end reads in a sentence.
func endedBy(what string) string {
	switch what {
	case group.MemberExpired:
		return "sent no heartbeat for its session timeout"
	default:
		return what
	}
}

// busy says whether the group is between two generations.
func (r *groupReport) busy() bool {
	switch r.Group.State {
	case "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling":
		return true
	}
	return false
}

// changeName is who changed, as people know it.
func changeName(c group.Change) string { return cmp.Or(c.Instance, c.Client, c.Member) }

// recent are the rebalances of the last minutes.
func (r *groupReport) recent() []group.Rebalance {
	from := r.now.Add(-restlessSpan).UnixMilli()
	i := slices.IndexFunc(r.Rebalances, func(b group.Rebalance) bool { return b.Begun >= from })
	if i < 0 {
		return nil
	}
	return r.Rebalances[i:]
}

// offender is the member, by client and host because its id is new each time, that
// most often did one of these things.
func offender(list []group.Rebalance, what ...string) (worst group.Change, times int) {
	type key struct{ name, host, what string }
	seen := map[key]int{}
	for _, b := range list {
		for _, c := range b.Changes {
			if !slices.Contains(what, c.What) {
				continue
			}
			k := key{changeName(c), c.Host, c.What}
			if seen[k]++; seen[k] > times {
				worst, times = c, seen[k]
			}
		}
	}
	return worst, times
}

// heldUp is a group that one member keeps from working: it is waited for, dropped, and
// comes again.
func heldUp(r *groupReport) (verdictView, bool) {
	c, times := offender(r.heldUpSpan(), group.MemberAbsent, group.MemberUnsynced, group.MemberUnrevoked)
	if times < offences {
		return verdictView{}, false
	}
	never := "joins"
	switch c.What {
	case group.MemberUnsynced:
		never = "asks for its assignment"
	case group.MemberUnrevoked:
		never = "gives up partitions"
	}
	return verdictView{verdictForever,
		fmt.Sprintf("rebalancing for ever: member %s at %s never %s within its rebalance timeout (%d of the last %s)", changeName(c), c.Host, never, times, count(len(r.Rebalances), "rebalance")),
		"look what that consumer does between two polls; a longer max.poll.interval.ms (rebalance timeout) gives it time, stopping it lets the others work"}, true
}

// heldUpSpan are all rebalances known if the newest is of the present: each such wait
// lasts as long as the rebalance timeout, minutes by default.
func (r *groupReport) heldUpSpan() []group.Rebalance {
	if len(r.recent()) == 0 {
		return nil
	}
	return r.Rebalances
}

func rebalancing(r *groupReport) (verdictView, bool) {
	if !r.busy() {
		return verdictView{}, false
	}
	text := "rebalancing"
	if n := len(r.Rebalances); n > 0 && r.Rebalances[n-1].Assigned == 0 {
		text += " for " + spanText(r.now.Sub(time.UnixMilli(r.Rebalances[n-1].Begun)))
		if c := r.Rebalances[n-1].Changes; len(c) > 0 {
			text += fmt.Sprintf(", because %s %s", changeName(c[0]), c[0].What)
		}
	}
	if n := len(r.Awaited); n > 0 {
		text += "; waits for " + cmp.Or(r.Awaited[0].Instance, r.Awaited[0].Client, r.Awaited[0].Member) + andMore(n-1)
		text += fmt.Sprintf(", for %s more at most", spanText(time.UnixMilli(r.Awaited[0].Until).Sub(r.now)))
	}
	return verdictView{verdictRebalances, text, "look again in a moment; a group is silent for as long as its slowest member takes to join"}, true
}

// unheard is a group whose coordinator has moved and has not heard of members since. Live
// ones are heard within a heartbeat interval, seconds.
func unheard(r *groupReport) (verdictView, bool) {
	if len(r.Unheard) == 0 {
		return verdictView{}, false
	}
	u := r.Unheard[0]
	if r.now.Sub(time.UnixMilli(u.Since)) < heardWithin {
		return verdictView{}, false
	}
	text := fmt.Sprintf("member %s at %s%s has not been heard of since the group's coordinator moved or started %s ago",
		cmp.Or(u.Instance, u.Client, u.Member), u.Host, andMore(len(r.Unheard)-1), spanText(r.now.Sub(time.UnixMilli(u.Since))))
	return verdictView{verdictUnheard, text,
		fmt.Sprintf("if it is dead, its partitions go to others in %s, when its session ends; look whether its process runs", spanText(time.UnixMilli(u.Until).Sub(r.now)))}, true
}

func restless(r *groupReport) (verdictView, bool) {
	// The second half of a cooperative rebalance, when partitions have been given
	// up, is not one more.
	list := slices.DeleteFunc(slices.Clone(r.recent()), func(b group.Rebalance) bool {
		return len(b.Changes) > 0 && !slices.ContainsFunc(b.Changes, func(c group.Change) bool { return c.What != group.MemberGaveUp })
	})
	if len(list) < restlessCount {
		return verdictView{}, false
	}
	text := fmt.Sprintf("rebalances again and again: %d times in the last %s", len(list), spanText(r.now.Sub(time.UnixMilli(list[0].Begun))))
	c, times := offender(list, group.MemberExpired, group.MemberLeft, group.MemberReassigned, group.MemberReplaced, group.MemberResubs, group.MemberJoined)
	if times >= offences {
		text += fmt.Sprintf("; %d times because %s at %s %s", times, changeName(c), c.Host, c.What)
	}
	next := "find out what restarts those consumers; static membership (group.instance.id) spares the others"
	if c.What == group.MemberExpired {
		next = "that consumer is cut off, paused or overloaded: look at its garbage collection and network, or give it a longer session.timeout.ms"
	}
	return verdictView{verdictRestless, text, next}, true
}

func lost(r *groupReport) (verdictView, bool) {
	list := r.which(func(p partitionLag) bool { return p.lost() > 0 }, func(p partitionLag) float64 { return float64(p.lost()) })
	if len(list) == 0 {
		return verdictView{}, false
	}
	var n int64
	for _, p := range list {
		n += p.lost()
	}
	return verdictView{verdictLost, fmt.Sprintf("%d records of %s were deleted before the group had read them; %s", n, where(list), r.waiting(r.Partitions)),
		"retention is shorter than the lag: lengthen retention.ms or retention.bytes of the topic, or add consumers"}, true
}

func beyond(r *groupReport) (verdictView, bool) {
	list := r.which(func(p partitionLag) bool { return p.End >= 0 && p.Committed > p.End }, func(p partitionLag) float64 { return float64(p.Committed - p.End) })
	if len(list) == 0 {
		return verdictView{}, false
	}
	p := list[0]
	return verdictView{verdictBeyond, fmt.Sprintf("the offset of %s is %d and its log ends at %d: was the topic made anew?", where(list), p.Committed, p.End),
		fmt.Sprintf("stop the consumers and 'ponor group reset %s --topic %s --to start --execute'", r.Group.Name, p.Topic)}, true
}

func stuck(r *groupReport) (verdictView, bool) {
	if r.Watched == 0 {
		return verdictView{}, false
	}
	list := r.which(func(p partitionLag) bool {
		return p.Member != "" && p.Committed >= 0 && p.Lag > 0 && p.lagBefore > 0 && p.Committed == p.committedBefore
	}, byLag)
	if len(list) == 0 {
		return verdictView{}, false
	}
	p := list[0]
	since := spanText(seconds(r.Watched))
	if p.CommittedAt > 0 {
		since = spanText(r.now.Sub(time.UnixMilli(p.CommittedAt)))
	}
	return verdictView{verdictStuck, fmt.Sprintf("consumer %s has committed nothing on %s for %s; %s", r.who(p.Member), where(list), since, r.waiting(list)),
		"it lives (its heartbeats come) but does not get on: look at its log and what its handler waits for; or it commits less often than every " + spanText(seconds(r.Watched)) + ": --watch longer"}, true
}

func slow(r *groupReport) (verdictView, bool) {
	if r.Watched == 0 {
		return verdictView{}, false
	}
	list := r.which(func(p partitionLag) bool {
		return p.Member != "" && p.far() && p.Lag > p.lagBefore
	}, func(p partitionLag) float64 { return p.Produced - p.Consumed })
	if len(list) == 0 {
		return verdictView{}, false
	}
	p := list[0]
	return verdictView{verdictSlow, fmt.Sprintf("consumer %s is slower than production on %s: %s records/s against %s; %s",
		r.who(p.Member), where(list), rateText(p.Consumed), rateText(p.Produced), r.waiting(list)), r.advice(list)}, true
}

// advice is for slow consumers: one that is, or too few of them.
func (r *groupReport) advice(list []partitionLag) string {
	members := map[string]bool{}
	for _, p := range list {
		members[p.Member] = true
	}
	switch {
	case len(members) < len(r.Group.Members):
		return "others keep up: look at that consumer's machine and handler, and whether the topic's keys are spread evenly"
	case len(r.Group.Members) < len(r.Partitions):
		return fmt.Sprintf("add consumers: %s for %s", count(len(r.Group.Members), "member"), count(len(r.Partitions), "partition"))
	}
	return "make the handler faster, or give the topic more partitions and the group more consumers"
}

func unread(r *groupReport) (verdictView, bool) {
	list := r.which(func(p partitionLag) bool { return p.Member == "" && p.Lag > 0 }, byLag)
	if len(list) > 0 {
		return verdictView{verdictUnread, fmt.Sprintf("no member reads %s; %s", where(list), r.waiting(list)),
			fmt.Sprintf("subscribe to topic %s, or 'ponor group delete-offsets %s --topic %s' if it is not read any more", list[0].Topic, r.Group.Name, list[0].Topic)}, true
	}
	list = slices.DeleteFunc(r.neverCommitted(), func(p partitionLag) bool { return p.Member != "" })
	if len(list) == 0 {
		return verdictView{}, false
	}
	return verdictView{verdictUnread, fmt.Sprintf("no member reads %s and none ever did, and there are records", where(list)),
		"consumers find new partitions within metadata.max.age.ms, 5 minutes by default; members that assign partitions themselves must name these"}, true
}

// behind is lag that does not grow.
func behind(r *groupReport) (verdictView, bool) {
	if r.Watched == 0 {
		if r.Group.Lag == 0 {
			return verdictView{}, false
		}
		return verdictView{verdictBehind, "behind: " + r.waiting(r.Partitions), "--watch 10s tells whether it catches up"}, true
	}
	list := r.which(partitionLag.far, byLag)
	if len(list) == 0 {
		return verdictView{}, false
	}
	worst := 0.0
	for _, p := range list {
		gain := p.Consumed - p.Produced
		if gain <= 0 {
			return verdictView{verdictBehind, fmt.Sprintf("as fast as production, and does not catch up: %s on %s", r.waiting(list), where(list)), r.advice(list)}, true
		}
		worst = max(worst, float64(p.Lag)/gain)
	}
	return verdictView{verdictCatchingUp, fmt.Sprintf("catching up: %s on %s, for about %s", r.waiting(list), where(list), spanText(seconds(worst))), ""}, true
}

func noCommits(r *groupReport) (verdictView, bool) {
	list := r.neverCommitted()
	if len(list) == 0 {
		return verdictView{}, false
	}
	return verdictView{verdictNoCommits, fmt.Sprintf("consumer %s has never committed on %s", r.who(list[0].Member), where(list)),
		"its lag cannot be known; a restart would begin where auto.offset.reset says"}, true
}
