package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ponor/controller"
	"ponor/rpc"
)

func newQuorum() *cobra.Command {
	return family("quorum", "Look at the metadata quorum and change it", newQuorumStatus(), newQuorumAdd(), newQuorumRemove(), newQuorumTransfer())
}

// quorumView is what 'quorum status' prints.
type quorumView struct {
	Cluster string `json:"cluster_id"`
	// Leader is its node id, -1 for none.
	Leader      int32            `json:"leader"`
	Term        uint64           `json:"term"`
	Controllers []controllerView `json:"controllers"`
}

// controllerView is one node. Nodes at an equal index of one generation have
// equal hashes, or their metadata diverged.
type controllerView struct {
	Address    string        `json:"address"`
	Error      string        `json:"error,omitempty"`
	Node       int32         `json:"node"`
	Cluster    string        `json:"cluster_id"`
	Generation uint64        `json:"generation"`
	State      string        `json:"state"`
	Term       uint64        `json:"term"`
	Index      uint64        `json:"index"`
	Hash       string        `json:"state_hash"`
	Sessions   []sessionView `json:"sessions,omitempty"` // of the leader
}

type sessionView struct {
	Broker   string `json:"incarnation"`
	SilentMs int64  `json:"silent_ms"`
	Index    uint64 `json:"index"`
}

// statusPatience is how long one controller may take to answer.
const statusPatience = 5 * time.Second

func newQuorumStatus() *cobra.Command {
	var f clientFlags
	var addresses, format string
	cmd := &cobra.Command{
		Use: "status", Short: "Who leads, and state, index and state hash of each controller", Args: takes(0, 0),
		Long: `Who leads, and state, index and state hash of each controller. Nodes at an equal
index have equal hashes. A broker at --bootstrap says which controllers there are;
when no broker can, because nobody leads, name them yourself: --controllers.
Exits with 1 if a controller does not answer, none leads, hashes differ, or
controllers are of different generations or clusters.`,
		Example: `  ponor quorum status
  ponor quorum status --controllers 127.0.0.1:9192,127.0.0.1:9193,127.0.0.1:9194`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := f.controllers(cmd.Context(), addresses)
			if err != nil {
				return err
			}
			view, err := quorumStatus(cmd.Context(), list, min(f.timeout, statusPatience))
			if rerr := render(cmd, format, view, func(p *printer) { printQuorum(p, view) }); rerr != nil {
				return rerr
			}
			if err != nil && format == formatJSON {
				return silentError{err}
			}
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addresses, "controllers", os.Getenv("PONOR_CONTROLLERS"), "controller addresses to ask instead, comma-separated [env: PONOR_CONTROLLERS]")
	formatFlag(cmd, &format)
	return cmd
}

// controllers are the controller addresses given, or those of the cluster's
// voters.
func (f *clientFlags) controllers(ctx context.Context, given string) (list []string, err error) {
	for a := range strings.SplitSeq(given, ",") {
		if a = strings.TrimSpace(a); a != "" {
			list = append(list, a)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	err = f.withBroker(ctx, func(c *rpc.Client) error {
		info, err := controller.AskQuorum(ctx, c)
		if err != nil {
			return fmt.Errorf("find the controllers: %w; if none leads, name them: --controllers", err)
		}
		for _, m := range info.Members {
			if m.Member {
				list = append(list, m.Address)
			}
		}
		return nil
	})
	return list, err
}

func quorumStatus(ctx context.Context, addresses []string, timeout time.Duration) (quorumView, error) {
	var list []controllerView
	var missing error
	for _, a := range addresses {
		v, err := controllerStatus(ctx, a, timeout)
		list = append(list, v)
		if err != nil {
			missing = fmt.Errorf("controller %s: %w; is that node running?", a, err)
		}
	}
	view, problem := judgeQuorum(list)
	if problem == nil || view.Leader < 0 && missing != nil {
		problem = missing
	}
	return view, problem
}

// judgeQuorum looks for what is wrong among the controllers that answered.
func judgeQuorum(list []controllerView) (quorumView, error) {
	view := quorumView{Leader: -1, Controllers: list}
	hashes := make(map[uint64]controllerView)
	var problem error
	var first, newest, leader *controllerView
	for i := range list {
		v := &list[i]
		if v.Error != "" {
			continue
		}
		if v.Cluster != "" { // else it has no metadata yet
			view.Cluster = v.Cluster
			if first == nil {
				first, newest = v, v
			}
			if v.Generation > newest.Generation {
				newest = v
			}
		}
		view.Term = max(view.Term, v.Term)
		// Of two the one of the newer metadata, whose terms began anew, else the later one.
		if v.State == "Leader" && (leader == nil || cmp.Or(cmp.Compare(v.Generation, leader.Generation), cmp.Compare(v.Term, leader.Term)) >= 0) {
			leader = v
		}
		if other, ok := hashes[v.Index]; ok && other.Hash != v.Hash && other.Generation == v.Generation {
			problem = fmt.Errorf("metadata diverged: at index %d node %d has hash %s and node %d has %s; stop both and restore one", v.Index, other.Node, other.Hash, v.Node, v.Hash)
		}
		hashes[v.Index] = *v
	}
	for i := range list {
		v := &list[i]
		switch {
		case v.Error != "" || v.Cluster == "":
		case v.Cluster != first.Cluster:
			problem = fmt.Errorf("node %d at %s is of cluster %s and node %d at %s of %s: ask the controllers of one", first.Node, first.Address, first.Cluster, v.Node, v.Address, v.Cluster)
		case v.Generation < newest.Generation && problem == nil:
			problem = fmt.Errorf("node %d is of generation %d of the metadata and node %d of %d: it was restored while node %d ran, which must be stopped and get the restored metadata", v.Node, v.Generation, newest.Node, newest.Generation, v.Node)
		}
	}
	if leader != nil {
		view.Leader, view.Term = leader.Node, leader.Term
	} else if problem == nil {
		problem = errors.New("no controller leads: an election takes a second or two, ask again; else look at the controllers' logs")
	}
	return view, problem
}

// controllerStatus asks one controller; the view is complete also beside an
// error.
func controllerStatus(ctx context.Context, address string, timeout time.Duration) (controllerView, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := controller.AskStatus(ctx, address)
	if err != nil {
		return controllerView{Address: address, Error: err.Error(), Node: -1}, err
	}
	v := controllerView{Address: address, Node: int32(s.NodeID), Cluster: s.ClusterID, Generation: s.Generation, State: s.State,
		Term: s.Term, Index: uint64(s.Index), Hash: hex.EncodeToString(s.Hash[:])}
	for _, e := range s.Sessions {
		v.Sessions = append(v.Sessions, sessionView{Broker: e.Incarnation.String(), SilentMs: e.Silent.Milliseconds(), Index: uint64(e.Index)})
	}
	return v, nil
}

func printQuorum(p *printer, view quorumView) {
	if view.Leader >= 0 {
		p.line("cluster %s, node %d leads in term %d", view.Cluster, view.Leader, view.Term)
	} else {
		p.line("cluster %s, nobody leads", orDash(view.Cluster))
	}
	p.row("CONTROLLER", "NODE", "STATE", "TERM", "INDEX", "STATE HASH")
	for _, v := range view.Controllers {
		if v.Error != "" {
			p.row(v.Address, "-", "no answer", "", "", "")
			continue
		}
		p.row(v.Address, v.Node, v.State, v.Term, v.Index, v.Hash[:16])
	}
	for _, v := range view.Controllers {
		for i, s := range v.Sessions {
			if i == 0 {
				p.line("")
				p.row("BROKER", "SILENT MS", "INDEX")
			}
			p.row(s.Broker, s.SilentMs, s.Index)
		}
	}
}
