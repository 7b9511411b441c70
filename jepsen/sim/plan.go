package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Kill       Kind = "kill"            // a process dies, its machine tells the others
	KillSilent Kind = "kill silently"   // a machine dies, nobody is told
	KillAll    Kind = "kill all"        // every process dies
	PowerCut   Kind = "power cut"       // ... and what was not synced is lost
	Restart    Kind = "orderly restart" // SIGTERM
	Pause      Kind = "pause"           // a process stops and goes on
	Isolate    Kind = "isolate"         // a host cannot reach any other, nor they it
	CutOff     Kind = "cut off"         // a host cannot reach other nodes; clients and the store it can
	Deaf       Kind = "deaf"            // nothing reaches a host
	Mute       Kind = "mute"            // nothing leaves a host
	Split      Kind = "split"           // the link between two nodes stalls
	NoClients  Kind = "cut from clients"
	ResetAll   Kind = "reset connections"
	SlowLinks  Kind = "slow links"
	NoStore    Kind = "cut from store"
	SlowStore  Kind = "slow store"
	StoreError Kind = "store errors"
	StoreLost  Kind = "store responses lost"
	StoreLate  Kind = "store writes late"
	StoreOwn   Kind = "store says exists"
	StoreFull  Kind = "store full"
)

// weights say how often each kind is drawn.
var weights = map[Kind]int{
	Kill: 4, KillSilent: 2, KillAll: 1, PowerCut: 2, Restart: 1, Pause: 5,
	Isolate: 3, CutOff: 3, Deaf: 1, Mute: 1, Split: 2, NoClients: 1, ResetAll: 2, SlowLinks: 1,
	NoStore: 2, SlowStore: 2, StoreError: 2, StoreLost: 3, StoreLate: 3, StoreOwn: 2, StoreFull: 1,
}

// Who is how a fault finds its victim.
type Who string

// The ways to choose a victim.
const (
	Anyone Who = "anyone"
	Leader Who = "leader" // of the metadata quorum
)

// Event is one fault of a plan.
type Event struct {
	At, For time.Duration
	Kind    Kind
	Who     Who
	Draw    uint64 // chooses among several victims and strengths
}

// String is the event in a few words.
func (e Event) String() string {
	return fmt.Sprintf("%s of %s at %v for %v", e.Kind, e.Who, e.At.Round(time.Millisecond), e.For.Round(time.Millisecond))
}

// ofStore says if the fault lies between a process and the store.
func (e Event) ofStore() bool {
	switch e.Kind {
	case NoStore, SlowStore, StoreError, StoreLost, StoreLate, StoreOwn, StoreFull:
		return true
	default:
		return false
	}
}

// Plan is everything that a seed decides.
type Plan struct {
	Seed   uint64
	Dir    bool // the store is a directory, else it is in memory
	Fourth bool // there is a broker without a vote
	Span   time.Duration
	Events []Event
	// FinalCrash kills every process before the last read.
	FinalCrash bool
}

// String has a line per event.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d faults in %v, directory store: %v, fourth broker: %v, all killed at the end: %v\n",
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
)

// Draw makes the plan of a seed for a load of span. A third of the seeds are
// quiet enough to see one fault at a time, the others pile them up.
func Draw(seed uint64, span time.Duration) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Span: span, Dir: rng.IntN(3) == 0, Fourth: rng.IntN(2) == 0, FinalCrash: rng.IntN(3) == 0}
	kinds := make([]Kind, 0, len(weights))
	for k := range weights {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	// Each seed has its own taste, so that faults meet that would seldom meet.
	taste := map[Kind]int{}
	for _, k := range kinds {
		if rng.IntN(2) == 0 && (k != PowerCut || p.Dir) {
			taste[k] = weights[k]
		}
	}
	if len(taste) == 0 {
		taste[Kill] = 1
	}
	gap := 5 * time.Second
	if rng.IntN(3) > 0 {
		gap = 2 * time.Second
	}
	for at := settling; at < span-lastFault; at += time.Duration(float64(gap) * (0.3 + rng.ExpFloat64())) {
		k := pick(rng, kinds, taste)
		length := 100*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(2500*time.Millisecond))
		if rng.IntN(5) == 0 {
			length *= 4 // longer than a session
		}
		e := Event{At: at, For: min(length, 20*time.Second), Kind: k, Who: Anyone, Draw: rng.Uint64()}
		if rng.IntN(3) == 0 {
			e.Who = Leader
		}
		if k == KillAll || k == PowerCut { // while nobody is there, nothing is tested
			e.For = min(e.For, 3*time.Second)
		}
		if e.ofStore() { // long enough to meet some calls
			e.For = max(e.For, time.Second)
		}
		p.Events = append(p.Events, e)
	}
	return p
}

func pick(rng *rand.Rand, kinds []Kind, weight map[Kind]int) Kind {
	sum := 0
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
