package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

func clockKinds() []Kind {
	return []Kind{
		{"clock", "the time of day of one node or a minority jumps by up to an hour, or jumps to and fro", cluster.NeedsClock, func() Nemesis { return &clock{} }},
	}
}

const (
	// A clock is off by skewLeast to skewMost, small steps as likely as large ones.
	skewLeast = 10 * time.Millisecond
	skewMost  = time.Hour
	// strobeMost is the longest time between two jumps of one that jumps to and fro.
	strobeMost = time.Second
)

// clocked has nodes whose time of day is what the harness says.
type clocked interface {
	Clock(node int32) *cluster.Clock
}

// clock has nodes take a wrong time of day.
type clock struct {
	nodes []int32
	how   []string // of each
}

// Name implements Nemesis.
func (*clock) Name() string { return "clock" }

// Start implements Nemesis: one node has told a time that was off when it returns.
func (c *clock) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, ok := env.Cluster.(clocked)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	all := env.Cluster.Nodes()
	n := 1
	if env.Rand.IntN(2) == 0 {
		n = max(1, (len(all)-1)/2)
	}
	c.nodes = new(Claims).Take(env.Rand, all, n) // it goes with faults that end them
	c.how = nil
	e := history.Event{Target: nodeNames(c.nodes)}
	var err error
	for _, id := range c.nodes {
		by, strobe := skew(env.Rand), time.Duration(0)
		how := fmt.Sprintf("by %v", by.Round(time.Millisecond))
		if env.Rand.IntN(3) == 0 {
			strobe = time.Millisecond + time.Duration(env.Rand.Int64N(int64(strobeMost)))
			how += fmt.Sprintf(" and back every %v", strobe.Round(time.Millisecond))
		}
		c.how = append(c.how, how)
		err = errors.Join(err, h.Clock(id).Set(by, strobe))
	}
	if err == nil {
		err = met(ctx, func() bool { return c.told(h) > 0 })
	}
	if err == nil {
		e.Proof = c.proof(h)
	}
	return e, err
}

// skew is at random, and ahead as often as behind.
func skew(rng *rand.Rand) time.Duration {
	least, most := math.Log(float64(skewLeast)), math.Log(float64(skewMost))
	by := time.Duration(math.Exp(least + (most-least)*rng.Float64()))
	if rng.IntN(2) == 0 {
		return -by
	}
	return by
}

func (c *clock) told(h clocked) (sum int64) {
	for _, id := range c.nodes {
		sum += h.Clock(id).Told()
	}
	return sum
}

func (c *clock) proof(h clocked) string {
	var list []string
	for i, id := range c.nodes {
		list = append(list, fmt.Sprintf("node %d took a time that was off %s, %d times", id, c.how[i], h.Clock(id).Told()))
	}
	return strings.Join(list, ", ")
}

// Stop implements Nemesis: the clocks jump back.
func (c *clock) Stop(_ context.Context, env *Env) (history.Event, error) {
	h, ok := env.Cluster.(clocked)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	e := history.Event{Target: nodeNames(c.nodes), Proof: c.proof(h)}
	var err error
	for _, id := range c.nodes {
		err = errors.Join(err, h.Clock(id).Set(0, 0))
	}
	return e, err
}
