package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// groups has members of three kinds of groups read all topics: they poll, then
// commit what they polled. They come, go, crash and stall for longer than their
// session.
type groups struct {
	mu struct {
		sync.Mutex
		crashed time.Time // when the last member did whose session is the cluster's
		looked  int64     // at ends of partitions that a group should come to
		behind  []check.Anomaly
	}
}

const (
	groupsRate    = 100 // sends a second
	groupsKeys    = 8
	groupsSenders = 2
	membersOfEach = 3
	// memberLife is the mean time until something happens to a member.
	memberLife = 8 * time.Second
	// stallMost is more than the session timeout.
	stallMost  = 10 * time.Second
	memberPoll = 200 * time.Millisecond
	commitWait = 5 * time.Second
	// serverSession is the session timeout of members to which brokers assign, where it
	// is not ours to set: Kafka's default and least.
	serverSession = 45 * time.Second
)

// groupKind is how the members of a group share partitions.
type groupKind struct {
	name     string
	assignor string
	static   bool
}

func groupKinds() []groupKind {
	return []groupKind{{"static", assignRange, true}, {"cooperative", assignCooperative, false}, {"consumer", assignServer, false}}
}

func (k groupKind) group(env *Env) string { return "jepsen-" + env.Header.Run + "-" + k.name }

// Plan implements Workload.
func (*groups) Plan(o *Options, h *history.Header) {
	o.Rate = cmp.Or(o.Rate, groupsRate)
	o.Concurrency = cmp.Or(o.Concurrency, groupsSenders+membersOfEach*len(groupKinds()))
	o.Keys = cmp.Or(o.Keys, groupsKeys)
	o.Keys += o.Keys % 2
	keysOf(h, o.Keys)
	h.Group = true
}

// Prepare implements Workload.
func (*groups) Prepare(ctx context.Context, env *Env) error {
	if env.Exclusive {
		// Members that crashed hold their partitions for so long; by default it is
		// more than a short run takes.
		session := kadm.AlterConfig{Op: kadm.SetConfig, Name: "group.consumer.session.timeout.ms", Value: kmsg.StringPtr("6000")}
		if _, err := env.Admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{session}); err != nil {
			return fmt.Errorf("shorten the session of groups: %w", err)
		}
	}
	return env.createAll(ctx)
}

// createAll makes the topics of all keys.
func (e *Env) createAll(ctx context.Context) error {
	for k := 0; k < len(e.Header.Keys); k += 2 {
		if err := e.create(ctx, e.Header.Keys[k].Topic, 2, nil); err != nil {
			return err
		}
	}
	return nil
}

// allKeys of the header.
func (e *Env) allKeys() []history.Key {
	keys := make([]history.Key, len(e.Header.Keys))
	for k := range keys {
		keys[k] = history.Key(k)
	}
	return keys
}

// Load implements Workload.
func (w *groups) Load(ctx context.Context, env *Env) error {
	pace := newPacer(env.Rate)
	kinds := groupKinds()
	members := max(len(kinds), env.Concurrency-groupsSenders)
	threads(groupsSenders+members, func(i int) {
		rng := env.rng("groups", i)
		if i < groupsSenders {
			env.sender(ctx, pace, rng, env.allKeys())
			return
		}
		i -= groupsSenders
		w.member(ctx, env, kinds[i%len(kinds)], i/len(kinds), rng)
	})
	return nil
}

// member joins again and again.
func (w *groups) member(ctx context.Context, env *Env, kind groupKind, number int, rng *rand.Rand) {
	for ctx.Err() == nil {
		p := env.newProcess(rng, env.Cluster.Bootstrap())
		alive := w.join(env, p, kind, number) == nil // a program takes seconds to start, which are none of its life
		life, cancel := context.WithTimeout(ctx, time.Duration((0.3+rng.ExpFloat64())*float64(memberLife)))
		for alive && life.Err() == nil {
			alive = w.consume(p)
		}
		cancel()
		how := rng.IntN(3)
		if !w.mayDie(env, kind) {
			how = 1
		}
		if alive && how == 0 && ctx.Err() == nil { // it stalls, and goes on
			resume, works := p.client.stall()
			more, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(stallMost))))
			context.AfterFunc(more, resume) // not after a poll, which may wait for what is held up
			for works && more.Err() == nil && alive {
				alive = w.consume(p)
			}
			if !works {
				<-more.Done()
			}
			cancel()
			after, cancel := context.WithTimeout(ctx, 3*time.Second)
			for after.Err() == nil && alive {
				alive = w.consume(p)
			}
			cancel()
		}
		if alive && (how == 1 || ctx.Err() != nil) {
			w.leave(env, p)
		} else {
			w.died(kind)
			env.crashed(p.id)
		}
		p.crash()
		sleep(ctx, time.Duration(rng.Int64N(int64(time.Second))))
	}
}

// mayDie says whether a member may stall, after which it often cannot go on, or crash.
// Where sessions are long it is one member in two of them: while one is dead no other dies,
// nor just after its partitions went to others. They would go from one that is dead to the
// next, for minutes in which nothing is wrong.
func (w *groups) mayDie(env *Env, kind groupKind) bool {
	if env.Exclusive || kind.assignor != assignServer {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.mu.crashed) < 2*serverSession {
		return false
	}
	w.mu.crashed = time.Now()
	return true
}

// died notes the death of a member.
func (w *groups) died(kind groupKind) {
	if kind.assignor == assignServer {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.crashed = time.Now()
	}
}

func (w *groups) join(env *Env, p *process, kind groupKind, number int) error {
	m := member{group: kind.group(env), topics: env.Topics(), assignor: kind.assignor}
	if kind.static {
		m.instance = fmt.Sprint("static-", number)
	}
	return p.subscribe(m, env.allKeys())
}

// consume polls and commits once. False: the process is retired.
func (w *groups) consume(p *process) bool {
	op := p.poll(memberPoll, pollMost)
	if !p.consuming {
		return false
	}
	defer p.client.proceed()
	if len(op.Polls) == 0 {
		return true
	}
	return p.commitPolled(op) != history.Info
}

// commitPolled commits the positions behind the records of a poll.
func (p *process) commitPolled(polled *history.Op) history.Outcome {
	op := p.env.begin(p.id, history.Commit)
	op.Group = p.group
	op.Member, op.Gen = p.client.identity()
	upTo := make(map[history.Partition]int64)
	next := make(map[history.Key]int64)
	for _, v := range polled.Polls {
		next[v.Key] = max(next[v.Key], v.Offset+1)
	}
	for k, offset := range next {
		upTo[p.env.partition(k)] = offset
	}
	answers, err := p.client.commit(upTo, commitWait)
	errs, acked := []error{err}, 0
	if err == nil {
		errs, acked = p.commitAnswer(op, answers, next)
	}
	if len(op.Offsets) == 0 {
		for k, offset := range next {
			op.Offsets = append(op.Offsets, history.Offset{Key: k, Offset: offset})
		}
	}
	slices.SortFunc(op.Offsets, func(a, b history.Offset) int { return int(a.Key - b.Key) })
	t, err := verdict(errs, acked, p.client.repeats())
	op.Rebalance = p.takeRebalance()
	p.env.end(op, t, err)
	if t == history.Info && errors.Is(err, kerr.RebalanceInProgress) {
		return history.Fail
	}
	return t
}

// commitAnswer notes what a broker said about each offset.
func (p *process) commitAnswer(op *history.Op, answers map[history.Partition]error, next map[history.Key]int64) (errs []error, acked int) {
	for part, err := range answers {
		k, ok := p.env.key(part.Topic, part.Partition)
		if !ok {
			errs = append(errs, fmt.Errorf("an answer for %v", part))
			continue
		}
		o := history.Offset{Key: k, Offset: next[k]}
		if err != nil {
			o.Err = err.Error()
			errs = append(errs, err)
		} else {
			acked++
		}
		op.Offsets = append(op.Offsets, o)
	}
	return errs, acked
}

// leave ends a member in order.
func (w *groups) leave(env *Env, p *process) {
	op := env.begin(p.id, history.Leave)
	op.Group = p.group
	op.Member, op.Gen = p.client.identity()
	p.closeConsumer()
	op.Rebalance = p.takeRebalance()
	env.end(op, history.OK, nil)
}

// Final implements Workload: fresh members of every group must come to the end
// of every partition.
func (w *groups) Final(ctx context.Context, env *Env) error {
	p := env.newProcess(env.rng("ends", 0), env.Cluster.Bootstrap())
	ends, err := p.endsAtLast(ctx, env.Admin, env.allKeys())
	if err != nil {
		return fmt.Errorf("list offsets: %w", err)
	}
	kinds := groupKinds()
	threads(len(kinds), func(i int) { w.catchUp(ctx, env, kinds[i], ends) })
	return env.readBack(ctx, env.allKeys())
}

// catchUpWait is how long a group may take to come to the end when nothing is
// wrong any more.
const catchUpWait = check.GroupBound + check.RecoveryBound

// catchUp has two fresh members read until all is committed.
func (w *groups) catchUp(ctx context.Context, env *Env, kind groupKind, ends map[history.Key]int64) {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	began := time.Now()
	left := map[history.Key]int64{}
	for k := range ends {
		left[k] = noOffset
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if is, err := w.behind(ctx, env, kind, ends); err == nil {
				left = is
			}
			if len(left) == 0 {
				cancel()
			}
			sleep(ctx, 500*time.Millisecond)
		}
	}()
	threads(2, func(i int) {
		for ctx.Err() == nil {
			p := env.newProcess(env.rng("catch-up", i), env.Cluster.Bootstrap())
			alive := w.join(env, p, kind, i) == nil
			for alive && ctx.Err() == nil {
				alive = w.consume(p)
			}
			if alive {
				w.leave(env, p)
			} else {
				env.crashed(p.id)
			}
			p.crash()
		}
	})
	<-done
	if len(left) == 0 {
		env.Say("group %s came to the end of all partitions in %v", kind.name, time.Since(began).Round(10*time.Millisecond))
	} else {
		env.Say("group %s did not come to the end of %d of %d partitions within %v", kind.name, len(left), len(ends), catchUpWait)
	}
	w.caughtUp(env, kind, ends, left)
}

// caughtUp notes how far a group came.
func (w *groups) caughtUp(env *Env, kind groupKind, ends, left map[history.Key]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.looked += int64(len(ends))
	for _, k := range slices.Sorted(maps.Keys(left)) {
		is := fmt.Sprintf("offset %d is committed", left[k])
		if left[k] == noOffset {
			is = "no offset is known to be committed"
		}
		w.mu.behind = append(w.mu.behind, check.Anomaly{
			Text: fmt.Sprintf("group %s: fresh members were there for %v without a fault, and of %s, which ends at %d, %s", kind.group(env), catchUpWait, env.partition(k), ends[k], is),
			Key:  k, At: env.Now(),
		})
	}
}

// noOffset is committed where nothing is.
const noOffset = -1

// behind are the keys that a group has not committed to their end, and what it has.
func (w *groups) behind(ctx context.Context, env *Env, kind groupKind, ends map[history.Key]int64) (map[history.Key]int64, error) {
	committed, err := env.Admin.FetchOffsets(ctx, kind.group(env))
	if err != nil {
		return nil, err
	}
	left := map[history.Key]int64{}
	for k, end := range ends {
		if end == 0 {
			continue
		}
		part := env.partition(k)
		o, ok := committed.Lookup(part.Topic, part.Partition)
		switch {
		case !ok || o.Err != nil:
			left[k] = noOffset
		case o.At < end:
			left[k] = o.At
		}
	}
	return left, nil
}

// Results implements Workload.
func (w *groups) Results() []check.Result {
	r := check.Result{
		ID: "G8", Name: "group-end", Count: len(w.mu.behind), Checked: w.mu.looked,
		Worst: w.mu.behind[:min(len(w.mu.behind), check.MaxWorst)],
	}
	return []check.Result{r.Judged()}
}
