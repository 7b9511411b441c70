package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// MinAcked is how many records a run must have acknowledged to count (Z4).
const MinAcked = 1000

// Options are what a test may choose beside the plan.
type Options struct {
	// Base is an empty directory for the quorum's logs, best in memory.
	Base string
	// Plant makes the store of every process break a promise.
	Plant Plant
}

// Plant wraps the store of one process in something that lies, to prove that
// the checks notice; dead is closed when the process dies.
type Plant func(b objstore.Bucket, dead <-chan struct{}) objstore.Bucket

// Report is the outcome of a run.
type Report struct {
	Plan       Plan
	Violations []Violation
	// Invalid says why the run proves nothing, empty if it does.
	Invalid string
	// Acked and Failed are numbers of records; Deaths of processes.
	Acked, Failed, Deaths int
	// Faults says how often each kind was applied, Effects how often one met
	// somebody.
	Faults  map[Kind]int
	Effects map[string]int
	// Ops are the administrators' operations by outcome, Exits the processes
	// that ended by themselves.
	Ops   map[string]int
	Exits []error
	// Images is how many states of the metadata were checked.
	Images int
	// Recovery is the time from the last fault until every partition took a
	// record.
	Recovery time.Duration
	// Timeline has a line per happening; Logs are the nodes' own.
	Timeline string
	Logs     map[string]string
}

// Bad says whether the run must not be accepted.
func (r *Report) Bad() bool { return len(r.Violations) > 0 || r.Invalid != "" }

// String tells what is needed to understand a failure.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Plan.String())
	if plan, err := json.Marshal(r.Plan); err == nil {
		fmt.Fprintf(&b, "as a file of testdata: %s\n", plan)
	}
	fmt.Fprintf(&b, "timeline\n%s\n", r.Timeline)
	fmt.Fprintf(&b, "acknowledged %d, failed %d, deaths %d, images checked %d, recovery %v\n", r.Acked, r.Failed, r.Deaths, r.Images, r.Recovery)
	fmt.Fprintf(&b, "faults %v\neffects %v\noperations %v\n", r.Faults, r.Effects, r.Ops)
	if r.Invalid != "" {
		fmt.Fprintf(&b, "INVALID %s\n", r.Invalid)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION %s\n", v)
	}
	return b.String()
}

// run is one execution of a plan.
type run struct {
	plan     Plan
	h        *History
	time     *timeline
	c        *cluster
	w        *workload
	n        *nemesis
	o        *observer
	watching sync.WaitGroup
	recovery time.Duration
}

// Run executes a plan. It must be called inside a synctest bubble, and returns
// when everything in it has ended.
func Run(plan Plan, opts Options) *Report {
	h := NewHistory()
	r := &run{plan: plan, h: h, time: newTimeline(h)}
	brokers := 0
	if plan.Fourth {
		brokers = 1
	}
	r.c = newCluster(plan.Seed, opts.Base, plan.Dir, 3, brokers, r.time)
	r.c.plant = opts.Plant
	r.w = newWorkload(r.c, h, plan.Seed)
	r.n = newNemesis(r.c, append(r.w.hosts, "c9"))
	r.o = newObserver(r.c)
	if err := r.load(); err != nil {
		r.time.violation("%v", err)
	} else {
		if err := r.settle(); err != nil {
			r.time.violation("after the last fault: %v", err)
		}
		r.w.stop()
		r.w.wg.Wait()
		// What can be read is checked also when not all is well.
		if err := r.w.readEverything(); err != nil {
			r.time.violation("final read: %v", err)
		}
		r.time.add("everything was read")
	}
	r.w.stop()
	r.w.end()
	r.w.wg.Wait()
	r.w.tails.Wait()
	r.watching.Wait()
	r.c.leave()
	time.Sleep(time.Minute) // clients' last goroutines end by timers
	return r.report()
}

// load starts the cluster and the clients, and carries out the plan.
func (r *run) load() error {
	for _, n := range r.c.nodes {
		n.restart()
	}
	r.watching.Go(func() { r.o.watch(r.w.ctx) })
	if err := r.w.create(); err != nil {
		return err
	}
	r.time.add("topics are there")
	for i, p := range r.w.producers() {
		rng := rand.New(rand.NewPCG(r.plan.Seed, 100+uint64(i)))
		r.w.wg.Go(func() { r.w.produce(p, rng) })
	}
	r.w.wg.Go(func() { r.w.administer(rand.New(rand.NewPCG(r.plan.Seed, 200))) })
	tails := []func(){
		func() { r.w.tail(1, "c1", mainTopic, mainPartitions) },
		func() { r.w.tail(2, "c2", mainTopic, mainPartitions) },
		func() { r.w.tail(3, "c3", trimTopic, trimPartitions) },
		func() { r.w.tailLate(4, "c4", mainTopic, mainPartitions, r.plan.Span/2) },
		func() { r.w.watchEnds("c2", mainTopic, mainPartitions) },
	}
	for _, t := range tails {
		r.w.tails.Go(t)
	}
	r.n.run(r.plan)
	return nil
}

// recovering bounds how long the cluster may take to be whole again.
const recovering = 60 * time.Second

// settle checks that everything becomes available once faults have ended.
func (r *run) settle() error {
	healed := time.Now()
	for _, n := range r.c.nodes {
		n.restart()
	}
	if err := r.w.available(recovering); err != nil {
		return err
	}
	r.recovery = time.Since(healed)
	r.time.add("every partition takes records, after %v", r.recovery)
	r.w.stop()
	r.w.wg.Wait()
	r.time.add("no record is under way")
	if err := r.o.agree(recovering); err != nil {
		return err
	}
	if r.plan.FinalCrash {
		var wg sync.WaitGroup
		for _, n := range r.c.nodes {
			wg.Go(func() { n.kill(false) })
		}
		wg.Wait()
		for _, n := range r.c.nodes {
			n.restart()
		}
		r.time.add("all killed and started again")
		if err := r.w.available(recovering); err != nil {
			return fmt.Errorf("after the final crash: %w", err)
		}
	}
	return r.inspect()
}

// inspect compares metadata and store. Objects may vanish while we look, if the
// metadata moves on: only what two looks agree on counts.
func (r *run) inspect() error {
	if err := r.o.agree(recovering); err != nil {
		return err
	}
	var first, second *metadata.Image
	b, err := r.c.bucket("c9")
	if err != nil {
		return err
	}
	for range 20 {
		first = r.c.nodes[0].image()
		err = referenced(context.Background(), first, b)
		if second = r.c.nodes[0].image(); second.Index() == first.Index() || err == nil {
			return err
		}
		time.Sleep(300 * time.Millisecond)
	}
	return err
}

// report gathers what the run has shown.
func (r *run) report() *Report {
	rep := &Report{
		Plan: r.plan, Violations: Check(r.h), Acked: r.h.Acked(), Failed: r.h.Failed(), Deaths: r.c.mu.deaths,
		Faults: r.n.mu.applied, Effects: r.c.net.Counts(), Ops: r.w.mu.ops, Exits: r.c.mu.exits,
		Images: r.o.checks, Recovery: r.recovery, Timeline: r.time.String(), Logs: map[string]string{},
	}
	maps.Copy(rep.Effects, r.c.store.mu.counts)
	for _, n := range r.c.nodes {
		rep.Logs[n.name] = n.log.String()
	}
	rep.Invalid = rep.invalid(len(r.n.mu.missed))
	return rep
}

// effects are what a fault must have done to somebody to have happened at all.
var effects = map[Kind][]string{
	Pause: {"stalled write", "stalled dial"}, Isolate: {"stalled write", "stalled dial"}, ResetAll: {"reset connection", "stalled dial"},
	SlowLinks: {"slowed write"}, NoStore: {"store unreachable"}, SlowStore: {"store slow"},
	StoreError: {injected[errSlowDown]}, StoreLost: {injected[errLost]}, StoreLate: {injected[errLate]},
	StoreOwn: {injected[errOwn]}, StoreFull: {injected[errNoRoom]},
}

// invalid says why a run proves nothing.
func (r *Report) invalid(missed int) string {
	if r.Acked < MinAcked {
		return fmt.Sprintf("only %d records were acknowledged, want %d", r.Acked, MinAcked)
	}
	if missed*3 > len(r.Plan.Events) {
		return fmt.Sprintf("%d of %d faults found nobody to meet", missed, len(r.Plan.Events))
	}
	var idle []Kind
	for _, k := range slices.Sorted(maps.Keys(r.Faults)) {
		met := len(effects[k]) == 0
		for _, e := range effects[k] {
			met = met || r.Effects[e] > 0
		}
		if !met {
			idle = append(idle, k)
		}
	}
	if len(idle)*3 > len(r.Faults) {
		return fmt.Sprintf("faults %v were applied and met nobody", idle)
	}
	return ""
}
