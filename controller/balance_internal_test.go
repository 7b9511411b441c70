package controller

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
)

// virtualCluster is an image, the load of every partition, and a clock.
type virtualCluster struct {
	t     *testing.T
	img   *metadata.Image
	now   time.Time
	b     *balance
	rand  *rand.Rand
	load  map[partitionKey]float64 // bytes per second
	noise float64                  // of every partition at every look
	seqs  map[metadata.Incarnation]uint64
	moved map[partitionKey]time.Time // when it moved last
	moves int
}

// newVirtualCluster has brokers in three zones and one topic with three
// replicas, spread by placement.
func newVirtualCluster(t *testing.T, seed uint64, brokers, partitions int) *virtualCluster {
	v := &virtualCluster{
		t: t, img: metadata.Empty(), now: time.Unix(1e9, 0), b: newBalance(), rand: rand.New(rand.NewPCG(seed, 1)),
		load: map[partitionKey]float64{}, seqs: map[metadata.Incarnation]uint64{}, moved: map[partitionKey]time.Time{},
	}
	v.apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: "AAAAAAAAAAAAAAAAAAAAAA", Generation: 1}}})
	for i := range brokers {
		v.register(i, fmt.Sprintf("z%d", i%3))
	}
	v.create("t", 1, partitions)
	return v
}

func (v *virtualCluster) register(id int, zone string) {
	nonce := make([]byte, metadata.NonceBytes)
	nonce[0], nonce[1] = byte(id+1), byte(v.img.Index())
	v.apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{Broker: int32(id), Nonce: nonce, Zone: zone}}})
}

func (v *virtualCluster) create(name string, id byte, partitions int) metadata.TopicID {
	topic := metadata.TopicID{id, 15: 1}
	specs := newPlacement(v.img, nil).topic(partitions, 3)
	v.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{Name: name, TopicId: topic[:], Partitions: specs}}})
	return topic
}

func (v *virtualCluster) apply(c *metadatapb.Command) {
	v.t.Helper()
	next, results := metadata.Apply(v.img, v.img.Index()+1, metadata.NewEntry(c))
	if results[0].Err != nil {
		v.t.Fatalf("apply %v: %v", c, results[0].Err)
	}
	v.img = next
}

// reports is what the brokers would say now.
func (v *virtualCluster) reports() map[metadata.BrokerID]*partition.Loads {
	out := map[metadata.BrokerID]*partition.Loads{}
	for b := range v.img.Brokers() {
		l := &partition.Loads{}
		for p := range v.img.Owned(b.Incarnation) {
			w := v.load[partitionKey{p.Topic, p.Number}] * (1 + v.noise*(2*v.rand.Float64()-1))
			if l.Bytes += w; w > 0 {
				l.Busiest = append(l.Busiest, partition.Load{Topic: p.Topic, Partition: p.Number, Bytes: w})
			}
		}
		slices.SortFunc(l.Busiest, partition.Busier)
		l.Busiest = l.Busiest[:min(len(l.Busiest), MaxBusiest)]
		out[b.ID] = l
	}
	return out
}

// run lets time pass, carries out what is planned, and checks what must always
// hold.
func (v *virtualCluster) run(d time.Duration) {
	v.t.Helper()
	for end := v.now.Add(d); v.now.Before(end); v.now = v.now.Add(time.Second) {
		count, moves := v.b.next(v.img, v.reports, v.now, true)
		if !count && len(moves) == 0 {
			continue
		}
		if len(moves) > balanceRoundMoves {
			v.t.Errorf("%d moves in one round", len(moves))
		}
		for _, m := range moves {
			if last, ok := v.moved[m.key]; ok && v.now.Sub(last) < balanceMemory {
				v.t.Errorf("partition %d moves again after %v", m.key.number, v.now.Sub(last))
			}
			v.moved[m.key] = v.now
		}
		if count {
			moves = append(moves, v.b.countPlan(v.img, v.now)...)
		}
		for _, m := range moves {
			v.move(m)
		}
		v.b.done(false)
	}
}

func (v *virtualCluster) move(m balanceMove) {
	v.t.Helper()
	v.moves++
	p, _ := v.img.Partition(m.key.topic, m.key.number)
	zones := v.zones(p.Replicas)
	if m.replicas != nil {
		v.apply(assignCommand(m.key, m.replicas, nil, nil))
		if after := v.zones(m.replicas); after < zones || m.replicas[0] != m.to || len(m.replicas) != len(p.Replicas) {
			v.t.Errorf("%v of %d zones moves to %d as %v of %d zones", p.Replicas, zones, m.to, m.replicas, after)
		}
	}
	target, _ := v.img.Broker(m.to)
	if target.Fenced || !openToNew(target) {
		v.t.Errorf("a leader moves to broker %d: %+v", m.to, target)
	}
	v.seqs[p.Owner]++
	v.apply(&metadatapb.Command{From: p.Owner.Proto(), CmdSeq: v.seqs[p.Owner], Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{
		Streams: []*metadatapb.FlipStream{{Stream: uint64(p.Stream), Epoch: int32(p.Epoch), End: int64(p.End), Target: target.Incarnation.Proto()}},
	}}})
}

func (v *virtualCluster) zones(list []metadata.BrokerID) int {
	zones := map[string]bool{}
	for _, id := range list {
		b, _ := v.img.Broker(id)
		zones[b.Zone] = true
	}
	return len(zones)
}

// excess is how far the most loaded broker is above the mean, as a part of it.
func (v *virtualCluster) excess() float64 {
	noise := v.noise
	v.noise = 0
	s := weigh(v.img, v.reports())
	v.noise = noise
	return s.above(s.byWeight()[0]) / 100
}

// alone says whether the most loaded broker has what it has by one partition.
func (v *virtualCluster) alone() bool {
	loads := v.reports()
	top := loads[weigh(v.img, loads).byWeight()[0]]
	return top.Busiest[0].Bytes > 0.8*top.Bytes
}

// spread gives every partition a new random load, some of them much.
func (v *virtualCluster) spread(topic metadata.TopicID, mean float64) {
	for p := range v.img.Partitions(topic) {
		v.load[partitionKey{topic, p.Number}] = mean * math.Exp(v.rand.NormFloat64()*1.2) / 2
	}
}

// Loads that change at random for hours: no partition moves twice within the
// memory, and no more than the changes ask for. Then they are steady: the
// imbalance goes, and nothing moves any more, not even under noise.
func TestBalanceByLoadNeverFlaps(t *testing.T) {
	for seed := range uint64(10) {
		brokers := 3 + int(seed%4)
		v := newVirtualCluster(t, seed, brokers, 20*brokers)
		topic := metadata.TopicID{1, 15: 1}
		v.spread(topic, 1e7)
		for range 24 {
			for p := range v.img.Partitions(topic) { // a random walk, and some leap
				k := partitionKey{topic, p.Number}
				if v.load[k] *= math.Exp(v.rand.NormFloat64() * 0.2); v.rand.IntN(50) == 0 {
					v.load[k] = 3e7 * v.rand.Float64()
				}
			}
			v.noise = 0.15
			v.run(10 * time.Minute)
		}
		chaos := v.moves
		if chaos == 0 || chaos > 24*20*brokers/10 {
			t.Errorf("seed %d: %d moves under changing loads of %d partitions", seed, chaos, 20*brokers)
		}
		v.noise = 0
		v.run(2 * time.Hour)
		if e := v.excess(); e > balanceThreshold && !v.alone() {
			t.Errorf("seed %d: the busiest broker is still %.0f %% above the mean", seed, e*100)
		}
		steady := v.moves
		v.run(4 * time.Hour)
		if v.moves != steady {
			t.Errorf("seed %d: %d moves under a steady load", seed, v.moves-steady)
		}
		v.noise = 0.15
		v.run(8 * time.Hour)
		if v.moves != steady {
			t.Errorf("seed %d: %d moves under noise", seed, v.moves-steady)
		}
		if t.Failed() {
			return
		}
	}
}

// What cannot be helped is left alone: one partition that is more than a
// broker's share, loads that nobody feels, and a balanced cluster under noise.
func TestBalanceLeavesAloneWhatItCannotHelp(t *testing.T) {
	topic := metadata.TopicID{1, 15: 1}
	for name, load := range map[string]func(n int32) float64{
		"one huge partition": func(n int32) float64 { return []float64{1e8, 0}[min(n, 1)] },
		"too little to feel": func(n int32) float64 { return []float64{3e5, 0}[n%3&1] },
		"all alike":          func(int32) float64 { return 1e7 },
		"nothing":            func(int32) float64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVirtualCluster(t, 7, 3, 12)
			for n := range int32(12) {
				v.load[partitionKey{topic, n}] = load(n)
			}
			v.noise = 0.15
			v.run(6 * time.Hour)
			if v.moves != 0 {
				t.Errorf("%d moves", v.moves)
			}
		})
	}
}

// A burst that is shorter than the patience moves nothing, and a restart of the
// broker with the huge partition does not bring others to it only for them to be
// moved away again.
func TestBalanceWaits(t *testing.T) {
	topic := metadata.TopicID{1, 15: 1}
	v := newVirtualCluster(t, 3, 3, 30)
	v.run(10 * time.Minute)
	burst := func(load float64) {
		for p := range v.img.Partitions(topic) {
			if p.Owner.Broker == 0 {
				v.load[partitionKey{topic, p.Number}] = load
			}
		}
	}
	burst(1e7)
	v.run(balancePatience - 15*time.Second)
	burst(0)
	v.run(10 * time.Minute)
	if v.moves != 0 {
		t.Fatalf("%d moves for a burst", v.moves)
	}
	for n := range int32(30) {
		v.load[partitionKey{topic, n}] = 3e6
	}
	p, _ := v.img.Partition(topic, 0)
	v.load[partitionKey{topic, 0}] = 3e8
	v.run(2 * time.Hour)
	held := v.img.OwnedCount(p.Owner)
	if held > 3 {
		t.Fatalf("the broker with the huge partition has %d others", held-1)
	}
	steady := v.moves
	zone, _ := v.img.Broker(p.Owner.Broker)
	v.register(int(p.Owner.Broker), zone.Zone) // its partitions stay with it
	v.run(3 * time.Hour)
	if v.moves != steady {
		t.Errorf("%d moves after a restart of the broker with the huge partition", v.moves-steady)
	}
}

// A joining broker gets an even share at once, zones stay as spread as they
// were, and partitions that were just moved for their load stay.
func TestBalanceByCountKeepsZonesAndLateMoves(t *testing.T) {
	topic := metadata.TopicID{1, 15: 1}
	v := newVirtualCluster(t, 5, 3, 30)
	for p := range v.img.Partitions(topic) {
		if p.Owner.Broker == 0 {
			v.load[partitionKey{topic, p.Number}] = 1e7
		}
	}
	stale := v.reports()
	for v.run(time.Second); v.moves == 0 && v.now.Before(time.Unix(1e9+600, 0)); {
		v.run(time.Second)
	}
	// Until loads show what was done, nothing more is made of them.
	if w := v.b.judgeLocked(v.img, stale, v.now); len(w.moves) > 0 || !strings.Contains(w.words, "cooling down") {
		t.Errorf("right after a round: %+v", w)
	}
	v.run(10 * time.Minute)
	if len(v.moved) < 5 {
		t.Fatalf("%d partitions moved for their load", len(v.moved))
	}
	v.register(7, "z1")
	v.run(3 * time.Second)
	b, _ := v.img.Broker(7)
	if n := v.img.OwnedCount(b.Incarnation); n != 7 {
		t.Errorf("the joining broker has %d partitions after 3 s, want 7", n)
	}
	for p := range v.img.Owned(b.Incarnation) {
		if _, ok := v.moved[partitionKey{topic, p.Number}]; ok {
			t.Errorf("partition %d moves for a count after it was moved for its load", p.Number)
		}
	}
}

// A move after which the target has about as much as the source had, and a round
// that is not worth it, are not planned.
func TestBalanceNeedsAMargin(t *testing.T) {
	topic := metadata.TopicID{1, 15: 1}
	v := newVirtualCluster(t, 9, 3, 3)
	p, _ := v.img.Partition(topic, 0)
	for moved, want := range map[float64]int{9.5e7: 0, 5e7: 1, 2e7: 1, 1e6: 0} {
		loads := map[metadata.BrokerID]*partition.Loads{0: {Bytes: 1e7}, 1: {Bytes: 1e7}, 2: {Bytes: 1e7}}
		loads[p.Owner.Broker] = &partition.Loads{Bytes: 1.15e8, Busiest: []partition.Load{{Topic: topic, Bytes: moved}}}
		moves := planLoad(v.img, loads, func(metadata.BrokerID) bool { return true }, func(partitionKey) bool { return false })
		if len(moves) != want {
			t.Errorf("with %.0f bytes/s to move: %d moves, want %d", moved, len(moves), want)
		}
	}
}

// Where nobody feels the difference no percentage is told: of one request per
// second everything is 300 % more.
func TestIdleClusterIsNotCalledUnequal(t *testing.T) {
	v := newVirtualCluster(t, 11, 4, 4)
	loads := map[metadata.BrokerID]*partition.Loads{0: {Requests: 1}, 1: {}, 2: {}, 3: {}}
	if w := v.b.judgeLocked(v.img, loads, v.now); !strings.HasPrefix(w.words, "balanced: no broker has more than 2.1 MB/s over the mean load") {
		t.Errorf("idle: %s", w.words)
	}
	loads[0] = &partition.Loads{Bytes: 1e9}
	if w := v.b.judgeLocked(v.img, loads, v.now); !strings.HasPrefix(w.words, "broker 0 has 300 % more load than the mean") {
		t.Errorf("uneven: %s", w.words)
	}
}

// place is an operator's reassignment and election of a partition.
func (v *virtualCluster) place(number int32, to metadata.BrokerID) {
	v.t.Helper()
	k := partitionKey{metadata.TopicID{1, 15: 1}, number}
	p, _ := v.img.Partition(k.topic, number)
	v.b.place([]partitionKey{k}, v.now)
	if p.Owner.Broker != to {
		v.move(balanceMove{key: k, to: to, replicas: beginWith(v.img, p.Replicas, to)})
		v.moves--
	}
}

// What an operator placed stays where it is, whatever comes and goes, and what
// was left undone because of that is done when it need not stay any more.
func TestBalanceLeavesAloneWhatAnOperatorPlaced(t *testing.T) {
	topic := metadata.TopicID{1, 15: 1}
	v := newVirtualCluster(t, 13, 3, 12)
	l := &leadership{balance: v.b}
	owned := func(id metadata.BrokerID) int {
		b, _ := v.img.Broker(id)
		return v.img.OwnedCount(b.Incarnation)
	}
	v.run(time.Minute)
	// Six are placed, and there are others for a broker that joins.
	for n := range int32(6) {
		p, _ := v.img.Partition(topic, n)
		v.place(n, (p.Owner.Broker+1)%3)
	}
	leaders := func() (out []metadata.BrokerID) {
		for p := range v.img.Partitions(topic) {
			out = append(out, p.Owner.Broker)
		}
		return out
	}
	before := leaders()
	v.register(7, "z1")
	v.run(time.Minute)
	if owned(7) != 3 || !slices.Equal(leaders()[:6], before[:6]) {
		t.Errorf("led by %v, after %v and a broker more", leaders(), before)
	}
	v.run(balancePlaced)
	// Everything is placed, and a broker joins that gets nothing.
	before = leaders()
	for n, id := range before {
		v.place(int32(n), id)
	}
	v.register(8, "z2")
	v.run(balancePlaced - time.Minute)
	if !slices.Equal(leaders(), before) {
		t.Errorf("led by %v, was placed as %v", leaders(), before)
	}
	const says = "; 12 partition(s) that an operator placed stay where they are for 10m0s, and a broker that has few because of that gets its share then"
	if w := l.explain(v.img, v.reports(), v.now).words; !strings.HasSuffix(w, says) {
		t.Errorf("explained as %q", w)
	}
	v.run(2 * time.Minute)
	if owned(8) != 2 {
		t.Errorf("led by %v, long after it was placed", leaders())
	}
	if w := l.explain(v.img, v.reports(), v.now).words; strings.Contains(w, "operator") {
		t.Errorf("explained as %q", w)
	}
	// An uneven cluster that people made so is no cause, then or later.
	for n, id := range leaders() {
		if id == 8 {
			v.place(int32(n), 7)
		}
	}
	steady := v.moves
	v.run(2 * balancePlaced)
	if v.moves != steady {
		t.Errorf("%d moves though nobody came or went", v.moves-steady)
	}
	// Nor is a load, as long as it must stay.
	for n, id := range leaders() {
		if id == 7 {
			v.load[partitionKey{topic, int32(n)}] = 1e7
			v.place(int32(n), 7)
		}
	}
	v.run(balancePlaced - time.Minute)
	if v.moves != steady {
		t.Errorf("%d moves for the load of what was just placed", v.moves-steady)
	}
	v.run(5 * time.Minute)
	if v.moves == steady {
		t.Error("no move for a load that has lasted")
	}
}
