package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// Workload is what clients do in a run. Its methods are called in this order.
type Workload interface {
	// Plan fills in what is not given: options that are 0, and the header's keys.
	Plan(o *Options, h *history.Header)
	// Prepare makes the topics that are needed from the beginning.
	Prepare(ctx context.Context, env *Env) error
	// Load works until the context ends and waits for what is in flight.
	Load(ctx context.Context, env *Env) error
	// Final works after all faults are undone. An error: the run could not be
	// finished, which says nothing about what was seen.
	Final(ctx context.Context, env *Env) error
	// Results are of checks that need no history. Mostly none.
	Results() []check.Result
}

// Kind is a workload that can be asked for.
type Kind struct {
	Name string
	What string // in words
	// Faults are what it is made for, the default of --nemesis.
	Faults []string
	New    func() Workload // nil: it cannot be run yet
	Why    string          // it cannot
	// Drivers: its clients may be of other libraries.
	Drivers bool
}

const needsTransactions = "needs transactions, which are not served yet"

// Kinds are all workloads.
func Kinds() []Kind {
	return []Kind{
		{Name: "queue", What: "sends and polls on keys that come and go; consumers that assign, subscribe and crash", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &queue{} }, Drivers: true},
		{Name: "register", What: "few clients append to one partition and read its end and all of it, for a check of linearizability", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &register{} }},
		{Name: "groups", What: "members of classic, cooperative and KIP-848 groups join, leave, stall and crash; they commit what they processed", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &groups{} }, Drivers: true},
		{Name: "offsets", What: "commits and reads of groups' offsets, each a register", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &offsets{} }},
		{Name: "metadata", What: "topics are created, altered, described and deleted through all nodes", Faults: []string{"kill", "pause"}, New: func() Workload { return &topics{} }},
		{Name: "retention", What: "records are deleted by clients and expire while others read", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &retention{} }},
		{Name: "moves", What: "the queue workload while partitions move ten times a second and nodes are paused", Faults: []string{"move", "pause"}, New: func() Workload { return &queue{} }, Drivers: true},
		{Name: "verify", What: "a high rate for long: every record is counted, none is remembered", Faults: []string{"kill", "pause", "move"}, New: func() Workload { return &counted{} }},
		{Name: "queue-txn", What: "the queue workload in transactions, some aborted", Why: needsTransactions},
		{Name: "eos-pipeline", What: "consume, produce and commit in one transaction", Why: needsTransactions},
		{Name: "bank", What: "transfers between accounts, whose sum is constant", Why: needsTransactions},
		{Name: "zombies", What: "two producers with one transactional id", Why: needsTransactions},
		{Name: "list-append", What: "transactions that append to keys and read them whole", Why: needsTransactions},
	}
}

// Find is the kind with a name.
func Find(name string) (Kind, error) {
	var known []string
	for _, k := range Kinds() {
		if k.Name == name && k.New != nil {
			return k, nil
		} else if k.Name == name {
			return k, fmt.Errorf("workload %s: %s", name, k.Why)
		}
		if k.New != nil {
			known = append(known, k.Name)
		}
	}
	return Kind{}, fmt.Errorf("unknown workload %q: %s", name, strings.Join(known, ", "))
}

// threads runs work as many times as the concurrency says, each for as long as
// it takes.
func threads(n int, work func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { work(i) })
	}
	wg.Wait()
}

// besideRate is how many sends a second go on beside workloads that are not about
// records that are sent like that.
const besideRate = 20

// besideSends runs work for each client, and one more client that sends to keys.
func (e *Env) besideSends(ctx context.Context, name string, keys []history.Key, work func(i int, rng *rand.Rand)) {
	beside := newPacer(besideRate)
	threads(e.Concurrency+1, func(i int) {
		rng := e.rng(name, i)
		if i == e.Concurrency {
			e.sender(ctx, beside, rng, keys)
			return
		}
		work(i, rng)
	})
}

// sender sends to keys until the context ends.
func (e *Env) sender(ctx context.Context, pace *pacer, rng *rand.Rand, keys []history.Key) {
	p := e.newProcess(rng, e.Cluster.Bootstrap())
	for pace.wait(ctx) {
		to := make([]history.Key, 1+rng.IntN(sendsAtMost))
		for i := range to {
			to[i] = keys[rng.IntN(len(keys))]
		}
		if p.send(p.sendable(to)) == history.Info {
			p.crash()
			p = e.newProcess(rng, e.Cluster.Bootstrap())
		}
	}
	e.crashed(p.id)
	p.crash()
}

// keysOf are keys 0 to n-1, two partitions a topic.
func keysOf(h *history.Header, n int) {
	for k := range n {
		h.Keys = append(h.Keys, history.Partition{Topic: fmt.Sprintf("jepsen-%s-%d", h.Run, k/2), Partition: int32(k % 2)})
	}
}

// settle is how long a cluster has after the last fault before everything is
// read back.
const settle = 3 * time.Second
