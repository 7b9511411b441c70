package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ponor/controller"
)

func newQuorum() *cobra.Command {
	cmd := &cobra.Command{Use: "quorum", Short: "Look at the metadata quorum and change it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newQuorumStatus(), newQuorumAdd(), newQuorumRemove(), newQuorumTransfer())
	return cmd
}

// quorumView is one node as 'quorum status' prints it. Nodes at an equal index
// of one generation have equal hashes, or their metadata diverged.
type quorumView struct {
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

func newQuorumStatus() *cobra.Command {
	var addresses, format string
	var timeout time.Duration
	def := "127.0.0.1:9192"
	if env := os.Getenv("PONOR_CONTROLLERS"); env != "" {
		def = env
	}
	cmd := &cobra.Command{
		Use: "status", Short: "State, index and state hash of each controller", Args: cobra.NoArgs,
		Long: `State, index and state hash of each controller. Nodes at an equal index have equal
hashes. Exits with 1 if a node does not answer or hashes differ.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			views, err := quorumStatus(cmd.Context(), strings.Split(addresses, ","), timeout)
			if rerr := render(cmd, format, views, func(p *printer) { printQuorum(p, views) }); rerr != nil {
				return rerr
			}
			if err != nil && format == formatJSON {
				return silentError{err}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&addresses, "controllers", def, "controller addresses, comma-separated [env: PONOR_CONTROLLERS]")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for each")
	formatFlag(cmd, &format)
	return cmd
}

func quorumStatus(ctx context.Context, addresses []string, timeout time.Duration) ([]quorumView, error) {
	views := make([]quorumView, 0, len(addresses))
	hashes := make(map[uint64]quorumView)
	var problem error
	for _, a := range addresses {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		s, err := controller.AskStatus(ctx, strings.TrimSpace(a))
		cancel()
		v := quorumView{Address: a, Node: int32(s.NodeID), Cluster: s.ClusterID, Generation: s.Generation, State: s.State,
			Term: s.Term, Index: uint64(s.Index), Hash: hex.EncodeToString(s.Hash[:])}
		if err != nil {
			v = quorumView{Address: a, Error: err.Error(), Node: -1}
			problem = fmt.Errorf("controller %s: %w", a, err)
		}
		for _, e := range s.Sessions {
			v.Sessions = append(v.Sessions, sessionView{Broker: e.Incarnation.String(), SilentMs: e.Silent.Milliseconds(), Index: uint64(e.Index)})
		}
		if other, ok := hashes[v.Index]; err == nil && ok && other.Hash != v.Hash && other.Generation == v.Generation {
			problem = fmt.Errorf("metadata diverged: at index %d node %d has hash %s and node %d has %s; stop both and restore one", v.Index, other.Node, other.Hash, v.Node, v.Hash)
		} else if err == nil {
			hashes[v.Index] = v
		}
		views = append(views, v)
	}
	return views, problem
}

func printQuorum(p *printer, views []quorumView) {
	p.row("CONTROLLER", "NODE", "STATE", "TERM", "INDEX", "STATE HASH")
	for _, v := range views {
		if v.Error != "" {
			p.row(v.Address, "-", "no answer", "", "", "")
			continue
		}
		p.row(v.Address, v.Node, v.State, v.Term, v.Index, v.Hash[:16])
	}
	for _, v := range views {
		for i, s := range v.Sessions {
			if i == 0 {
				p.line("")
				p.row("BROKER", "SILENT MS", "INDEX")
			}
			p.row(s.Broker, s.SilentMs, s.Index)
		}
	}
}
