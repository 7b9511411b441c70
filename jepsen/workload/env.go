package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// Options of every workload.
type Options struct {
	// Time of the load, without the final phase.
	Time time.Duration
	// Rate is how many operations a second are begun, whatever is on, as far as
	// there are processes that are free. 0: the workload's own.
	Rate float64
	// Concurrency is how many processes there are at a time. 0: the workload's own.
	Concurrency int
	Seed        uint64
	// Idempotent producers; else retries of clients may make duplicates.
	Idempotent bool
	// Keys are partitions in use at a time. 0: the workload's own.
	Keys int
	// OpTimeout is when an operation is given up, default 10 s.
	OpTimeout time.Duration
	// FinalTimeout bounds each reading of everything, default 200 s.
	FinalTimeout time.Duration
	// Exclusive: the cluster is the harness's own, so that it may be restarted
	// and every partition moved in the final phase.
	Exclusive bool
	// Replicas of topics; 0: what the cluster has by default.
	Replicas int16
	// Driver is a shell command that runs one client, see driver. Empty: franz-go in
	// this process.
	Driver string
	// DriverLog is a file for what drivers print on their standard error.
	DriverLog string
}

// Env is what a workload runs in. It may be used by many at once.
type Env struct {
	Options
	Cluster cluster.Cluster
	Admin   *kadm.Client
	History *history.Writer
	Header  *history.Header
	Run     uint64 // in every value
	Begun   time.Time
	// Say tells the user what the run does now.
	Say func(format string, args ...any)

	ledger    *ledger
	processes atomic.Int32
	outcomes  struct{ ok, fail, info atomic.Int64 }
	counted   struct{ acked, polled atomic.Int64 } // records beside the ledger's
	closing   sync.WaitGroup
	topics    struct {
		sync.Mutex
		names []string
	}
	final atomic.Bool
	keys  sync.Once
	keyOf map[history.Partition]history.Key // once keys is done
}

// Init prepares an Env whose exported fields are set.
func (e *Env) Init() {
	e.ledger = newLedger()
	if e.OpTimeout == 0 {
		e.OpTimeout = 10 * time.Second
	}
	if e.FinalTimeout == 0 {
		e.FinalTimeout = 200 * time.Second
	}
}

// Now is the history's clock.
func (e *Env) Now() int64 { return int64(time.Since(e.Begun)) }

// Sample is the state of the run now.
func (e *Env) Sample() history.Sample {
	acked, polled, unseen := e.ledger.count()
	acked += e.counted.acked.Load()
	polled += e.counted.polled.Load()
	up := 0
	for _, n := range e.Cluster.Nodes() {
		if !e.Cluster.Down(n) {
			up++
		}
	}
	return history.Sample{At: e.Now(), Acked: acked, Failed: e.outcomes.fail.Load() + e.outcomes.info.Load(), Polled: polled, Unseen: unseen, Up: up}
}

// Outcomes are the operations so far.
func (e *Env) Outcomes() (ok, fail, info int64) {
	return e.outcomes.ok.Load(), e.outcomes.fail.Load(), e.outcomes.info.Load()
}

// Topics are those in use.
func (e *Env) Topics() []string {
	e.topics.Lock()
	defer e.topics.Unlock()
	return append([]string(nil), e.topics.names...)
}

// Close waits for the clients of retired processes.
func (e *Env) Close() { e.closing.Wait() }

// rng is a source of its own for something with a number.
func (e *Env) rng(what string, n int) *rand.Rand {
	h := e.Seed
	for _, c := range what {
		h = h*1099511628211 + uint64(c)
	}
	return rand.New(rand.NewPCG(e.Seed, h+uint64(n)<<32))
}

// begin is an operation that is invoked now.
func (e *Env) begin(process int32, f history.Func) *history.Op {
	op := &history.Op{Process: process, F: f, Invoked: e.Now()}
	if e.final.Load() {
		op.Phase = history.Final
	}
	return op
}

// end writes an operation down.
func (e *Env) end(op *history.Op, t history.Outcome, err error) {
	op.Completed, op.Type = e.Now(), t
	if err != nil {
		op.Err = err.Error()
	}
	if t == history.OK && op.F == history.Poll {
		e.ledger.poll(op.Polls)
	}
	for _, s := range op.Sends {
		if s.Offset >= 0 {
			e.ledger.ack(s)
		}
	}
	switch {
	case op.F == history.Crash: // no outcome of the cluster's
	case t == history.OK:
		e.outcomes.ok.Add(1)
	case t == history.Fail:
		e.outcomes.fail.Add(1)
	default:
		e.outcomes.info.Add(1)
	}
	e.History.Op(op)
}

// crashed writes down that a process was dropped.
func (e *Env) crashed(process int32) { e.end(e.begin(process, history.Crash), history.Info, nil) }

// create makes a topic, over and over until it is there and led, or the context
// ends.
func (e *Env) create(ctx context.Context, topic string, partitions int32, config map[string]string) error {
	configs := make(map[string]*string)
	for k, v := range config {
		configs[k] = &v
	}
	replicas := e.Replicas
	if replicas == 0 {
		replicas = -1
	}
	var err error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, cerr := e.Admin.CreateTopic(attempt, partitions, replicas, configs, topic)
		var md kadm.Metadata
		md, err = e.Admin.Metadata(attempt, topic)
		cancel()
		if t := md.Topics[topic]; err == nil && t.Err == nil && len(t.Partitions) == int(partitions) {
			e.topics.Lock()
			e.topics.names = append(e.topics.names, topic)
			e.topics.Unlock()
			return nil
		} else if err == nil {
			err = t.Err
		}
		if cerr != nil {
			err = cerr
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w", topic, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// partition of a key.
func (e *Env) partition(k history.Key) history.Partition { return e.Header.Keys[k] }

// pacer gives out the times at which operations begin.
type pacer struct {
	every time.Duration
	mu    struct {
		sync.Mutex
		next time.Time
	}
}

func newPacer(rate float64) *pacer {
	p := &pacer{every: time.Duration(float64(time.Second) / rate)}
	p.mu.next = time.Now()
	return p
}

// behind bounds what is made up for when all processes were busy.
const behind = time.Second

// wait blocks until the next operation is due, false when the context ends.
func (p *pacer) wait(ctx context.Context) bool {
	p.mu.Lock()
	at := p.mu.next
	if least := time.Now().Add(-behind); at.Before(least) {
		at = least
	}
	p.mu.next = at.Add(p.every)
	p.mu.Unlock()
	if d := time.Until(at); d > 0 {
		return sleep(ctx, d)
	}
	return ctx.Err() == nil
}

// sleep waits, false when the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
