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
//	Plan      the faults of a seed, drawn before anything runs (plan.go)
//	workload  producers, consumers, administrators (produce.go, consume.go,
//	          admin.go)
//	History   what they saw, and the checks on it (history.go, check.go)
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
//	Z4  A run counts only if it acknowledged MinAcked records and every fault
//	    of its plan happened.
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
