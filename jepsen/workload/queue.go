package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// queue is Jepsen's queue workload without transactions: half the operations
// send one to four records, half poll. Keys are used for some thousand writes
// and then left; consumers go back to them as long as they hold records that
// nobody has seen. One operation in 64 changes what a consumer reads, and a
// process lives for half a minute.
type queue struct {
	limit int           // writes of a key before it is left
	life  time.Duration // of a process in the mean

	mu struct {
		sync.Mutex
		active []history.Key
		writes []int // of each of active
		next   history.Key
		ready  history.Key // keys below it have their topic
	}
}

const (
	queueRate   = 1000
	assignOnce  = 64 // one operation in so many assigns or subscribes
	crashAfter  = 30 * time.Second
	sendsAtMost = 4
	// pollWait is how long a poll waits for records, pollMost how many it takes.
	pollWait = 20 * time.Millisecond
	pollMost = 1000
	// perSend is the mean number of records of an operation.
	perSend = 1.25
	// leastWrites is Jepsen's number of writes of a key, mostKeys bounds the keys
	// of a run: a key has more writes in long ones.
	leastWrites = 1024
	mostKeys    = 64
)

// Plan implements Workload.
func (q *queue) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, queueRate)
	if o.Driver != "" { // each is a program of its own
		o.Concurrency = cmp.Or(o.Concurrency, 2*h.Nodes)
	}
	o.Concurrency = cmp.Or(o.Concurrency, 5*h.Nodes)
	o.Keys = cmp.Or(o.Keys, 8)
	records := o.Rate * o.Time.Seconds() * perSend
	q.life = crashAfter
	q.limit = max(leastWrites, int(records)/mostKeys)
	n := o.Keys + int(records)/q.limit
	keysOf(h, n+n%2)
	h.Group = true
}

// Prepare implements Workload.
func (q *queue) Prepare(ctx context.Context, env *Env) error {
	for k := 0; k < env.Keys; k += 2 {
		if err := env.create(ctx, env.Header.Keys[k].Topic, 2, nil); err != nil {
			return err
		}
	}
	q.mu.ready = history.Key(env.Keys + env.Keys%2)
	for k := range env.Keys {
		q.mu.active, q.mu.writes = append(q.mu.active, history.Key(k)), append(q.mu.writes, 0)
	}
	q.mu.next = history.Key(env.Keys)
	return nil
}

// Load implements Workload.
func (q *queue) Load(ctx context.Context, env *Env) error {
	making, cancel := context.WithCancel(ctx)
	made := make(chan struct{})
	go func() {
		defer close(made)
		q.makeTopics(making, env)
	}()
	pace := newPacer(env.Rate)
	threads(env.Concurrency, func(i int) { q.thread(ctx, env, pace, env.rng("queue", i)) })
	cancel()
	<-made
	return nil
}

// makeTopics has the next topic ready before its keys are wanted, so that
// topics are made while there are faults.
func (q *queue) makeTopics(ctx context.Context, env *Env) {
	for {
		q.mu.Lock()
		want := q.mu.ready < q.mu.next+2 && int(q.mu.ready) < len(env.Header.Keys)
		k := q.mu.ready
		q.mu.Unlock()
		if want {
			if err := env.create(ctx, env.Header.Keys[k].Topic, 2, nil); err == nil {
				q.mu.Lock()
				q.mu.ready += 2
				q.mu.Unlock()
			}
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

func (q *queue) thread(ctx context.Context, env *Env, pace *pacer, rng *rand.Rand) {
	p := env.newProcess(rng, env.Cluster.Bootstrap())
	var end time.Time // of the process; zero: it does its first operation
	for pace.wait(ctx) {
		alive := true
		switch {
		case !end.IsZero() && time.Now().After(end):
			env.crashed(p.id)
			alive = false
		case !p.consuming || rng.IntN(assignOnce) == 0:
			alive = q.choose(env, p) == nil
		case rng.IntN(2) == 0:
			alive = p.send(q.take(p)) != history.Info
		default:
			p.poll(pollWait, pollMost)
			if p.consuming && p.group != "" {
				p.commit()
				p.client.proceed()
			}
		}
		if end.IsZero() { // a program takes seconds to start, which are none of its life
			end = time.Now().Add(lifetime(rng, q.life))
		}
		if !alive {
			p.crash()
			p, end = env.newProcess(rng, env.Cluster.Bootstrap()), time.Time{}
		}
	}
	env.crashed(p.id)
	p.crash()
}

// lifetime of a process, at random around a mean.
func lifetime(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(min(4, max(0.05, rng.ExpFloat64())) * float64(mean))
}

// take draws the keys of one send, and counts them.
func (q *queue) take(p *process) []history.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := make([]history.Key, 0, sendsAtMost)
	for range 1 + p.rng.IntN(sendsAtMost) {
		i := p.rng.IntN(len(q.mu.active))
		keys = append(keys, q.mu.active[i])
		q.mu.writes[i]++
		if q.mu.writes[i] >= q.limit && q.mu.next < q.mu.ready {
			q.mu.active[i], q.mu.writes[i] = q.mu.next, 0
			q.mu.next++
		}
	}
	return p.sendable(keys)
}

// choose gives a consumer other keys: mostly some that are in use, one time in
// three those with records that nobody has polled. One time in four it
// subscribes to their topics.
func (q *queue) choose(env *Env, p *process) error {
	q.mu.Lock()
	keys := slices.Clone(q.mu.active)
	ready := q.mu.ready
	q.mu.Unlock()
	p.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+p.rng.IntN(len(keys))]
	if unseen := env.ledger.unseenKeys(); len(unseen) > 0 && p.rng.IntN(3) == 0 {
		keys = unseen
	}
	slices.Sort(keys)
	if p.rng.IntN(4) > 0 {
		return p.assign(keys, p.rng.IntN(8) == 0)
	}
	var topics []string
	for _, k := range keys {
		if t := env.partition(k).Topic; !slices.Contains(topics, t) {
			topics = append(topics, t)
		}
	}
	keys = keys[:0:0]
	for k := range ready {
		if slices.Contains(topics, env.partition(k).Topic) {
			keys = append(keys, k)
		}
	}
	return p.subscribe(member{group: "jepsen-" + env.Header.Run, topics: topics}, keys)
}

// Final implements Workload.
func (q *queue) Final(ctx context.Context, env *Env) error {
	keys := make([]history.Key, q.mu.ready)
	for k := range keys {
		keys[k] = history.Key(k)
	}
	return env.readBack(ctx, keys)
}

// Results implements Workload.
func (q *queue) Results() []check.Result { return nil }

// readBack reads all keys from the start with fresh clients: once as the cluster
// is, and where it is the harness's own, from every node after all partitions
// moved to it, and once more after all nodes were killed and started.
func (e *Env) readBack(ctx context.Context, keys []history.Key) error {
	e.final.Store(true)
	if !sleep(ctx, settle) {
		return ctx.Err()
	}
	quiet := quietAtFirst
	whole, err := e.readAll(ctx, keys, e.Cluster.Bootstrap(), "as it is", quiet)
	if err != nil {
		return err
	}
	nodes := e.Cluster.Nodes()
	if !e.Exclusive {
		return nil
	}
	for i, n := range nodes {
		if err := e.leadAll(ctx, n); err != nil {
			return err
		}
		if !whole {
			quiet = quietThen
		}
		if whole, err = e.readAll(ctx, keys, e.Cluster.Bootstrap()[i:i+1], fmt.Sprintf("from node %d", n), quiet); err != nil {
			return err
		}
	}
	if err := e.restartAll(ctx); err != nil {
		return err
	}
	_, err = e.readAll(ctx, keys, e.Cluster.Bootstrap(), "after a restart of all nodes", quietAtFirst)
	return err
}

const (
	// quietAtFirst is how long a final read may get nothing before it is given up;
	// quietThen once another was given up.
	quietAtFirst = 60 * time.Second
	quietThen    = 15 * time.Second
)

// readAll polls until the highest offset known of every key, and says whether
// it came there. It gives up after FinalTimeout, or a time in which it got
// nothing: what is unseen then is the checks' business.
func (e *Env) readAll(ctx context.Context, keys []history.Key, seeds []string, how string, quiet time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.FinalTimeout)
	defer cancel()
	p := e.newProcess(e.rng("final", int(e.processes.Load())), seeds)
	defer func() {
		e.crashed(p.id)
		p.crash()
	}()
	ends, err := p.endsAtLast(ctx, e.Admin, keys)
	if err != nil {
		return false, fmt.Errorf("final read %s: list offsets: %w", how, err)
	}
	left := make(map[history.Key]int64)
	for _, k := range keys {
		if end := max(ends[k], e.ledger.end(k)); end > 0 {
			left[k] = end
		}
	}
	began, read, last := time.Now(), 0, time.Now()
	if err := p.assign(keys, true); err != nil {
		return false, err
	}
	for len(left) > 0 && ctx.Err() == nil && time.Since(last) < quiet {
		if !p.consuming { // it could not go on
			if err := p.assign(keys, false); err != nil {
				return false, err
			}
		}
		op := p.poll(time.Second, 5000)
		if read += len(op.Polls); len(op.Polls) > 0 {
			last = time.Now()
		}
		for k, next := range p.pos {
			if next >= left[k] {
				delete(left, k)
			}
		}
	}
	if len(left) > 0 {
		e.Say("final read %s: %d of %d keys were not read to their end in %v", how, len(left), len(keys), time.Since(began).Round(time.Second))
		return false, nil
	}
	e.Say("final read %s: %d records of %d keys in %v", how, read, len(keys), time.Since(began).Round(10*time.Millisecond))
	return true, nil
}
