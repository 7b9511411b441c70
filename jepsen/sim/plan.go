package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Who is how a fault finds its victim.
type Who string

// The ways to choose a victim.
const (
	Anyone Who = "anyone"
	Leader Who = "leader" // of the metadata quorum
	Owner  Who = "owner"  // of a partition of the main topic
)

// Event is one fault or deed of a plan.
type Event struct {
	At, For time.Duration
	Kind    Kind
	Who     Who
	Draw    uint64 // chooses among several victims, steps and strengths
}

// String is the event in a few words.
func (e Event) String() string {
	return fmt.Sprintf("%s of %s at %v for %v", e.Kind, e.Who, e.At.Round(time.Millisecond), e.For.Round(time.Millisecond))
}

// end is when all of it is over, at the latest.
func (e Event) end() time.Duration { return e.At + e.For + e.Kind.slack() }

// Plan is everything that a seed decides.
type Plan struct {
	Seed   uint64
	Dir    bool // the store is a directory, else it is in memory
	Fourth bool // there is a fourth node, without a vote at first
	Span   time.Duration
	Events []Event
	// FinalCrash kills every process before the last read.
	FinalCrash bool
}

// String has a line per event.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d events in %v, directory store: %v, fourth broker: %v, all killed at the end: %v\n",
		p.Seed, len(p.Events), p.Span, p.Dir, p.Fourth, p.FinalCrash)
	for _, e := range p.Events {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	return b.String()
}

const (
	// settling is how long a new cluster is left alone.
	settling = 6 * time.Second
	// lastFault is how long before the end of the span the last fault begins.
	lastFault = 4 * time.Second
	// quiet is how long everything must be well before a fault that is judged by
	// itself (Alone): members back, leaders home.
	quiet = 8 * time.Second
)

// Alone says if nothing else happens around an event, so that what it does can
// be judged.
func (p Plan) Alone(e Event) bool {
	for _, o := range p.Events {
		if o != e && o.At < e.end() && e.At < o.end()+quiet/2 {
			return false
		}
	}
	return true
}

// draft is a plan in the making.
type draft struct {
	Plan
	rng        *rand.Rand
	begin, end time.Duration // of what is drawn now
	over       time.Duration // when all of it must be over
}

// Draw makes the plan of a seed for a load of span. Every plan has takeovers and
// deeds enough to count. A third of the seeds are quiet enough to see one fault
// at a time, the others pile them up; and a third have a fault in a quiet time
// of its own, that is judged by itself.
func Draw(seed uint64, span time.Duration) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	d := &draft{rng: rng, Plan: Plan{Seed: seed, Span: span, Dir: rng.IntN(3) == 0, Fourth: rng.IntN(2) == 0, FinalCrash: rng.IntN(3) == 0}}
	d.begin, d.end, d.over = settling, span-lastFault, span+20*time.Second
	switch rng.IntN(6) {
	case 0:
		d.judged(d.outage(), 10*time.Second, 16*time.Second)
	case 1:
		d.judged(StuckStore, 6*time.Second, 8*time.Second)
	}
	d.spread(takeovers, 4)
	d.spread(deeds, 6)
	d.taste()
	slices.SortStableFunc(d.Events, func(a, b Event) int { return int(a.At - b.At) })
	return d.Plan
}

// outage draws a kind that this cluster can have.
func (d *draft) outage() Kind {
	k := pick(d.rng, outages)
	d.Fourth = d.Fourth || k == NoVoters
	return k
}

// judged has a fault in a quiet time of its own, before or after all others.
func (d *draft) judged(k Kind, least, most time.Duration) {
	e := Event{At: d.begin, For: least + time.Duration(d.rng.Int64N(int64(most-least))), Kind: k, Who: Owner, Draw: d.rng.Uint64()}
	if d.rng.IntN(2) == 0 {
		d.begin = e.end() + quiet/2
	} else {
		e.At = d.Span - e.For - k.slack()
		d.over = e.At - quiet
		d.end = d.over - 2*time.Second
	}
	d.Events = append(d.Events, e)
}

// spread draws n events of some kinds, about evenly over the time.
func (d *draft) spread(kinds map[Kind]int, n int) {
	step := (d.end - d.begin) / time.Duration(n)
	for i := range n {
		d.add(pick(d.rng, kinds), d.begin+step*time.Duration(i)+time.Duration(d.rng.Int64N(int64(step))))
	}
}

// taste draws faults of which each seed has its own, so that faults meet that
// would seldom meet.
func (d *draft) taste() {
	taste := map[Kind]int{}
	for _, k := range slices.Sorted(maps.Keys(weights)) {
		if d.rng.IntN(2) == 0 && (k != PowerCut || d.Dir) && (k != Replace || d.Fourth) {
			taste[k] = weights[k]
		}
	}
	if len(taste) == 0 {
		taste[Kill] = 1
	}
	gap := 8 * time.Second
	if d.rng.IntN(3) > 0 {
		gap = 3 * time.Second
	}
	for at := d.begin; at < d.end; at += time.Duration(float64(gap) * (0.3 + d.rng.ExpFloat64())) {
		d.add(pick(d.rng, taste), at)
	}
}

// add draws the rest of an event.
func (d *draft) add(k Kind, at time.Duration) {
	length := 100*time.Millisecond + time.Duration(d.rng.ExpFloat64()*float64(2500*time.Millisecond))
	if d.rng.IntN(5) == 0 {
		length *= 4 // longer than a session
	}
	e := Event{At: at, For: min(length, 20*time.Second), Kind: k, Who: Anyone, Draw: d.rng.Uint64()}
	if d.rng.IntN(3) == 0 {
		e.Who = Leader
	}
	switch k {
	case KillAll, PowerCut, NoVoters: // while nobody is there, nothing is tested
		e.For = min(e.For, 3*time.Second)
	case Bounce:
		e.For = time.Duration(d.rng.Int64N(int64(50 * time.Millisecond)))
	case Kill, KillSilent, Beheaded: // long enough for a takeover
		e.For = max(e.For, 2*time.Second)
		if k == Beheaded { // which takes two voters away, so others find nobody to meet
			e.For = min(e.For, 6*time.Second)
		}
		if e.Who == Anyone {
			e.Who = Owner
		}
	case Revote, Replace, Guest:
		e.For = max(e.For, 5*time.Second)
	case Drain:
		e.For = max(e.For, 2*time.Second)
	default:
		if k.ofStore() { // long enough to meet some calls
			e.For = max(e.For, time.Second)
		}
	}
	e.For = max(min(e.For, d.over-e.At-k.slack()), 10*time.Millisecond)
	d.Events = append(d.Events, e)
}

// pick draws a kind by weight.
func pick(rng *rand.Rand, weight map[Kind]int) Kind {
	kinds, sum := slices.Sorted(maps.Keys(weight)), 0
	for _, k := range kinds {
		sum += weight[k]
	}
	n := rng.IntN(sum)
	for _, k := range kinds {
		if n -= weight[k]; n < 0 {
			return k
		}
	}
	return Kill
}
