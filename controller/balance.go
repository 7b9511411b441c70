package controller

import (
	"slices"
	"strings"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
)

// balanceDelay is how long membership must have been stable before leaders are
// spread anew: a restart of several brokers is answered once.
const balanceDelay = 2 * time.Second

// balanceConfig switches balancing off for the whole cluster.
const balanceConfig = "auto.leader.rebalance.enable"

// balance spreads leaders after brokers came, left, or changed state: each
// change of membership is answered by one round, so a cluster that stays as it
// is never moves anything by itself.
type balance struct {
	members string
	since   time.Time
	done    bool
}

// rebalance does the round that is due, if any.
func (l *leadership) rebalance(img *metadata.Image, now time.Time) {
	if m := members(img); m != l.balance.members {
		l.balance = balance{members: m, since: now}
	}
	if l.balance.done || now.Sub(l.balance.since) < balanceDelay || now.Before(l.cautious) {
		return
	}
	l.balance.done = true
	if v, ok := img.Config(metadata.KindBroker, "", balanceConfig); ok && strings.EqualFold(v, "false") {
		return
	}
	l.spawn(func() { l.balanceRound() })
}

// balanceRound asks for the moves that a balanced cluster lacks.
func (l *leadership) balanceRound() {
	leave, err := l.enter(l.ctx)
	if err != nil {
		return
	}
	defer leave()
	img := l.images.image()
	home, share := planBalance(img)
	for k, to := range home {
		l.moves.elect(k, to)
	}
	if len(share) > 0 {
		p := planReassign(img, share)
		if _, _, err := l.propose(l.ctx, p.commands); err != nil {
			l.log.Warn("cannot balance, will try again when brokers come or go", "err", err)
			return
		}
		p.ask(l.moves)
		for _, c := range share { // also where the owner stays in the list
			l.moves.elect(partitionKey{metadata.TopicID(c.TopicId), c.Partition}, metadata.BrokerID(c.Replicas[0]))
		}
	}
	if len(home)+len(share) > 0 {
		l.log.Info("balancing leaders", "to_preferred", len(home), "to_new_brokers", len(share))
	}
}

// members is the set of live brokers as far as it matters for balance.
func members(img *metadata.Image) string {
	var b strings.Builder
	for br := range img.Brokers() {
		if !br.Fenced {
			b.WriteString(br.Incarnation.String())
			if !openToNew(br) {
				b.WriteByte('!')
			}
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// planBalance finds partitions that should go home, to the first of their
// replicas, and replica lists that should begin with a broker which is the first
// of few: one with less than half of an even share gets an even share. Lists
// that are even enough are left as people made them.
func planBalance(img *metadata.Image) (home map[partitionKey]metadata.BrokerID, share []*controllerpb.PartitionChange) {
	first := map[metadata.BrokerID]int{} // lists that a broker is the first of
	open := map[metadata.BrokerID]bool{}
	for b := range img.Brokers() {
		if !b.Fenced && openToNew(b) {
			open[b.ID], first[b.ID] = true, 0
		}
	}
	var movable []metadata.Partition
	for t := range img.Topics() {
		if t.Deleting || img.TopicSettings(t.Name).Local {
			continue
		}
		for p := range img.Partitions(t.ID) {
			if len(p.Adding)+len(p.Removing) == 0 && open[p.Replicas[0]] {
				first[p.Replicas[0]]++
				movable = append(movable, p)
			}
		}
	}
	home = map[partitionKey]metadata.BrokerID{}
	if len(open) == 0 {
		return home, nil
	}
	even := len(movable) / len(open)
	var poor []metadata.BrokerID
	for id := range open {
		if first[id]*2 < even {
			poor = append(poor, id)
		}
	}
	slices.Sort(poor)
	for i, p := range movable {
		from := p.Replicas[0]
		if len(poor) > 0 && first[from] > even && len(share) < maxMoves {
			to := poor[i%len(poor)]
			first[from]--
			if first[to]++; first[to] >= even {
				poor = slices.DeleteFunc(poor, func(id metadata.BrokerID) bool { return id == to })
			}
			share = append(share, &controllerpb.PartitionChange{TopicId: slices.Clone(p.Topic[:]), Partition: p.Number, Replicas: ints(beginWith(p.Replicas, to))})
			continue
		}
		if p.Owner.Broker != from && img.Live(p.Owner) {
			home[partitionKey{p.Topic, p.Number}] = from
		}
	}
	return home, share
}

// beginWith puts a broker in the place of the first of a list; if it was
// elsewhere in the list the two change places.
func beginWith(list []metadata.BrokerID, id metadata.BrokerID) []metadata.BrokerID {
	out := slices.Clone(list)
	if i := slices.Index(out, id); i > 0 {
		out[i] = out[0]
	}
	out[0] = id
	return out
}
