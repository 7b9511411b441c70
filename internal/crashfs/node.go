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
	if c.data == nil {
		return resize(data, c.off)
	}
	data = resize(data, max(int64(len(data)), c.off+int64(len(c.data))))
	copy(data[c.off:], c.data)
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
	if s, ok := seen[n]; ok {
		return s // a second name of the same file
	}
	s := &node{}
	if n.dir {
		s = newDir()
	}
	seen[n] = s
	if !n.dir {
		s.synced = n.surviving(rng)
		s.data = slices.Clone(s.synced)
		return s
	}
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
// synced none, all, or each by chance, whole or in part.
func (n *node) surviving(rng *rand.Rand) []byte {
	data := slices.Clone(n.synced)
	if rng == nil || len(n.changes) == 0 {
		return data
	}
	switch rng.IntN(3) {
	case 0:
		return data
	case 1:
		return slices.Clone(n.data)
	}
	for _, c := range n.changes {
		switch rng.IntN(3) {
		case 0:
			data = c.apply(data)
		case 1:
			data = c.tear(data, rng)
		}
	}
	return data
}

// tear applies some sectors of a write. A file that it makes longer may end
// anywhere between.
func (c change) tear(data []byte, rng *rand.Rand) []byte {
	if len(c.data) == 0 {
		return data
	}
	was := int64(len(data))
	end := c.off + int64(len(c.data))
	data = resize(data, max(was, end))
	for at := c.off; at < end; {
		next := min((at/sector+1)*sector, end)
		if rng.IntN(2) == 0 {
			copy(data[at:next], c.data[at-c.off:])
		}
		at = next
	}
	if end > was {
		data = resize(data, was+rng.Int64N(end-was+1))
	}
	return data
}
