package broker

// DescribeLogDirs v1-5: bytes of the partitions that this broker owns, and 0 of those
// that it is a replica of (KIP-113).
//
// Version notes:
//   v2 flexible
//   v3 error for the whole response
//   v4 total and usable bytes (KIP-827); unknown here, -1
//   v5 cordoned (KIP-1066)
//
// The bytes of a partition on shared storage are reported once, by its owner, in a log
// dir named after the store; local ones are in the broker's own log dir. Its other
// replicas have copied nothing, but a partition that is in no log dir of a replica is
// what kafka-reassign-partitions --verify takes for an offline log dir.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) describeLogDirs(_ context.Context, _ call, req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := answer[*kmsg.DescribeLogDirsResponse](req)
	img := b.image()
	shared, local := b.logDir(b.cfg.StoreName), b.logDir(b.cfg.LocalDir)
	if self, ok := img.Broker(b.cfg.NodeID); ok {
		shared.IsCordoned, local.IsCordoned = self.Cordoned, self.Cordoned
	}
	wanted := wantedPartitions(req)
	for t := range img.Topics() {
		numbers, ok := wanted[t.Name]
		if t.Deleting || wanted != nil && !ok {
			continue
		}
		dir := &shared
		if b.cfg.LocalDir != "" && img.TopicSettings(t.Name).Local {
			dir = &local
		}
		if parts := b.sizes(img, t, numbers); len(parts) > 0 {
			dt := kmsg.NewDescribeLogDirsResponseDirTopic()
			dt.Topic, dt.Partitions = t.Name, parts
			dir.Topics = append(dir.Topics, dt)
		}
	}
	resp.Dirs = append(resp.Dirs, shared)
	if b.cfg.LocalDir != "" {
		resp.Dirs = append(resp.Dirs, local)
	}
	return resp
}

func (b *Broker) logDir(name string) kmsg.DescribeLogDirsResponseDir {
	d := kmsg.NewDescribeLogDirsResponseDir()
	d.Dir, d.TotalBytes, d.UsableBytes = name, -1, -1
	d.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
	return d
}

// wantedPartitions is what the request asks about, by topic; nil is everything.
func wantedPartitions(req *kmsg.DescribeLogDirsRequest) map[string]map[int32]bool {
	if req.Topics == nil {
		return nil
	}
	wanted := make(map[string]map[int32]bool, len(req.Topics))
	for _, rt := range req.Topics {
		if wanted[rt.Topic] == nil {
			wanted[rt.Topic] = make(map[int32]bool, len(rt.Partitions))
		}
		for _, n := range rt.Partitions {
			wanted[rt.Topic][n] = true
		}
	}
	return wanted
}

// sizes are the bytes of a topic's partitions that this node serves, 0 of those that
// another does and this one is a replica of; numbers selects some, nil all.
func (b *Broker) sizes(img *metadata.Image, t metadata.Topic, numbers map[int32]bool) []kmsg.DescribeLogDirsResponseDirTopicPartition {
	var out []kmsg.DescribeLogDirsResponseDirTopicPartition
	self := b.cfg.Meta.Incarnation()
	for p := range img.Partitions(t.ID) {
		if numbers != nil && !numbers[p.Number] {
			continue
		}
		dp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		dp.Partition = p.Number
		switch {
		case p.Owner == self:
			part, err := b.cfg.Partitions.Get(t.ID, p.Number)
			if err != nil {
				continue // opening or just moved: the next owner reports it
			}
			dp.Size = part.Bytes()
		case !slices.Contains(p.Replicas, b.cfg.NodeID):
			continue
		}
		out = append(out, dp)
	}
	return out
}
