package process

import (
	"context"
	"errors"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/partition"
)

const (
	// drainLimit bounds how long a stopping node hands its partitions over, and
	// drainStall how long it goes on without handing over any: an election may take
	// most of that, and without a quorum they go to others once it is dead.
	drainLimit = 30 * time.Second
	drainStall = 4 * time.Second
)

// mover carries the controller's wishes to the partition set, one list at a
// time. The newest list replaces one that still waits: the leader repeats what
// is not done.
type mover struct {
	n     *Node
	set   *partition.Set
	moves chan []controller.Move
}

func newMover(n *Node, set *partition.Set) *mover {
	return &mover{n: n, set: set, moves: make(chan []controller.Move, 1)}
}

// offer is for controller.SetMover; it does not wait.
func (m *mover) offer(moves []controller.Move) {
	for {
		select {
		case m.moves <- moves:
			return
		default:
		}
		select {
		case <-m.moves:
		default:
		}
	}
}

// run hands over what is offered until ctx ends.
func (m *mover) run(ctx context.Context) {
	for {
		select {
		case moves := <-m.moves:
			if m.handover(ctx, moves) > 0 {
				m.n.ctl.AskMoves() // there may be more
			}
		case <-ctx.Done():
			return
		}
	}
}

// handover returns how many partitions have moved.
func (m *mover) handover(ctx context.Context, moves []controller.Move) int {
	list := make([]partition.Handover, len(moves))
	for i, v := range moves {
		list[i] = partition.Handover{Topic: v.Topic, Partition: v.Partition, Epoch: v.Epoch, Target: v.Target}
	}
	begun, moved := time.Now(), 0
	var longest time.Duration
	for _, h := range m.set.Handover(ctx, list) {
		switch {
		case h.Err == nil:
			moved++
			longest = max(longest, h.Pause)
			m.n.log.Debug("partition moved", "topic", h.Topic, "partition", h.Partition, "epoch", h.Epoch+1, "broker", h.Target.String(), "pause", h.Pause)
		case errors.Is(h.Err, partition.ErrNotLeader) || ctx.Err() != nil:
			// Moved already, opening, or on its way: the next list knows.
		default:
			m.n.log.Warn("partition does not move, it will be tried again", "topic", h.Topic, "partition", h.Partition, "epoch", h.Epoch, "broker", h.Target.String(), "err", h.Err)
		}
	}
	if moved > 0 {
		m.n.log.Info("partitions moved to other brokers", "partitions", moved, "longest_pause", longest, "took", time.Since(begun))
	}
	return moved
}

// drain has all partitions of this node moved to others before it stops, if
// there is anyone to take them. fenced ends it early: then nothing is ours.
func (n *Node) drain(ctx context.Context, inc metadata.Incarnation, fenced, walFenced <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	defer context.AfterFunc(n.aborted, cancel)()
	img := n.ctl.Image()
	if left(img, inc) == 0 || !othersLive(img, inc) {
		return
	}
	n.log.Info("handing partitions over before the stop", "partitions", left(img, inc))
	stall := time.AfterFunc(drainStall, cancel)
	defer stall.Stop()
	if err := n.ctl.SetBrokerState(ctx, n.cfg.NodeID, func(b *metadata.Broker) { b.Draining = true }); err != nil {
		n.log.Warn("cannot ask to be drained; others take over after the stop", "partitions", left(n.ctl.Image(), inc), "err", err)
		return
	}
	stall.Reset(drainStall) // the quorum may have been electing
	for last := left(img, inc); ; {
		changed := n.ctl.Changed()
		img := n.ctl.Image()
		now := left(img, inc)
		if now == 0 || !othersLive(img, inc) {
			return
		}
		if now < last {
			last = now
			stall.Reset(drainStall)
		}
		select {
		case <-changed:
		case <-fenced:
			return
		case <-walFenced:
			return
		case <-ctx.Done():
			n.log.Warn("hand-over is stuck; others take over after the stop", "partitions", now)
			return
		}
	}
}

// left is how many partitions an incarnation still owns, without those that are
// being deleted.
func left(img *metadata.Image, inc metadata.Incarnation) int {
	count := 0
	for p := range img.Owned(inc) {
		if !p.Deleting {
			count++
		}
	}
	return count
}

// othersLive says whether there is a broker that could take partitions over.
func othersLive(img *metadata.Image, inc metadata.Incarnation) bool {
	for b := range img.Brokers() {
		if b.Incarnation != inc && !b.Fenced && !b.Draining {
			return true
		}
	}
	return false
}
