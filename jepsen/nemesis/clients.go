package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/jepsen/proxy"
)

// hands are what faults between nodes and others need, see cluster.Means.
type hands interface {
	Clients(node int32) *proxy.Kafka
	Links() *proxy.Links
	Script(node int32) *cluster.Script
}

// reach gives the hands of a cluster that has some.
func reach(env *Env) (hands, error) {
	h, ok := env.Cluster.(hands)
	if !ok {
		return nil, cluster.ErrCannot
	}
	return h, nil
}

// errUnmet: a fault is on, and nothing met it in time.
var errUnmet = errors.New("nothing met it")

// met waits until something did.
func met(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return errUnmet
		case <-tick.C:
		}
	}
	return nil
}

func clientKinds() []Kind {
	return []Kind{
		{"hold", "keep single requests of one kind back for a second up to half a minute, then deliver them, also if the client has given up", cluster.NeedsClients, func() Nemesis {
			return &requests{name: "hold", rules: holdRules}
		}},
		{"lost-answers", "close connections when the broker has answered a request that changes something, without passing the answer on", cluster.NeedsClients, func() Nemesis {
			return &requests{name: "lost-answers", rules: changing(proxy.Lose, 0.2)}
		}},
		{"duplicate", "deliver requests that change something twice, the second time on a connection of its own; Produce only if idempotent", cluster.NeedsClients, func() Nemesis {
			return &requests{name: "duplicate", rules: changing(proxy.Duplicate, 0.3)}
		}},
		{"reset", "reset connections, before and after the broker got a request", cluster.NeedsClients, func() Nemesis {
			return &requests{name: "reset", rules: resetRules, all: true}
		}},
		{"cut-clients", "stall everything between clients and one broker or several, also new connections", cluster.NeedsClients, func() Nemesis { return &cutClients{} }},
		{"slow-clients", "a slow network between clients and brokers", cluster.NeedsClients, func() Nemesis { return &slowClients{} }},
	}
}

// requests does something to single requests of clients.
type requests struct {
	name string
	// rules for brokers whose clients lately sent these requests.
	rules func(env *Env, lately []int16) []proxy.Rule
	all   bool // reset all connections first
	long  bool // requests are held longer than clients wait
	on    []*proxy.Active
	where []int32
	past  []*proxy.Active // that may still hold something
}

// Name implements Nemesis.
func (r *requests) Name() string { return r.name }

// Start implements Nemesis: one request was hit when it returns.
func (r *requests) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	rules := r.rules(env, lately(ctx, env, h))
	r.long = rules[0].Wait > commitWait
	r.where = env.Cluster.Nodes()
	resets := 0
	for _, n := range r.where {
		for _, rule := range rules {
			r.on = append(r.on, h.Clients(n).Add(rule))
		}
		if r.all {
			resets += h.Clients(n).ResetAll()
		}
	}
	err = met(ctx, func() bool { return resets+r.counts().Matched > 0 })
	e := history.Event{Target: apiNames(rules)}
	if err == nil {
		e.Proof = r.told()
		if r.all {
			e.Proof = fmt.Sprintf("%d connections reset", resets)
		}
	}
	return e, err
}

func (r *requests) counts() proxy.Counts { return total(r.on) }

func total(list []*proxy.Active) (sum proxy.Counts) {
	for _, a := range list {
		c := a.Counts()
		sum.Matched += c.Matched
		sum.Done += c.Done
		sum.Late += c.Late
	}
	return sum
}

func (r *requests) told() string {
	c := r.counts()
	text := fmt.Sprintf("%d requests met it, of %d it is done", c.Matched, c.Done)
	if c.Late > 0 {
		text += fmt.Sprintf(", of %d after the client had gone", c.Late)
	}
	return text
}

// Stop implements Nemesis. What is held for long stays so, as in a network, to
// be delivered after its client has given up.
func (r *requests) Stop(ctx context.Context, _ *Env) (history.Event, error) {
	on := r.on
	if r.long {
		for _, a := range on {
			a.Retire()
		}
		c := r.counts()
		r.past = append(r.past, on...)
		e := history.Event{Target: nodeNames(r.where), Proof: fmt.Sprintf("%d requests met it, %d are still held%s", c.Matched, c.Matched-c.Done, r.late())}
		r.on, r.where = nil, nil
		return e, nil
	}
	for _, a := range on {
		a.End()
	}
	// Of a node that is down nothing is delivered.
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = met(soon, func() bool { c := r.counts(); return c.Done == c.Matched })
	e := history.Event{Target: nodeNames(r.where), Proof: r.told() + r.late()}
	r.on, r.where = nil, nil
	return e, nil
}

// late tells of what was held beyond the end of a fault.
func (r *requests) late() string {
	if c := total(r.past); c.Done > 0 {
		return fmt.Sprintf("; of those held longer, %d were delivered, %d of them after the client had gone", c.Done, c.Late)
	}
	return ""
}

// Keys of requests that change something.
var changes = []int16{
	kmsg.Produce.Int16(), kmsg.OffsetCommit.Int16(), kmsg.JoinGroup.Int16(), kmsg.SyncGroup.Int16(), kmsg.Heartbeat.Int16(), kmsg.LeaveGroup.Int16(),
	kmsg.CreateTopics.Int16(), kmsg.DeleteTopics.Int16(), kmsg.DeleteRecords.Int16(), kmsg.InitProducerID.Int16(), kmsg.IncrementalAlterConfigs.Int16(),
	kmsg.ConsumerGroupHeartbeat.Int16(),
}

// asking are requests that only ask.
var asking = []int16{kmsg.Fetch.Int16(), kmsg.ListOffsets.Int16(), kmsg.Metadata.Int16(), kmsg.OffsetFetch.Int16(), kmsg.FindCoordinator.Int16()}

func changing(a proxy.Action, chance float64) func(*Env, []int16) []proxy.Rule {
	return func(*Env, []int16) []proxy.Rule { return []proxy.Rule{{APIs: changes, Chance: chance, Action: a}} }
}

func resetRules(*Env, []int16) []proxy.Rule {
	return []proxy.Rule{{Chance: 0.01, Action: proxy.Reset}, {Chance: 0.01, Action: proxy.Drop}}
}

// commitWait bounds how long a commit of offsets is held: less than clients wait
// for the answer. One that came after the client had sent it again, and then a
// newer one, would take the offset back, and no broker could know better.
const commitWait = 3 * time.Second

// holdRules hold up to five requests of each broker, of one kind that somebody
// sends: Produce in every second case.
func holdRules(env *Env, lately []int16) []proxy.Rule {
	api := kmsg.Produce.Int16()
	if len(lately) > 0 && (!slices.Contains(lately, api) || env.Rand.IntN(2) == 0) {
		api = lately[env.Rand.IntN(len(lately))]
	}
	wait := []time.Duration{time.Second, commitWait, 12 * time.Second, 30 * time.Second}[env.Rand.IntN(4)]
	if api == kmsg.OffsetCommit.Int16() {
		wait = min(wait, commitWait)
	}
	return []proxy.Rule{{APIs: []int16{api}, Chance: 0.3, Times: 1 + env.Rand.IntN(5), Action: proxy.Hold, Wait: wait}}
}

// lately are the kinds of requests that were sent to anybody within a while.
func lately(ctx context.Context, env *Env, h hands) []int16 {
	before := seen(env, h)
	sleep(ctx, 500*time.Millisecond)
	after := seen(env, h)
	var list []int16
	for _, api := range slices.Concat(changes, asking) {
		if after[api] > before[api] {
			list = append(list, api)
		}
	}
	return list
}

func seen(env *Env, h hands) map[int16]int64 {
	sum := make(map[int16]int64)
	for _, n := range env.Cluster.Nodes() {
		for api, count := range h.Clients(n).Seen() {
			sum[api] += count
		}
	}
	return sum
}

func apiNames(rules []proxy.Rule) []string {
	var list []string
	for _, r := range rules {
		for _, api := range r.APIs {
			list = append(list, proxy.Name(api))
		}
	}
	if len(list) == 0 || len(list) > 3 {
		return []string{"requests"}
	}
	return list
}

// cutClients keeps everything between clients and brokers.
type cutClients struct {
	nodes  []int32
	before int64
}

// Name implements Nemesis.
func (*cutClients) Name() string { return "cut-clients" }

// Start implements Nemesis.
func (c *cutClients) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	all := env.Cluster.Nodes()
	c.nodes = new(Claims).Take(env.Rand, all, howMany(env.Rand, len(all)))
	c.before = c.stalled(h)
	for _, n := range c.nodes {
		h.Clients(n).Stall()
	}
	if err := met(ctx, func() bool { return c.stalled(h) > c.before }); err != nil {
		return history.Event{Target: nodeNames(c.nodes)}, err
	}
	return history.Event{Target: nodeNames(c.nodes), Proof: fmt.Sprintf("%d requests and answers stalled", c.stalled(h)-c.before)}, nil
}

func (c *cutClients) stalled(h hands) (sum int64) {
	for _, n := range c.nodes {
		sum += h.Clients(n).Stalled()
	}
	return sum
}

// Stop implements Nemesis.
func (c *cutClients) Stop(_ context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	n := c.stalled(h) - c.before
	for _, n := range c.nodes {
		h.Clients(n).Resume()
	}
	return history.Event{Target: nodeNames(c.nodes), Proof: fmt.Sprintf("%d requests and answers were stalled", n)}, nil
}

// slowClients slows what goes between clients and brokers down.
type slowClients struct {
	nodes  []int32
	before int64
}

// Name implements Nemesis.
func (*slowClients) Name() string { return "slow-clients" }

// Start implements Nemesis.
func (s *slowClients) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	s.nodes = env.Cluster.Nodes()
	s.before = s.slowed(h)
	how := proxy.Slow{Delay: time.Duration(20+env.Rand.IntN(400)) * time.Millisecond, Rate: 50e3 * float64(1+env.Rand.IntN(20))}
	for _, n := range s.nodes {
		h.Clients(n).Slow(how)
	}
	e := history.Event{Target: nodeNames(s.nodes)}
	if err := met(ctx, func() bool { return s.slowed(h) > s.before }); err != nil {
		return e, err
	}
	e.Proof = fmt.Sprintf("%d requests and answers slowed by %v and to %.0f bytes a second", s.slowed(h)-s.before, how.Delay, how.Rate)
	return e, nil
}

func (s *slowClients) slowed(h hands) (sum int64) {
	for _, n := range s.nodes {
		sum += h.Clients(n).Slowed()
	}
	return sum
}

// Stop implements Nemesis.
func (s *slowClients) Stop(_ context.Context, env *Env) (history.Event, error) {
	h, err := reach(env)
	if err != nil {
		return history.Event{}, err
	}
	for _, n := range s.nodes {
		h.Clients(n).Slow(proxy.Slow{})
	}
	return history.Event{Target: nodeNames(s.nodes), Proof: fmt.Sprintf("%d requests and answers were slowed", s.slowed(h)-s.before)}, nil
}
