package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// process is a client program: a producer and a consumer that live and die
// together. One goroutine uses it.
type process struct {
	env     *Env
	id      int32
	rng     *rand.Rand
	seeds   []string
	counter int32
	born    time.Time

	client client
	wire   *wire                 // of clients in this process
	others []*kgo.Client         // beside client, with the same wire
	admin  *kgo.Client           // see once
	nodes  map[int32]*kgo.Client // see direct
	known  map[string]bool

	consuming bool          // there is a consumer
	keys      []history.Key // assigned or subscribed
	group     string        // of the consumer, if it subscribed
	pos       map[history.Key]int64

	mu struct {
		sync.Mutex
		rebalance []history.Rebalance // since the last operation
		session   int                 // of the consumer whose callbacks count
	}
}

// newProcess has no connections yet.
func (e *Env) newProcess(rng *rand.Rand, seeds []string) *process {
	p := &process{
		env: e, id: e.processes.Add(1), rng: rng, seeds: seeds, wire: newWire(), born: time.Now(),
		known: make(map[string]bool), pos: make(map[history.Key]int64),
	}
	if e.Driver == "" {
		p.client = &franz{wire: p.wire, seeds: seeds, rng: rng, idempotent: e.Idempotent, opTimeout: e.OpTimeout, closing: &e.closing}
	} else {
		p.client = e.newDriver(seeds, codecs[rng.IntN(len(codecs))])
	}
	return p
}

// crash drops the process's clients as if the program had died.
func (p *process) crash() {
	p.wire.crash()
	p.client.crash()
	for _, cl := range p.others {
		p.env.closing.Go(cl.CloseAllowingRebalance)
	}
	p.consuming, p.others, p.admin, p.nodes = false, nil, nil, nil
}

// send appends records to keys, one batch for each key, and returns the outcome.
func (p *process) send(keys []history.Key) history.Outcome {
	op := p.env.begin(p.id, history.Send)
	if err := p.client.open(); err != nil {
		p.env.end(op, begun(err), err)
		return begun(err)
	}
	records := make([]*kgo.Record, len(keys))
	var distinct int32
	for i, k := range keys {
		v := p.env.ledger.next(k)
		if !slices.Contains(keys[:i], k) {
			distinct++
		}
		op.Sends = append(op.Sends, history.Sent{Key: k, Value: v, Offset: -1})
		p.counter++
		part := p.env.partition(k)
		p.known[part.Topic] = true
		o := origin{run: p.env.Run, value: v, key: k, process: p.id, counter: p.counter, at: time.Now()}
		records[i] = record(o, part.Topic, part.Partition, p.filler())
	}
	answers, attempts := p.client.send(records)
	op.Attempts = attempts
	var errs []error
	acked := 0
	for i, a := range answers {
		if a.err == nil {
			op.Sends[i].Offset = a.offset
			acked++
			continue
		}
		errs = append(errs, a.err)
	}
	t, err := verdict(errs, acked, p.client.repeats() || attempts > distinct)
	p.env.end(op, t, err)
	if retires(t, err) {
		return history.Info
	}
	return t
}

// verdict is the outcome of an operation of several parts.
func verdict(errs []error, done int, repeated bool) (history.Outcome, error) {
	if len(errs) == 0 {
		return history.OK, nil
	}
	worst, err := history.Fail, errs[0]
	for _, e := range errs {
		if outcome(e, repeated) == history.Info {
			worst, err = history.Info, e
		}
	}
	if done > 0 {
		worst = history.Info // some of it had an effect
	}
	return worst, err
}

// filler is mostly small, now and then some pages.
func (p *process) filler() int {
	if p.rng.IntN(64) == 0 {
		return p.rng.IntN(32 << 10)
	}
	return p.rng.IntN(100)
}

// sendable leaves one record of each key whose topic the producer does not
// know yet: the client would make several batches of them.
func (p *process) sendable(keys []history.Key) []history.Key {
	var out []history.Key
	for _, k := range keys {
		if p.known[p.env.partition(k).Topic] || !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// assign replaces the consumer by one of the given keys.
func (p *process) assign(keys []history.Key, seek bool) error {
	op := p.env.begin(p.id, history.Assign)
	op.Keys, op.Seek = keys, seek
	p.closeConsumer()
	op.Rebalance = p.takeRebalance()
	pos := make(map[history.Key]int64)
	from := make(map[history.Partition]int64)
	for _, k := range keys {
		at := int64(startOfLog)
		if next, ok := p.pos[k]; ok && !seek && slices.Contains(p.keys, k) {
			at, pos[k] = next, next
		}
		from[p.env.partition(k)] = at
	}
	err := p.client.assign(from)
	p.consuming, p.keys, p.pos, p.group = err == nil, keys, pos, ""
	p.env.end(op, begun(err), err)
	return err
}

// begun is the outcome of making a client.
func begun(err error) history.Outcome {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, errDead):
		return history.Info
	}
	return history.Fail
}

// closeConsumer ends the consumer. A member of a group has given its partitions
// back when it returns.
func (p *process) closeConsumer() {
	if !p.consuming {
		return
	}
	p.consuming = false
	p.client.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.session++
}

// subscribe replaces the consumer by a member of a group.
func (p *process) subscribe(m member, keys []history.Key) error {
	op := p.env.begin(p.id, history.Subscribe)
	op.Keys, op.Group = keys, m.group
	p.closeConsumer()
	op.Rebalance = p.takeRebalance()
	err := p.client.subscribe(m, p.rebalanced())
	p.consuming, p.keys, p.group = err == nil, keys, m.group
	for k := range p.pos {
		if !slices.Contains(keys, k) {
			delete(p.pos, k) // an assignment after this one does not remember it
		}
	}
	p.env.end(op, begun(err), err)
	return err
}

// rebalanced notes what a consumer is told. It may come from a goroutine of its own.
func (p *process) rebalanced() rebalanced {
	p.mu.Lock()
	session := p.mu.session
	p.mu.Unlock()
	return func(kind string, parts []history.Partition, member string, gen int32) {
		var keys []history.Key
		for _, part := range parts {
			if k, ok := p.env.key(part.Topic, part.Partition); ok {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		p.mu.Lock()
		defer p.mu.Unlock()
		if session != p.mu.session {
			return // of a consumer that was closed
		}
		p.mu.rebalance = append(p.mu.rebalance, history.Rebalance{At: p.env.Now(), Kind: kind, Keys: keys, Gen: gen, Member: member})
	}
}

func (p *process) takeRebalance() []history.Rebalance {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.mu.rebalance
	p.mu.rebalance = nil
	return r
}

// key of a partition.
func (e *Env) key(topic string, partition int32) (history.Key, bool) {
	e.keys.Do(func() {
		e.keyOf = make(map[history.Partition]history.Key)
		for i, part := range e.Header.Keys {
			e.keyOf[part] = history.Key(i)
		}
	})
	k, ok := e.keyOf[history.Partition{Topic: topic, Partition: partition}]
	return k, ok
}

// errPoll is what a poll said about partitions.
var errPoll = errors.New("poll")

// poll reads what there is within a time and returns its operation. A consumer
// that cannot go on is closed.
func (p *process) poll(wait time.Duration, most int) *history.Op {
	op := p.env.begin(p.id, history.Poll)
	got := p.client.poll(wait, most)
	op.Group = p.group
	if p.group != "" {
		op.Member, op.Gen = p.client.identity()
	}
	notes := got.notes
	for _, r := range got.records {
		k, ok := p.env.key(r.Topic, r.Partition)
		if !ok {
			notes = append(notes, fmt.Sprintf("%s-%d is no key", r.Topic, r.Partition))
			continue
		}
		o, damage := parse(p.env.Run, k, r)
		op.Polls = append(op.Polls, history.Polled{Key: k, Value: o.value, Offset: r.Offset, Damage: damage})
	}
	op.Rebalance = p.takeRebalance()
	t := history.OK
	if got.fatal && len(op.Polls) == 0 {
		t = history.Fail
	}
	var err error
	if len(notes) > 0 {
		err = fmt.Errorf("%w: %s", errPoll, strings.Join(notes, "; "))
	}
	p.env.end(op, t, err)
	if t == history.OK {
		for _, v := range op.Polls {
			p.pos[v.Key] = v.Offset + 1
		}
	}
	if got.fatal {
		p.closeConsumer()
	}
	return op
}

// commit writes down how far the consumer's group has polled. The polls stay
// what they are if it fails.
func (p *process) commit() {
	_, _ = p.client.commit(nil, 2*time.Second) // another reads them again
}

// once is a client that sends every request once, so that an effect is of one
// request.
func (p *process) once() (*kadm.Client, error) {
	if p.admin == nil {
		cl, err := cluster.Client(p.seeds, kgo.Dialer(p.wire.dial), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(p.env.OpTimeout))
		if err != nil {
			return nil, err
		}
		p.admin, p.others = cl, append(p.others, cl)
	}
	return kadm.NewClient(p.admin), nil
}

// ends asks for the high watermarks of keys and notes them.
func (p *process) ends(ctx context.Context, adm *kadm.Client, keys []history.Key) (map[history.Key]int64, error) {
	return p.listOffsets(ctx, adm, keys, "latest")
}

// endsAtLast asks again until it has the high watermarks of all keys, for as long as
// a final read may take: leaders may only begin to serve.
func (p *process) endsAtLast(ctx context.Context, adm *kadm.Client, keys []history.Key) (map[history.Key]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, p.env.FinalTimeout)
	defer cancel()
	for {
		ends, err := p.ends(ctx, adm, keys)
		if err == nil || !sleep(ctx, settle/10) {
			return ends, err
		}
	}
}

// listOffsets asks for the latest or the earliest offsets of keys.
func (p *process) listOffsets(ctx context.Context, adm *kadm.Client, keys []history.Key, spec string) (map[history.Key]int64, error) {
	op := p.env.begin(p.id, history.ListOffsets)
	op.Keys, op.Spec = keys, spec
	var topics []string
	for _, k := range keys {
		if t := p.env.partition(k).Topic; !slices.Contains(topics, t) {
			topics = append(topics, t)
		}
	}
	list := adm.ListEndOffsets
	if spec == "earliest" {
		list = adm.ListStartOffsets
	}
	listed, err := list(ctx, topics...)
	out := make(map[history.Key]int64)
	var errs []error
	for _, k := range keys {
		part := p.env.partition(k)
		o, ok := listed.Lookup(part.Topic, part.Partition)
		switch {
		case ok && o.Err == nil:
			out[k] = o.Offset
			op.Offsets = append(op.Offsets, history.Offset{Key: k, Offset: o.Offset, Epoch: o.LeaderEpoch})
		case ok:
			errs = append(errs, fmt.Errorf("%v: %w", part, o.Err))
		}
	}
	if err == nil {
		err = errors.Join(errs...)
	}
	t := history.OK
	if len(op.Offsets) == 0 {
		t = history.Fail // it only reads
	}
	p.env.end(op, t, err)
	return out, err
}
