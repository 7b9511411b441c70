package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ponor/jepsen/history"
)

// metadata is M1 to M10.
func (r *run) metadata() {
	r.quorum()
	t := topicChecks{
		run:  r,
		lost: r.check("M5", "metadata-lost"), again: r.check("M7", "topic-incarnations"), late: r.check("M9", "stale-metadata"),
		topics: map[string]*topicOps{},
	}
	t.collect()
	for _, list := range inOrder(t.topics) {
		t.topic(list)
	}
	for _, f := range []*found{t.lost, t.again, t.late} {
		if _, ok := r.white.Findings[f.ID]; ok {
			r.also(f, true)
		}
	}
	if t.late.Checked > 0 {
		t.late.figure("most_stale_ms", float64(t.most)/1e6)
	}
}

type topicChecks struct {
	*run
	lost, again, late *found
	topics            map[string]*topicOps
	most              int64
}

// topicOps are what was done to, and seen of, a topic. Among the changes are those that
// were denied, because it was there already or not there.
type topicOps struct{ changes, looks []*history.Op }

// topicState is what a topic should be like.
type topicState struct {
	exists     bool
	id         string
	partitions int32
	config     map[string]string
}

func (t *topicChecks) collect() {
	for i := range t.Ops {
		o := &t.Ops[i]
		if o.Topic == nil || o.Type == history.Fail && !denied(o) {
			continue
		}
		list := t.topics[o.Topic.Name]
		if list == nil {
			list = &topicOps{}
			t.topics[o.Topic.Name] = list
		}
		switch o.F {
		case history.CreateTopic, history.DeleteTopic, history.AlterConfig:
			list.changes = append(list.changes, o)
		case history.DescribeTopic:
			if o.Type == history.OK {
				list.looks = append(list.looks, o)
			}
		default:
		}
	}
}

// topic compares what was seen of one with what had been done to it.
func (t *topicChecks) topic(list *topicOps) {
	slices.SortStableFunc(list.changes, func(a, b *history.Op) int { return cmp.Compare(a.Invoked, b.Invoked) })
	slices.SortStableFunc(list.looks, func(a, b *history.Op) int { return cmp.Compare(a.Invoked, b.Invoked) })
	ids := map[string]*history.Op{}
	for _, c := range list.changes {
		if c.F != history.CreateTopic || c.Type != history.OK || c.Topic.ID == "" {
			continue
		}
		t.again.Checked++
		if was := ids[c.Topic.ID]; was != nil {
			t.again.add(0, func() Anomaly {
				return Anomaly{Text: fmt.Sprintf("topic %s was created twice with id %s", c.Topic.Name, c.Topic.ID), Key: -1, At: c.Completed, Ops: []int64{c.Index, was.Index}}
			})
		}
		ids[c.Topic.ID] = c
	}
	var was topicState
	n, certain, busy := 0, true, int64(-1)
	var last *history.Op
	for i, look := range list.looks {
		for ; n < len(list.changes) && list.changes[n].Invoked <= look.Completed; n++ {
			c := list.changes[n]
			if c.Type == history.Fail {
				if !t.nothingDone(c) {
					certain = certain && busy < c.Invoked && was.exists == (c.F == history.CreateTopic)
					busy = max(busy, c.Completed)
				}
				continue
			}
			// What is not known to have happened, or to have happened behind the
			// last change, leaves the topic uncertain until the next one that is.
			certain = c.Type == history.OK && busy < c.Invoked && (certain || c.F != history.AlterConfig)
			certain = certain && !unknownBefore(list.changes[:n])
			was = was.after(c)
			last, busy = c, max(busy, c.Completed)
		}
		if last == nil || !certain || busy >= look.Invoked {
			continue
		}
		t.look(look, was, last, list.looks[i+1:])
	}
}

// denied says that a change came to a topic that was as it should become.
func denied(o *history.Op) bool {
	switch o.F {
	case history.CreateTopic:
		return strings.Contains(o.Err, "TOPIC_ALREADY_EXISTS")
	case history.DeleteTopic:
		return strings.Contains(o.Err, "UNKNOWN_TOPIC_OR_PARTITION")
	default:
		return false
	}
}

// nothingDone says that a change that was denied did nothing. A broker asks the controller
// again when a fault took the answer, and the second answer is that to what the first one
// did.
func (t *topicChecks) nothingDone(o *history.Op) bool {
	return t.health.longest(o.Invoked, o.Completed, StaleBound) == o.Completed-o.Invoked
}

// unknownBefore says that a change of unknown effect may still come.
func unknownBefore(changes []*history.Op) bool {
	return slices.ContainsFunc(changes, func(o *history.Op) bool { return o.Type == history.Info })
}

// after is the state after a change.
func (s topicState) after(o *history.Op) topicState {
	switch o.F {
	case history.CreateTopic:
		return topicState{exists: true, id: o.Topic.ID, partitions: o.Topic.Partitions, config: o.Topic.Config}
	case history.DeleteTopic:
		return topicState{}
	default:
		config := map[string]string{}
		for k, v := range s.config {
			config[k] = v
		}
		for k, v := range o.Topic.Config {
			config[k] = v
		}
		s.config = config
		return s
	}
}

// differs says how a topic is not as it should be; id: it is another one.
func (s topicState) differs(o *history.Op) (text string, id bool) {
	is := o.Topic
	switch {
	case !s.exists && is.Exists:
		return "it is there", true
	case s.exists && !is.Exists:
		return "it is not there", false
	case !s.exists:
		return "", false
	case s.id != "" && is.ID != "" && s.id != is.ID:
		return fmt.Sprintf("its id is %s, not %s", is.ID, s.id), true
	case s.partitions > 0 && is.Partitions > 0 && s.partitions != is.Partitions:
		return fmt.Sprintf("it has %d partitions, not %d", is.Partitions, s.partitions), false
	}
	for k, want := range inOrderPairs(s.config) {
		if got, ok := is.Config[k]; len(is.Config) > 0 && (!ok || got != want) {
			return fmt.Sprintf("%s is %q, not %q", k, got, want), false
		}
	}
	return "", false
}

// look judges one description. Brokers may be late, and it shows nothing before they must
// have heard of the change; then it is stale if a later one is right, and the change lost,
// or undone, if none is.
func (t *topicChecks) look(o *history.Op, want topicState, change *history.Op, later []*history.Op) {
	text, id := want.differs(o)
	age := o.Invoked - change.Completed
	settled := t.health.longest(change.Completed, o.Invoked, 0) > int64(StaleBound)
	if settled {
		t.late.Checked++
		if want.exists {
			t.lost.Checked++
		}
		if id || want.id != "" || !want.exists {
			t.again.Checked++
		}
	}
	if text == "" {
		return
	}
	right := slices.ContainsFunc(later, func(l *history.Op) bool {
		t, _ := want.differs(l)
		return t == ""
	})
	if right {
		t.most = max(t.most, age)
	}
	if !settled {
		return
	}
	f := t.lost
	switch {
	case right:
		f = t.late
	case id:
		f = t.again
	}
	f.add(age, func() Anomaly {
		return Anomaly{
			Text: fmt.Sprintf("topic %s %.1f s after %s (op %d): %s", o.Topic.Name, float64(age)/1e9, change.F, change.Index, text),
			Key:  -1, At: o.Completed, Ops: []int64{o.Index, change.Index},
		}
	})
}
