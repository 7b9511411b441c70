package broker

// ListOffsets v1-11: offsets by time.
//
// Version notes:
//   v2 isolation level (KIP-98)
//   v4 leader epochs (KIP-320)
//   v6 flexible
//   v7 -3, the record with the largest timestamp (KIP-734)
//   v8 -4, the start of the local log (KIP-405)
//   v9 -5, the end of what is tiered (KIP-1005)
//   v10 timeout, for lookups in tiered logs (KIP-1075); lookups here are bounded anyway
//   v11 -6, the earliest not yet tiered (KIP-1023)
//
// Where nothing is tiered, -5 and -6 answer -1 without error. A time after the
// last record answers -1 and -1 without error. A partition that is named twice
// is INVALID_REQUEST, as in Kafka.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/partition"
)

// specialSince are the versions from which a negative timestamp has a meaning.
var specialSince = map[int64]int16{-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}

func (b *Broker) listOffsets(ctx context.Context, c call, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := answer[*kmsg.ListOffsetsResponse](req)
	img := b.image()
	type key struct {
		topic string
		n     int32
	}
	count := make(map[key]int)
	for _, rt := range req.Topics {
		for _, rp := range rt.Partitions {
			count[key{rt.Topic, rp.Partition}]++
		}
	}
	look := offsetLookup{Broker: b, req: req, arrived: c.Received, img: img, wait: patience{total: b.cfg.Park}}
	for _, rt := range req.Topics {
		lt := kmsg.NewListOffsetsResponseTopic()
		lt.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			lp := kmsg.NewListOffsetsResponseTopicPartition()
			lp.Partition, lp.Timestamp, lp.Offset, lp.LeaderEpoch = rp.Partition, -1, -1, -1
			var err error
			if count[key{rt.Topic, rp.Partition}] > 1 {
				err = fail(kerr.InvalidRequest, "partition named twice")
			} else {
				err = look.find(ctx, rt.Topic, rp, &lp)
			}
			lp.ErrorCode = codeOf(err)
			lt.Partitions = append(lt.Partitions, lp)
		}
		resp.Topics = append(resp.Topics, lt)
	}
	return resp
}

// offsetLookup is the part of a request that applies to each partition.
type offsetLookup struct {
	*Broker
	req     *kmsg.ListOffsetsRequest
	arrived time.Time
	img     *metadata.Image
	wait    patience
}

func (l *offsetLookup) find(ctx context.Context, topic string, rp kmsg.ListOffsetsRequestTopicPartition, lp *kmsg.ListOffsetsResponseTopicPartition) error {
	req := l.req
	if since, ok := specialSince[rp.Timestamp]; rp.Timestamp < 0 && (!ok || req.Version < since) {
		return fail(kerr.UnsupportedVersion, "timestamp %d means nothing in version %d", rp.Timestamp, req.Version)
	}
	part, err := l.findNamed(ctx, l.img, topic, rp.Partition, &l.wait)
	if err != nil {
		return err
	}
	if req.Version >= 4 {
		if err := part.CheckEpoch(commitlog.Epoch(rp.CurrentLeaderEpoch)); err != nil {
			return err
		}
	}
	isolation := partition.ReadUncommitted
	if req.IsolationLevel == 1 {
		isolation = partition.ReadCommitted
	}
	found, err := part.OffsetFor(ctx, l.arrived, rp.Timestamp, isolation)
	if err != nil {
		return err
	}
	lp.Offset, lp.Timestamp, lp.LeaderEpoch = int64(found.Offset), found.Timestamp, int32(found.LeaderEpoch)
	return nil
}
