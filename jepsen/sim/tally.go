package sim

import (
	"context"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
)

// MinTakeovers and MinMoves are how many a run must have seen to count (Z4).
const (
	MinTakeovers = 3
	MinMoves     = 5
)

// tally counts takeovers and moves from the nodes' images. It sees those that
// lie between two looks as one.
type tally struct {
	c  *cluster
	mu struct {
		sync.Mutex
		index     metadata.Index
		owners    map[commitlog.StreamID]metadata.Incarnation
		dead      map[metadata.Incarnation]bool // lost partitions to another broker; true once counted
		takeovers int
		moves     int
	}
}

func newTally(c *cluster) *tally {
	t := &tally{c: c}
	t.mu.owners = map[commitlog.StreamID]metadata.Incarnation{}
	t.mu.dead = map[metadata.Incarnation]bool{}
	return t
}

// watch looks again and again until ctx ends.
func (t *tally) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range t.c.nodes {
			if img := n.image(); img != nil {
				t.look(img)
			}
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (t *tally) look(img *metadata.Image) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if img.Index() <= t.mu.index {
		return
	}
	t.mu.index = img.Index()
	for topic := range img.Topics() {
		for p := range img.Partitions(topic.ID) {
			old, known := t.mu.owners[p.Stream]
			t.mu.owners[p.Stream] = p.Owner
			switch {
			case !known || old.Broker == p.Owner.Broker:
			case img.Live(old):
				t.mu.moves++
			case !t.mu.dead[old]:
				t.mu.dead[old] = false
			}
		}
	}
	for inc, counted := range t.mu.dead {
		if w, ok := img.WAL(inc); !counted && (!ok || w.State == metadata.Sealed) {
			t.mu.dead[inc] = true
			t.mu.takeovers++
		}
	}
}

// counts are the takeovers, each of a dead incarnation whose partitions went to
// another broker when its WAL was sealed; and the moves, each of a partition
// whose owner lived on.
func (t *tally) counts() (takeovers, moves int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.takeovers, t.mu.moves
}
