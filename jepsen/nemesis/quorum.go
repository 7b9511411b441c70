package nemesis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/controller"
	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
	"ponor/metadata"
	"ponor/rpc"
)

func quorumKinds() []Kind {
	return []Kind{
		{"voters", "take a node's vote, and give it back", cluster.NeedsQuorum, func() Nemesis { return &voters{} }},
		{"transfer", "make another voter lead the quorum three times a second", cluster.NeedsQuorum, func() Nemesis { return &transfer{} }},
		{"join", "start one more node, a broker only, then end it, in order or not", cluster.NeedsQuorum, func() Nemesis { return &join{} }},
		{"drain", "drain one broker or several, then let them serve again", cluster.NeedsQuorum, func() Nemesis { return &drain{} }},
	}
}

// ask asks any node that answers.
func ask(ctx context.Context, env *Env, what func(context.Context, *rpc.Client) error) error {
	addresses := env.Cluster.Bootstrap()
	var errs []error
	for _, i := range env.Rand.Perm(len(addresses)) {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		c, err := rpc.Dial(try, new(net.Dialer).DialContext, addresses[i], rpc.ClientConfig{ClientID: "ponor-jepsen-nemesis"})
		if err == nil {
			err = what(try, c)
			_ = c.Close()
		}
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// persist asks until it is done, or until the context ends.
func persist(ctx context.Context, env *Env, what func(context.Context, *rpc.Client) error) error {
	for {
		err := ask(ctx, env, what)
		if err == nil || !sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

func quiet(string) {}

// votes tells which of the nodes vote.
func votes(ctx context.Context, c *rpc.Client) (map[int32]bool, error) {
	q, err := controller.AskQuorum(ctx, c)
	out := make(map[int32]bool)
	for _, m := range q.Members {
		if m.Voter {
			out[int32(m.ID)] = true
		}
	}
	return out, err
}

// voters takes a vote away.
type voters struct{ nodes []int32 }

// Name implements Nemesis.
func (*voters) Name() string { return "voters" }

// Start implements Nemesis.
func (v *voters) Start(ctx context.Context, env *Env) (history.Event, error) {
	v.nodes = env.Nodes.Take(env.Rand, env.Cluster.Nodes(), 1)
	if len(v.nodes) == 0 {
		return history.Event{}, nil
	}
	n := v.nodes[0]
	proof := ""
	err := ask(ctx, env, func(ctx context.Context, c *rpc.Client) error {
		if err := controller.AskVoters(ctx, c, controller.RemoveVoter, metadata.BrokerID(n), quiet); err != nil {
			return err
		}
		left, err := votes(ctx, c)
		if err == nil && left[n] {
			err = fmt.Errorf("node %d still votes", n)
		}
		proof = fmt.Sprintf("%d voters are left", len(left))
		return err
	})
	return history.Event{Target: nodeNames(v.nodes), Proof: proof}, err
}

// Stop implements Nemesis.
func (v *voters) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(v.nodes)
	return run(v.nodes, env, func(n int32) error {
		return persist(ctx, env, func(ctx context.Context, c *rpc.Client) error {
			return controller.AskVoters(ctx, c, controller.AddVoter, metadata.BrokerID(n), quiet)
		})
	})
}

// transfer moves the leadership of the quorum.
type transfer struct{ background }

// transferEvery is the time between two transfers.
const transferEvery = 300 * time.Millisecond

// Name implements Nemesis.
func (*transfer) Name() string { return "transfer" }

// Start implements Nemesis: it has moved once when it returns.
func (t *transfer) Start(ctx context.Context, env *Env) (history.Event, error) {
	err := persist(ctx, env, transferOnce)
	t.begin(func(done <-chan struct{}) (string, error) {
		moved, tried := 1, 1
		for {
			select {
			case <-done:
				return fmt.Sprintf("%d of %d transfers succeeded", moved, tried), nil
			case <-time.After(transferEvery):
			}
			ctx, cancel := context.WithTimeout(context.Background(), moveTimeout)
			tried++
			if ask(ctx, env, transferOnce) == nil {
				moved++
			}
			cancel()
		}
	})
	e := history.Event{Target: []string{"quorum"}}
	if err == nil {
		e.Proof = "the quorum has another leader"
	}
	return e, err
}

func transferOnce(ctx context.Context, c *rpc.Client) error {
	return controller.AskVoters(ctx, c, controller.TransferLeadership, -1, quiet)
}

// Stop implements Nemesis.
func (t *transfer) Stop(context.Context, *Env) (history.Event, error) {
	proof, err := t.end()
	return history.Event{Target: []string{"quorum"}, Proof: proof}, err
}

// drain takes partitions from brokers.
type drain struct{ nodes []int32 }

// Name implements Nemesis.
func (*drain) Name() string { return "drain" }

// Start implements Nemesis: a broker that drains leads nothing when it returns.
func (d *drain) Start(ctx context.Context, env *Env) (history.Event, error) {
	all := env.Cluster.Nodes()
	d.nodes = env.Nodes.Take(env.Rand, all, min(len(all)-1, howMany(env.Rand, len(all))))
	if len(d.nodes) == 0 {
		return history.Event{}, nil
	}
	e := history.Event{Target: nodeNames(d.nodes)}
	if err := each(d.nodes, func(n int32) error { return ask(ctx, env, brokerState(n, true)) }); err != nil {
		return e, err
	}
	err := met(ctx, func() bool { return leads(ctx, env, d.nodes) == 0 })
	if err == nil {
		e.Proof = "they lead no partition"
	}
	return e, err
}

func brokerState(n int32, draining bool) func(context.Context, *rpc.Client) error {
	return func(ctx context.Context, c *rpc.Client) error {
		return controller.AskBrokerState(ctx, c, metadata.BrokerID(n), false, draining)
	}
}

// leads is how many partitions of all topics have one of the nodes as leader, -1
// if nobody says.
func leads(ctx context.Context, env *Env, nodes []int32) int {
	md, err := env.Admin.Metadata(ctx)
	if err != nil {
		return -1
	}
	led := 0
	for _, t := range md.Topics {
		for _, p := range t.Partitions {
			for _, n := range nodes {
				if p.Leader == n {
					led++
				}
			}
		}
	}
	return led
}

// Stop implements Nemesis.
func (d *drain) Stop(ctx context.Context, env *Env) (history.Event, error) {
	defer env.Nodes.Free(d.nodes)
	return run(d.nodes, env, func(n int32) error { return persist(ctx, env, brokerState(n, false)) })
}

// join has one more broker come and go.
type join struct{ id int32 }

// host can have one more node.
type host interface {
	Join(ctx context.Context) (int32, error)
	Leave(ctx context.Context, inOrder bool) (string, error)
}

// Name implements Nemesis.
func (*join) Name() string { return "join" }

// Start implements Nemesis: clients are told of the broker when it returns.
func (j *join) Start(ctx context.Context, env *Env) (history.Event, error) {
	h, ok := env.Cluster.(host)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	var err error
	if j.id, err = h.Join(ctx); err != nil {
		return history.Event{}, err
	}
	e := history.Event{Target: nodeNames([]int32{j.id})}
	err = met(ctx, func() bool {
		md, err := env.Admin.Metadata(ctx) // of all topics: that of brokers alone may be of long ago
		return err == nil && slices.ContainsFunc(md.Brokers, func(b kadm.BrokerDetail) bool { return b.NodeID == j.id })
	})
	if err == nil {
		e.Proof = "the metadata list it"
	}
	return e, err
}

// Stop implements Nemesis.
func (j *join) Stop(ctx context.Context, env *Env) (history.Event, error) {
	h, ok := env.Cluster.(host)
	if !ok {
		return history.Event{}, cluster.ErrCannot
	}
	proof, err := h.Leave(ctx, env.Rand.IntN(3) > 0)
	return history.Event{Target: nodeNames([]int32{j.id}), Proof: proof}, err
}
