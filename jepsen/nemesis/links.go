package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/jepsen/proxy"
)

func linkKinds() []Kind {
	kind := func(name, what string, cut func(*rand.Rand, []int32) ([]proxy.Way, []string)) Kind {
		return Kind{name, what, cluster.NeedsLinks, func() Nemesis { return &partition{name: name, cut: cut} }}
	}
	return []Kind{
		kind("isolate", "cut one node off from all others; clients and the store reach it", cutOff),
		kind("halves", "cut a minority off from a majority", cutHalves),
		kind("deaf", "let one node hear nothing, or be heard by nobody: one direction is cut", cutOneWay),
		kind("bridge", "cut two sides off from each other, all but one node between them", cutBridge),
		{"swizzle", "cut the links of one node after the other, and mend them in another order", cluster.NeedsLinks, func() Nemesis { return &swizzle{} }},
	}
}

// between are both directions between two sides.
func between(a, b []int32) []proxy.Way {
	var ways []proxy.Way
	for _, x := range a {
		for _, y := range b {
			if x != y {
				ways = append(ways, proxy.Way{From: x, To: y}, proxy.Way{From: y, To: x})
			}
		}
	}
	return ways
}

// without are the others.
func without(nodes []int32, n int32) []int32 {
	return slices.DeleteFunc(slices.Clone(nodes), func(x int32) bool { return x == n })
}

func shuffled(rng *rand.Rand, nodes []int32) []int32 {
	list := slices.Clone(nodes)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func cutOff(rng *rand.Rand, nodes []int32) ([]proxy.Way, []string) {
	n := nodes[rng.IntN(len(nodes))]
	return between([]int32{n}, without(nodes, n)), nodeNames([]int32{n})
}

func cutHalves(rng *rand.Rand, nodes []int32) ([]proxy.Way, []string) {
	list := shuffled(rng, nodes)
	few := list[:len(list)/2]
	return between(few, list[len(few):]), nodeNames(few)
}

func cutOneWay(rng *rand.Rand, nodes []int32) ([]proxy.Way, []string) {
	n := nodes[rng.IntN(len(nodes))]
	hears := rng.IntN(2) == 0
	var ways []proxy.Way
	for _, w := range between([]int32{n}, without(nodes, n)) {
		if (w.From == n) == hears {
			ways = append(ways, w)
		}
	}
	if hears {
		return ways, []string{fmt.Sprintf("node %d is not heard", n)}
	}
	return ways, []string{fmt.Sprintf("node %d does not hear", n)}
}

func cutBridge(rng *rand.Rand, nodes []int32) ([]proxy.Way, []string) {
	list := shuffled(rng, nodes)
	rest := list[1:]
	half := len(rest) / 2
	return between(rest[:half], rest[half:]), []string{fmt.Sprintf("all but node %d", list[0])}
}

// partition cuts directions between nodes: what is under way and what comes is
// stalled, or existing connections are reset as well.
type partition struct {
	name   string
	cut    func(*rand.Rand, []int32) ([]proxy.Way, []string)
	ways   []proxy.Way
	target []string
	before int64
}

// Name implements Nemesis.
func (p *partition) Name() string { return p.name }

// redrawAfter is how long a cut waits for somebody to meet it before another is
// drawn: two nodes neither of which leads the quorum have nothing to say.
const redrawAfter = 2 * time.Second

// Start implements Nemesis: something was kept when it returns.
func (p *partition) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	for {
		e, err := p.once(ctx, env, h.Links())
		if err == nil || ctx.Err() != nil {
			return e, err
		}
		h.Links().Mend(p.ways...)
	}
}

func (p *partition) once(ctx context.Context, env *Env, l *proxy.Links) (history.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, redrawAfter)
	defer cancel()
	p.ways, p.target = p.cut(env.Rand, env.Cluster.Nodes())
	p.before = l.Kept()
	l.Cut(p.ways...)
	e := history.Event{Target: p.target}
	resets := 0
	if env.Rand.IntN(3) == 0 {
		resets = l.Reset(p.ways...)
	}
	if err := met(ctx, func() bool { return l.Kept() > p.before }); err != nil {
		return e, err
	}
	e.Proof = fmt.Sprintf("%d bytes stalled", l.Kept()-p.before)
	if resets > 0 {
		e.Proof += fmt.Sprintf(", %d connections reset", resets)
	}
	return e, nil
}

// Stop implements Nemesis.
func (p *partition) Stop(_ context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	n := h.Links().Kept() - p.before
	h.Links().Mend(p.ways...)
	return history.Event{Target: p.target, Proof: fmt.Sprintf("%d bytes were stalled", n)}, nil
}

// swizzle cuts node after node off.
type swizzle struct{ background }

// swizzleEvery is the mean time between two steps.
const swizzleEvery = 700 * time.Millisecond

// Name implements Nemesis.
func (*swizzle) Name() string { return "swizzle" }

// Start implements Nemesis: the first node is cut off when it returns.
func (s *swizzle) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	nodes := env.Cluster.Nodes()
	order := shuffled(env.Rand, nodes)
	before := h.Links().Kept()
	h.Links().Cut(between(order[:1], nodes)...)
	err = met(ctx, func() bool { return h.Links().Kept() > before })
	e := history.Event{Target: nodeNames(nodes)}
	if err == nil {
		e.Proof = fmt.Sprintf("%d bytes stalled around node %d", h.Links().Kept()-before, order[0])
	}
	s.begin(func(done <-chan struct{}) (string, error) { return swizzleOn(done, env, h.Links(), order, before), nil })
	return e, err
}

// swizzleOn cuts the others off, then mends in another order, again and again. A
// link is open when neither of its nodes is cut off.
func swizzleOn(done <-chan struct{}, env *Env, l *proxy.Links, order []int32, before int64) string {
	off := map[int32]bool{order[0]: true}
	nodes := env.Cluster.Nodes()
	steps := 1
	for cut, next := true, order[1:]; ; {
		select {
		case <-done:
			l.Mend(between(nodes, nodes)...)
			return fmt.Sprintf("%d nodes cut off or mended, %d bytes were stalled", steps, l.Kept()-before)
		case <-time.After(spread(env.Rand, swizzleEvery)):
		}
		if len(next) == 0 {
			cut, next = !cut, shuffled(env.Rand, nodes)
		}
		n := next[0]
		next = next[1:]
		off[n] = cut
		steps++
		for _, w := range between([]int32{n}, nodes) {
			if off[w.From] || off[w.To] {
				l.Cut(w)
			} else {
				l.Mend(w)
			}
		}
	}
}

// Stop implements Nemesis.
func (s *swizzle) Stop(_ context.Context, env *Env) (history.Event, error) {
	proof, err := s.end()
	return history.Event{Target: nodeNames(env.Cluster.Nodes()), Proof: proof}, err
}
