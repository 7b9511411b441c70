package sim

import (
	"slices"
	"time"
)

// Kind is a kind of fault, or of an operator's deed.
type Kind string

// Kinds of faults.
const (
	Kill       Kind = "kill"            // a process dies, its machine tells the others
	KillSilent Kind = "kill silently"   // a machine dies, nobody is told
	KillAll    Kind = "kill all"        // every process dies
	PowerCut   Kind = "power cut"       // ... and what was not synced is lost
	Bounce     Kind = "bounce"          // a process dies and is back within 50 ms
	Restart    Kind = "orderly restart" // SIGTERM
	Pause      Kind = "pause"           // a process stops and goes on
	Isolate    Kind = "isolate"         // a host cannot reach any other, nor they it
	CutOff     Kind = "cut off"         // a host cannot reach other nodes; clients and the store it can
	Deaf       Kind = "deaf"            // nothing reaches a host
	Mute       Kind = "mute"            // nothing leaves a host
	Split      Kind = "split"           // the link between two nodes stalls
	OneWay     Kind = "one way"         // ... in one direction
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

// Kinds of faults that follow a takeover (takeover.go).
const (
	Zombie     Kind = "zombie"                  // an owner is paused until all it had is elsewhere, and a little longer
	Outcast    Kind = "outcast"                 // ... cut off from the other nodes; clients and the store it can reach
	Beheaded   Kind = "leader lost at takeover" // an owner dies, and the leader at a step of what follows
	StuckStore Kind = "store stuck"             // an owner waits for the store until it is relieved
)

// Kinds of faults of the metadata quorum (outage.go).
const (
	NoQuorum   Kind = "voters apart"  // no two voters reach each other
	NoMetadata Kind = "nodes apart"   // no two nodes do
	NoVoters   Kind = "voters killed" // those without a vote go on
)

// Kinds of operators' deeds (operate.go).
const (
	Move      Kind = "move"            // a partition gets another owner
	Shuttle   Kind = "move to and fro" // ... some times over, without waiting
	MoveDeath Kind = "move and death"  // ... while source, target or leader dies
	Drain     Kind = "drain"
	Cordon    Kind = "cordon"
	Elect     Kind = "elect leaders"
	Guest     Kind = "guest" // a node joins, is drained and leaves
)

// Kinds of changes of the quorum (quorum.go).
const (
	Transfer Kind = "transfer leadership"
	Revote   Kind = "voter leaves and returns"
	Replace  Kind = "voter replaced" // by the fourth node, and back
)

// weights say how often each kind is drawn as one of the seed's taste.
var weights = map[Kind]int{
	Kill: 4, KillSilent: 2, KillAll: 1, PowerCut: 2, Bounce: 3, Restart: 1, Pause: 5,
	Isolate: 3, CutOff: 3, Deaf: 1, Mute: 1, Split: 2, OneWay: 2, NoClients: 1, ResetAll: 2, SlowLinks: 1,
	NoStore: 2, SlowStore: 2, StoreError: 2, StoreLost: 3, StoreLate: 3, StoreOwn: 2, StoreFull: 1,
	NoQuorum: 1, NoMetadata: 1, NoVoters: 1, Transfer: 2, Revote: 2, Replace: 2,
}

// takeovers and deeds are drawn for every seed: without takeovers and moves a
// run does not count (Z4).
var (
	takeovers = map[Kind]int{Kill: 2, KillSilent: 2, Zombie: 3, Outcast: 3, Beheaded: 3}
	deeds     = map[Kind]int{Move: 3, Shuttle: 3, MoveDeath: 3, Drain: 3, Cordon: 1, Elect: 1, Guest: 2}
	outages   = map[Kind]int{NoQuorum: 1, NoMetadata: 1, NoVoters: 1}
)

// ofStore says if the fault lies between a process and the store.
func (k Kind) ofStore() bool {
	switch k {
	case NoStore, SlowStore, StoreError, StoreLost, StoreLate, StoreOwn, StoreFull, StuckStore:
		return true
	default:
		return false
	}
}

// ofOwner says if the victim must have partitions.
func (k Kind) ofOwner() bool {
	return k.ofStore() || slices.Contains([]Kind{Zombie, Outcast, Beheaded, Drain}, k)
}

// slack is how much longer than its time an event of the kind may last.
func (k Kind) slack() time.Duration {
	switch k {
	case Guest:
		return 25 * time.Second
	case Zombie, Outcast, Beheaded, StuckStore:
		return 8 * time.Second
	case MoveDeath, Drain, Revote, Replace:
		return 3 * time.Second
	default:
		return time.Second
	}
}
