package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
)

// followBytes bounds the entries of one reply.
const followBytes = 1 << 20

// followWait is how long the leader holds an empty poll. It also bounds how
// late a node without a vote notices a paused leader.
func (n *Node) followWait() time.Duration { return n.cfg.HeartbeatInterval * 2 }

// runFollow advances the image by the leader's stream until ctx ends. Voters
// do so too: Raft tells a follower of a commit only with the leader's next
// append, which is too late for a hand-over.
func (n *Node) runFollow(ctx context.Context) {
	backoff := minBackoff
	at := anyTurn()
	for ctx.Err() == nil {
		role := n.role.changed()
		if id, _, ok := n.raftLeader(); ok && id == n.cfg.NodeID {
			select {
			case <-role: // nobody to follow
			case <-ctx.Done():
			}
			continue
		}
		err := n.followOnce(ctx, &at)
		if err == nil {
			backoff = minBackoff
			continue
		}
		n.log.Debug("follow failed", "err", err)
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, maxBackoff)
		case <-role:
			backoff = minBackoff
		case <-ctx.Done():
		}
	}
}

// followOnce makes one poll and applies what it brought.
func (n *Node) followOnce(ctx context.Context, at *turn) error {
	img := n.Image()
	q := &controllerpb.FollowRequest{
		ClusterId: n.clusterID(), NodeId: int32(n.cfg.NodeID),
		Generation: img.Generation(), After: uint64(img.Index()),
		WaitMs: uint32(n.followWait().Milliseconds()), MaxBytes: followBytes,
	}
	resp := new(controllerpb.FollowResponse)
	address := n.client.target(at)
	if n.isSelf(address) {
		return errors.New("no leader is known")
	}
	if _, err := n.client.attempt(ctx, address, laneFollow, keyFollow, q, resp); err != nil {
		n.client.forget(address)
		n.suspectLeader(ctx, address)
		return err
	}
	// What a node that does not lead sends is committed too.
	for _, e := range resp.Entries {
		if _, err := n.images.apply(metadata.Index(e.Index), e.Data); err != nil {
			n.fail(err)
			return err
		}
	}
	code := resp.Outcome.GetCode()
	if resp.SnapshotNeeded && (code == controllerpb.Code_OK || code == controllerpb.Code_NOT_CONTROLLER) {
		if err := n.fetchSnapshot(ctx, address); err != nil {
			return err
		}
	}
	switch code {
	case controllerpb.Code_OK:
		n.client.confirm(address)
		n.followed.Store(true)
		return nil
	case controllerpb.Code_WENT_BACK: // epoch-1
		err := fmt.Errorf("%w: %s; this node stops rather than act on it: find out whether metadata was restored or a voter's disk was replaced",
			ErrWentBack, resp.Outcome.GetMessage())
		n.fail(err)
		return err
	}
	_, _, err := n.client.judge(address, resp.Outcome)
	return err
}

func (n *Node) isSelf(address string) bool {
	return n.cfg.Voter && address == n.cfg.AdvertiseController
}

// fetchSnapshot reads a whole image in pieces.
func (n *Node) fetchSnapshot(ctx context.Context, address string) error {
	var data []byte
	var index uint64
	for {
		q := &controllerpb.SnapshotRequest{ClusterId: n.clusterID(), Index: index, Offset: uint64(len(data))}
		resp := new(controllerpb.SnapshotResponse)
		if _, err := n.client.attempt(ctx, address, laneFollow, keySnapshot, q, resp); err != nil {
			return fmt.Errorf("fetch metadata snapshot: %w", err)
		}
		if c := resp.Outcome.GetCode(); c != controllerpb.Code_OK {
			return fmt.Errorf("fetch metadata snapshot: %v: %s", c, resp.Outcome.GetMessage())
		}
		index = resp.Index
		data = append(data, resp.Data...)
		if uint64(len(data)) >= resp.Total {
			break
		}
		if len(resp.Data) == 0 || index == 0 {
			return errors.New("fetch metadata snapshot: no progress")
		}
	}
	img, err := decodeSnapshot(data)
	if err != nil {
		return err
	}
	if err := n.outlived(img); err != nil {
		n.fail(err)
		return err
	}
	return n.images.install(img)
}

// outlived says that the metadata was restored after this voter's log began. No
// voter of the restored quorum talks to it (welcome), so it would stand for
// election for ever; and its directory has history that was given up.
func (n *Node) outlived(img *metadata.Image) error {
	v := n.vote.Load()
	if v == nil {
		return nil
	}
	if own := v.log.generation(); own != 0 && own < img.Generation() {
		return fmt.Errorf("controller directory %s is of generation %d of cluster %s, whose metadata was restored as generation %d: move the directory away and start this node again, to follow the restored quorum; 'ponor quorum add %d' gives it a vote then",
			n.cfg.DataDir, own, img.ClusterID(), img.Generation(), n.cfg.NodeID)
	}
	return nil
}
