package controller

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// firstGeneration is the generation of a cluster that was never restored.
const firstGeneration = 1

// logHistory is which history a server's log is of: the generation in which
// the quorum was made that it belongs to. A log has it from its first entry on,
// and for ever.
type logHistory struct {
	stable raft.StableStore
	gen    atomic.Uint64
	turn   chan struct{} // holds one token while nobody begins the log
}

// open reads what the store knows.
func (h *logHistory) open(stable raft.StableStore, fresh bool) error {
	h.stable, h.turn = stable, make(chan struct{}, 1)
	h.turn <- struct{}{}
	gen, err := logGeneration(stable)
	if err != nil {
		return err
	}
	if gen == 0 && !fresh {
		return errors.New("the Raft log does not say of which generation it is: move the directory away and start with an empty one")
	}
	h.gen.Store(gen)
	return nil
}

// generation is 0 before the log has begun.
func (h *logHistory) generation() uint64 { return h.gen.Load() }

// begin makes the log one of generation, durably, before its first entry. It
// fails if the log is of another one.
func (h *logHistory) begin(generation uint64) error {
	<-h.turn
	defer func() { h.turn <- struct{}{} }()
	switch now := h.gen.Load(); now {
	case generation:
		return nil
	case 0:
		if err := setLogGeneration(h.stable, generation); err != nil {
			return err
		}
		h.gen.Store(generation)
		return nil
	default:
		return fmt.Errorf("the Raft log is of generation %d, not %d", now, generation)
	}
}

// welcome judges a Raft connection by its greeting: two clusters that were
// given each other's addresses must not vote together, what is meant for a
// directory that is gone must not reach the one in its place (K12), and logs of
// different histories must not meet.
func (n *Node) welcome(remote net.Addr, g greeting) bool {
	if ours := n.clusterID(); g.cluster != "" && ours != "" && g.cluster != ours {
		n.warn.log("refused a voter of another cluster", "address", remote.String(), "cluster", g.cluster)
		return false
	}
	v := n.vote.Load()
	if v == nil {
		return false // it comes again
	}
	if g.server != v.id {
		n.warn.log("refused a Raft connection that is meant for another directory of this node, whose disk was replaced or which was added anew",
			"address", remote.String(), "own", string(v.id), "meant", string(g.server))
		return false
	}
	if err := v.log.begin(g.generation); g.generation == 0 || err != nil {
		n.warn.log("refused a voter of another generation of this cluster", "address", remote.String(), "generation", g.generation, "reason", err)
		return false
	}
	return true
}
