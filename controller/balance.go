package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/partition"
)

const (
	// balanceDelay is how long membership must have been stable before leaders are
	// spread anew by count: a restart of several brokers is answered once.
	balanceDelay = 2 * time.Second
	// balanceBlind is how long a new leader waits for the loads of all brokers
	// before it takes one that has few partitions for one that has little to do.
	balanceBlind = 15 * time.Second
	// balanceLook is how often loads are looked at.
	balanceLook = 10 * time.Second
	// balanceSettle is how long it takes until the loads show what a round did.
	balanceSettle = 45 * time.Second
)

// balanceConfig switches balancing off for the whole cluster.
const balanceConfig = "auto.leader.rebalance.enable"

func balancing(img *metadata.Image) bool {
	v, ok := img.Config(metadata.KindBroker, "", balanceConfig)
	return !ok || !strings.EqualFold(v, "false")
}

// balance decides when leaders are spread. By count: each change of membership
// is answered by one round. By load: as long as one broker has far more than the
// others. A cluster that stays as it is moves nothing. It is volatile: a new
// leader begins with patience.
type balance struct {
	mu struct {
		sync.Mutex
		members string
		since   time.Time // when members became what they are
		counted bool      // their change was answered,
		sure    bool      // and with knowledge of the loads
		working bool      // a round is being made
		looked  time.Time
		known   bool // there was a look at the loads of all
		// busy are the brokers with a mean load or more when all was calm: few
		// partitions are enough for them.
		busy  map[metadata.BrokerID]bool
		over  map[metadata.BrokerID]time.Time // above the threshold since
		moved map[partitionKey]time.Time      // for their load
		// placed is when an operator said last where a partition belongs. held: a
		// broker has few because of that, and gets its share afterwards.
		placed map[partitionKey]time.Time
		held   bool
		last   []balanceMove // the last round for load,
		round  time.Time     // and when that was
	}
}

func newBalance() *balance {
	b := &balance{}
	b.mu.over, b.mu.moved, b.mu.placed = map[metadata.BrokerID]time.Time{}, map[partitionKey]time.Time{}, map[partitionKey]time.Time{}
	return b
}

// rebalance does the round that is due, if any.
func (l *leadership) rebalance(img *metadata.Image, now time.Time) {
	count, moves := l.balance.next(img, l.sessions.loads, now, !now.Before(l.cautious) && balancing(img))
	if count || len(moves) > 0 {
		l.spawn(func() { l.balanceRound(count, moves) })
	}
}

// next says what is due: a round by count, or moves for load. Whoever gets
// either calls done.
func (b *balance) next(img *metadata.Image, loads func() map[metadata.BrokerID]*partition.Loads, now time.Time, on bool) (count bool, moves []balanceMove) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := members(img); m != b.mu.members {
		b.mu.members, b.mu.since, b.mu.counted, b.mu.sure = m, now, false, false
		clear(b.mu.over)
	}
	if !on || b.mu.working {
		return false, nil
	}
	every := balanceLook
	if !b.mu.known {
		every = time.Second
	}
	if now.Sub(b.mu.looked) >= every {
		b.mu.looked = now
		all := loads()
		b.lookLocked(img, all, now)
		if v := b.judgeLocked(img, all, now); v.due {
			moves = v.moves
			b.mu.last, b.mu.round = moves, now
			clear(b.mu.over)
			for _, m := range moves {
				b.mu.moved[m.key] = now
			}
		}
	}
	if count = b.countDueLocked(now); count {
		b.mu.counted, b.mu.sure = true, b.sureLocked(now)
	}
	b.mu.working = count || len(moves) > 0
	return count, moves
}

func (b *balance) sureLocked(now time.Time) bool {
	return b.mu.known || now.Sub(b.mu.since) >= balanceBlind
}

func (b *balance) countDueLocked(now time.Time) bool {
	return now.Sub(b.mu.since) >= balanceDelay && (!b.mu.counted || !b.mu.sure && b.sureLocked(now))
}

// done ends a round; again asks for another one by count.
func (b *balance) done(again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.working = false
	if again {
		b.mu.counted = false
	}
}

// countPlan is what a round by count would do.
func (b *balance) countPlan(img *metadata.Image, now time.Time) []balanceMove {
	b.mu.Lock()
	defer b.mu.Unlock()
	sure := b.sureLocked(now)
	moves, kept := planCount(img, func(id metadata.BrokerID, first int) bool {
		return b.mu.busy[id] || !sure && first > 0
	}, b.staysLocked(now))
	b.mu.held = kept && len(b.mu.placed) > 0
	return moves
}

// staysLocked says whether a partition was moved for its load, or placed by an
// operator, so lately that it must stay.
func (b *balance) staysLocked(now time.Time) func(partitionKey) bool {
	return func(k partitionKey) bool {
		return lately(b.mu.moved, k, now, balanceMemory) || lately(b.mu.placed, k, now, balancePlaced)
	}
}

func lately(at map[partitionKey]time.Time, k partitionKey, now time.Time, memory time.Duration) bool {
	t, ok := at[k]
	return ok && now.Sub(t) < memory
}

// place notes that an operator says where partitions belong.
func (b *balance) place(keys []partitionKey, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		b.mu.placed[k] = now
	}
}

// isPlaced says whether an operator placed a partition lately.
func (b *balance) isPlaced(k partitionKey, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return lately(b.mu.placed, k, now, balancePlaced)
}

// lookLocked takes note of who has too much.
func (b *balance) lookLocked(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, now time.Time) {
	for k, at := range b.mu.moved {
		if now.Sub(at) >= balanceMemory {
			delete(b.mu.moved, k)
		}
	}
	for k, at := range b.mu.placed {
		if now.Sub(at) >= balancePlaced {
			delete(b.mu.placed, k)
			if b.mu.held {
				b.mu.counted, b.mu.held = false, false
			}
		}
	}
	s := weigh(img, loads)
	if s.unknown >= 0 {
		clear(b.mu.over)
		return
	}
	b.mu.known = true
	calm := now.Sub(b.mu.since) >= balancePatience
	if calm {
		b.mu.busy = map[metadata.BrokerID]bool{}
	}
	for id, w := range s.weight {
		if _, was := b.mu.over[id]; !s.over(id, 1) {
			delete(b.mu.over, id)
		} else if !was {
			b.mu.over[id] = now
		}
		if calm && w >= s.mean && w > balanceFloor {
			b.mu.busy[id] = true
		}
	}
}

// verdict is what the balancer makes of the loads, in words.
type verdict struct {
	moves []balanceMove
	due   bool // the moves are to be made now
	words string
}

// judgeLocked decides, and changes nothing.
func (b *balance) judgeLocked(img *metadata.Image, loads map[metadata.BrokerID]*partition.Loads, now time.Time) verdict {
	s := weigh(img, loads)
	switch {
	case len(s.weight) == 0 && s.unknown < 0:
		return verdict{words: "no broker takes part"}
	case s.unknown >= 0:
		return verdict{words: fmt.Sprintf("balanced by partitions; the load of broker %d is not known yet", s.unknown)}
	}
	top := s.byWeight()[0]
	if s.weight[top]-s.mean <= balanceFloor { // a percentage of next to nothing says nothing
		return verdict{words: fmt.Sprintf("balanced: no broker has more than %s over the mean load, which nobody feels; leaders move above that and %.0f %% over the mean",
			rate(balanceFloor), balanceThreshold*100)}
	}
	if !s.over(top, 1) {
		return verdict{words: fmt.Sprintf("balanced: broker %d has the highest load, %.0f %% above the mean; leaders move above %.0f %% (and %s)",
			top, s.above(top), balanceThreshold*100, rate(balanceFloor))}
	}
	much := fmt.Sprintf("broker %d has %.0f %% more load than the mean", top, s.above(top))
	past := now.Sub(b.mu.round)
	if n := underWay(img, b.mu.last); n > 0 && past < balanceMemory {
		return verdict{words: fmt.Sprintf("%s; %d of %d moves are under way", much, n, len(b.mu.last))}
	}
	if past < balanceSettle {
		return verdict{words: fmt.Sprintf("cooling down for %v: %d leaders moved %v ago, and loads are smoothed", (balanceSettle - past).Round(time.Second), len(b.mu.last), past.Round(time.Second))}
	}
	ripe, wait := map[metadata.BrokerID]bool{}, balancePatience
	for id, since := range b.mu.over {
		left := max(since.Add(balancePatience).Sub(now), b.mu.since.Add(balancePatience).Sub(now))
		ripe[id] = left <= 0
		wait = min(wait, left)
	}
	due := wait <= 0
	moves := planLoad(img, loads, func(id metadata.BrokerID) bool { return ripe[id] || !due && s.over(id, 1) }, b.staysLocked(now))
	switch {
	case len(moves) == 0 && len(b.mu.moved) > 0:
		return verdict{words: fmt.Sprintf("%s, but no move would lower it; %d partitions were moved in the last %v and stay for now", much, len(b.mu.moved), balanceMemory)}
	case len(moves) == 0:
		return verdict{words: much + ", but no move would lower it: its partitions are too large, too small, or cannot move"}
	case !due:
		return verdict{moves: moves, words: fmt.Sprintf("%s; leaders move in %v if it stays so", much, max(wait, 0).Round(time.Second))}
	}
	return verdict{moves: moves, due: true, words: much + "; leaders move now"}
}

// underWay is how many moves wait for their owner.
func underWay(img *metadata.Image, moves []balanceMove) int {
	n := 0
	for _, m := range moves {
		if p, ok := img.Partition(m.key.topic, m.key.number); ok && p.Owner.Broker == m.from && p.Replicas[0] == m.to {
			n++
		}
	}
	return n
}

// balanceRound asks for the moves that a balanced cluster lacks.
func (l *leadership) balanceRound(count bool, moves []balanceMove) {
	again := false
	defer func() { l.balance.done(again) }()
	leave, err := l.enter(l.ctx)
	if err != nil {
		return
	}
	defer leave()
	img, now := l.images.image(), time.Now()
	moves = slices.DeleteFunc(moves, func(m balanceMove) bool {
		_, ok := settled(img, m.key, m.from) // since it was planned
		return !ok || l.balance.isPlaced(m.key, now)
	})
	if count {
		for _, m := range l.balance.countPlan(img, now) {
			if !slices.ContainsFunc(moves, func(o balanceMove) bool { return o.key == m.key }) {
				moves = append(moves, m)
			}
		}
	}
	var changes []*controllerpb.PartitionChange
	planned := map[string]int{}
	for _, m := range moves {
		planned[m.cause]++
		if m.replicas != nil {
			changes = append(changes, &controllerpb.PartitionChange{TopicId: m.key.topic[:], Partition: m.key.number, Replicas: ints(m.replicas)})
		}
	}
	p := planReassign(img, changes)
	if _, _, err := l.propose(p.commands); err != nil {
		l.log.Warn("cannot balance, will try again when brokers come or go", "err", err)
		return
	}
	img = l.images.image()
	for _, m := range moves { // also where the owner stays in the list
		if q, ok := img.Partition(m.key.topic, m.key.number); !ok || q.Replicas[0] != m.to {
			continue // refused: balance and preference must not fight
		}
		l.moves.elect(m.key, m.to)
		l.images.count.balanced(m.cause)
		if m.cause == causeBytes || m.cause == causeRequests {
			l.log.Info("moving a leader for its load", "topic", m.topic, "partition", m.key.number, "broker", m.to, "reason", m.reason)
		}
	}
	again = planned[causePartitions] >= maxMoves
	if n := planned[causePreferred] + planned[causePartitions]; n > 0 {
		l.log.Info("balancing leaders", "to_preferred", planned[causePreferred], "to_new_brokers", planned[causePartitions])
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
