package broker

// OffsetCommit v2-10: keeps a group's offsets.
//
// Version notes:
//   v2-4 retention time of the offsets
//   v5 retention is the group's (KIP-211)
//   v6 leader epoch (KIP-320)
//   v7 static members (KIP-345)
//   v8 flexible
//   v9 member epochs of consumer groups (KIP-848)
//   v10 topic ids
//
// All offsets of a request are one append. A topic or a partition that does not exist
// is an error of its own.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
)

func (b *Broker) offsetCommit(ctx context.Context, c call, req *kmsg.OffsetCommitRequest) kmsg.Response {
	resp := answer[*kmsg.OffsetCommitResponse](req)
	img := b.image()
	known := *req
	known.Topics = nil
	unknown := make([]error, len(req.Topics))
	missing := make([][]kmsg.OffsetCommitRequestTopicPartition, len(req.Topics))
	for i, rt := range req.Topics {
		t, err := committedTopic(img, req.Version, rt)
		if unknown[i] = err; err == nil {
			rt.Topic, rt.TopicID = t.Name, t.ID
			rt.Partitions, missing[i] = existing(t, rt.Partitions)
			known.Topics = append(known.Topics, rt)
		}
	}
	var done *kmsg.OffsetCommitResponse
	var err error
	if len(known.Topics) > 0 || len(req.Topics) == 0 {
		err = b.onGroup(ctx, c, req.Group, func(m *group.Machine, now time.Time) (records []coordinator.Record) {
			done, records = m.OffsetCommit(now, &known)
			return records
		})
	}
	next := 0
	for i, rt := range req.Topics {
		failed := unknown[i]
		if failed == nil {
			failed = err
		}
		ct := kmsg.NewOffsetCommitResponseTopic()
		if failed != nil {
			ct.Partitions = refusedCommits(rt.Partitions, commitCode(failed))
		} else {
			ct.Partitions = append(done.Topics[next].Partitions, refusedCommits(missing[i], kerr.UnknownTopicOrPartition.Code)...)
		}
		if unknown[i] == nil {
			next++
		}
		ct.Topic, ct.TopicID = rt.Topic, rt.TopicID
		resp.Topics = append(resp.Topics, ct)
	}
	return resp
}

// committedTopic finds a topic by name or, from version 10, by id.
func committedTopic(img *metadata.Image, version int16, rt kmsg.OffsetCommitRequestTopic) (metadata.Topic, error) {
	if version >= 10 {
		return topicWithID(img, rt.TopicID)
	}
	t, err := topicNamed(img, rt.Topic)
	if err != nil { // also with a name that no topic can have
		err = kerr.UnknownTopicOrPartition
	}
	return t, err
}

// existing are the partitions that the topic has, and the others.
func existing(t metadata.Topic, all []kmsg.OffsetCommitRequestTopicPartition) (known, missing []kmsg.OffsetCommitRequestTopicPartition) {
	for _, rp := range all {
		if rp.Partition >= 0 && rp.Partition < t.Partitions {
			known = append(known, rp)
		} else {
			missing = append(missing, rp)
		}
	}
	return known, missing
}

// commitCode is the code of a commit that could not be kept.
func commitCode(err error) int16 {
	if code := codeOf(err); code != kerr.RecordListTooLarge.Code && code != kerr.MessageTooLarge.Code {
		return code
	}
	return kerr.InvalidCommitOffsetSize.Code
}

// refusedCommits are answers with the code.
func refusedCommits(list []kmsg.OffsetCommitRequestTopicPartition, code int16) (refused []kmsg.OffsetCommitResponseTopicPartition) {
	for _, rp := range list {
		cp := kmsg.NewOffsetCommitResponseTopicPartition()
		cp.Partition, cp.ErrorCode = rp.Partition, code
		refused = append(refused, cp)
	}
	return refused
}
