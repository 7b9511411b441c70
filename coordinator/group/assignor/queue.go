package assignor

import "container/heap"

// queue has readers of a topic that are in the same rack, who has fewest partitions
// first, of several the one with the lowest number. It is never empty.
type queue struct {
	u       *uniform
	readers []int
}

// queues are the readers of a topic by rack; where no rack is known there is one.
func (u *uniform) queues(t int) []*queue {
	var all []*queue
	of := make(map[string]*queue)
	for _, m := range u.readers[t] {
		rack := u.members[m].Rack
		q := of[rack]
		if q == nil {
			q = &queue{u: u}
			of[rack] = q
			all = append(all, q)
		}
		q.readers = append(q.readers, m)
	}
	for _, q := range all {
		heap.Init(q)
	}
	return all
}

func (q *queue) first() int { return q.readers[0] }

// Len, Less, Swap, Push and Pop are for container/heap.
func (q *queue) Len() int { return len(q.readers) }

// Less is for container/heap.
func (q *queue) Less(i, j int) bool {
	a, b := q.readers[i], q.readers[j]
	if q.u.count[a] != q.u.count[b] {
		return q.u.count[a] < q.u.count[b]
	}
	return a < b
}

// Swap is for container/heap.
func (q *queue) Swap(i, j int) { q.readers[i], q.readers[j] = q.readers[j], q.readers[i] }

// Push is for container/heap, and not called.
func (q *queue) Push(x any) { q.readers = append(q.readers, x.(int)) }

// Pop is for container/heap, and not called.
func (q *queue) Pop() any {
	last := q.readers[len(q.readers)-1]
	q.readers = q.readers[:len(q.readers)-1]
	return last
}
