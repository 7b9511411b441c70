package broker

// DescribeTopicPartitions v0: topics page by page (KIP-966).
//
// Topics come in the order of their names, at most the asked number of
// partitions (and never more than maxDescribedPartitions) in one response; a
// cursor says where the next page begins. The lists of eligible leaders are
// empty, not null: the Java Admin client fails on null.

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

// maxDescribedPartitions is Kafka's max.request.partition.size.limit.
const maxDescribedPartitions = 2000

func (b *Broker) describeTopicPartitions(_ context.Context, c call, req *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	resp := answer[*kmsg.DescribeTopicPartitionsResponse](req)
	img := b.image()
	names := describedTopics(img, req)
	if req.Cursor != nil && req.Cursor.Partition < 0 {
		for _, name := range names {
			resp.Topics = append(resp.Topics, undescribed(name, fail(kerr.InvalidRequest, "the cursor's partition is negative")))
		}
		return resp
	}
	room := maxDescribedPartitions
	if req.ResponsePartitionLimit > 0 {
		room = min(room, int(req.ResponsePartitionLimit))
	}
	for _, name := range names {
		if req.Cursor != nil && name < req.Cursor.Topic {
			continue
		}
		if room == 0 {
			resp.NextCursor = cursorAt(name, 0)
			return resp
		}
		t, err := topicNamed(img, name)
		if err != nil {
			resp.Topics = append(resp.Topics, undescribed(name, err))
			continue
		}
		first := int32(0)
		if req.Cursor != nil && name == req.Cursor.Topic {
			first = req.Cursor.Partition
		}
		dt := describedTopic(img, t, first, room, c.listener)
		resp.Topics = append(resp.Topics, dt)
		room -= len(dt.Partitions)
		if next := first + int32(len(dt.Partitions)); next < t.Partitions {
			resp.NextCursor = cursorAt(name, next)
			return resp
		}
	}
	return resp
}

// describedTopics are the names asked for, or all, sorted and each once.
func describedTopics(img *metadata.Image, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(req.Topics) == 0 {
		for t := range img.Topics() {
			if !t.Deleting {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	next := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	next.Topic, next.Partition = topic, partition
	return &next
}

func undescribed(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	dt.Topic, dt.ErrorCode = &name, codeOf(err)
	dt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return dt
}

// describedTopic shows at most room partitions of a topic from number first on.
func describedTopic(img *metadata.Image, t metadata.Topic, first int32, room int, listener string) kmsg.DescribeTopicPartitionsResponseTopic {
	dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	dt.Topic, dt.TopicID, dt.IsInternal = &t.Name, t.ID, t.Internal
	dt.AuthorizedOperations = topicOperations
	dt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	for n := first; n < t.Partitions && len(dt.Partitions) < room; n++ {
		p, ok := img.Partition(t.ID, n)
		if !ok {
			break
		}
		l := leadershipOf(img, p, listener)
		dp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		if l.err != nil {
			dp.ErrorCode = l.err.Code
		}
		dp.Partition, dp.LeaderID, dp.LeaderEpoch = n, l.leader, l.epoch
		dp.Replicas, dp.ISR, dp.OfflineReplicas = l.replicas, l.isr, l.offline
		dp.EligibleLeaderReplicas, dp.LastKnownELR = []int32{}, []int32{}
		dt.Partitions = append(dt.Partitions, dp)
	}
	return dt
}
