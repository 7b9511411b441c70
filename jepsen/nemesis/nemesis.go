// Package nemesis hurts a cluster while clients use it, proves that it did, and
// undoes it. A fault is one file's; Schedule composes them at random.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// Nemesis is one fault. Start and Stop are called in turns, by one goroutine.
type Nemesis interface {
	// Name is what --nemesis calls it.
	Name() string
	// Start does it. The event's fault, phase and times are filled in by the
	// caller; targets and proof are not. An error: it is not done, or not known
	// to be.
	Start(ctx context.Context, env *Env) (history.Event, error)
	// Stop undoes it, also if Start failed half way.
	Stop(ctx context.Context, env *Env) (history.Event, error)
}

// Kind is a fault that can be asked for.
type Kind struct {
	Name string
	What string // in words
	// Needs is what the cluster must be able to do (cluster.Cluster.Can); empty:
	// nothing.
	Needs string
	New   func() Nemesis
}

// Kinds are all faults. One family a file, one row each.
func Kinds() []Kind {
	list := []Kind{
		{"kill", "kill -9 of one node, a minority, a majority or all, then start them", "kill", func() Nemesis { return &kill{name: "kill", size: howMany} }},
		{"pause", "stop processes (SIGSTOP) for up to seconds, then let them go on", "pause", func() Nemesis { return &pause{name: "pause", size: howMany} }},
		{"restart", "end nodes in order (SIGTERM) and start them, one after the other", "stop", func() Nemesis { return &restart{name: "restart"} }},
		{"move", "move random partitions to other brokers ten times a second", "", func() Nemesis { return &move{} }},
	}
	for _, family := range [][]Kind{processKinds(), clientKinds(), linkKinds(), storeKinds(), diskKinds(), clockKinds(), quorumKinds()} {
		list = append(list, family...)
	}
	return append(list, Kind{Name: Chaos, What: "all of the above that the cluster can have, at random"})
}

// least are the nodes that a fault needs, if it is more than one.
var least = map[string]int{
	"move": 2, "pause-kill": 3, "isolate": 2, "halves": 2, "deaf": 2, "bridge": 3, "swizzle": 2, "voters": 2, "transfer": 2, "drain": 2,
}

// Least is how many nodes the fault needs.
func (k Kind) Least() int { return max(1, least[k.Name]) }

// Find is the kind with a name.
func Find(name string) (Kind, error) {
	known := []string{"none"}
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		known = append(known, k.Name)
	}
	return Kind{}, fmt.Errorf("unknown nemesis %q: %s", name, strings.Join(known, ", "))
}

// Chaos stands for all faults that a cluster can have.
const Chaos = "chaos"

// expand replaces Chaos by all faults that ok accepts, and leaves "none" and what
// is there twice out.
func expand(names []string, ok func(Kind) bool) []string {
	var list []string
	for _, name := range names {
		some := []string{name}
		if name == Chaos {
			some = nil
			for _, k := range Kinds() {
				if k.New != nil && ok(k) {
					some = append(some, k.Name)
				}
			}
		}
		for _, s := range some {
			if s != "none" && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	}
	return list
}

// Expected are those of the names that must happen in a run: not all that Chaos
// stands for.
func Expected(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == Chaos })
}

// Needs are what a cluster must be given to have the faults, beside those that
// need root or tools of the system if Chaos asks for them.
func Needs(names []string) []string {
	var list []string
	for _, name := range expand(names, func(k Kind) bool { return k.Needs != cluster.NeedsDisk && k.Needs != cluster.NeedsTrace }) {
		if k, err := Find(name); err == nil && k.Needs != "" && !slices.Contains(list, k.Needs) {
			list = append(list, k.Needs)
		}
	}
	return list
}

// ErrImpossible says that the cluster cannot have a fault.
var ErrImpossible = errors.New("the cluster cannot have a fault that was named")

// Choose makes the nemeses that names say. "none" is none. ErrImpossible: one of
// them the cluster cannot have.
func Choose(names []string, c cluster.Cluster) ([]Nemesis, error) {
	var list []Nemesis
	for _, name := range expand(names, func(k Kind) bool { return lacks(k, c) == "" }) {
		k, err := Find(name)
		if err != nil {
			return nil, err
		}
		if why := lacks(k, c); why != "" {
			return nil, fmt.Errorf("%w: %s: %s", ErrImpossible, name, why)
		}
		list = append(list, k.New())
	}
	return list, nil
}

// LeftOut are sentences on the faults that Chaos stands for and the cluster cannot
// have, one for each reason. Nil if none of the names is Chaos.
func LeftOut(names []string, c cluster.Cluster) []string {
	if !slices.Contains(names, Chaos) {
		return nil
	}
	var reasons []string
	of := make(map[string][]string)
	for _, k := range Kinds() {
		why := lacks(k, c)
		if why == "" {
			continue
		}
		if of[why] == nil {
			reasons = append(reasons, why)
		}
		of[why] = append(of[why], k.Name)
	}
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%s leaves out %s: %s", Chaos, strings.Join(of[why], ", "), why)
	}
	return reasons
}

// lacks says what a cluster has not that a fault needs, empty if it has all.
func lacks(k Kind, c cluster.Cluster) string {
	if n := k.Least(); len(c.Nodes()) < n {
		return fmt.Sprintf("it needs %d nodes or more", n)
	}
	if k.Needs == "" || c.Can(k.Needs) {
		return ""
	}
	switch {
	case k.Needs == "kill", k.Needs == "stop", k.Needs == "pause", k.Needs == cluster.NeedsPauseKill:
		return fmt.Sprintf("the cluster has no command to %s its nodes and to undo that", k.Needs)
	case k.Needs == cluster.NeedsDisk && c.Can(cluster.NeedsClients):
		return "it needs root, and small disks that only its own name asks for"
	case k.Needs == cluster.NeedsTrace && c.Can(cluster.NeedsClients):
		return "it needs strace, which only its own name asks for"
	}
	return "only a cluster of the run's own can have it"
}

// Env is what a nemesis works with.
type Env struct {
	Cluster cluster.Cluster
	Admin   *kadm.Client
	Rand    *rand.Rand // of one nemesis
	Now     func() int64
	// Topics are those that the workload uses now.
	Topics func() []string
	// Nodes are shared by all nemeses of a run.
	Nodes *Claims
}

// Claims keep two nemeses off one node.
type Claims struct {
	mu    sync.Mutex
	taken map[int32]bool
}

// Take claims up to n of the nodes that are free, at random.
func (c *Claims) Take(rng *rand.Rand, nodes []int32, n int) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == nil {
		c.taken = make(map[int32]bool)
	}
	var got []int32
	for _, i := range rng.Perm(len(nodes)) {
		if len(got) < n && !c.taken[nodes[i]] {
			c.taken[nodes[i]] = true
			got = append(got, nodes[i])
		}
	}
	slices.Sort(got)
	return got
}

// Free gives nodes back.
func (c *Claims) Free(nodes []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		delete(c.taken, n)
	}
}

// howMany draws the size of a target: mostly one node, then a minority, a
// majority, all.
func howMany(rng *rand.Rand, nodes int) int {
	switch p := rng.IntN(10); {
	case p < 5:
		return 1
	case p < 7:
		return max(1, (nodes-1)/2)
	case p < 9:
		return nodes/2 + 1
	}
	return nodes
}

// names of nodes, as events have them.
func nodeNames(nodes []int32) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = fmt.Sprintf("node %d", n)
	}
	return out
}
