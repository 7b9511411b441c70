package controller

import (
	"slices"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// planUnregister forgets brokers that are gone for good, after what names them names
// others. What it refuses it says how to get past.
func planUnregister(img *metadata.Image, ids []int32, voters []metadata.BrokerID) *plan {
	p := newPlan(len(ids))
	for i, id := range ids {
		b, ok := img.Broker(metadata.BrokerID(id))
		if !ok {
			p.refuse(i, refuse(CodeUnknownBroker, "broker %d is not registered", id))
			continue
		}
		if err := mayUnregister(img, b, voters); err != nil {
			p.refuse(i, err)
			continue
		}
		for _, c := range replaceReplica(img, b) {
			p.add(i, c)
		}
		p.add(i, &metadatapb.Command{Body: &metadatapb.Command_UnregisterBroker{UnregisterBroker: &metadatapb.UnregisterBroker{Broker: id}}})
	}
	return p
}

func mayUnregister(img *metadata.Image, b metadata.Broker, voters []metadata.BrokerID) *Error {
	switch owned := img.OwnedCount(b.Incarnation); {
	case !b.Fenced:
		return refuse(CodeInvalidRequest, "broker %d is alive, or was seconds ago: drain it ('ponor broker drain %d') and stop its process first", b.ID, b.ID)
	case slices.Contains(voters, b.ID):
		return refuse(CodeInvalidRequest, "broker %d has a vote in the metadata quorum: take it first, 'ponor quorum remove %d'", b.ID, b.ID)
	case owned > 0:
		return refuse(CodeInvalidRequest, "broker %d still owns %d partition(s): they move as soon as a broker takes them, try again then", b.ID, owned)
	}
	return nil
}

// replaceReplica makes the commands that take a broker out of all replica lists. The
// owner takes its place where it is not in the list yet, else the broker that a new
// partition would get. A list gets shorter if nobody is left. A reassignment goes on
// without the broker.
func replaceReplica(img *metadata.Image, gone metadata.Broker) []*metadatapb.Command {
	place := newPlacement(img, func(b metadata.Broker) bool { return b.ID != gone.ID && openToNew(b) })
	var out []*metadatapb.Command
	for t := range img.Topics() {
		if t.Deleting {
			continue
		}
		have := slices.Collect(img.Partitions(t.ID))
		place.restart(have)
		for _, part := range have {
			at := slices.Index(part.Replicas, gone.ID)
			if at < 0 {
				continue
			}
			drop := []metadata.BrokerID{gone.ID}
			next, removing := without(part.Replicas, drop), without(part.Removing, drop)
			if !slices.Contains(part.Removing, gone.ID) { // else it leaves anyway
				if other, ok := place.substitute(part, next); ok && other == part.Owner.Broker {
					next = slices.Insert(next, at, other)
				} else if ok {
					next = append(next, other)
				}
			}
			if len(without(next, removing)) == 0 {
				removing = nil // it was to be at the one that is gone only, so it stays
			}
			out = append(out, assignCommand(partitionKey{part.Topic, part.Number}, next, without(part.Adding, drop), removing))
		}
	}
	return out
}

// substitute is who comes into a partition's replica list, of which rest is left.
func (p *placement) substitute(part metadata.Partition, rest []metadata.BrokerID) (metadata.BrokerID, bool) {
	if !slices.Contains(rest, part.Owner.Broker) {
		return part.Owner.Broker, true
	}
	zones := map[string]int{}
	for _, s := range p.seats {
		if slices.Contains(rest, s.broker.ID) {
			zones[s.broker.Zone]++
		}
	}
	s := p.best(func(_ int, s *seat) []int {
		if slices.Contains(rest, s.broker.ID) {
			return nil
		}
		return []int{zones[s.broker.Zone], s.copies}
	})
	if s == nil {
		return 0, false
	}
	s.copies++
	return s.broker.ID, true
}
