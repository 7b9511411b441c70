package sim

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/metadata"
)

// operator is somebody with tools, on a host of its own.
type operator struct {
	w   *workload
	cl  *kgo.Client
	adm *kadm.Client
}

// operatorHost is where the operator sits.
const operatorHost = "c5"

func newOperator(w *workload) *operator {
	cl := w.client(operatorHost, kgo.RequestRetries(1))
	o := &operator{w: w, cl: cl, adm: kadm.NewClient(cl)}
	o.adm.SetTimeoutMillis(int32(opTimeout.Milliseconds() / 2))
	return o
}

func (o *operator) close() { o.cl.Close() }

// operate carries out a deed. It counts as done if the cluster took the order.
func (n *nemesis) operate(e Event, v *node) {
	switch e.Kind {
	case Drain, Cordon:
		n.setAside(e, v)
	case Guest:
		n.guest(e)
	case Elect:
		ctx, cancel := context.WithTimeout(n.op.w.ctx, opTimeout)
		defer cancel()
		_, err := n.op.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
		n.ordered(e, "all topics", err)
	default:
		n.reassign(e)
	}
}

// ordered notes whether an order was taken.
func (n *nemesis) ordered(e Event, what string, err error) (ok bool) {
	n.op.w.op(string(e.Kind), err)
	if err != nil {
		n.c.time.add("%s of %s: %v", e.Kind, what, err)
		n.effect("order without success")
		return false
	}
	n.note(e, what)
	return true
}

// location is where a partition is and where it shall go.
type location struct {
	tp           TP
	source, dest *node
}

// locate draws a partition of the main topic and another living node for it.
func (n *nemesis) locate(e Event) (l location, ok bool) {
	l.tp = TP{Topic: mainTopic, Partition: int32(e.Draw / 7 % mainPartitions)}
	var others []*node
	for _, x := range n.c.members() {
		switch {
		case x.current() == nil:
		case x.ownsPartition(l.tp):
			l.source = x
		default:
			others = append(others, x)
		}
	}
	if l.source == nil || len(others) == 0 {
		return l, false
	}
	l.dest = others[e.Draw/31%uint64(len(others))]
	return l, true
}

// ownsPartition says if the node's present incarnation has the partition, as far
// as the node knows.
func (n *node) ownsPartition(tp TP) bool {
	r := n.current()
	if r == nil {
		return false
	}
	for p := range r.Controller().Image().Owned(r.Controller().Incarnation()) {
		if p.TopicName == tp.Topic && p.Number == tp.Partition {
			return true
		}
	}
	return false
}

// reassign moves a partition, and what belongs to the kind of move.
func (n *nemesis) reassign(e Event) {
	var l location
	if !n.until(3*time.Second, func() (ok bool) { l, ok = n.locate(e); return ok }) {
		n.miss(e)
		return
	}
	if !n.ordered(e, l.tp.String()+" from "+l.source.name+" to "+l.dest.name, n.op.move(l.tp, l.dest)) {
		return
	}
	apart := time.Duration(e.Draw/101%25) * time.Millisecond
	switch e.Kind {
	case Shuttle:
		for range 3 {
			time.Sleep(apart)
			_ = n.op.move(l.tp, l.source)
			time.Sleep(apart)
			_ = n.op.move(l.tp, l.dest)
		}
	case MoveDeath:
		n.lasts(apart)
		who := []*node{l.source, l.dest, n.c.leader()}[e.Draw/13%3]
		if who == nil {
			who = l.source
		}
		n.lose(e, who)
	}
}

// move orders that a partition goes to a node.
func (o *operator) move(tp TP, to *node) error {
	ctx, cancel := context.WithTimeout(o.w.ctx, opTimeout)
	defer cancel()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(tp.Topic, tp.Partition, []int32{int32(to.id)})
	resp, err := o.adm.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range resp.Sorted() {
		if p.Err != nil {
			return p.Err
		}
	}
	return nil
}

// setAside drains or cordons a node for a time.
func (n *nemesis) setAside(e Event, v *node) {
	if !n.ordered(e, v.name, n.setState(v, e.Kind == Drain, e.Kind == Cordon)) {
		return
	}
	n.lasts(e.For)
	_ = n.setState(v, false, false)
}

var errNobody = errors.New("nobody runs who could be asked")

// setState asks any other node to drain or cordon one.
func (n *nemesis) setState(v *node, draining, cordoned bool) error {
	ctx, cancel := context.WithTimeout(n.op.w.ctx, opTimeout)
	defer cancel()
	for _, x := range n.c.nodes {
		if r := x.current(); r != nil && x != v {
			return r.Controller().SetBrokerState(ctx, metadata.BrokerID(v.id), func(b *metadata.Broker) {
				b.Draining, b.Cordoned = draining, cordoned
			})
		}
	}
	return errNobody
}

// guest has a node join, be a broker for a time, and leave drained.
func (n *nemesis) guest(e Event) {
	g := n.c.nodes[len(n.c.nodes)-1]
	n.busy[g.name] <- struct{}{}
	defer func() { <-n.busy[g.name] }()
	if !g.isAway() {
		n.miss(e)
		return
	}
	g.setAway(false)
	g.restart()
	n.note(e, g.name)
	joined := n.until(10*time.Second, func() bool { return g.incarnation() != metadata.Incarnation{} })
	if joined { // balance alone gives it some only after two quiet seconds
		_ = n.op.move(TP{Topic: mainTopic, Partition: int32(e.Draw % mainPartitions)}, g)
	}
	if n.until(e.For, func() bool { return g.owns() }) {
		n.effect("guest owned partitions")
	}
	n.lasts(e.For)
	_ = n.setState(g, true, false)
	if n.until(5*time.Second, func() bool { return !g.owns() }) && joined {
		n.effect("guest left drained")
	}
	g.setAway(true)
	g.stop(time.Minute)
	n.c.time.add("%s has left", g.name)
}
