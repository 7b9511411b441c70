package sim

import (
	"time"

	"ponor/metadata"
)

const (
	// steady is how long owners must not have changed before an outage that is
	// judged: a partition that is on its way to another owner waits for the quorum.
	steady = 3 * time.Second
	// adapting is how long clients may take to find that some nodes are gone.
	adapting = 4 * time.Second
)

// outage takes the metadata quorum away. Partitions whose owner lives go on.
func (n *nemesis) outage(e Event) {
	judged := n.plan.Alone(e) && n.until(quiet, n.c.steadily(steady))
	var owners []*node
	for _, x := range n.c.members() {
		if e.Kind != NoVoters || !x.voter {
			owners = append(owners, x)
		}
	}
	var parts []TP
	for _, x := range owners {
		if r := x.current(); r != nil {
			for p := range r.Controller().Image().Owned(r.Controller().Incarnation()) {
				if p.TopicName == mainTopic {
					parts = append(parts, TP{Topic: p.TopicName, Partition: p.Number})
				}
			}
		}
	}
	begin := n.c.time.h.Now()
	if e.Kind == NoVoters {
		n.death(e, n.c.voters())
	} else {
		n.during(e, &node{name: "everyone"}, n.apart(e.Kind == NoQuorum))
	}
	// One that had to wait for quiet ends with the run, whose clients then stop.
	end := min(begin+e.For, n.c.time.h.Now())
	if !judged || end <= begin+adapting {
		return
	}
	n.c.time.add("%d partitions must have been served", len(parts))
	n.effect("outage was judged")
	for _, tp := range parts {
		n.c.time.h.Demand(Service{tp, begin + adapting, end})
	}
}

func (c *cluster) voters() (list []*node) {
	for _, n := range c.nodes {
		if n.voter {
			list = append(list, n)
		}
	}
	return list
}

// apart stops the links between the voters, or between all nodes.
func (n *nemesis) apart(voters bool) (end func()) {
	var ends []func()
	for _, a := range n.c.nodes {
		for _, b := range n.c.nodes {
			if a != b && (!voters || a.voter && b.voter) {
				ends = append(ends, n.c.net.Block([]string{a.name}, []string{b.name}))
			}
		}
	}
	return both(ends...)
}

// steadily is a condition: for so long all members have lived and no partition
// has changed its owner.
func (c *cluster) steadily(long time.Duration) func() bool {
	var since time.Time
	last := map[TP]metadata.Incarnation{}
	return func() bool {
		now, well := map[TP]metadata.Incarnation{}, true
		var img *metadata.Image
		for _, n := range c.members() {
			r := n.current()
			if r == nil || !r.Controller().Image().Live(r.Controller().Incarnation()) {
				well = false
				continue
			}
			img = r.Controller().Image()
		}
		if img != nil {
			for t := range img.Topics() {
				for p := range img.Partitions(t.ID) {
					now[TP{Topic: p.TopicName, Partition: p.Number}] = p.Owner
					well = well && p.Openable() && img.Live(p.Owner)
				}
			}
		}
		for tp, owner := range now {
			well = well && (tp.Topic != mainTopic || last[tp] == owner)
		}
		if last = now; !well || since.IsZero() {
			since = time.Now()
		}
		return well && time.Since(since) >= long
	}
}
