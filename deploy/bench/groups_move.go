package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

const (
	movedMembers = 3
	// probeEvery is the pause between commits, and before one is tried again.
	probeEvery = 2 * time.Millisecond
	// settled is how long after a change members may still find out about it: each
	// sent two heartbeats.
	settled     = 8 * time.Second
	moveTimes   = 3
	commitsSlow = " by a client of stock settings"
)

// move measures what a group notices when its coordinator moves: partitions of the
// groups' topic are led by another broker.
func (g *groups) move() error {
	for _, p := range protocols() {
		w, err := g.watchGroup("move-"+p.name, p.opts)
		if err == nil {
			err = w.move(p.name + ", coordinator moved")
			w.stop()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// move has the group's coordinator move some times.
func (w *watched) move(name string) error {
	for range moveTimes {
		owner, err := w.g.coordinatorOf(w.group)
		if err == nil {
			err = w.disturb(name, settled, func() error {
				return w.g.ponor(w.g.ctx, w.g.o, nil, "topic", "move", fmt.Sprintf("%s/%d", groupsTopic, coordinator.PartitionOf(w.group, 50)),
					"--to", fmt.Sprint(owner%nodes+1))
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveFull is move where the partition of the groups' topic keeps very many offsets.
func (g *groups) moveFull() error {
	const topic, partitions = "wide", 500
	if err := g.makeTopic(topic, partitions); err != nil {
		return err
	}
	id, err := g.topicID(topic)
	if err != nil {
		return err
	}
	w, err := g.watchGroup("move-full", protocols()[0].opts)
	if err != nil {
		return err
	}
	defer w.stop()
	group := 0
	for _, offsets := range []int{100_000, 1_000_000} {
		var list []string
		for ; len(list) < offsets/partitions; group++ {
			if name := fmt.Sprint("full-", group); coordinator.PartitionOf(name, 50) == coordinator.PartitionOf(w.group, 50) {
				list = append(list, name)
			}
		}
		if err := g.eachOf(list, 4, func(c *kgo.Client, group string) error {
			req := g.commitRequest(group, "", -1, 1)
			req.Topics[0].Topic, req.Topics[0].TopicID = topic, id
			for p := int32(1); p < partitions; p++ {
				rp := req.Topics[0].Partitions[0]
				rp.Partition = p
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
			}
			return g.commitOf(g.ctx, c, req)
		}); err != nil {
			return err
		}
		if err := w.move(fmt.Sprintf("coordinator of %d offsets moved", offsets)); err != nil {
			return err
		}
	}
	return nil
}

// takeover is move when the coordinator's process is killed; the cluster has a node
// less after it.
func (g *groups) takeover() error {
	var all []*watched
	defer func() {
		for _, w := range all {
			w.stop()
		}
	}()
	// Groups of both kinds that the same broker coordinates.
	victim := int32(-1)
	for _, p := range protocols() {
		for i := 0; ; i++ {
			name := fmt.Sprintf("takeover-%s-%d", p.name, i)
			owner, err := g.coordinatorOf(name)
			if err != nil {
				return err
			}
			if victim >= 0 && owner != victim {
				continue
			}
			victim = owner
			w, err := g.watchGroup(name, p.opts)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			all = append(all, w)
			break
		}
	}
	late := settled
	if g.name == "kafka" {
		late += 2 * settled // its brokers' sessions are 9 s
	}
	var killed sync.Once
	errs := make(chan error, len(all))
	for i, w := range all {
		go func() {
			errs <- w.disturb(protocols()[i].name+", coordinator killed", late, func() (err error) {
				killed.Do(func() { err = syscall.Kill(g.pids[victim-1], syscall.SIGKILL) })
				return err
			})
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// coordinatorOf asks who coordinates a group.
func (g *groups) coordinatorOf(group string) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	for g.ctx.Err() == nil {
		resp, err := req.RequestWith(g.ctx, g.Client)
		if err != nil {
			return 0, fmt.Errorf("find the coordinator of %s: %w", group, err)
		}
		if len(resp.Coordinators) == 1 && resp.Coordinators[0].ErrorCode == 0 {
			return resp.Coordinators[0].NodeID, nil
		}
		pause(g.ctx, 50*time.Millisecond)
	}
	return 0, g.ctx.Err()
}

// watched is a group with members that poll, and two clients that commit for one
// of them.
type watched struct {
	g       *groups
	group   string
	held    assigned
	members []*kgo.Client
	fast    *prober
	stock   *prober
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

func (g *groups) watchGroup(group string, opts []kgo.Opt) (*watched, error) {
	w := &watched{g: g, group: group}
	w.ctx, w.cancel = context.WithCancel(g.ctx)
	for range movedMembers {
		c, err := g.member(group, groupTopic, append(opts, w.held.opts()...)...)
		if err != nil {
			w.stop()
			return nil, err
		}
		w.members = append(w.members, c)
		w.wg.Go(func() {
			for w.ctx.Err() == nil {
				c.PollFetches(w.ctx)
			}
		})
	}
	err := w.held.awaitAll(g.ctx, func(p, m int) bool { return p == groupParts && m == movedMembers })
	if err != nil {
		w.stop()
		return nil, err
	}
	pause(g.ctx, 3*time.Second)
	if w.fast, err = w.probe(kgo.RetryBackoffFn(func(int) time.Duration { return probeEvery })); err == nil {
		w.stock, err = w.probe()
	}
	if err != nil {
		w.stop()
	}
	return w, err
}

func (w *watched) stop() {
	w.cancel()
	w.wg.Wait()
	for _, c := range w.members {
		c.Close()
	}
}

// disturb notes what the group notices of an event, until a while after it.
func (w *watched) disturb(name string, wait time.Duration, event func() error) error {
	g := w.g
	pause(g.ctx, time.Second) // commits under way
	before, revoked := w.generations(), w.held.revocations()
	_, _ = w.fast.take() // what failed before does not count
	_, _ = w.stock.take()
	if err := event(); err != nil {
		return err
	}
	pause(g.ctx, wait)
	changed := 0
	for i, n := range w.generations() {
		if n != before[i] {
			changed++
		}
	}
	gap, err := w.fast.take()
	if err != nil {
		return err
	}
	slow, err := w.stock.take()
	if err != nil {
		return err
	}
	g.note(name+": commits pause", "ms", gap.Seconds()*1000)
	g.note(name+": commits pause,"+commitsSlow, "ms", slow.Seconds()*1000)
	g.note(name+": members with a new generation", "", float64(changed))
	g.note(name+": partitions revoked", "", float64(w.held.revocations()-revoked))
	return nil
}

// generations are those, or the epochs, of the members.
func (w *watched) generations() []string {
	var out []string
	for _, c := range w.members {
		id, n := c.GroupMetadata()
		out = append(out, fmt.Sprint(id, n))
	}
	return out
}

// prober commits all the time and knows the longest time between two commits.
type prober struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	failed  error
}

// take begins anew. A commit that has not come back counts as of now.
func (p *prober) take() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := max(p.longest, time.Since(p.last))
	err := p.failed
	p.longest, p.failed = 0, nil
	return longest, err
}

// probe commits for the first member until the group is stopped.
func (w *watched) probe(opts ...kgo.Opt) (*prober, error) {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.g.seeds()...), kgo.RequestRetries(1000)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	p := &prober{last: time.Now()}
	w.wg.Go(func() {
		defer c.Close()
		for offset := int64(1); w.ctx.Err() == nil; offset++ {
			member, generation := w.members[0].GroupMetadata()
			err := w.g.commitOf(w.ctx, c, w.g.commitRequest(w.group, member, generation, offset))
			p.mu.Lock()
			if now := time.Now(); err == nil {
				p.longest, p.last = max(p.longest, now.Sub(p.last)), now
			} else if code := new(codeError); errors.As(err, &code) {
				p.failed = err // others are that nobody answers
			}
			p.mu.Unlock()
			pause(w.ctx, probeEvery)
		}
	})
	return p, nil
}
