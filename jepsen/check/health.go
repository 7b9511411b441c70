package check

import (
	"slices"
	"strings"
	"time"

	"ponor/jepsen/history"
)

const (
	// RecoveryBound is how long after the last fault everything must work again.
	RecoveryBound = 60 * time.Second
	// StuckBound is how long a consumer of a healthy cluster may poll nothing
	// though there is something.
	StuckBound = 30 * time.Second
	// StaleBound is how long after its change a healthy cluster may answer with
	// older metadata.
	StaleBound = 10 * time.Second
)

// health is when a cluster had no fault.
type health struct {
	calm []interval // in order; the first fault and the heal are between them
	// healed is when the last fault was undone, 0 if there were none.
	healed  int64
	faults  int // that were started and seen
	started map[string]bool
	failed  int // starts with an error
	unseen  []history.Event
}

type interval struct{ from, to int64 }

func newHealth(events []history.Event) health {
	h := health{started: map[string]bool{}}
	on := map[string]int{}
	since := int64(0)
	list := slices.Clone(events)
	slices.SortStableFunc(list, func(a, b history.Event) int {
		if a.At != b.At {
			return int(min(max(a.At-b.At, -1), 1))
		}
		return 0
	})
	for _, e := range list {
		switch e.Phase {
		case "start":
			h.start(e)
			if len(on) == 0 {
				h.calm = append(h.calm, interval{since, e.At})
			}
			on[e.Fault]++
		case "stop":
			delete(on, e.Fault)
			since, h.healed = max(since, e.End), max(h.healed, e.End)
		case "heal":
			clear(on)
			since, h.healed = max(since, e.End), max(h.healed, e.End)
		}
	}
	if len(on) == 0 {
		h.calm = append(h.calm, interval{since, never})
	}
	return h
}

func (h *health) start(e history.Event) {
	switch {
	case e.Err != "":
		h.failed++
	case strings.TrimSpace(e.Proof) == "":
		h.unseen = append(h.unseen, e)
	default:
		h.faults++
		h.started[e.Fault] = true
	}
}

// longest is the longest time without a fault in a span, ns. A calm time counts
// only from a while after the fault before it, in which the cluster recovers.
func (h *health) longest(from, to int64, settle time.Duration) int64 {
	var most int64
	for _, c := range h.calm {
		begin := c.from
		if begin > 0 {
			begin += int64(settle)
		}
		most = max(most, min(to, c.to)-max(from, begin))
	}
	return most
}

// isOurs says whether the cluster is of this product, so that one can look inside.
func isOurs(product string) bool { return strings.HasPrefix(strings.ToLower(product), "ponor") }
