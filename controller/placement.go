package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// placement chooses brokers. It is a pure function of the image it was made
// from and of what it was asked since, so that topics created by one request
// see each other and equal images give equal answers.
type placement struct {
	seats []*seat // by broker id
}

// seat is one broker that may be given partitions.
type seat struct {
	broker metadata.Broker
	owned  int // partitions it owns
	leads  int // of those, partitions of the topic being placed
	copies int // replica lists of the topic being placed that hold it
}

// newPlacement considers the live brokers that accept returns true for; nil
// accepts all.
func newPlacement(img *metadata.Image, accept func(metadata.Broker) bool) *placement {
	p := &placement{}
	for b := range img.Brokers() {
		if !b.Fenced && (accept == nil || accept(b)) {
			p.seats = append(p.seats, &seat{broker: b, owned: img.OwnedCount(b.Incarnation)})
		}
	}
	return p
}

// openToNew is what new partitions ask of a broker.
func openToNew(b metadata.Broker) bool { return !b.Cordoned && !b.Draining }

// closedBrokers says which brokers get no new partitions, why, and what undoes it; ""
// if all do, but for those that are not asked about.
func closedBrokers(img *metadata.Image, but ...metadata.BrokerID) string {
	var down, closed []string
	for b := range img.Brokers() {
		switch {
		case slices.Contains(but, b.ID):
		case b.Fenced:
			down = append(down, fmt.Sprintf("broker %d is down", b.ID))
		case b.Draining:
			closed = append(closed, fmt.Sprintf("broker %d is draining", b.ID))
		case b.Cordoned:
			closed = append(closed, fmt.Sprintf("broker %d is cordoned", b.ID))
		}
	}
	words := strings.Join(append(closed, down...), ", ")
	if len(closed) > 0 {
		words += "; 'ponor broker uncordon NODE' ends cordoning and draining"
	}
	return words
}

// best is the seat with the smallest key; nil if there is none. Ties go to the
// lower broker id.
func (p *placement) best(key func(i int, s *seat) []int) *seat {
	var found *seat
	var least []int
	for i, s := range p.seats {
		k := key(i, s)
		if k == nil {
			continue
		}
		if found == nil || slices.Compare(k, least) < 0 {
			found, least = s, k
		}
	}
	return found
}

// topic places partitions of a new topic: first replica is the owner; owners
// even within the topic, then in all; the other replicas in zones not used yet
// as far as there are any, then even within the topic.
func (p *placement) topic(partitions, rf int) []*metadatapb.PartitionSpec {
	p.restart(nil)
	return p.grow(partitions, rf)
}

// restart forgets the topic placed before and counts what one already has.
func (p *placement) restart(have []metadata.Partition) {
	for _, s := range p.seats {
		s.leads, s.copies = 0, 0
		for i := range have {
			if have[i].Owner.Broker == s.broker.ID {
				s.leads++
			}
			if slices.Contains(have[i].Replicas, s.broker.ID) {
				s.copies++
			}
		}
	}
}

func (p *placement) grow(partitions, rf int) []*metadatapb.PartitionSpec {
	specs := make([]*metadatapb.PartitionSpec, 0, partitions)
	for range partitions {
		owner := p.best(func(_ int, s *seat) []int { return []int{s.leads, s.owned} })
		owner.leads++
		owner.owned++
		owner.copies++
		specs = append(specs, &metadatapb.PartitionSpec{
			Replicas: p.replicas(owner, rf),
			Owner:    owner.broker.Incarnation.Proto(),
		})
	}
	return specs
}

// replicas completes a list that begins with owner.
func (p *placement) replicas(owner *seat, rf int) []int32 {
	chosen := []*seat{owner}
	at := slices.Index(p.seats, owner)
	for len(chosen) < rf {
		next := p.best(func(i int, s *seat) []int {
			if slices.Contains(chosen, s) {
				return nil
			}
			zone := 0
			for _, c := range chosen {
				if c.broker.Zone == s.broker.Zone {
					zone++
				}
			}
			// The distance from the owner makes the second replicas of one
			// owner's partitions differ from another's.
			return []int{zone, s.copies, (i - at + len(p.seats)) % len(p.seats)}
		})
		next.copies++
		chosen = append(chosen, next)
	}
	ids := make([]int32, len(chosen))
	for i, s := range chosen {
		ids[i] = int32(s.broker.ID)
	}
	return ids
}

// take counts partitions that were placed by hand.
func (p *placement) take(owner metadata.BrokerID) {
	for _, s := range p.seats {
		if s.broker.ID == owner {
			s.owned++
		}
	}
}

// successor chooses who takes a partition over from a dead or leaving broker:
// one of its replicas (warm) before others, one with little before one with
// much, another zone before the same one (where the trouble may be).
func (p *placement) successor(part metadata.Partition, from metadata.Broker) (metadata.Incarnation, bool) {
	s := p.best(func(_ int, s *seat) []int {
		if s.broker.ID == from.ID {
			return nil
		}
		cold, near := 1, 0
		if slices.Contains(part.Replicas, s.broker.ID) {
			cold = 0
		}
		if s.broker.Zone != "" && s.broker.Zone == from.Zone {
			near = 1
		}
		return []int{cold, s.owned, near}
	})
	if s == nil {
		return metadata.Incarnation{}, false
	}
	s.owned++
	return s.broker.Incarnation, true
}

// maxAssignments bounds one Fence command to about 150 KiB. The partitions
// beyond it are named by further Fence commands of the same incarnation.
const maxAssignments = 4096

// planFence makes the commands that end an incarnation, or that re-name what
// it still holds: its partitions to live brokers, its WAL to a sealer. It
// returns nil if no other broker lives, because nothing would be gained. Sealers
// in tried did not get it done: they are named again only if all have tried.
func planFence(img *metadata.Image, dead metadata.Incarnation, tried []metadata.Incarnation) []*metadatapb.Command {
	from, ok := img.Broker(dead.Broker)
	if !ok {
		from = metadata.Broker{ID: dead.Broker}
	}
	// The broker id may live on in a new incarnation, which may inherit.
	accept := func(b metadata.Broker) bool { return b.Incarnation != dead && !b.Draining }
	p := newPlacement(img, accept)
	if len(p.seats) == 0 {
		p = newPlacement(img, func(b metadata.Broker) bool { return b.Incarnation != dead })
	}
	if len(p.seats) == 0 {
		return nil
	}
	if from.Incarnation != dead {
		from.ID = -1 // its successor incarnation is as good as any other
	}
	sealer := chooseSealer(img, p, tried)
	var commands []*metadatapb.Command
	fence := &metadatapb.Fence{Incarnation: dead.Proto(), Sealer: sealer.Proto()}
	flush := func() {
		commands = append(commands, &metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: fence}})
		fence = &metadatapb.Fence{Incarnation: dead.Proto(), Sealer: sealer.Proto()}
	}
	for part := range img.Owned(dead) {
		if part.Deleting {
			continue
		}
		owner, ok := p.successor(part, from)
		if !ok {
			break
		}
		fence.Assignments = append(fence.Assignments, &metadatapb.Assignment{
			TopicId: part.Topic[:], Partition: part.Number, Owner: owner.Proto(),
		})
		if len(fence.Assignments) == maxAssignments {
			flush()
		}
	}
	if len(fence.Assignments) > 0 || len(commands) == 0 {
		flush()
	}
	return commands
}

// chooseSealer is the live broker with the fewest WALs to seal, one that has not
// tried before one that has, the last one to try last of all.
func chooseSealer(img *metadata.Image, p *placement, tried []metadata.Incarnation) metadata.Incarnation {
	busy := map[metadata.Incarnation]int{}
	for w := range img.WALs() {
		if w.State == metadata.Fenced {
			busy[w.Sealer]++
		}
	}
	s := slices.MinFunc(p.seats, func(a, b *seat) int {
		return cmp.Or(
			cmp.Compare(slices.Index(tried, a.broker.Incarnation), slices.Index(tried, b.broker.Incarnation)),
			cmp.Compare(busy[a.broker.Incarnation], busy[b.broker.Incarnation]),
			cmp.Compare(a.owned, b.owned),
			cmp.Compare(a.broker.ID, b.broker.ID))
	})
	return s.broker.Incarnation
}
