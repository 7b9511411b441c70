package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ponor/metadata"
	"ponor/partition"
)

// Why the balancer moves a leader: labels of metrics.BalanceMoves.
const (
	causePreferred  = "preferred"
	causePartitions = "partitions"
	causeBytes      = "bytes"
	causeRequests   = "requests"
)

const (
	// balanceThreshold is how far above the mean a broker's load must be, as a part
	// of it, for leaders to move.
	balanceThreshold = 0.20
	// balanceFloor is how far it must be at least, in weight per second: nobody
	// feels less.
	balanceFloor = 2 << 20
	// balancePatience is how long it must have been so at every look, how long
	// membership must not have changed, and the pause between two rounds.
	balancePatience = 2 * time.Minute
	// balanceMemory is how long a partition that was moved for its load stays
	// where it is.
	balanceMemory = 30 * time.Minute
	// balancePlaced is how long a partition stays where an operator put it. It is
	// long enough for one who is still at work, and short enough for a cluster that
	// is uneven because of it.
	balancePlaced = 10 * time.Minute
	// balanceRoundMoves bounds one round; the next one waits for all of them.
	balanceRoundMoves = 16
	// balanceGain is by how much of the mean a round must lower a broker.
	balanceGain = 0.05
	// balanceMargin is how much less the target must have after a move than the
	// source before, as a part of what moves: else the two just change places.
	balanceMargin = 0.25
)

// balanceMove is a leader that should be elsewhere.
type balanceMove struct {
	key      partitionKey
	topic    string
	from, to metadata.BrokerID
	replicas []metadata.BrokerID // the list it needs; nil leaves it as it is
	cause    string
	reason   string
}

// openBrokers are the live ones that take part: neither cordoned nor draining.
func openBrokers(img *metadata.Image) map[metadata.BrokerID]metadata.Broker {
	open := map[metadata.BrokerID]metadata.Broker{}
	for b := range img.Brokers() {
		if !b.Fenced && openToNew(b) {
			open[b.ID] = b
		}
	}
	return open
}

// planCount finds partitions that should go home, to the first of their
// replicas, and replica lists that should begin with a broker which is the first
// of few: one with less than half of an even share gets an even share, unless
// it is busy with them or the partition must stay where it is; kept says that one
// has less because of those. Lists that are even enough are left as people made
// them.
func planCount(img *metadata.Image, busy func(id metadata.BrokerID, first int) bool, stays func(partitionKey) bool) (moves []balanceMove, kept bool) {
	open, first := openBrokers(img), map[metadata.BrokerID]int{} // lists that a broker is the first of
	var movable []metadata.Partition
	for t := range img.Topics() {
		if t.Deleting || img.TopicSettings(t.Name).Local {
			continue
		}
		for p := range img.Partitions(t.ID) {
			if _, ok := open[p.Replicas[0]]; ok && len(p.Adding)+len(p.Removing) == 0 {
				first[p.Replicas[0]]++
				movable = append(movable, p)
			}
		}
	}
	if len(open) == 0 {
		return nil, false
	}
	even := len(movable) / len(open)
	var poor []metadata.BrokerID
	for _, id := range slices.Sorted(maps.Keys(open)) {
		if first[id]*2 < even && !busy(id, first[id]) {
			poor = append(poor, id)
		}
	}
	given := 0
	for i, p := range movable {
		from, k := p.Replicas[0], partitionKey{p.Topic, p.Number}
		m := balanceMove{key: k, topic: p.TopicName, from: p.Owner.Broker, to: from, cause: causePreferred}
		give := len(poor) > 0 && first[from] > even && given < maxMoves
		kept = kept || give && stays(k)
		switch {
		case give && !stays(k):
			m.to, m.cause = poor[i%len(poor)], causePartitions
			m.reason = fmt.Sprintf("broker %d is the preferred leader of %d partitions, an even share is %d", m.to, first[m.to], even)
			m.replicas = beginWith(img, p.Replicas, m.to)
			given++
			first[from]--
			if first[m.to]++; first[m.to] >= even {
				poor = slices.DeleteFunc(poor, func(id metadata.BrokerID) bool { return id == m.to })
			}
		case p.Owner.Broker != from && img.Live(p.Owner):
			m.reason = fmt.Sprintf("broker %d is its preferred leader and lives again", from)
		default:
			continue
		}
		moves = append(moves, m)
	}
	return moves, kept && len(poor) > 0
}

// beginWith puts a broker in the place of the first of a list. Where it comes
// from elsewhere in the list, or from the zone of another replica, that one's
// place goes to the first, so that the list has as many zones as before.
func beginWith(img *metadata.Image, list []metadata.BrokerID, id metadata.BrokerID) []metadata.BrokerID {
	zone := func(id metadata.BrokerID) string { b, _ := img.Broker(id); return b.Zone }
	out := slices.Clone(list)
	i := slices.Index(out, id)
	if z := zone(id); i < 0 && z != "" && z != zone(out[0]) {
		i = slices.IndexFunc(out, func(r metadata.BrokerID) bool { return zone(r) == z })
	}
	if i > 0 {
		out[i] = out[0]
	}
	out[0] = id
	return out
}

// scale is the loads of the open brokers, weighed.
type scale struct {
	weight map[metadata.BrokerID]float64
	mean   float64
	// unknown is a broker that did not report yet, -1 if all have.
	unknown metadata.BrokerID
}

func weigh(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads) scale {
	s := scale{weight: map[metadata.BrokerID]float64{}, unknown: -1}
	for id := range openBrokers(img) {
		l := loads[id]
		if l == nil {
			s.unknown = max(s.unknown, id)
			continue
		}
		s.weight[id] = l.Weight()
		s.mean += l.Weight()
	}
	s.mean /= float64(max(1, len(s.weight)))
	return s
}

// over says whether a broker has so much that leaders should move away, or, for
// part < 1, that much of it.
func (s scale) over(id metadata.BrokerID, part float64) bool {
	return s.weight[id]-s.mean > part*max(balanceThreshold*s.mean, balanceFloor)
}

// above is by how many percent a broker is above the mean.
func (s scale) above(id metadata.BrokerID) float64 { return (s.weight[id]/max(1, s.mean) - 1) * 100 }

// byWeight lists the brokers, the heaviest first.
func (s scale) byWeight() []metadata.BrokerID {
	return slices.SortedFunc(maps.Keys(s.weight), func(a, b metadata.BrokerID) int {
		return cmp.Or(cmp.Compare(s.weight[b], s.weight[a]), cmp.Compare(a, b))
	})
}

// planLoad finds moves from brokers that sources accepts to the one with the
// least, until none is far above the mean. Each makes the two more equal by a
// margin, so moves end under a steady load, and together they are worth it, or
// there are none.
func planLoad(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, sources func(metadata.BrokerID) bool, stays func(partitionKey) bool) []balanceMove {
	s := weigh(img, loads)
	if s.unknown >= 0 || len(s.weight) < 2 {
		return nil
	}
	var moves []balanceMove
	taken := map[partitionKey]bool{}
	gain := 0.0
	for len(moves) < balanceRoundMoves {
		m, w, ok := s.step(img, loads, sources, func(k partitionKey) bool { return taken[k] || stays(k) })
		if !ok {
			break
		}
		s.weight[m.from] -= w
		s.weight[m.to] += w
		gain += w
		taken[m.key] = true
		moves = append(moves, m)
	}
	if gain < max(balanceGain*s.mean, balanceGain/balanceThreshold*balanceFloor) {
		return nil
	}
	return moves
}

// step is the move that evens out most, and the weight that it moves.
func (s scale) step(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, sources func(metadata.BrokerID) bool, stays func(partitionKey) bool) (best balanceMove, w float64, ok bool) {
	order := s.byWeight()
	to := order[len(order)-1]
	for _, from := range order {
		// Halfway is the aim, so that what comes to rest is far from the threshold.
		if !s.over(from, 0.5) || from == to {
			return best, 0, false
		}
		if !sources(from) {
			continue
		}
		gap, gain := s.weight[from]-s.weight[to], 0.0
		for _, l := range loads[from].Busiest {
			g := min(l.Weight(), gap-l.Weight())
			k := partitionKey{l.Topic, l.Partition}
			if g <= gain || g < balanceMargin*l.Weight() || stays(k) {
				continue
			}
			p, movable := settled(img, k, from)
			if !movable {
				continue
			}
			gain, w, ok = g, l.Weight(), true
			best = balanceMove{key: k, topic: p.TopicName, from: from, to: to, replicas: beginWith(img, p.Replicas, to), cause: causeBytes}
			what := fmt.Sprintf("%s of its %s", rate(l.Bytes), rate(loads[from].Bytes))
			if l.Bytes < l.Weight()/2 {
				best.cause = causeRequests
				what = fmt.Sprintf("%.0f of its %.0f requests/s", l.Requests, loads[from].Requests)
			}
			best.reason = fmt.Sprintf("broker %d is %.0f %% above the mean load, this takes %s to broker %d, which has the least", from, s.above(from), what, to)
		}
		if ok {
			return best, w, true
		}
	}
	return best, 0, false
}

// settled returns a partition that a broker leads and that may move: no other
// change of it is under way, and it leads it because it is the preferred leader
// or that one is gone.
func settled(img *metadata.Image, k partitionKey, owner metadata.BrokerID) (metadata.Partition, bool) {
	p, ok := img.Partition(k.topic, k.number)
	if !ok || p.Deleting || p.Owner.Broker != owner || len(p.Adding)+len(p.Removing) > 0 || img.TopicSettings(p.TopicName).Local {
		return p, false
	}
	first, _ := img.Broker(p.Replicas[0])
	return p, first.ID == owner || first.Fenced
}

func rate(bytes float64) string { return fmt.Sprintf("%.1f MB/s", bytes/1e6) }
