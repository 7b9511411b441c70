package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/jepsen/cluster"
)

// steerTimeout bounds a change of the whole cluster in the final phase.
const steerTimeout = time.Minute

// leadAll makes a node the leader of every partition of the workload.
func (e *Env) leadAll(ctx context.Context, node int32) error {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	topics := e.Topics()
	for {
		left, err := e.lead(ctx, node, topics)
		if err == nil && left == 0 {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("move all partitions to node %d: %d are not there: %w", node, left, errors.Join(err, ctx.Err()))
		}
	}
}

// lead moves what another leads, and returns how many that are.
func (e *Env) lead(ctx context.Context, node int32, topics []string) (int, error) {
	md, err := e.Admin.Metadata(ctx, topics...)
	if err != nil {
		return 0, err
	}
	var req kadm.AlterPartitionAssignmentsReq
	left := 0
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader != node {
			left++
			req.Assign(p.Topic, p.Partition, []int32{node})
		}
	})
	if left == 0 {
		return 0, nil
	}
	_, err = e.Admin.AlterPartitionAssignments(ctx, req)
	return left, err
}

// restartAll kills all nodes at once and starts them.
func (e *Env) restartAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	for _, n := range e.Cluster.Nodes() {
		if err := e.Cluster.Kill(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range e.Cluster.Nodes() {
		if err := e.Cluster.Start(ctx, n); err != nil {
			return err
		}
	}
	return cluster.WaitReady(ctx, e.Cluster)
}
