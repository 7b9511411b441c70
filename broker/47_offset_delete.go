package broker

// OffsetDelete v0: deletes offsets of topics that a group does not subscribe to
// (KIP-496).

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) offsetDelete(ctx context.Context, c call, req *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp := answer[*kmsg.OffsetDeleteResponse](req)
	img := b.image()
	known := *req
	known.Topics = nil
	missing := map[string][]kmsg.OffsetDeleteResponseTopicPartition{}
	for _, rt := range req.Topics {
		t, _ := img.Topic(rt.Topic) // one that is gone has no partitions
		if t.Deleting {
			t.Partitions = 0
		}
		var have []kmsg.OffsetDeleteRequestTopicPartition
		for _, rp := range rt.Partitions {
			if rp.Partition >= 0 && rp.Partition < t.Partitions {
				have = append(have, rp)
				continue
			}
			dp := kmsg.NewOffsetDeleteResponseTopicPartition()
			dp.Partition, dp.ErrorCode = rp.Partition, kerr.UnknownTopicOrPartition.Code
			missing[rt.Topic] = append(missing[rt.Topic], dp)
		}
		if rt.Partitions = have; len(have) > 0 {
			known.Topics = append(known.Topics, rt)
		}
	}
	err := b.onGroup(ctx, c, req.Group, func(m *group.Machine, _ time.Time) (records []coordinator.Record) {
		resp, records = m.OffsetDelete(&known)
		return records
	})
	if err != nil {
		resp.ErrorCode, resp.Topics = codeOf(err), nil
		return resp
	}
	if resp.ErrorCode != 0 {
		return resp
	}
	for i := range resp.Topics {
		dt := &resp.Topics[i]
		dt.Partitions = append(dt.Partitions, missing[dt.Topic]...)
		delete(missing, dt.Topic)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		resp.Topics = append(resp.Topics, kmsg.OffsetDeleteResponseTopic{Topic: name, Partitions: missing[name]})
	}
	return resp
}
