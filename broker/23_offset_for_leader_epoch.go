package broker

// OffsetForLeaderEpoch v2-4: where a leader epoch ended (KIP-320), by which a
// consumer finds out whether what it read is still in the log.
//
// Version notes:
//   v3 replica id
//   v4 flexible
//
// An epoch in the future answers -1 and -1 without error; one in the past the
// newest epoch at or before it and that one's end; the current one the end of
// what is durable.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/commitlog"
	"ponor/metadata"
)

func (b *Broker) offsetForLeaderEpoch(ctx context.Context, _ call, req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := answer[*kmsg.OffsetForLeaderEpochResponse](req)
	img, wait := b.image(), patience{total: b.cfg.Park}
	for _, rt := range req.Topics {
		et := kmsg.NewOffsetForLeaderEpochResponseTopic()
		et.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			ep := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			ep.Partition, ep.LeaderEpoch, ep.EndOffset = rp.Partition, -1, -1
			ep.ErrorCode = codeOf(b.epochEnd(ctx, img, rt.Topic, rp, &ep, &wait))
			et.Partitions = append(et.Partitions, ep)
		}
		resp.Topics = append(resp.Topics, et)
	}
	return resp
}

func (b *Broker) epochEnd(ctx context.Context, img *metadata.Image, topic string, rp kmsg.OffsetForLeaderEpochRequestTopicPartition, ep *kmsg.OffsetForLeaderEpochResponseTopicPartition, wait *patience) error {
	part, err := b.findNamed(ctx, img, topic, rp.Partition, wait)
	if err != nil {
		return err
	}
	if err := part.CheckEpoch(commitlog.Epoch(rp.CurrentLeaderEpoch)); err != nil {
		return err
	}
	e := part.EndOffsetForEpoch(commitlog.Epoch(rp.LeaderEpoch))
	ep.LeaderEpoch, ep.EndOffset = int32(e.Epoch), int64(e.End)
	return nil
}
