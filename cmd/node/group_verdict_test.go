package main

import (
	"bytes"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"ponor/coordinator/group"
)

var verdictNow = time.UnixMilli(1_800_000_000_000)

func ago(d time.Duration) int64 { return verdictNow.Add(-d).UnixMilli() }

// offsets is a partition of topic orders at one look.
func offsets(partition int32, member string, committed, end int64) groupPartition {
	p := groupPartition{Topic: "orders", Partition: partition, Member: member, Committed: committed, End: end, Lag: -1}
	if committed >= 0 {
		p.Lag = max(0, end-committed)
	}
	return p
}

// at is a stable group of members a, b, ... that each bear their id as client id.
func at(members string, partitions ...groupPartition) groupView {
	v := groupView{Name: "billing", Type: "classic", State: "Stable", Partitions: partitions}
	for _, m := range strings.Fields(members) {
		v.Members = append(v.Members, groupMember{ID: m, Client: m, Host: "/10.0.0.1"})
	}
	if len(v.Members) == 0 {
		v.State = "Empty"
	}
	for _, p := range partitions {
		v.Lag += max(0, p.Lag)
	}
	return v
}

func rebalanced(begun time.Duration, changes ...group.Change) group.Rebalance {
	return group.Rebalance{Begun: ago(begun), Joined: ago(begun), Assigned: ago(begun), Members: 1, Changes: changes}
}

func changed(client, what string) group.Change {
	return group.Change{Client: client, Host: "/10.0.0.1", What: what}
}

func TestVerdicts(t *testing.T) {
	in := func(state string, v groupView) groupView { v.State = state; return v }
	lost := offsets(0, "a", 10, 100)
	lost.Start, lost.Lag = 50, 50
	times := func(n int, each time.Duration, c ...group.Change) (list []group.Rebalance) {
		for i := range n {
			list = append(list, rebalanced(time.Duration(n-i)*each, c...))
		}
		return list
	}
	for name, test := range map[string]struct {
		before, after groupView // before is after if it has no name
		once          bool
		known         group.Inspection
		code, says    string
	}{
		"all is read":                                          {after: at("a b", offsets(0, "a", 10, 10)), code: verdictHealthy, says: "2 members keep up and nothing waits"},
		"what waits came just now":                             {before: at("a", offsets(0, "a", 100, 110)), after: at("a", offsets(0, "a", 200, 215)), code: verdictHealthy, says: "15 records wait, the oldest for 7 s"},
		"nobody is there":                                      {after: at("", offsets(0, "", 10, 30)), known: group.Inspection{Since: ago(3 * time.Hour)}, code: verdictNoMembers, says: "no member for 3 h 0 min; 20 records wait"},
		"nobody is there, and it is known why":                 {after: at("", offsets(0, "", 10, 10)), known: group.Inspection{Rebalances: times(1, time.Minute, changed("x", group.MemberExpired))}, code: verdictNoMembers, says: "the last, x, sent no heartbeat for its session timeout; nothing waits"},
		"nobody is there, and some was never read":             {after: at("", offsets(0, "", 10, 10), offsets(1, "", -1, 30), offsets(2, "", -1, 5)), code: verdictNoMembers, says: "no member; it has never committed on orders/1 (and 1 more), where there are records"},
		"nobody is there, and some waits, some was never read": {after: at("", offsets(0, "", 10, 12), offsets(1, "", -1, 30)), code: verdictNoMembers, says: "no member; 2 records wait, the oldest for 7 s; it has never committed on orders/1, where"},
		"nobody has read a new partition":                      {after: at("a", offsets(0, "a", 10, 10), offsets(1, "", -1, 30)), code: verdictUnread, says: "no member reads orders/1 and none ever did"},
		"an empty partition needs no offset":                   {after: at("", offsets(0, "", 10, 10), groupPartition{Topic: "orders", Partition: 1, Committed: -1, Lag: -1}), code: verdictNoMembers, says: "no member; nothing waits"},
		"members are awaited": {after: in("PreparingRebalance", at("a b")), code: verdictRebalances, says: "because c joined; waits for a, for 30 s more at most",
			known: group.Inspection{Awaited: []group.Awaited{{Client: "a", Until: ago(-30 * time.Second)}}, Rebalances: []group.Rebalance{{Begun: ago(5 * time.Second), Changes: []group.Change{changed("c", group.MemberJoined)}}}}},
		"a member died with the coordinator": {after: at("a b", offsets(0, "a", 10, 10)), code: verdictUnheard, says: "member b at /10.0.0.1 has not been heard of since the group's coordinator moved or started 12 s ago",
			known: group.Inspection{Unheard: []group.Unheard{{Awaited: group.Awaited{Client: "b", Host: "/10.0.0.1", Until: ago(-30 * time.Second)}, Since: ago(12 * time.Second)}}}},
		"the coordinator moved just now": {after: at("a", offsets(0, "a", 10, 10)), code: verdictHealthy,
			known: group.Inspection{Unheard: []group.Unheard{{Awaited: group.Awaited{Client: "a", Until: ago(-30 * time.Second)}, Since: ago(2 * time.Second)}}}},
		"one member holds up all": {after: in("PreparingRebalance", at("a b")), code: verdictForever, says: "member y at /10.0.0.1 never joins within its rebalance timeout (3 of the last 3 rebalances)",
			known: group.Inspection{Rebalances: times(3, time.Minute, changed("y", group.MemberAbsent))}},
		"one member held up all long ago": {after: at("a", offsets(0, "a", 10, 10)), code: verdictHealthy,
			known: group.Inspection{Rebalances: []group.Rebalance{rebalanced(20*time.Minute, changed("y", group.MemberAbsent)), rebalanced(10*time.Minute, changed("y", group.MemberAbsent))}}},
		"members come and go": {after: at("a", offsets(0, "a", 10, 10)), code: verdictRestless, says: "8 times in the last 2 min 40 s; 8 times because x at /10.0.0.1 session expired",
			known: group.Inspection{Rebalances: times(8, 20*time.Second, changed("x", group.MemberExpired))}},
		"cooperative members take turns": {after: at("a", offsets(0, "a", 10, 10)), code: verdictHealthy,
			known: group.Inspection{Rebalances: append(times(4, 20*time.Second, changed("x", group.MemberGaveUp)), times(4, 20*time.Second, changed("x", group.MemberJoined))...)}},
		"records were deleted":                      {after: at("a", lost), code: verdictLost, says: "40 records of orders/0 were deleted"},
		"the topic was made anew":                   {after: at("a", offsets(0, "a", 100, 5)), code: verdictBeyond, says: "the offset of orders/0 is 100 and its log ends at 5"},
		"a consumer does not get on":                {before: at("a b", offsets(0, "a", 10, 20), offsets(1, "b", 5, 6)), after: at("a b", offsets(0, "a", 10, 25), offsets(1, "b", 7, 7)), code: verdictStuck, says: "consumer a has committed nothing on orders/0 for 10 s; 15 records wait"},
		"records that only just came are not stuck": {before: at("a", offsets(0, "a", 10, 10)), after: at("a", offsets(0, "a", 10, 12)), code: verdictHealthy},
		"a consumer is slow": {before: at("a b", offsets(0, "a", 1000, 2000), offsets(1, "b", 2000, 2000)), after: at("a b", offsets(0, "a", 1100, 3000), offsets(1, "b", 3000, 3000)),
			code: verdictSlow, says: "consumer a is slower than production on orders/0: 10 records/s against 100"},
		"it catches up":             {before: at("a", offsets(0, "a", 0, 10_000)), after: at("a", offsets(0, "a", 2000, 11_000)), code: verdictCatchingUp, says: "for about 1 min 30 s"},
		"it stays behind":           {before: at("a", offsets(0, "a", 0, 10_000)), after: at("a", offsets(0, "a", 1000, 11_000)), code: verdictBehind, says: "does not catch up"},
		"one look knows no rate":    {after: at("a", offsets(0, "a", 0, 10)), once: true, code: verdictBehind, says: "10 records wait"},
		"a topic is not read":       {after: at("a", offsets(0, "", 3, 10)), code: verdictUnread, says: "no member reads orders/0; 7 records wait"},
		"nothing is ever committed": {after: at("a", offsets(0, "a", -1, 10)), code: verdictNoCommits, says: "consumer a has never committed on orders/0"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.before.Name == "" {
				test.before = test.after
			}
			watched := 10 * time.Second
			if test.once {
				watched = 0
			}
			r := compareLooks(test.before, test.after, watched, map[string]time.Duration{"orders/0": 7 * time.Second}, verdictNow)
			r.remember(test.known)
			v := diagnose(r)
			if v.Code != test.code || !strings.Contains(v.Text, test.says) {
				t.Errorf("verdict %s: %s\nwant    %s: ...%s", v.Code, v.Text, test.code, test.says)
			}
		})
	}
}

func TestMembersOfOneClientIDAreToldApart(t *testing.T) {
	v := at("a b", offsets(0, "b", 1, 5))
	for i := range v.Members {
		v.Members[i].Client = "app"
	}
	r := compareLooks(v, v, time.Second, nil, verdictNow)
	if text := diagnose(r).Text; !strings.Contains(text, "consumer b ") {
		t.Errorf("which app? %s", text)
	}
}

func TestReportShowsTheEvidence(t *testing.T) {
	r := compareLooks(at("a", offsets(0, "a", 100, 200)), at("a", offsets(0, "a", 150, 300)), 10*time.Second, map[string]time.Duration{"orders/0": 65 * time.Second}, verdictNow)
	r.remember(group.Inspection{Since: ago(time.Hour), Commits: []group.Commit{{Topic: "orders", Partition: 0, At: ago(2 * time.Second)}},
		Rebalances: []group.Rebalance{{Generation: 7, Begun: ago(time.Hour), Joined: ago(time.Hour - 3*time.Second), Members: 1, Changes: []group.Change{changed("a", group.MemberJoined)}, More: 2}}})
	r.Verdict = diagnose(r)
	var b bytes.Buffer
	p := &printer{w: tabwriter.NewWriter(&b, 0, 8, 1, ' ', 0)}
	r.print(p)
	if err := p.w.Flush(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"billing: consumer a", "Stable for 1 h 0 min", "orders/0 a 150 300 150 1 min 5 s 10 5.0 2 s ago",
		"a /10.0.0.1 1 150 1 min 5 s 10 5.0", "7 1 h 0 min ago 3 s - 1 a joined, 2 more",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestDescribeSaysWhoMayBeDead(t *testing.T) {
	v := at("a b", offsets(0, "a", 100, 200))
	v.know(group.Inspection{Unheard: []group.Unheard{{Awaited: group.Awaited{Member: "b", Until: ago(-30 * time.Second)}, Since: ago(12 * time.Second)}},
		Commits: []group.Commit{{Topic: "orders", Partition: 0, At: ago(2 * time.Second)}}})
	var b bytes.Buffer
	p := &printer{w: tabwriter.NewWriter(&b, 0, 8, 1, ' ', 0)}
	printGroups(p, verdictNow, []groupView{v})
	if err := p.w.Flush(); err != nil {
		t.Fatal(err)
	}
	const remark = "not heard from since the coordinator moved or started 12 s ago; its session ends in 30 s"
	if !strings.Contains(b.String(), remark) || strings.Count(b.String(), "not heard") != 1 || !strings.Contains(b.String(), "2 s ago") {
		t.Errorf("it says\n%s", b.String())
	}
}
