package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// assigned counts the partitions that some members hold, and what they saw of
// rebalances.
type assigned struct {
	mu      sync.Mutex
	held    map[*kgo.Client]map[string]map[int32]struct{}
	revoked int // partitions
	changed chan struct{}
}

// opts have a member tell.
func (a *assigned) opts() []kgo.Opt {
	gone := func(_ context.Context, c *kgo.Client, m map[string][]int32) { a.change(c, nil, m) }
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, c *kgo.Client, m map[string][]int32) { a.change(c, m, nil) }),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
	}
}

func (a *assigned) change(c *kgo.Client, add, remove map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil {
		a.held = map[*kgo.Client]map[string]map[int32]struct{}{}
	}
	mine := a.held[c]
	if mine == nil {
		mine = map[string]map[int32]struct{}{}
		a.held[c] = mine
	}
	for t, list := range add {
		if mine[t] == nil {
			mine[t] = map[int32]struct{}{}
		}
		for _, p := range list {
			mine[t][p] = struct{}{}
		}
	}
	for t, list := range remove {
		for _, p := range list {
			delete(mine[t], p)
			a.revoked++
		}
	}
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// count is how many partitions are held, by how many members, and how many were
// taken from one so far. mu is held by the caller of each.
func (a *assigned) count() (partitions, members int) {
	for _, topics := range a.held {
		n := 0
		for _, list := range topics {
			n += len(list)
		}
		partitions += n
		if n > 0 {
			members++
		}
	}
	return partitions, members
}

// revocations is how many partitions were taken from a member so far.
func (a *assigned) revocations() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revoked
}

// await waits until the number of partitions held is as wanted.
func (a *assigned) await(ctx context.Context, want func(int) bool) error {
	return a.awaitAll(ctx, func(partitions, _ int) bool { return want(partitions) })
}

// awaitAll is await for the number of partitions and that of members with some.
func (a *assigned) awaitAll(ctx context.Context, want func(partitions, members int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		a.mu.Lock()
		ok := want(a.count())
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("the group does not settle in time")
		}
	}
}
