package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/sharedlog/objstore/fault"
)

var (
	puts    = []fault.Op{fault.PutNew, fault.Put}
	effects = []fault.Op{fault.PutNew, fault.Put, fault.Delete}
)

func storeKinds() []Kind {
	kind := func(name, what string, where func(*rand.Rand, []int32) []int32, lines func(*rand.Rand) []fault.Line) Kind {
		return Kind{name, what, cluster.NeedsStore, func() Nemesis { return &store{name: name, where: where, lines: lines} }}
	}
	return []Kind{
		kind("store-slow", "every call to the store takes some hundred milliseconds, some take seconds", someNodes, func(rng *rand.Rand) []fault.Line {
			median := time.Duration(100+rng.IntN(700)) * time.Millisecond
			return []fault.Line{{Median: median, P99: 6 * median}}
		}),
		kind("store-errors", "a part of all calls to the store fails with 503, without effect", someNodes, func(rng *rand.Rand) []fault.Line {
			return []fault.Line{{Chance: 0.2 + 0.6*rng.Float64(), Fails: "unavailable"}}
		}),
		kind("store-lost", "a part of all writes and deletions is done, and answered with an error", someNodes, func(rng *rand.Rand) []fault.Line {
			return []fault.Line{{Ops: effects, Chance: 0.1 + 0.4*rng.Float64(), Fails: "lost"}}
		}),
		kind("store-late", "a part of all writes fails, and lands up to half a minute later", someNodes, func(rng *rand.Rand) []fault.Line {
			short, long := time.Duration(1+rng.IntN(2000))*time.Millisecond, time.Duration(5+rng.IntN(25))*time.Second
			return []fault.Line{{Ops: puts, Chance: 0.1, Fails: "late", Late: short}, {Ops: puts, Chance: 0.05, Fails: "late", Late: long}}
		}),
		kind("store-hang", "calls to the store hang until the end of the fault, whatever their deadline, as on a hard mount", someNodes, func(rng *rand.Rand) []fault.Line {
			if rng.IntN(2) == 0 {
				return []fault.Line{{Hang: true}}
			}
			return []fault.Line{{Chance: 0.05, Hang: true}}
		}),
		kind("store-cut", "one node does not reach the store", oneNode, func(*rand.Rand) []fault.Line {
			return []fault.Line{{Delay: 100 * time.Millisecond, Fails: "unavailable"}}
		}),
		kind("store-full", "the store takes no more writes", allNodes, func(*rand.Rand) []fault.Line { return []fault.Line{{Ops: puts, Fails: "full"}} }),
		kind("store-liar-list", "lists leave out what is not some seconds old, which a store may; lists are rare without --tiny", allNodes, func(rng *rand.Rand) []fault.Line {
			return []fault.Line{{Ops: []fault.Op{fault.List}, Stale: time.Duration(1+rng.IntN(60)) * time.Second}}
		}),
	}
}

func oneNode(rng *rand.Rand, nodes []int32) []int32 { return []int32{nodes[rng.IntN(len(nodes))]} }

func allNodes(_ *rand.Rand, nodes []int32) []int32 { return nodes }

func someNodes(rng *rand.Rand, nodes []int32) []int32 {
	if rng.IntN(2) == 0 {
		return nodes
	}
	return new(Claims).Take(rng, nodes, howMany(rng, len(nodes)))
}

// store has the store fail, as some nodes see it.
type store struct {
	name  string
	where func(*rand.Rand, []int32) []int32
	lines func(*rand.Rand) []fault.Line
	nodes []int32
}

// Name implements Nemesis.
func (s *store) Name() string { return s.name }

// Start implements Nemesis: one node has met it when it returns.
func (s *store) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	s.nodes = s.where(env.Rand, env.Cluster.Nodes())
	lines := s.lines(env.Rand)
	for _, n := range s.nodes {
		err = errors.Join(err, h.Script(n).Set(s.name, lines...))
	}
	e := history.Event{Target: nodeNames(s.nodes)}
	if err == nil {
		err = met(ctx, func() bool { return s.hits(h) > 0 })
	}
	if err == nil {
		e.Proof = s.told(h)
	}
	return e, err
}

func (s *store) hits(h hands) (sum int) {
	for _, n := range s.nodes {
		sum += h.Script(n).Hits(s.name)
	}
	return sum
}

func (s *store) told(h hands) string {
	var list []string
	for _, n := range s.nodes {
		list = append(list, fmt.Sprintf("%d calls of node %d met it", h.Script(n).Hits(s.name), n))
	}
	return strings.Join(list, ", ")
}

// Stop implements Nemesis.
func (s *store) Stop(_ context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	e := history.Event{Target: nodeNames(s.nodes), Proof: s.told(h)}
	for _, n := range s.nodes {
		err = errors.Join(err, h.Script(n).Set(s.name))
	}
	return e, err
}
