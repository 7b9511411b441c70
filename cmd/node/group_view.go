package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errNoGroup: no coordinator has a group of that name.
var errNoGroup = errors.New("there is no such group; 'ponor group list' shows which there are")

// groupView is one group at one moment, as the public protocol shows it.
type groupView struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // classic or consumer
	State       string `json:"state"`
	Protocol    string `json:"protocol,omitempty"` // who or what assigns
	Coordinator int32  `json:"coordinator"`
	// Lag is the sum over all partitions with an offset.
	Lag        int64            `json:"lag"`
	Members    []groupMember    `json:"members"`
	Partitions []groupPartition `json:"partitions"`

	// Err is why the group could not be looked at.
	Err   error  `json:"-"`
	Error string `json:"error,omitempty"`

	// bare are partitions of the same topics that have records, no offset and no
	// reader.
	bare       []groupPartition
	subscribed []string
	address    string // of the coordinator
}

// groupMember is one member.
type groupMember struct {
	ID         string             `json:"id"`
	Instance   string             `json:"instance,omitempty"`
	Client     string             `json:"client"`
	Host       string             `json:"host"`
	Assignment map[string][]int32 `json:"assignment"`
	// Unheard is when the coordinator began if it has not heard from the member since,
	// and Until when the session ends then. Unix ms, 0 for heard from or not known.
	Unheard int64 `json:"unheard_since,omitempty"`
	Until   int64 `json:"session_ends,omitempty"`
}

// name is what people know the member by.
func (m groupMember) name() string { return cmp.Or(m.Instance, m.Client, m.ID) }

// groupPartition is a partition that the group reads or has read. Offsets are -1 for
// none.
type groupPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Member    string `json:"member,omitempty"` // id of the member that reads it
	Committed int64  `json:"committed_offset"`
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"lag"` // in records
	// CommittedAt is when, Unix ms; 0 if the cluster does not say.
	CommittedAt int64  `json:"committed_at,omitempty"`
	Error       string `json:"error,omitempty"`
}

func (p groupPartition) name() string { return p.Topic + "/" + strconv.Itoa(int(p.Partition)) }

// lost is how many records were deleted before the group had read them.
func (p groupPartition) lost() int64 {
	if p.Committed < 0 {
		return 0
	}
	return max(0, p.Start-p.Committed)
}

func (v *groupView) lagText() string {
	if v.Err != nil {
		return v.Err.Error()
	}
	return strconv.FormatInt(v.Lag, 10)
}

// member finds a member by its id, nil if there is none.
func (v *groupView) member(id string) *groupMember {
	for i := range v.Members {
		if v.Members[i].ID == id {
			return &v.Members[i]
		}
	}
	return nil
}

// lookAtGroups looks at groups of either type: members, offsets, ends. What cannot be
// seen of one group is its Err.
func lookAtGroups(ctx context.Context, adm *kadm.Client, names []string) ([]groupView, error) {
	views := make([]groupView, 0, len(names))
	if len(names) == 0 {
		return views, nil
	}
	described, err := adm.DescribeGroups(ctx, names...)
	if err != nil && len(described) == 0 {
		return nil, fmt.Errorf("describe groups: %w", err)
	}
	var rest []string // not classic
	for _, name := range names {
		if g, ok := described[name]; !ok || g.State == "Dead" || errors.Is(g.Err, kerr.GroupIDNotFound) {
			rest = append(rest, name)
		}
	}
	var consumer kadm.DescribedConsumerGroups
	if len(rest) > 0 { // older clusters do not know such groups
		consumer, _ = adm.DescribeConsumerGroups(ctx, rest...)
	}
	for _, name := range names {
		g, ok := consumer[name]
		switch {
		case ok && g.Err == nil:
			views = append(views, viewConsumerGroup(g))
		case slices.Contains(rest, name):
			views = append(views, groupView{Name: name, Err: errNoGroup, Members: []groupMember{}})
		default:
			views = append(views, viewClassicGroup(described[name]))
		}
	}
	if err := lookAtOffsets(ctx, adm, views); err != nil {
		return nil, err
	}
	for i := range views {
		if views[i].Err != nil {
			views[i].Error = views[i].Err.Error()
		}
	}
	return views, nil
}

func viewClassicGroup(g kadm.DescribedGroup) groupView {
	v := groupView{Name: g.Group, Type: "classic", State: g.State, Protocol: g.Protocol, Coordinator: g.Coordinator.NodeID,
		address: addressOf(g.Coordinator), Members: []groupMember{}, subscribed: g.JoinTopics()}
	if g.Err != nil {
		v.Err = brokerError(g.Err, g.ErrMessage)
	}
	for _, m := range g.Members {
		gm := groupMember{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Assignment: map[string][]int32{}}
		if m.InstanceID != nil {
			gm.Instance = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				gm.Assignment[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
			}
		}
		v.Members = append(v.Members, gm)
	}
	return v
}

func viewConsumerGroup(g kadm.DescribedConsumerGroup) groupView {
	v := groupView{Name: g.Group, Type: "consumer", State: g.State, Protocol: g.AssignorName, Coordinator: g.Coordinator.NodeID,
		address: addressOf(g.Coordinator), Members: []groupMember{}, subscribed: g.SubscribedTopics()}
	for _, m := range g.Members {
		gm := groupMember{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Assignment: map[string][]int32{}}
		if m.InstanceID != nil {
			gm.Instance = *m.InstanceID
		}
		for _, t := range m.Assignment.Sorted() {
			gm.Assignment[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
		}
		v.Members = append(v.Members, gm)
	}
	return v
}

func addressOf(b kadm.BrokerDetail) string {
	return hostPort(b.Host, b.Port)
}

// lookAtOffsets fills in what each group has committed, and what there is to read.
func lookAtOffsets(ctx context.Context, adm *kadm.Client, views []groupView) error {
	var names []string
	for _, v := range views {
		if v.Err == nil {
			names = append(names, v.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	fetched := adm.FetchManyOffsets(ctx, names...)
	topics := map[string]struct{}{}
	for i := range views {
		v := &views[i]
		if v.Err != nil {
			continue
		}
		r := fetched[v.Name]
		if r.Err != nil {
			v.Err = fmt.Errorf("fetch offsets: %w", brokerError(r.Err, ""))
			continue
		}
		v.Partitions = partitionsOf(v.Members, r.Fetched)
		for _, p := range v.Partitions {
			topics[p.Topic] = struct{}{}
		}
	}
	if len(topics) == 0 {
		return nil
	}
	list := make([]string, 0, len(topics))
	for t := range topics {
		list = append(list, t)
	}
	// What fails for one topic or broker is missing below.
	starts, err := adm.ListStartOffsets(ctx, list...)
	if err != nil && starts == nil {
		return fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, list...)
	if err != nil && ends == nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	for i := range views {
		views[i].measure(starts, ends)
	}
	return nil
}

// partitionsOf lists the partitions that are assigned or have an offset.
func partitionsOf(members []groupMember, offsets kadm.OffsetResponses) []groupPartition {
	type key struct {
		topic     string
		partition int32
	}
	rows := map[key]*groupPartition{}
	row := func(topic string, partition int32) *groupPartition {
		k := key{topic, partition}
		if rows[k] == nil {
			rows[k] = &groupPartition{Topic: topic, Partition: partition, Committed: -1, Start: -1, End: -1, Lag: -1}
		}
		return rows[k]
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err != nil {
			row(o.Topic, o.Partition).Error = o.Err.Error()
		} else if o.At >= 0 {
			row(o.Topic, o.Partition).Committed = o.At
		}
	})
	for _, m := range members {
		for topic, partitions := range m.Assignment {
			for _, p := range partitions {
				row(topic, p).Member = m.ID
			}
		}
	}
	list := make([]groupPartition, 0, len(rows))
	for _, r := range rows {
		list = append(list, *r)
	}
	sortPartitions(list)
	return list
}

// measure computes the lag.
func (v *groupView) measure(starts, ends kadm.ListedOffsets) {
	v.Lag = 0
	for i := range v.Partitions {
		p := &v.Partitions[i]
		if o, ok := starts.Lookup(p.Topic, p.Partition); ok && o.Err == nil {
			p.Start = o.Offset
		}
		o, ok := ends.Lookup(p.Topic, p.Partition)
		switch {
		case !ok:
			p.Error = cmp.Or(p.Error, "the partition does not exist or does not answer")
			continue
		case o.Err != nil:
			p.Error = cmp.Or(p.Error, o.Err.Error())
			continue
		}
		p.End = o.Offset
		if p.Committed >= 0 {
			p.Lag = max(0, p.End-max(p.Committed, p.Start))
			v.Lag += p.Lag
		}
	}
	v.bare = v.findBare(starts, ends)
}

// findBare lists what the protocol does not say of a group: the partitions of its
// topics that it has nothing to do with.
func (v *groupView) findBare(starts, ends kadm.ListedOffsets) (bare []groupPartition) {
	topics, rows := map[string]bool{}, map[string]bool{}
	for _, p := range v.Partitions {
		topics[p.Topic], rows[p.name()] = true, true
	}
	ends.Each(func(o kadm.ListedOffset) {
		p := groupPartition{Topic: o.Topic, Partition: o.Partition, Committed: -1, End: o.Offset, Lag: -1}
		s, ok := starts.Lookup(o.Topic, o.Partition)
		if p.Start = s.Offset; ok && o.Err == nil && s.Err == nil && topics[p.Topic] && !rows[p.name()] && p.End > p.Start {
			bare = append(bare, p)
		}
	})
	return bare
}

func sortPartitions(list []groupPartition) {
	slices.SortFunc(list, func(a, b groupPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// orDash is for columns that may be empty.
func orDash(s string) string { return cmp.Or(s, "-") }

// offsetText prints an offset or a number of records, -1 as none.
func offsetText(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// agoText prints how long ago a time in Unix ms was.
func agoText(now time.Time, ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return spanText(now.Sub(time.UnixMilli(ms))) + " ago"
}

// spanText prints a duration with two units at most.
func spanText(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// assignmentText prints "orders/0,1 audit/3".
func assignmentText(a map[string][]int32) string {
	topics := make([]string, 0, len(a))
	for t := range a {
		topics = append(topics, t)
	}
	slices.Sort(topics)
	var parts []string
	for _, t := range topics {
		numbers := make([]string, len(a[t]))
		for i, p := range a[t] {
			numbers[i] = strconv.Itoa(int(p))
		}
		parts = append(parts, t+"/"+strings.Join(numbers, ","))
	}
	return orDash(strings.Join(parts, " "))
}
