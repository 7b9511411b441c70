package controller

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"ponor/metadata"
)

// A killed process is the Raft leader in one run of three, and an election
// timeout of a second would then be most of the outage. So a voter that loses
// its connection to the leader asks whether the leader's process is there at
// all. If its address refuses, it is certainly gone, and the voters stand for
// election without waiting: the one with the lowest id first, the next ones a
// little later in case the first does not win (its log may be behind). Raft
// elections are safe at any time, so a wrong guess costs an election and
// nothing else; heartbeat timeouts stay long enough for slow disks (K8).
//
// Lowering Raft's heartbeat timeout for one election was considered instead.
// Raft does not let it go below the leader's lease, half a second here, which
// leaves most of the delay.
const (
	// standGap is the time between two voters' attempts: a vote and its fsyncs.
	standGap = 150 * time.Millisecond
	// succeedLimit ends the attempts; Raft's own timeout takes over.
	succeedLimit = 5 * time.Second
)

// suspectLeader is called when a poll to the node at address failed. If that
// was the last leader, it may be gone. Raft itself may have forgotten it by
// now, because another voter was faster to stand; that one may have lost all
// the same.
func (n *Node) suspectLeader(ctx context.Context, address string) {
	v := n.vote.Load()
	if v == nil || n.isSelf(address) || ctx.Err() != nil || v.lastLeader.Load() != address {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, succeedLimit)
	defer cancel()
	if !n.refused(ctx, address) {
		return
	}
	rank := n.successionRank(v, address)
	if rank < 0 {
		return
	}
	if rank > 0 {
		select {
		case <-time.After(time.Duration(rank) * standGap):
		case <-ctx.Done():
			return
		}
	}
	if _, now, ok := n.raftLeader(); ok && now != address {
		return // someone was faster
	}
	if rank > 0 && !n.refused(ctx, address) {
		return
	}
	n.log.Info("the leader's process is gone, standing for election", "address", address)
	if err := v.transport.stand(); err != nil {
		n.log.Debug("cannot stand for election", "err", err)
	}
}

func (n *Node) refused(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := n.cfg.Dial(ctx, "tcp", address)
	if err == nil {
		c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// successionRank is this voter's place among those that are left, -1 if it
// has no vote.
func (n *Node) successionRank(v *voter, leader string) int {
	var ids []metadata.BrokerID
	for _, s := range v.voters() {
		if _, address := dialAddress(s.Address); address != leader {
			ids = append(ids, nodeID(s.ID))
		}
	}
	slices.Sort(ids)
	return slices.Index(ids, n.cfg.NodeID)
}
