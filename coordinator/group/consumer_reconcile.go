package group

import (
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/coordinator/group/assignor"
)

// advance is what the next step of a member is made of.
type advance struct {
	epoch  int32 // of the target
	target partitionSet
	// owned is what the member says that it owns; said is false if it says nothing,
	// which is what it said before.
	owned partitionSet
	said  bool
	// free says whether nobody else has a partition.
	free func(assignor.Partition) bool
}

// owns says whether the member has, or may have, some of the partitions.
func (a advance) owns(set partitionSet) bool {
	return len(set) > 0 && (!a.said || a.owned.meets(set))
}

// next is the position after one step. The maps of p are not changed.
func (p position) next(a advance) (position, *refusal) {
	switch p.state {
	case memberStable:
		if p.epoch == a.epoch {
			return p, nil
		}
	case memberUnrevoked:
		if a.owns(p.revoking) {
			return p, nil
		}
	case memberUnreleased:
	default:
		if !a.said || a.owned.meets(p.revoking) {
			return p, refuse(kerr.FencedMemberEpoch, "The coordinator does not know the state of the member, which must give up all its partitions and rejoin.")
		}
	}
	return p.toward(a), nil
}

// toward gives up what is not in the target; only when that is done it takes the
// target's epoch and what is free of it (C1, C4).
func (p position) toward(a advance) position {
	kept, revoking := make(partitionSet, len(p.assigned)), make(partitionSet)
	for at, since := range p.assigned {
		if _, ok := a.target[at]; ok {
			kept[at] = since
		} else {
			revoking[at] = since
		}
	}
	if a.owns(revoking) {
		p.state, p.assigned, p.revoking = memberUnrevoked, kept, revoking
		return p
	}
	if p.epoch != a.epoch {
		p.previous, p.epoch = p.epoch, a.epoch
	}
	p.state, p.assigned, p.revoking = memberStable, kept, nil
	for at := range a.target {
		switch _, has := kept[at]; {
		case has:
		case a.free(at):
			kept[at] = a.epoch
		default:
			p.state = memberUnreleased
		}
	}
	return p
}

// same says whether two positions are written alike.
func (p position) same(o position) bool {
	return p.epoch == o.epoch && p.previous == o.previous && p.state == o.state &&
		maps.Equal(p.assigned, o.assigned) && maps.Equal(p.revoking, o.revoking)
}

// reconcile takes a member one step on, and says whether what it may read changed.
func (c *consumerGroup) reconcile(now time.Time, m *consumerMember, owned partitionSet, said bool) (changed bool, err *refusal) {
	if m.state == memberStable && m.epoch == c.targetEpoch {
		return false, nil // what nearly all heartbeats are
	}
	next, err := m.next(advance{
		epoch: c.targetEpoch, target: c.targets[m.id], owned: owned, said: said,
		free: func(p assignor.Partition) bool {
			owner, ok := c.owners[p]
			return !ok || owner == m.id
		},
	})
	if err != nil {
		return false, err
	}
	if next.same(m.position) {
		return false, nil
	}
	changed = !next.assigned.sameKeys(m.assigned)
	c.place(m, next)
	if next.state != memberUnrevoked {
		m.revokeBy = time.Time{}
	}
	c.awaitRevocation(now, m)
	return changed, nil
}

// place puts a member where it is now.
func (c *consumerGroup) place(m *consumerMember, p position) {
	c.disown(m)
	m.position = p
	c.own(m)
	c.writeCurrent(m)
}

// settle tells the history when all members have the target.
func (c *consumerGroup) settle(now time.Time) {
	if !c.settled && c.epoch == c.targetEpoch && c.reconciled() {
		c.settled = true
		c.g.history.assigned(now)
	}
}
