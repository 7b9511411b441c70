package sim

import (
	"time"

	"ponor/metadata"
)

// replacing bounds the wait for others to take over, in trouble as it may be.
const replacing = 20 * time.Second

// incarnation is the one under which the node serves now.
func (n *node) incarnation() metadata.Incarnation {
	if r := n.current(); r != nil {
		return r.Controller().Incarnation()
	}
	return metadata.Incarnation{}
}

// step is how far the takeover of an incarnation has come, for any living node.
type step int

const (
	lives step = iota
	isFenced
	isSealed // and so its partitions can be opened
)

// step looks at all nodes but one.
func (c *cluster) step(inc metadata.Incarnation, but *node) (at step) {
	for _, n := range c.nodes {
		img := n.image()
		if n == but || img == nil || img.Live(inc) {
			continue
		}
		if w, ok := img.WAL(inc); ok && w.State != metadata.Sealed {
			at = max(at, isFenced)
			continue
		}
		return isSealed
	}
	return at
}

// zombie stops an owner, or cuts it off, until others have all that it had, and
// a little longer; then it goes on, in the belief that it still owns.
func (n *nemesis) zombie(e Event, v *node) {
	inc, r := v.incarnation(), v.current()
	if r == nil || inc == (metadata.Incarnation{}) {
		n.miss(e)
		return
	}
	n.note(e, v.name)
	reach := both(n.c.net.Block([]string{v.name}, n.others(v)), n.c.net.Block(n.others(v), []string{v.name}))
	resume := func() {}
	if e.Kind == Zombie {
		resume = n.stand(v, r)
	}
	if n.until(replacing, func() bool { return n.c.step(inc, v) == isSealed }) {
		n.effect(string(e.Kind) + " was replaced")
	}
	n.lasts(min(e.For, 4*time.Second))
	resume()
	n.c.time.add("%s goes on", v.name)
	n.lasts(time.Duration(e.Draw/8%200) * time.Millisecond) // clients may reach it before the news do
	reach()
}

// beheaded kills an owner, and has the leader lost at a step of the takeover.
func (n *nemesis) beheaded(e Event, v *node) {
	for _, x := range n.c.members() { // somebody else than the leader, if possible
		if v == n.c.leader() && x.owns() {
			v = x
		}
	}
	inc, want := v.incarnation(), step(e.Draw%3)
	n.wg.Go(func() { n.death(Event{Kind: Kill, For: e.For, Draw: e.Draw}, []*node{v}) })
	if n.until(replacing, func() bool { return n.c.step(inc, v) >= want && v.current() == nil }) {
		n.effect("takeover reached its step")
	}
	time.Sleep(time.Duration(e.Draw/16%5) * time.Millisecond)
	l := n.c.leader()
	if l == nil {
		n.miss(e)
		return
	}
	n.note(e, l.name)
	n.lose(e, l)
}

// lose has a node die, stop or be cut off from the others.
func (n *nemesis) lose(e Event, v *node) {
	o := Event{For: e.For, Kind: [...]Kind{Kill, Pause, CutOff}[e.Draw/3%3], Draw: e.Draw}
	switch o.Kind {
	case Kill:
		n.death(o, []*node{v})
	case Pause:
		n.pause(o, v)
	default:
		n.during(o, v, n.begin(o, v))
	}
}

// relieving is how long an owner whose writes hang may keep its partitions.
const relieving = stuckTimeout + 8*time.Second

// stuck has an owner wait for the store until it is relieved. It must be, if
// nothing else is wrong.
func (n *nemesis) stuck(e Event, v *node) {
	inc := v.incarnation()
	n.note(e, v.name)
	begun := time.Now()
	end := n.c.store.cut(v.name)
	defer end()
	relieved := n.until(relieving, func() bool { return n.c.step(inc, v) == isSealed })
	switch {
	case relieved:
		n.effect("stuck owner was relieved")
		n.lasts(min(e.For, 2*time.Second))
	case n.plan.Alone(e) && time.Since(begun) >= relieving:
		n.c.time.violation("%s could not write to the store for %v and was not relieved", v.name, relieving)
	}
}
