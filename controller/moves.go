package controller

import (
	"slices"
	"sync"

	"ponor/commitlog"
	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// maxMoves bounds the moves of one heartbeat; the rest follows with the next.
const maxMoves = 1000

// Move asks the owner of a partition to flip it to Target. It is advice: the
// owner does it if it still owns the partition at Epoch, and forgets it
// otherwise. The leader repeats it with every heartbeat until it is done or
// moot.
type Move struct {
	Topic     metadata.TopicID
	Partition int32
	Epoch     commitlog.Epoch
	Target    metadata.Incarnation
}

// moves is what the leader wants moved: leader elections that were asked for,
// and reassignments, of which it learns as they are applied: whoever asked for
// one may have given up by then.
type moves struct {
	mu struct {
		sync.Mutex
		wanted    map[partitionKey]metadata.BrokerID
		reassigns map[partitionKey]struct{}
	}
}

type partitionKey struct {
	topic  metadata.TopicID
	number int32
}

func newMoves() *moves {
	m := &moves{}
	m.mu.wanted = map[partitionKey]metadata.BrokerID{}
	m.mu.reassigns = map[partitionKey]struct{}{}
	return m
}

// restart finds the reassignments that an earlier leader began.
func (m *moves) restart(img *metadata.Image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range img.Topics() {
		for p := range img.Partitions(t.ID) {
			if len(p.Adding)+len(p.Removing) > 0 {
				m.mu.reassigns[partitionKey{p.Topic, p.Number}] = struct{}{}
			}
		}
	}
}

// observe takes note of the reassignments that an entry began. The image shows
// them by now, and the owners do not know of them yet.
func (m *moves) observe(e *metadatapb.Entry, results []metadata.Result) {
	for i, c := range e.GetCommands() {
		if a := c.GetAssignReplicas(); results[i].Err == nil && len(a.GetAdding())+len(a.GetRemoving()) > 0 {
			m.reassign(partitionKey{metadata.TopicID(a.TopicId), a.Partition})
		}
	}
}

// wished says whether an entry may be the cause of a wish of the leader's for a
// broker, which then asks for it at once.
func wished(img *metadata.Image, e *metadatapb.Entry, id metadata.BrokerID) bool {
	for _, c := range e.GetCommands() {
		switch b := c.Body.(type) {
		case *metadatapb.Command_AssignReplicas:
			if len(b.AssignReplicas.TopicId) != len(metadata.TopicID{}) {
				continue // it was refused
			}
			p, ok := img.Partition(metadata.TopicID(b.AssignReplicas.TopicId), b.AssignReplicas.Partition)
			if ok && p.Owner.Broker == id {
				return true
			}
		case *metadatapb.Command_BrokerState:
			if b.BrokerState.Draining && b.BrokerState.Broker == int32(id) {
				return true
			}
		case *metadatapb.Command_Noop:
			if c.From == nil { // an election, see planElect
				return true
			}
		}
	}
	return false
}

func (m *moves) elect(k partitionKey, to metadata.BrokerID) {
	m.mu.Lock()
	m.mu.wanted[k] = to
	m.mu.Unlock()
}

func (m *moves) reassign(k partitionKey) {
	m.mu.Lock()
	m.mu.reassigns[k] = struct{}{}
	m.mu.Unlock()
}

// of lists what a broker should move away now. The image is read under the lock:
// in one from before, an election that was just asked for may look moot.
func (m *moves) of(image func() *metadata.Image, inc metadata.Incarnation) []*controllerpb.Move {
	var out []*controllerpb.Move
	add := func(p metadata.Partition, to metadata.Incarnation) {
		out = append(out, &controllerpb.Move{
			TopicId: p.Topic[:], Partition: p.Number, Epoch: int32(p.Epoch), Target: to.Proto(),
		})
	}
	m.mu.Lock()
	img := image()
	b, _ := img.Broker(inc.Broker)
	for k, to := range m.mu.wanted {
		p, ok := img.Partition(k.topic, k.number)
		target, live := img.Broker(to)
		if !ok || p.Owner.Broker == to || p.Replicas[0] != to || !live || target.Fenced { // done, or moot
			delete(m.mu.wanted, k)
		} else if p.Owner == inc && len(out) < maxMoves {
			add(p, target.Incarnation)
		}
	}
	for k := range m.mu.reassigns {
		p, ok := img.Partition(k.topic, k.number)
		if !ok || p.Owner != inc || len(out) >= maxMoves {
			continue
		}
		if to, ok := liveOf(img, wantedReplicas(p)); ok && !slices.Contains(wantedReplicas(p), b.ID) {
			add(p, to)
		}
	}
	m.mu.Unlock()
	if b.Draining && b.Incarnation == inc {
		place := newPlacement(img, func(o metadata.Broker) bool { return openToNew(o) && o.ID != b.ID })
		if len(place.seats) == 0 { // better a cordoned one than nobody
			place = newPlacement(img, func(o metadata.Broker) bool { return !o.Draining && o.ID != b.ID })
		}
		for p := range img.Owned(inc) {
			if len(out) >= maxMoves {
				break
			}
			if to, ok := place.successor(p, b); ok && !p.Deleting {
				add(p, to)
			}
		}
	}
	return out
}

// wantedReplicas is a partition's replica list after its reassignment.
func wantedReplicas(p metadata.Partition) []metadata.BrokerID {
	var out []metadata.BrokerID
	for _, r := range p.Replicas {
		if !slices.Contains(p.Removing, r) {
			out = append(out, r)
		}
	}
	return out
}

func liveOf(img *metadata.Image, ids []metadata.BrokerID) (metadata.Incarnation, bool) {
	for _, id := range ids {
		if b, ok := img.Broker(id); ok && !b.Fenced {
			return b.Incarnation, true
		}
	}
	return metadata.Incarnation{}, false
}

// arrived lists commands that complete reassignments whose owner is in the new
// list, and forgets those that are moot. The image is read under the lock: one from
// before would not show a reassignment that was just asked for.
func (m *moves) arrived(image func() *metadata.Image) (commands []*metadatapb.Command, keys []partitionKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.reassigns) == 0 {
		return nil, nil
	}
	img := image()
	for k := range m.mu.reassigns {
		p, ok := img.Partition(k.topic, k.number)
		if !ok || len(p.Adding)+len(p.Removing) == 0 {
			delete(m.mu.reassigns, k)
			continue
		}
		if want := wantedReplicas(p); slices.Contains(want, p.Owner.Broker) && len(commands) < maxMoves {
			commands, keys = append(commands, assignCommand(k, want, nil, nil)), append(keys, k)
		}
	}
	return commands, keys
}

// finishMoves completes reassignments whose owner is in the new list. Nothing
// is copied between replicas of a shared topic, so that is all there is to it. What
// is complete is looked up again at the gate: a partition may be reassigned anew
// while we wait for it.
func (l *leadership) finishMoves() {
	if commands, _ := l.moves.arrived(l.images.image); len(commands) == 0 {
		return
	}
	leave, err := l.enter(l.ctx)
	if err != nil {
		return
	}
	defer leave()
	commands, keys := l.moves.arrived(l.images.image)
	if len(commands) == 0 {
		return
	}
	_, results, err := l.propose(commands)
	if err != nil {
		l.log.Debug("cannot complete reassignments, will try again", "err", err)
	}
	l.moves.mu.Lock()
	defer l.moves.mu.Unlock()
	for i, r := range results {
		// Once, whatever came of it: even a rejected command moves the index,
		// which brings us here again.
		delete(l.moves.mu.reassigns, keys[i])
		if r.Err != nil {
			l.log.Warn("reassignment could not be completed", "topic", keys[i].topic.String(), "partition", keys[i].number, "err", r.Err)
		}
	}
}

func assignCommand(k partitionKey, replicas, adding, removing []metadata.BrokerID) *metadatapb.Command {
	return &metadatapb.Command{Body: &metadatapb.Command_AssignReplicas{AssignReplicas: &metadatapb.AssignReplicas{
		TopicId: k.topic[:], Partition: k.number,
		Replicas: ints(replicas), Adding: ints(adding), Removing: ints(removing),
	}}}
}

func ints(ids []metadata.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
