package process

import (
	"context"
	"errors"
	"time"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
)

// coordinate makes what keeps the consumer groups, for all incarnations of the
// node: the partitions that each of them opens and closes tell it.
func (n *Node) coordinate() *coordinator.Shards[*group.Machine] {
	settings := n.groupSettings()
	return coordinator.New(coordinator.Config[*group.Machine]{
		Topic: group.OffsetsTopic, Image: n.ctl.Image, Partitions: &n.hosted,
		New:     func(int32) *group.Machine { return group.New(*settings()) },
		Metrics: &n.meters.groups, Logger: n.log,
	})
}

// beside runs f until the func that it returns is called, which waits for it.
func (n *Node) beside(ctx context.Context, f func(context.Context)) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// deletionsEvery is how long the offsets of a deleted topic may stay. Topics may change
// all the time; looking through all offsets that often would cost.
const deletionsEvery = 2 * time.Second

// tellDeletions tells the groups of topics that are deleted, until ctx ends.
func (n *Node) tellDeletions(ctx context.Context) {
	tick := time.NewTicker(deletionsEvery)
	defer tick.Stop()
	var seen *metadata.Mark
	due := false
	for {
		// A topic may have come and gone since the last look.
		if mark := n.ctl.Image().TopicsMark(); mark != seen {
			seen, due = mark, true
		}
		if due {
			_, err := coordinator.All(ctx, n.groups, time.Now(), func(m *group.Machine, _ time.Time) (struct{}, []coordinator.Record) {
				m.TopicsDeleted()
				return struct{}{}, nil
			})
			if due = err != nil; due && !errors.Is(err, coordinator.ErrLoading) && !errors.Is(err, errNotHosting) && ctx.Err() == nil {
				n.log.Warn("offsets of deleted topics stay for now", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// errNotHosting: this node is not registered, or about to stop.
var errNotHosting = errors.New("this node hosts no partitions now")

// CatchUp has the image be as new as the quorum's is now.
func (h *hosted) CatchUp(ctx context.Context) error {
	if s := h.set.Load(); s != nil {
		return s.CatchUp(ctx)
	}
	return errNotHosting
}
