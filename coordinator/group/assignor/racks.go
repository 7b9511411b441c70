package assignor

import "slices"

// swapBudget bounds the pairs of partitions that one run looks at: a group with tens
// of thousands of partitions gets good racks instead of the best, and its
// coordinator is not held up.
const swapBudget = 1 << 21

// localise moves and swaps partitions as long as more of them are local after it,
// and no member has more or less than before, or two change places in that (A4).
// Each step makes at least one more local, so it ends.
func (u *uniform) localise() {
	if !u.racks {
		return
	}
	budget := swapBudget
	held := u.held()
	for better := true; better; { // what one step gave away may help another
		better = false
		for t := range u.topics {
			for p, m := range u.owner[t] {
				if m != nobody && !u.local(m, t, p) && u.bring(t, p, held, &budget) {
					better = true
				}
			}
		}
	}
}

// at is a partition by the numbers of its run.
type at struct{ topic, partition int }

func (u *uniform) held() [][]at {
	held := make([][]at, len(u.members))
	for t, owners := range u.owner {
		for p, m := range owners {
			if m != nobody {
				held[m] = append(held[m], at{t, p})
			}
		}
	}
	return held
}

// bring gives one partition a local owner; false if it finds no way, or the budget is
// spent.
func (u *uniform) bring(t, p int, held [][]at, budget *int) bool {
	m := u.owner[t][p]
	for _, n := range u.readers[t] {
		if !u.local(n, t, p) {
			continue
		}
		if u.count[n] == u.count[m]-1 {
			u.move(n, t, p)
			held[m] = without(held[m], at{t, p})
			held[n] = append(held[n], at{t, p})
			return true
		}
		for _, q := range held[n] {
			if *budget--; *budget < 0 {
				return false
			}
			if !u.subscribes(m, q.topic) || u.local(n, q.topic, q.partition) && !u.local(m, q.topic, q.partition) {
				continue
			}
			u.owner[t][p], u.owner[q.topic][q.partition] = n, m
			held[m] = append(without(held[m], at{t, p}), q)
			held[n] = append(without(held[n], q), at{t, p})
			return true
		}
	}
	return false
}

// subscribes says whether the member reads the topic.
func (u *uniform) subscribes(m, t int) bool {
	_, ok := slices.BinarySearch(u.reads[m], t)
	return ok
}

// without removes one partition; the order does not matter.
func without(list []at, gone at) []at {
	for i, a := range list {
		if a == gone {
			list[i] = list[len(list)-1]
			return list[:len(list)-1]
		}
	}
	return list
}
