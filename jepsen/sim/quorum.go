package sim

import (
	"context"
	"fmt"
	"time"

	"ponor/controller"
	"ponor/metadata"
)

// changing bounds one change of the quorum while there are faults.
const changing = 10 * time.Second

// anyone is a living node's part in the metadata quorum; it passes calls on to
// the leader.
func (c *cluster) anyone(draw uint64) *controller.Node {
	for i := range c.nodes {
		n := c.nodes[(i+int(draw%uint64(len(c.nodes))))%len(c.nodes)]
		if r := n.current(); r != nil {
			return r.Controller()
		}
	}
	return nil
}

// change asks for one change of the quorum.
func (c *cluster) change(ctx context.Context, draw uint64, f func(context.Context, *controller.Node) error) error {
	node := c.anyone(draw)
	if node == nil {
		return errNobody
	}
	return f(ctx, node)
}

func add(n *node) func(context.Context, *controller.Node) error {
	return func(ctx context.Context, c *controller.Node) error {
		return c.AddVoter(ctx, metadata.BrokerID(n.id), controller.DirectoryID{})
	}
}

func remove(n *node) func(context.Context, *controller.Node) error {
	return func(ctx context.Context, c *controller.Node) error {
		return c.RemoveVoter(ctx, metadata.BrokerID(n.id), controller.DirectoryID{})
	}
}

// requorum changes who votes, or who leads.
func (n *nemesis) requorum(e Event) {
	select {
	case n.busy["quorum"] <- struct{}{}:
	default: // two at a time could leave one voter
		n.miss(e)
		return
	}
	defer func() { <-n.busy["quorum"] }()
	voters := n.c.voters()
	v := voters[e.Draw/7%uint64(len(voters))]
	if l := n.c.leader(); l != nil && e.Who == Leader && l.voter {
		v = l
	}
	step := func(f func(context.Context, *controller.Node) error) error {
		ctx, cancel := context.WithTimeout(n.op.w.ctx, changing)
		defer cancel()
		return n.c.change(ctx, e.Draw, f)
	}
	switch e.Kind {
	case Transfer:
		n.ordered(e, v.name, step(func(ctx context.Context, c *controller.Node) error {
			return c.TransferLeadership(ctx, metadata.BrokerID(v.id))
		}))
	case Replace:
		spare := n.c.nodes[len(voters)]
		if !spare.able || !n.ordered(e, v.name+" by "+spare.name, step(add(spare))) {
			return
		}
		_ = step(remove(v))
		n.lasts(e.For)
		_ = step(add(v))
		_ = step(remove(spare))
	default:
		if n.ordered(e, v.name, step(remove(v))) {
			n.lasts(e.For)
			_ = step(add(v))
		}
	}
}

// reunite gives every voter its vote back, and takes it from everybody else.
func (n *nemesis) reunite(within time.Duration) error {
	if n.mu.applied[Revote]+n.mu.applied[Replace] == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, v := range n.c.nodes {
		f, what := add(v), "add"
		if !v.voter {
			f, what = remove(v), "remove"
		}
		if !v.able {
			continue
		}
		for {
			err := n.c.change(ctx, 0, f)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s voter %s within %v: %w", what, v.name, within, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	n.c.time.add("the quorum is what it was")
	return nil
}
