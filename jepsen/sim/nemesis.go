package sim

import (
	"sync"
	"time"

	"ponor/sharedlog/objstore/fault"
)

// nemesis carries out a plan.
type nemesis struct {
	c       *cluster
	plan    Plan
	clients []string  // their hosts
	op      *operator // who moves partitions
	wg      sync.WaitGroup
	heal    chan struct{} // closed when all faults must end
	mu      struct {
		sync.Mutex
		applied map[Kind]int
		effects map[string]int
		missed  []Event
	}
	// busy is held, as a token, while processes are killed or started, so that
	// two faults do not fight over one process. It is a channel because its
	// holder waits.
	busy map[string]chan struct{}
}

func newNemesis(c *cluster, plan Plan, clients []string, op *operator) *nemesis {
	n := &nemesis{c: c, plan: plan, clients: clients, op: op, heal: make(chan struct{}), busy: map[string]chan struct{}{}}
	n.mu.applied, n.mu.effects = map[Kind]int{}, map[string]int{}
	for _, x := range c.nodes {
		n.busy[x.name] = make(chan struct{}, 1)
	}
	n.busy["quorum"] = make(chan struct{}, 1)
	return n
}

// run applies the events of the plan, each in its time, from now on.
func (n *nemesis) run() {
	begin := time.Now()
	for _, e := range n.plan.Events {
		time.Sleep(e.At - time.Since(begin))
		n.wg.Go(func() { n.apply(e) })
	}
	time.Sleep(n.plan.Span - time.Since(begin))
	close(n.heal)
	n.wg.Wait()
	n.c.time.add("all faults ended")
}

// lasts waits for the end of a fault.
func (n *nemesis) lasts(d time.Duration) {
	select {
	case <-time.After(d):
	case <-n.heal:
	}
}

// until waits for a condition, at most that long, and says if it came true.
func (n *nemesis) until(most time.Duration, ok func() bool) bool {
	for end := time.Now().Add(most); !ok(); {
		if time.Now().After(end) {
			return false
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-n.heal:
			return ok()
		}
	}
	return true
}

// victim chooses the node an event is for: one that runs, if there is one.
func (n *nemesis) victim(e Event) *node {
	if e.Who == Leader && !e.Kind.ofOwner() {
		if l := n.c.leader(); l != nil {
			return l
		}
	}
	var up, owners []*node
	for _, x := range n.c.nodes {
		if x.current() == nil {
			continue
		}
		up = append(up, x)
		if x.owns() {
			owners = append(owners, x)
		}
	}
	if (e.Who == Owner || e.Kind.ofOwner()) && len(owners) > 0 {
		up = owners
	}
	if len(up) == 0 {
		return nil
	}
	return up[e.Draw%uint64(len(up))]
}

// owns says if the node's present incarnation has a partition of the main topic.
func (n *node) owns() bool {
	r := n.current()
	if r == nil {
		return false
	}
	for p := range r.Controller().Image().Owned(r.Controller().Incarnation()) {
		if p.TopicName == mainTopic {
			return true
		}
	}
	return false
}

func (n *nemesis) apply(e Event) {
	v := n.victim(e)
	for range 50 { // somebody will come back
		if v != nil {
			break
		}
		n.lasts(100 * time.Millisecond)
		v = n.victim(e)
	}
	if v == nil {
		n.miss(e)
		return
	}
	switch e.Kind {
	case Kill, KillSilent, Bounce, Restart:
		n.death(e, []*node{v})
	case KillAll, PowerCut:
		n.death(e, n.c.members())
	case Pause:
		n.pause(e, v)
	case Zombie, Outcast:
		n.zombie(e, v)
	case Beheaded:
		n.beheaded(e, v)
	case StuckStore:
		n.stuck(e, v)
	case NoQuorum, NoMetadata, NoVoters:
		n.outage(e)
	case Move, Shuttle, MoveDeath, Drain, Cordon, Elect, Guest:
		n.operate(e, v)
	case Transfer, Revote, Replace:
		n.requorum(e)
	default:
		n.during(e, v, n.begin(e, v))
	}
}

func (n *nemesis) miss(e Event) {
	n.c.time.add("nobody is there for: %s", e)
	n.mu.Lock()
	n.mu.missed = append(n.mu.missed, e)
	n.mu.Unlock()
}

func (n *nemesis) note(e Event, on string) {
	n.c.time.add("%s: %s for %v", e.Kind, on, e.For.Round(time.Millisecond))
	n.mu.Lock()
	n.mu.applied[e.Kind]++
	n.mu.Unlock()
}

// effect counts something that a fault has brought about.
func (n *nemesis) effect(what string) {
	n.mu.Lock()
	n.mu.effects[what]++
	n.mu.Unlock()
}

// during keeps a fault up for its time.
func (n *nemesis) during(e Event, v *node, end func()) {
	n.note(e, v.name)
	n.lasts(e.For)
	end()
}

// death ends processes and starts them again.
func (n *nemesis) death(e Event, nodes []*node) {
	if e.Kind == PowerCut {
		for _, v := range nodes { // in order of names: no two wait for each other
			n.busy[v.name] <- struct{}{}
		}
		n.note(e, "everyone")
		n.c.power()
		n.lasts(e.For)
		for _, v := range nodes {
			v.restart()
			<-n.busy[v.name]
		}
		return
	}
	for _, v := range nodes {
		n.wg.Go(func() {
			n.busy[v.name] <- struct{}{}
			defer func() { <-n.busy[v.name] }()
			if v.current() == nil {
				return
			}
			n.note(e, v.name)
			machine := func() {}
			if e.Kind == Restart {
				v.stop(time.Minute)
			} else {
				machine = v.kill(e.Kind == KillSilent)
			}
			n.lasts(e.For)
			machine()
			v.restart()
		})
	}
}

// pause stops a process at its links and its store (Z2).
func (n *nemesis) pause(e Event, v *node) {
	r := v.current()
	if r == nil {
		n.miss(e)
		return
	}
	n.note(e, v.name)
	resume := n.stand(v, r)
	n.lasts(e.For)
	resume()
	n.c.time.add("%s goes on", v.name)
}

// stand stops a process until resumed.
func (n *nemesis) stand(v *node, r *running) (resume func()) {
	return both(r.life.pause(), n.c.net.Block([]string{""}, []string{v.name}), n.c.net.Block([]string{v.name}, []string{""}))
}

// begin starts any other fault and returns what ends it.
func (n *nemesis) begin(e Event, v *node) (end func()) {
	net, store, me := n.c.net, n.c.store, []string{v.name}
	others := append(n.others(v), n.clients...)
	switch e.Kind {
	case Isolate:
		return both(net.Block(me, others), net.Block(others, me))
	case CutOff:
		return both(net.Block(me, n.others(v)), net.Block(n.others(v), me))
	case Deaf:
		return net.Block(others, me)
	case Mute:
		return net.Block(me, others)
	case Split:
		o := n.others(v)
		peer := []string{o[e.Draw%uint64(len(o))]}
		return both(net.Block(me, peer), net.Block(peer, me))
	case OneWay:
		o := n.others(v)
		return net.Block(me, []string{o[e.Draw%uint64(len(o))]})
	case NoClients:
		return both(net.Block(me, n.clients), net.Block(n.clients, me))
	case ResetAll:
		net.Reset(v.name, "")
		return func() {}
	case SlowLinks:
		var ends []func()
		for _, o := range others {
			ends = append(ends, net.Slow(v.name, o, time.Duration(e.Draw%400)*time.Millisecond+time.Millisecond))
		}
		return both(ends...)
	case NoStore:
		return store.cut(v.name)
	case SlowStore:
		return store.slowBy(v.name, time.Duration(e.Draw%1500)*time.Millisecond+time.Millisecond)
	default:
		return n.storeRules(e, v)
	}
}

func both(ends ...func()) func() {
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func (n *nemesis) others(v *node) (names []string) {
	for _, x := range n.c.nodes {
		if x != v {
			names = append(names, x.name)
		}
	}
	return names
}

// storeRules are the faults that package fault knows.
func (n *nemesis) storeRules(e Event, v *node) (end func()) {
	r := v.current()
	if r == nil {
		return func() {}
	}
	chance := 0.15 + float64(e.Draw%70)/100
	rule := fault.Rule{Chance: chance, Ops: []fault.Op{fault.PutNew, fault.Put}}
	switch e.Kind {
	case StoreError:
		rule.Ops, rule.Before = nil, errSlowDown
	case StoreLost:
		rule.After = errLost
	case StoreLate:
		rule.After, rule.Late = errLate, time.Duration(1+e.Draw%8000)*time.Millisecond
	case StoreOwn:
		rule.Ops, rule.After = []fault.Op{fault.PutNew}, errOwn
	case StoreFull:
		rule.Chance, rule.Before = 1, errNoRoom
	}
	return r.faults.Add(rule)
}
