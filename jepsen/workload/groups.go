package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
type groups struct{}

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
		if alive && how == 0 && ctx.Err() == nil { // it stalls, and goes on
			resume, works := p.client.stall()
			more, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(stallMost))))
			for works && more.Err() == nil && alive {
				alive = w.consume(p)
			}
			if !works {
				<-more.Done()
			}
			cancel()
			resume()
			after, cancel := context.WithTimeout(ctx, 3*time.Second)
			for after.Err() == nil && alive {
				alive = w.consume(p)
			}
			cancel()
		}
		if alive && (how == 1 || ctx.Err() != nil) {
			w.leave(env, p)
		} else {
			env.crashed(p.id)
		}
		p.crash()
		sleep(ctx, time.Duration(rng.Int64N(int64(time.Second))))
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
	errs := make([]error, len(kinds))
	threads(len(kinds), func(i int) { errs[i] = w.catchUp(ctx, env, kinds[i], ends) })
	for i, err := range errs {
		if err != nil {
			env.Say("group %s: %v", kinds[i].name, err)
		}
	}
	return env.readBack(ctx, env.allKeys())
}

// catchUpWait is how long a group may take to come to the end when nothing is
// wrong any more.
const catchUpWait = 90 * time.Second

// catchUp has two fresh members read until all is committed.
func (w *groups) catchUp(ctx context.Context, env *Env, kind groupKind, ends map[history.Key]int64) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	began := time.Now()
	var left int
	done := make(chan struct{})
	go func() {
		defer close(done)
		for left = len(ends); ctx.Err() == nil; sleep(ctx, 500*time.Millisecond) {
			if left = w.behind(ctx, env, kind, ends); left == 0 {
				cancel()
			}
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
	if left > 0 {
		return fmt.Errorf("%d partitions are not read to their end within %v", left, catchUpWait)
	}
	env.Say("group %s came to the end of all partitions in %v", kind.name, time.Since(began).Round(10*time.Millisecond))
	return nil
}

// behind is how many keys a group has not committed to their end.
func (w *groups) behind(ctx context.Context, env *Env, kind groupKind, ends map[history.Key]int64) int {
	committed, err := env.Admin.FetchOffsets(ctx, kind.group(env))
	if err != nil {
		return len(ends)
	}
	n := 0
	for k, end := range ends {
		part := env.partition(k)
		if o, ok := committed.Lookup(part.Topic, part.Partition); end > 0 && (!ok || o.Err != nil || o.At < end) {
			n++
		}
	}
	return n
}

// Results implements Workload.
func (*groups) Results() []check.Result { return nil }
