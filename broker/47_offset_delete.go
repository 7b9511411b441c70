package broker

// OffsetDelete v0: deletes offsets of topics that a group does not subscribe to
// (KIP-496).

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) offsetDelete(ctx context.Context, c call, req *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp := answer[*kmsg.OffsetDeleteResponse](req)
	img := b.image()
	known := *req
	known.Topics = nil
	var unknown []kmsg.OffsetDeleteResponseTopic
	for _, rt := range req.Topics {
		_, err := topicNamed(img, rt.Topic)
		if err == nil {
			known.Topics = append(known.Topics, rt)
			continue
		}
		dt := kmsg.NewOffsetDeleteResponseTopic()
		dt.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			dp := kmsg.NewOffsetDeleteResponseTopicPartition()
			dp.Partition, dp.ErrorCode = rp.Partition, codeOf(err)
			dt.Partitions = append(dt.Partitions, dp)
		}
		unknown = append(unknown, dt)
	}
	err := b.onGroup(ctx, c, req.Group, func(m *group.Machine, _ time.Time) (records []coordinator.Record) {
		resp, records = m.OffsetDelete(&known)
		return records
	})
	if err != nil {
		resp.ErrorCode, resp.Topics = codeOf(err), nil
		return resp
	}
	if resp.ErrorCode == 0 {
		resp.Topics = append(resp.Topics, unknown...)
	}
	return resp
}
