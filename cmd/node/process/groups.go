package process

import (
	"ponor/coordinator"
	"ponor/coordinator/group"
)

// coordinate makes what keeps the consumer groups, for all incarnations of the
// node: the partitions that each of them opens and closes tell it.
func (n *Node) coordinate() *coordinator.Shards[*group.Machine] {
	return coordinator.New(coordinator.Config[*group.Machine]{
		Topic: "__consumer_offsets", Image: n.ctl.Image, Partitions: &n.hosted,
		New:     func(int32) *group.Machine { return group.New(n.cfg.Groups) },
		Metrics: &n.meters.groups, Logger: n.log,
	})
}
