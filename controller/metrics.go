package controller

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"ponor/internal/metrics"
	"ponor/metadata"
)

// counts are what a Node counts.
type counts struct {
	commits       metrics.Durations // of Raft entries that this node proposed
	commands      metrics.Counter   // in them
	fences        metrics.Counter
	detect, fence metrics.Durations // steps of a takeover
	balance       [len(causes)]metrics.Counter
	snapshots     metrics.Durations
	snapshotBytes atomic.Int64 // of the last one
}

// fenced counts a takeover that began: silence is how long the broker gave no
// sign of life before it was fenced, begun when that was decided.
func (c *counts) fenced(silence time.Duration, begun time.Time) {
	c.fences.Inc()
	c.detect.Observe(silence)
	c.fence.Observe(time.Since(begun))
}

// causes are why the balancer moves leaders.
var causes = [...]string{causePreferred, causePartitions, causeBytes, causeRequests}

// balanced counts a move that was planned.
func (c *counts) balanced(cause string) {
	if i := slices.Index(causes[:], cause); i >= 0 {
		c.balance[i].Inc()
	}
}

// countedWriter counts bytes.
type countedWriter struct {
	w io.Writer
	n int64
}

func (c *countedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Show writes this node's part in the metadata to a page; what concerns the
// cluster as a whole, and what only the leader knows, it writes on the leader.
func (n *Node) Show(p *metrics.Page) {
	img, c := n.Image(), &n.images.count
	leader, _, known := n.leaderHint()
	if !known {
		leader = -1
	}
	p.Set(metrics.RaftLeader, float64(leader))
	p.Flag(metrics.Controller, n.Leading())
	p.Set(metrics.MetadataIndex, float64(img.Index()))
	p.Durations(metrics.RaftCommitSeconds, &c.commits)
	p.Count(metrics.MetadataCommands, &c.commands)
	p.Count(metrics.Fences, &c.fences)
	p.Durations(metrics.TakeoverSeconds, &c.detect, "detect")
	p.Durations(metrics.TakeoverSeconds, &c.fence, "fence")
	for i, cause := range causes {
		p.Count(metrics.BalanceMoves, &c.balance[i], cause)
	}
	if v := n.vote.Load(); v != nil {
		n.showRaft(p, v)
	}
	if n.Leading() {
		showCluster(p, img)
	}
}

// raftStates are Raft's states as labels.
var raftStates = []raft.RaftState{raft.Follower, raft.Candidate, raft.Leader, raft.Shutdown}

func (n *Node) showRaft(p *metrics.Page, v *voter) {
	state := v.raft.State()
	for _, s := range raftStates {
		p.Flag(metrics.RaftState, s == state, s.String())
	}
	p.Set(metrics.RaftTerm, float64(v.raft.CurrentTerm()))
	p.Set(metrics.RaftLastIndex, float64(v.raft.LastIndex()))
	p.Set(metrics.RaftCommitIndex, float64(v.raft.CommitIndex()))
	p.Set(metrics.RaftAppliedIndex, float64(v.raft.AppliedIndex()))
	silent := 0.0
	if last := v.raft.LastContact(); state != raft.Leader && !last.IsZero() {
		silent = time.Since(last).Seconds()
	}
	p.Set(metrics.RaftLastContact, silent)
	cut, _ := strconv.ParseFloat(v.raft.Stats()["last_snapshot_index"], 64)
	p.Set(metrics.RaftSnapshotIndex, cut)
	p.Durations(metrics.RaftSnapshotSeconds, &n.images.count.snapshots)
	p.Set(metrics.RaftSnapshotBytes, float64(n.images.count.snapshotBytes.Load()))
	size := int64(0) // a log in memory
	if n.cfg.DataDir != "" {
		if info, err := os.Stat(filepath.Join(n.cfg.DataDir, "raft.db")); err == nil {
			size = info.Size()
		}
	}
	p.Set(metrics.RaftLogBytes, float64(size))
}

// showCluster writes what the image says of the whole cluster. It costs as much
// as there are brokers, dead write-ahead logs and partitions without an owner.
func showCluster(p *metrics.Page, img *metadata.Image) {
	live, dead := 0, 0
	for b := range img.Brokers() {
		if b.Fenced {
			dead++
			continue
		}
		live++
		p.Set(metrics.ClusterOwned, float64(img.OwnedCount(b.Incarnation)), strconv.Itoa(int(b.ID)))
	}
	p.Set(metrics.ClusterBrokers, float64(live), "live")
	p.Set(metrics.ClusterBrokers, float64(dead), "fenced")
	p.Set(metrics.ClusterTopics, float64(img.TopicCount()))
	p.Set(metrics.ClusterPartitions, float64(img.PartitionCount()))
	offline, unsealed := 0, 0
	for w := range img.WALs() {
		if w.State == metadata.Active {
			continue
		}
		for part := range img.Owned(w.Incarnation) {
			if !part.Deleting {
				offline++
			}
		}
		if w.State == metadata.Fenced {
			unsealed++
			for part := range img.Waiting(w.Incarnation) {
				if part.Owner != w.Incarnation { // else counted above
					offline++
				}
			}
		}
	}
	p.Set(metrics.ClusterOffline, float64(offline))
	p.Set(metrics.ClusterUnsealed, float64(unsealed))
}
