package group

import (
	"container/heap"
	"time"
)

// timers is a heap of the groups that wait for a time, the earliest first. There is
// one entry for a group whatever its members: their deadlines mostly move to later
// (every heartbeat does that), and then nothing is done here. A group that is woken
// too early looks and sleeps on.
type timers []*Group

// Len, Less, Swap, Push and Pop are for container/heap.
func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].wake.Before(t[j].wake) }

// Swap is for container/heap.
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

// Push is for container/heap.
func (t *timers) Push(x any) {
	g := x.(*Group)
	g.timer = len(*t)
	*t = append(*t, g)
}

// Pop is for container/heap.
func (t *timers) Pop() any {
	old := *t
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	g.timer = -1
	return g
}

// set has a group woken at a time, zero for never.
func (t *timers) set(g *Group, at time.Time) {
	g.wake = at
	switch {
	case at.IsZero() && g.timer >= 0:
		heap.Remove(t, g.timer)
	case at.IsZero():
	case g.timer >= 0:
		heap.Fix(t, g.timer)
	default:
		heap.Push(t, g)
	}
}

// first is the group that is woken next, nil for none.
func (t timers) first() *Group {
	if len(t) == 0 {
		return nil
	}
	return t[0]
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later is a time put off, of which zero is never.
func later(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
