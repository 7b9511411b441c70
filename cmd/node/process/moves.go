package process

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"ponor/controller"
	"ponor/internal/seldom"
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
	said  seldom.Log // that partitions do not move
	// ahead has the moves whose partition's log is on its way to the target, until they
	// are made.
	ahead struct {
		sync.Mutex
		under map[controller.Move]struct{}
		sent  []controller.Move // the target has it, or it took too long
		turn  chan struct{}     // a token for each that is being sent
		ready chan struct{}     // has one when there may be some in sent
		done  sync.WaitGroup
	}
}

func newMover(n *Node, set *partition.Set) *mover {
	m := &mover{n: n, set: set, moves: make(chan []controller.Move, 1)}
	m.ahead.under = map[controller.Move]struct{}{}
	m.ahead.turn, m.ahead.ready = make(chan struct{}, aheadAtOnce), make(chan struct{}, 1)
	return m
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
	defer m.ahead.done.Wait()
	for {
		select {
		case moves := <-m.moves:
			m.handover(ctx, m.sendAhead(ctx, moves))
		case <-m.ahead.ready:
			m.handoverSent(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sendAhead begins those moves for which the target should have the log before, and
// returns the others.
func (m *mover) sendAhead(ctx context.Context, moves []controller.Move) []controller.Move {
	var now []controller.Move
	for _, v := range moves {
		m.ahead.Lock()
		_, under := m.ahead.under[v]
		if !under && !m.n.groups.Long(v.Topic, v.Partition) {
			now = append(now, v)
		} else if !under {
			m.ahead.under[v] = struct{}{}
			m.ahead.done.Go(func() { m.sendOne(ctx, v) })
		}
		m.ahead.Unlock()
	}
	return now
}

// sendOne sends the log of one move ahead, if that does not take too long.
func (m *mover) sendOne(ctx context.Context, v controller.Move) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, aheadLimit)
	defer cancel()
	var err error
	select {
	case m.ahead.turn <- struct{}{}:
		err = m.n.sendAhead(limited, v.Topic, v.Partition, v.Target)
		<-m.ahead.turn
	case <-limited.Done():
		err = limited.Err()
	}
	m.ahead.Lock()
	m.ahead.sent = append(m.ahead.sent, v)
	m.ahead.Unlock()
	select {
	case m.ahead.ready <- struct{}{}:
	default: // run will see this one, too
	}
	m.n.log.Debug("log sent ahead of a move", "topic", v.Topic.String(), "partition", v.Partition, "broker", v.Target.String(), "took", time.Since(begun), "err", err)
}

// handoverSent hands over what was sent ahead meanwhile, in one go: each hand-over
// has the store to itself. What nobody wants any more stays.
func (m *mover) handoverSent(ctx context.Context) {
	m.ahead.Lock()
	sent := m.ahead.sent
	m.ahead.sent = nil
	m.ahead.Unlock()
	img := m.n.ctl.Image()
	var list []controller.Move
	for _, v := range sent {
		if wished(img, v) {
			list = append(list, v)
		}
	}
	m.handover(ctx, list)
	m.ahead.Lock()
	for _, v := range sent {
		delete(m.ahead.under, v)
	}
	m.ahead.Unlock()
}

// wished says whether the controller may still want a move: a reassignment can be
// cancelled, a draining broker be let in again, and a target die, while the log is sent.
func wished(img *metadata.Image, v controller.Move) bool {
	p, ok := img.Partition(v.Topic, v.Partition)
	owner, _ := img.Broker(p.Owner.Broker)
	wanted := slices.Contains(p.Replicas, v.Target.Broker) && !slices.Contains(p.Removing, v.Target.Broker)
	return ok && p.Epoch == v.Epoch && img.Live(v.Target) && (owner.Draining || wanted)
}

// handover asks for more moves if any partition has moved.
func (m *mover) handover(ctx context.Context, moves []controller.Move) {
	if len(moves) == 0 {
		return
	}
	list := make([]partition.Handover, len(moves))
	for i, v := range moves {
		list[i] = partition.Handover{Topic: v.Topic, Partition: v.Partition, Epoch: v.Epoch, Target: v.Target}
	}
	begun, moved := time.Now(), 0
	var longest time.Duration
	var failed []partition.HandedOver
	for _, h := range m.set.Handover(ctx, list) {
		switch {
		case h.Err == nil:
			moved++
			longest = max(longest, h.Pause)
			m.n.log.Debug("partition moved", "topic", h.Topic, "partition", h.Partition, "epoch", h.Epoch+1, "broker", h.Target.String(), "pause", h.Pause)
		case errors.Is(h.Err, partition.ErrNotLeader) || ctx.Err() != nil:
			// Moved already, opening, or on its way: the next list knows.
		default:
			failed = append(failed, h)
		}
	}
	m.complain(failed)
	if moved > 0 {
		m.n.log.Info("partitions moved to other brokers", "partitions", moved, "longest_pause", longest, "took", time.Since(begun))
		m.n.ctl.AskMoves() // there may be more
	}
}

// complain says that partitions do not move, of one why. The leader asks for them again
// and again, so it is said seldom.
func (m *mover) complain(failed []partition.HandedOver) {
	if len(failed) == 0 || !m.said.Allow("handover") {
		return
	}
	h := failed[0]
	m.n.log.Warn("partitions do not move, they will be tried again", "partitions", len(failed),
		"topic", h.Topic, "partition", h.Partition, "epoch", h.Epoch, "broker", h.Target.String(), "err", h.Err)
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
