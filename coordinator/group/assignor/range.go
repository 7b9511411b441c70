package assignor

import (
	"cmp"
	"slices"
)

// Range is the assignor "range". Static members come first, in the order of their
// instance ids, so that a restart moves nothing.
func Range(topics []Topic, members []Member) [][]Partition {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return byInstance(members[a], members[b]) })
	out := make([][]Partition, len(members))
	subscribers := make(map[[16]byte][]int, len(topics))
	for _, m := range order {
		for _, t := range members[m].Topics {
			subscribers[t] = append(subscribers[t], m)
		}
	}
	for _, t := range sorted(topics) {
		readers := subscribers[t.ID]
		n := int32(len(readers))
		if n == 0 {
			continue
		}
		each, extra := t.Partitions/n, t.Partitions%n
		next := int32(0)
		for i, m := range readers {
			end := next + each
			if int32(i) < extra {
				end++
			}
			for ; next < end; next++ {
				out[m] = append(out[m], Partition{t.ID, next})
			}
		}
	}
	return out
}

func byInstance(a, b Member) int {
	switch {
	case a.Instance != "" && b.Instance != "":
		return cmp.Compare(a.Instance, b.Instance)
	case a.Instance != "":
		return -1
	case b.Instance != "":
		return 1
	default:
		return cmp.Compare(a.ID, b.ID)
	}
}

// sorted is the topics in the order of their ids, whatever order they came in.
func sorted(topics []Topic) []Topic {
	topics = slices.Clone(topics)
	slices.SortFunc(topics, func(a, b Topic) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return topics
}
