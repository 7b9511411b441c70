package crashfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// sector is the number of bytes that a disk writes whole or not at all.
const sector = 512

// node is a file or a directory.
type node struct {
	dir bool
	// Files: what is visible, what is durable, and the changes that lead from the
	// one to the other, oldest first. settled counts those made durable before.
	data, synced []byte
	changes      []change
	settled      int
	// Directories: what is visible and what is durable. version counts changes.
	names, syncedNames     map[string]*node
	version, syncedVersion int
	// poisoned: what was dirty when a sync failed never becomes durable.
	poisoned bool
}

// change is a write at off, or with no data the file's new size off.
type change struct {
	off  int64
	data []byte
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, syncedNames: map[string]*node{}}
}

// setName changes what a name in a directory means; nil removes it.
func (n *node) setName(name string, c *node) {
	n.version++
	if c == nil {
		delete(n.names, name)
		return
	}
	n.names[name] = c
}

// do makes a change visible.
func (n *node) do(c change) {
	n.data = c.apply(n.data)
	n.changes = append(n.changes, c)
}

// apply returns a file's content after the change; it may reuse data.
func (c change) apply(data []byte) []byte {
	data = resize(data, c.size(int64(len(data))))
	copy(data[min(c.off, int64(len(data))):], c.data)
	return data
}

// resize cuts a file or fills it up with zeros.
func resize(data []byte, size int64) []byte {
	if grow := size - int64(len(data)); grow > 0 {
		return append(data, make([]byte, grow)...)
	}
	return data[:size]
}

// startSync notes what there is; end makes it durable.
func (n *node) startSync() (end func()) {
	if n.poisoned {
		return func() {}
	}
	if n.dir {
		names, version := maps.Clone(n.names), n.version
		return func() {
			if version >= n.syncedVersion && !n.poisoned {
				n.syncedNames, n.syncedVersion = names, version
			}
		}
	}
	upTo := n.settled + len(n.changes)
	return func() {
		if n.poisoned || upTo <= n.settled {
			return
		}
		done := n.changes[:upTo-n.settled]
		for _, c := range done {
			n.synced = c.apply(n.synced)
		}
		n.changes = slices.Clone(n.changes[len(done):])
		n.settled = upTo
	}
}

// survive copies what is left of a node after a crash.
func survive(n *node, rng *rand.Rand, seen map[*node]*node) *node {
	if !n.dir {
		if s, ok := seen[n]; ok {
			return s // a second name of the same file
		}
		s := &node{synced: n.surviving(rng)}
		s.data = slices.Clone(s.synced)
		seen[n] = s
		return s
	}
	// A directory never has two names: one that was renamed and survives under
	// both is two.
	s := newDir()
	names := maps.Clone(n.syncedNames)
	if rng != nil {
		all := maps.Clone(n.syncedNames)
		maps.Copy(all, n.names)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			now, was := n.names[name], n.syncedNames[name]
			if now == was || rng.IntN(2) == 0 {
				continue
			}
			if now == nil {
				delete(names, name)
			} else {
				names[name] = now
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := survive(names[name], rng, seen)
		s.names[name], s.syncedNames[name] = c, c
	}
	return s
}

// surviving is a file's content after a crash: of the changes that were not
// synced none, all, or any mixture that a disk can hold.
func (n *node) surviving(rng *rand.Rand) []byte {
	if rng == nil || len(n.changes) == 0 {
		return slices.Clone(n.synced)
	}
	switch rng.IntN(3) {
	case 0:
		return slices.Clone(n.synced)
	case 1:
		return slices.Clone(n.data)
	}
	return n.mixture(rng)
}

// mixture is what a disk may hold on which sectors were written back at moments
// of their own: each is as it was after some of the changes, and so is the size,
// which may also be amidst a write that made the file longer.
func (n *node) mixture(rng *rand.Rand) []byte {
	// By sector the changes that touch it.
	touched := map[int64][]int{}
	size := int64(len(n.synced))
	sizes := []int64{size}
	for i, c := range n.changes {
		from, to := c.span(size)
		for s := from / sector; s*sector < to; s++ {
			touched[s] = append(touched[s], i)
		}
		was := size
		size = c.size(size)
		sizes = append(sizes, size)
		if inside := was/sector*sector + sector; inside < size && c.data != nil {
			sizes = append(sizes, inside+rng.Int64N((size-inside+sector-1)/sector)*sector)
		}
	}
	after := map[int][]int64{} // by change the sectors that are as it left them
	for _, s := range slices.Sorted(maps.Keys(touched)) {
		if i := rng.IntN(len(touched[s]) + 1); i > 0 {
			c := touched[s][i-1]
			after[c] = append(after[c], s)
		}
	}
	out := resize(slices.Clone(n.synced), sizes[rng.IntN(len(sizes))])
	now := slices.Clone(n.synced)
	for i, c := range n.changes {
		now = c.apply(now)
		for _, s := range after[i] {
			at, end := min(s*sector, int64(len(out))), min((s+1)*sector, int64(len(out)))
			clear(out[at:end])
			copy(out[at:end], now[min(at, int64(len(now))):])
		}
	}
	return out
}

// span is the bytes that a change touches in a file of a size.
func (c change) span(size int64) (from, to int64) {
	if c.data == nil {
		return min(c.off, size), max(c.off, size)
	}
	return min(c.off, size), c.off + int64(len(c.data))
}

// size is the file's size after the change.
func (c change) size(was int64) int64 {
	if c.data == nil {
		return c.off
	}
	return max(was, c.off+int64(len(c.data)))
}
