package check

import (
	"fmt"
	"slices"
	"strings"

	"ponor/jepsen/history"
)

// edge is why an operation comes before another one.
type edge uint8

const (
	ww edge = 1 << iota // it wrote the value before the other's in a key
	wr                  // the other read a value that it wrote
	po                  // the same process, the next operation
	rt                  // it ended before the other began
)

func (e edge) String() string {
	switch e {
	case ww:
		return "ww"
	case wr:
		return "wr"
	case po:
		return "process"
	case rt:
		return "realtime"
	}
	return "?"
}

// maxGraph bounds nodes and edges of the graph of operations.
const maxGraph = 6 << 20

const (
	whyInterleaved = "the log does not isolate writes: those of operations that send several records mix"
	whyMixed       = "the cycle goes through a write before another, which the log may mix; cycles of reads alone are never tolerated"
)

// graph is the operations that sent or polled something, and, to order them in
// time with few edges, a clock: a node for each completion, from each to the next,
// so that an operation follows all that ended before it began. A number below
// ops is an operation's place in Ops, and ops+i the i-th tick.
type graph struct {
	ops   int32
	first []int32 // of each node, in to and kind
	to    []int32
	kind  []edge
}

// cycles is L14 and L15.
func (r *run) cycles() {
	g0, g1 := r.check("L14", "G0"), r.check("L15", "G1c")
	g0.Optional = true
	if len(r.batches) == 0 {
		return
	}
	edges, whole := r.edges()
	if !whole {
		g0.unknown("%d operations are too many to look for cycles in", len(r.Ops))
		if mixed := slices.ContainsFunc(r.Ops, func(o history.Op) bool { return len(o.Sends) > 0 && len(o.Polls) > 0 }); mixed || r.future {
			g1.Optional = true
			g1.unknown("%d operations are too many to look for cycles in", len(r.Ops))
			return
		}
		// Then there is no cycle without a write before another: each edge goes
		// from one that began to one that ended later.
		g1.Checked = r.phantom.Checked
		g1.note("only of reads: no operation both sends and polls, and none read what was sent after it")
		return
	}
	g := newGraph(r.Ops, edges)
	g0.Checked, g1.Checked = int64(len(edges)), int64(len(edges))
	for _, c := range g.search(ww|po|rt, ww) {
		g0.tolerate(whyInterleaved, -int64(len(c)), r.cycle(g, c))
	}
	for _, c := range g.search(wr|po|rt, wr) {
		g1.add(-int64(len(c)), r.cycle(g, c))
	}
	for _, c := range g.search(ww|wr|po|rt, wr) {
		if slices.ContainsFunc(c, func(s step) bool { return s.kind == ww }) {
			g1.tolerate(whyMixed, -int64(len(c)), r.cycle(g, c))
		}
	}
}

// link is an edge between two operations.
type link struct {
	from, to int32
	kind     edge
}

// edges are those of the log and of processes, whole if they are not too many.
func (r *run) edges() (out []link, whole bool) {
	most := maxGraph - 3*len(r.Ops) // ticks and their edges
	add := func(from, to int32, kind edge) {
		if n := len(out); from != to && (n == 0 || out[n-1] != link{from, to, kind}) {
			out = append(out, link{from, to, kind})
		}
	}
	for k := range r.logs {
		l := &r.logs[k]
		if l.gone {
			continue
		}
		for i := 1; i < len(l.vals) && len(out) <= most; i++ {
			add(r.vals[l.vals[i-1]].op, r.vals[l.vals[i]].op, ww)
		}
	}
	last := map[int32]int32{}
	for i := range r.Ops {
		o := &r.Ops[i]
		if len(out) > most {
			return nil, false
		}
		if o.Type == history.Fail || len(o.Sends) == 0 && len(o.Polls) == 0 {
			continue
		}
		for j := range o.Polls {
			p := &o.Polls[j]
			if id := r.logs[p.Key].place(p.Offset); id >= 0 && !r.logs[p.Key].gone {
				add(r.vals[id].op, int32(i), wr)
			}
		}
		if was, ok := last[o.Process]; ok {
			add(was, int32(i), po)
		}
		last[o.Process] = int32(i)
	}
	return out, true
}

func newGraph(ops []history.Op, edges []link) *graph {
	n := int32(len(ops))
	// Ticks are completions in the order of time. Operations of unknown effect
	// never completed.
	var ends []int32
	for i := range ops {
		if ops[i].Type == history.OK {
			ends = append(ends, int32(i))
		}
	}
	slices.SortStableFunc(ends, func(a, b int32) int { return int(min(max(ops[a].Completed-ops[b].Completed, -1), 1)) })
	for t, i := range ends {
		edges = append(edges, link{i, n + int32(t), rt})
		if t > 0 {
			edges = append(edges, link{n + int32(t) - 1, n + int32(t), rt})
		}
	}
	for i := range ops {
		if ops[i].Type == history.Fail {
			continue
		}
		t, _ := slices.BinarySearchFunc(ends, ops[i].Invoked, func(e int32, at int64) int {
			if ops[e].Completed < at {
				return -1
			}
			return 1
		})
		if t > 0 {
			edges = append(edges, link{n + int32(t) - 1, int32(i), rt})
		}
	}
	g := &graph{ops: n, first: make([]int32, int(n)+len(ends)+1), to: make([]int32, len(edges)), kind: make([]edge, len(edges))}
	for _, e := range edges {
		g.first[e.from+1]++
	}
	for i := 1; i < len(g.first); i++ {
		g.first[i] += g.first[i-1]
	}
	at := slices.Clone(g.first)
	for _, e := range edges {
		g.to[at[e.from]], g.kind[at[e.from]] = e.to, e.kind
		at[e.from]++
	}
	return g
}

// step is an edge of a cycle, from a node.
type step struct {
	node int32
	kind edge
}

const (
	maxCycles = 256     // searched for, of one class
	maxVisits = 8 << 20 // of nodes, for all cycles of one class
)

// search finds a shortest cycle of edges of some kinds in each component that is
// strongly connected by them, with at least one edge of a kind.
func (g *graph) search(allowed, must edge) [][]step {
	comp := g.components(allowed)
	var out [][]step
	best := map[int32]int{} // of a component: its place in out
	visits := maxVisits
	tried := 0
	for u := int32(0); u < g.ops; u++ {
		for e := g.first[u]; e < g.first[u+1]; e++ {
			v := g.to[e]
			if g.kind[e]&must == 0 || comp[u] < 0 || comp[u] != comp[v] {
				continue
			}
			if tried++; tried > maxCycles || visits <= 0 {
				return out
			}
			c := g.path(v, u, allowed, comp, &visits)
			if c == nil {
				continue
			}
			c = append([]step{{u, g.kind[e]}}, c...)
			if at, ok := best[comp[u]]; !ok {
				best[comp[u]] = len(out)
				out = append(out, c)
			} else if len(c) < len(out[at]) {
				out[at] = c
			}
		}
	}
	return out
}

// path is a shortest one within a component, breadth first.
func (g *graph) path(from, to int32, allowed edge, comp []int32, visits *int) []step {
	type came struct {
		node int32
		kind edge
	}
	back := map[int32]came{from: {-1, 0}}
	queue := []int32{from}
	for len(queue) > 0 && *visits > 0 {
		u := queue[0]
		queue = queue[1:]
		*visits--
		if u == to {
			var out []step
			for x := to; x != from; x = back[x].node {
				out = append(out, step{back[x].node, back[x].kind})
			}
			slices.Reverse(out)
			return out
		}
		for e := g.first[u]; e < g.first[u+1]; e++ {
			v := g.to[e]
			if g.kind[e]&allowed == 0 || comp[v] != comp[from] {
				continue
			}
			if _, ok := back[v]; !ok {
				back[v] = came{u, g.kind[e]}
				queue = append(queue, v)
			}
		}
	}
	return nil
}

// components numbers the strongly connected components of more than one node,
// and is -1 for nodes by themselves (Tarjan, without recursion).
func (g *graph) components(allowed edge) []int32 {
	n := int32(len(g.first) - 1)
	comp, low, num := make([]int32, n), make([]int32, n), make([]int32, n)
	next := slices.Clone(g.first[:n])
	var stack, path []int32
	count, comps := int32(0), int32(0)
	for root := int32(0); root < n; root++ {
		if num[root] != 0 {
			continue
		}
		path = append(path[:0], root)
		for len(path) > 0 {
			u := path[len(path)-1]
			if num[u] == 0 {
				count++
				num[u], low[u] = count, count
				comp[u] = -2 // on the stack
				stack = append(stack, u)
			}
			if next[u] < g.first[u+1] {
				e := next[u]
				next[u]++
				v := g.to[e]
				switch {
				case g.kind[e]&allowed == 0:
				case num[v] == 0:
					path = append(path, v)
				case comp[v] == -2:
					low[u] = min(low[u], num[v])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				low[path[len(path)-1]] = min(low[path[len(path)-1]], low[u])
			}
			if low[u] != num[u] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != u {
				at--
			}
			id := int32(-1)
			if len(stack)-at > 1 {
				id = comps
				comps++
			}
			for _, v := range stack[at:] {
				comp[v] = id
			}
			stack = stack[:at]
		}
	}
	return comp
}

// cycle tells a cycle, without the ticks.
func (r *run) cycle(g *graph, c []step) func() Anomaly {
	return func() Anomaly {
		a := Anomaly{Key: -1}
		var words []string
		for _, s := range c {
			if s.node >= g.ops {
				continue
			}
			o := &r.Ops[s.node]
			a.Ops = append(a.Ops, o.Index)
			a.At = max(a.At, o.Completed)
			words = append(words, fmt.Sprintf("op %d -%s->", o.Index, s.kind))
		}
		a.Text = strings.Join(words, " ") + fmt.Sprintf(" op %d", r.Ops[c[0].node].Index)
		return a
	}
}
