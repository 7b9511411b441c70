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

	"ponor/controller"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/verify"
)

// MinAcked is how many records a run must have acknowledged to count (Z4).
const MinAcked = 1000

// Options are what a test may choose beside the plan.
type Options struct {
	// Base is an empty directory for the quorum's logs, best in memory.
	Base string
	// Plant makes the store of every process break a promise, Meta what its
	// store is told of the metadata.
	Plant Plant
	Meta  MetaPlant
}

// Plant wraps the store of one process in something that lies, to prove that
// the checks notice; dead is closed when the process dies.
type Plant func(b objstore.Bucket, dead <-chan struct{}) objstore.Bucket

// MetaPlant wraps the metadata as one incarnation's store sees it, to the same
// end.
type MetaPlant func(m sharedlog.Meta, inc metadata.Incarnation) sharedlog.Meta

// Report is the outcome of a run.
type Report struct {
	Plan       Plan
	Violations []Violation
	// Invalid says why the run proves nothing, empty if it does.
	Invalid string
	// Acked and Failed are numbers of records; Deaths of processes. Takeovers are
	// dead incarnations whose partitions went to another broker, Moves partitions
	// whose owner lived on.
	Acked, Failed, Deaths, Takeovers, Moves int
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
	fmt.Fprintf(&b, "acknowledged %d, failed %d, deaths %d, takeovers %d, moves %d, images checked %d, recovery %v\n",
		r.Acked, r.Failed, r.Deaths, r.Takeovers, r.Moves, r.Images, r.Recovery)
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
	t        *tally
	op       *operator
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
	r.c.plants = opts
	r.w = newWorkload(r.c, h, plan.Seed)
	r.op = newOperator(r.w)
	r.n = newNemesis(r.c, plan, append(r.w.hosts, "c9"), r.op)
	r.o, r.t = newObserver(r.c), newTally(r.c)
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
	r.op.close()
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
	r.watching.Go(func() { r.t.watch(r.w.ctx) })
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
		func() { r.w.tail(5, "c3", oldTopic, 1) },
		func() { r.w.watchEnds("c2", mainTopic, mainPartitions) },
	}
	for _, n := range r.c.nodes {
		tails = append(tails, func() { r.w.ask(n.id, r.w.ctx.Done(), askEvery, r.w.askEnd, r.w.askRecords) })
		r.w.wg.Go(func() { r.w.ask(n.id, r.w.done, 2*askEvery, r.w.askToAppend) })
	}
	for _, t := range tails {
		r.w.tails.Go(t)
	}
	r.n.run()
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
	if err := r.n.reunite(recovering); err != nil {
		return err
	}
	r.time.add("every partition takes records, after %v", r.recovery)
	if err := r.complete(); err != nil {
		return err
	}
	r.w.stop()
	r.w.wg.Wait()
	r.time.add("no record is under way")
	if err := r.o.agree(recovering); err != nil {
		return err
	}
	if r.plan.FinalCrash {
		var wg sync.WaitGroup
		for _, n := range r.c.members() {
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

// complete adds takeovers and moves to a run that had too few to count. Nothing
// else is wrong then, so each must come.
func (r *run) complete() error {
	r.n.heal = make(chan struct{})
	defer close(r.n.heal)
	for range 2 * MinMoves {
		takeovers, moves := r.t.counts()
		e := Event{For: 3 * time.Second, Who: Owner}
		switch {
		case moves < MinMoves:
			e.Kind = Drain
		case takeovers < MinTakeovers:
			e.Kind = Kill
		default:
			return nil
		}
		r.n.wg.Go(func() { r.n.apply(e) })
		r.n.wg.Wait()
		if err := r.w.available(recovering); err != nil {
			return fmt.Errorf("after one more %s: %w", e.Kind, err)
		}
	}
	return nil
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
		if second = r.c.nodes[0].image(); err == nil {
			return r.verify(b)
		} else if second.Index() == first.Index() {
			return err
		}
		time.Sleep(300 * time.Millisecond)
	}
	return err
}

// verify reads every object that the metadata refers to, as `ponor verify store`
// does.
func (r *run) verify(b objstore.Bucket) error {
	ctx, cancel := context.WithTimeout(context.Background(), recovering)
	defer cancel()
	_, err := verify.Run(ctx, verify.Config{
		Bucket: b,
		Image: func(ctx context.Context) (img *metadata.Image, err error) {
			err = r.c.change(ctx, 0, func(ctx context.Context, c *controller.Node) error {
				img, err = c.Barrier(ctx)
				return err
			})
			return img, err
		},
		Checkpoint: func(b []byte) error { _, err := partition.DecodeState(b); return err },
		Problem:    func(p verify.Problem) { r.time.violation("store: %s", p) },
	})
	return err
}

// report gathers what the run has shown.
func (r *run) report() *Report {
	rep := &Report{
		Plan: r.plan, Violations: Check(r.h), Acked: r.h.Acked(), Failed: r.h.Failed(), Deaths: r.c.mu.deaths,
		Faults: r.n.mu.applied, Effects: r.c.net.Counts(), Ops: r.w.mu.ops, Exits: r.c.mu.exits,
		Images: r.o.checks, Recovery: r.recovery, Timeline: r.time.String(), Logs: map[string]string{},
	}
	rep.Takeovers, rep.Moves = r.t.counts()
	maps.Copy(rep.Effects, r.c.store.mu.counts)
	maps.Copy(rep.Effects, r.n.mu.effects)
	for _, n := range r.c.nodes {
		rep.Logs[n.name] = n.log.String()
		for _, line := range alarms(rep.Logs[n.name]) {
			rep.Violations = append(rep.Violations, Violation{Rule: "alarm", Text: n.name + ": " + line})
		}
	}
	rep.Invalid = rep.invalid(len(r.n.mu.missed))
	return rep
}

// alarms are a node's lines of level error, a few of them. No fault of ours is a
// reason for one, but for those that say that others took over.
func alarms(log string) (list []string) {
	for line := range strings.Lines(log) {
		switch {
		case !strings.Contains(line, "level=ERROR"), strings.Contains(line, " is fenced"), strings.Contains(line, "msg=raft "):
		case len(list) < maxPerRule:
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// effects are what a fault must have done to somebody to have happened at all.
var effects = map[Kind][]string{
	Zombie: {"zombie was replaced"}, Outcast: {"outcast was replaced"}, Beheaded: {"takeover reached its step"},
	StuckStore: {"stuck owner was relieved"}, Guest: {"guest owned partitions"},
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
	if r.Takeovers < MinTakeovers || r.Moves < MinMoves {
		return fmt.Sprintf("%d takeovers and %d moves, want %d and %d", r.Takeovers, r.Moves, MinTakeovers, MinMoves)
	}
	if missed*3 > len(r.Plan.Events) {
		return fmt.Sprintf("%d of %d faults found nobody to meet", missed, len(r.Plan.Events))
	}
	for _, e := range []string{packed, indexed, swept} {
		if r.Effects[e] == 0 {
			return fmt.Sprintf("no %s", e)
		}
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
