// Package sim runs a whole cluster inside one testing/synctest bubble, on
// virtual time: nodes as cmd/node/process assembles them, franz-go clients, a
// network in memory and a store in memory or on a file system that loses what
// was not synced. A seed decides the faults and the load; a minute of them
// takes a second or two.
//
// What a run consists of:
//
//	Network   links between hosts that delay, stall and reset, and never lose
//	          a byte in silence (link.go, conn.go)
//	store     one store, seen by each process through its own faults (store.go)
//	cluster   processes that start, pause, die and come back (cluster.go)
//	Plan      the faults and operators' deeds of a seed, drawn before anything
//	          runs (kinds.go, plan.go)
//	nemesis   carries them out: simple faults (nemesis.go), what follows
//	          takeovers (takeover.go), outages of the metadata (outage.go),
//	          moves, drains and guests (operate.go)
//	workload  producers, consumers, administrators (produce.go, consume.go,
//	          admin.go), and questions to every broker, owner or not (ask.go)
//	observer  looks at the nodes' metadata (observe.go); tally counts takeovers
//	          and moves in it (tally.go)
//	History   what clients saw, and the checks on it (history.go, check.go,
//	          serve.go)
//
// Promises:
//
//	Z1  A killed process has no effect after its death, except by requests
//	    that were already on their way to the store: those may land, also late.
//	Z2  A paused process neither sends nor hears anything until it wakes up;
//	    then it goes on with what it had in mind.
//	Z3  The plan of a seed is always the same. Runs are not bit for bit the
//	    same, because the scheduler decides ties and the product draws ids
//	    from crypto/rand; repeat a failing seed some times.
//	Z4  A run counts only if it acknowledged MinAcked records, saw MinTakeovers
//	    and MinMoves, and the faults of its plan happened. A run that has too few
//	    takeovers or moves after its plan gets more of them.
//	Z5  A fault that is judged by itself (Plan.Alone) has a quiet time of its
//	    own: an owner that lives serves through an outage of the metadata, and one
//	    whose writes hang is relieved.
//
// What it cannot find: races between threads, real fsync, kernels. A pause
// stops a process at its network and store, not between two instructions, and
// its timers go on.
//
// The client's locks are channels under the build tag synctests; without it a
// run can hang, because virtual time stands still while a goroutine waits for a
// sync.Mutex. `make sim` sets it, and the package's own test runs itself again
// with it.
package sim
