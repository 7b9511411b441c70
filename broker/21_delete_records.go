package broker

// DeleteRecords v0-2: moves log starts forward (KIP-107). Sent to each
// partition's leader.
//
// Version notes:
//   v2 flexible
//
// -1 stands for the high watermark. An offset below the start is no error and
// answers the start. On a topic that is only compacted it is POLICY_VIOLATION.

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/commitlog"
	"ponor/metadata"
)

// deletesAtOnce bounds how many partitions of one request are trimmed at the
// same time; each waits for a change of metadata.
const deletesAtOnce = 16

func (b *Broker) deleteRecords(ctx context.Context, _ call, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := answer[*kmsg.DeleteRecordsResponse](req)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	img := b.image()
	var all sync.WaitGroup
	tickets := make(chan struct{}, deletesAtOnce)
	for _, rt := range req.Topics {
		dt := kmsg.NewDeleteRecordsResponseTopic()
		dt.Topic = rt.Topic
		dt.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(rt.Partitions))
		for i, rp := range rt.Partitions {
			dp := &dt.Partitions[i]
			*dp = kmsg.NewDeleteRecordsResponseTopicPartition()
			dp.Partition = rp.Partition
			tickets <- struct{}{}
			all.Go(func() {
				start, err := b.deleteBelow(ctx, img, rt.Topic, rp.Partition, rp.Offset)
				dp.LowWatermark, dp.ErrorCode = start, codeOf(err)
				<-tickets
			})
		}
		resp.Topics = append(resp.Topics, dt)
	}
	all.Wait()
	return resp
}

// deleteBelow moves one log start and returns it; -1 with an error.
func (b *Broker) deleteBelow(ctx context.Context, img *metadata.Image, topic string, number int32, offset int64) (int64, error) {
	part, err := b.findNamed(ctx, img, topic, number, &patience{total: b.cfg.Park})
	if err != nil {
		return -1, err
	}
	if t, _ := img.Topic(topic); t.Internal {
		return -1, fail(kerr.InvalidTopicException, "records of the internal topic %q cannot be deleted", topic)
	}
	to := commitlog.Offset(offset)
	switch {
	case offset == -1:
		to = part.HighWatermark()
	case offset < 0:
		return -1, fail(kerr.OffsetOutOfRange, "offset %d is negative; -1 deletes all", offset)
	}
	start, err := part.DeleteRecords(ctx, to)
	if err != nil {
		return -1, err
	}
	return int64(start), nil
}
