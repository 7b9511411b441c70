package verify

import (
	"math/bits"

	"ponor/metadata"
)

// objectSet is a set of objects. Numbers of one creator are dense, so an object
// costs about a bit where all are in the set, and at most some hundred bytes.
type objectSet struct {
	blocks map[objectBlock]*[blockWords]uint64
}

const blockWords = 8

// objectBlock names 512 neighbouring numbers of one creator, which its epoch
// alone identifies.
type objectBlock struct {
	kind  metadata.ObjectKind
	epoch uint64
	block uint64
}

func blockOf(n metadata.ObjectName) (b objectBlock, word int, bit uint64) {
	return objectBlock{n.Kind, n.Creator.Epoch, n.Number / (64 * blockWords)}, int(n.Number / 64 % blockWords), 1 << (n.Number % 64)
}

func (s *objectSet) add(n metadata.ObjectName) {
	if s.blocks == nil {
		s.blocks = make(map[objectBlock]*[blockWords]uint64)
	}
	b, word, bit := blockOf(n)
	words := s.blocks[b]
	if words == nil {
		words = new([blockWords]uint64)
		s.blocks[b] = words
	}
	words[word] |= bit
}

func (s *objectSet) has(n metadata.ObjectName) bool {
	b, word, bit := blockOf(n)
	words := s.blocks[b]
	return words != nil && words[word]&bit != 0
}

func (s *objectSet) len() int64 {
	n := 0
	for _, words := range s.blocks {
		for _, w := range words {
			n += bits.OnesCount64(w)
		}
	}
	return int64(n)
}
