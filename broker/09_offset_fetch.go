package broker

// OffsetFetch v1-10: the offsets that groups committed.
//
// Version notes:
//   v2 null topics ask for all, and errors have a place of their own; v1 has them
//      in the partitions
//   v5 leader epoch (KIP-320)
//   v6 flexible
//   v7 RequireStable (KIP-447): nothing is unstable without transactions
//   v8 many groups (KIP-709)
//   v9 member epochs of consumer groups (KIP-848)
//   v10 topic ids
//
// A group or an offset that does not exist is -1, not an error.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

func (b *Broker) offsetFetch(ctx context.Context, c call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := answer[*kmsg.OffsetFetchResponse](req)
	if req.Version < 8 {
		b.offsetFetchOne(ctx, c, req, resp)
		return resp
	}
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	each(len(req.Groups), func(i int) {
		rg := req.Groups[i]
		if req.Version < 9 {
			rg.MemberEpoch = -1
		}
		if req.Version < 10 {
			resp.Groups[i] = b.fetchOffsets(ctx, c, rg)
			return
		}
		resp.Groups[i] = b.fetchOffsetsByID(ctx, c, rg)
	})
	return resp
}

// fetchOffsets answers for one group. Topics have names.
func (b *Broker) fetchOffsets(ctx context.Context, c call, rg kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	var fg kmsg.OffsetFetchResponseGroup
	err := b.onGroup(ctx, c, rg.Group, func(m *group.Machine, _ time.Time) []coordinator.Record {
		fg = m.OffsetFetch(rg)
		return nil
	})
	if err != nil {
		fg = kmsg.NewOffsetFetchResponseGroup()
		fg.Group, fg.ErrorCode = rg.Group, codeOf(err)
	}
	return fg
}

// fetchOffsetsByID finds the names of topics, and their ids in the answer. Of all
// offsets only those of topics that exist can be answered.
func (b *Broker) fetchOffsetsByID(ctx context.Context, c call, rg kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	if rg.Topics != nil {
		named := []kmsg.OffsetFetchRequestGroupTopic{}
		for _, rt := range rg.Topics {
			t, err := topicWithID(b.image(), rt.TopicID)
			if err != nil {
				unknown = append(unknown, unfetched(rt, codeOf(err)))
				continue
			}
			rt.Topic = t.Name
			named = append(named, rt)
		}
		rg.Topics = named
	}
	fg := b.fetchOffsets(ctx, c, rg)
	if fg.ErrorCode != 0 {
		return fg
	}
	// An image from before the call may be older than a commit of another owner:
	// the call waits for the partition to come here.
	img, found := b.image(), fg.Topics
	fg.Topics = unknown
	for _, ft := range found {
		if t, err := topicNamed(img, ft.Topic); err == nil {
			ft.TopicID = t.ID
			fg.Topics = append(fg.Topics, ft)
		}
	}
	return fg
}

// unfetched has the code in every partition.
func unfetched(rt kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	ft := kmsg.NewOffsetFetchResponseGroupTopic()
	ft.Topic, ft.TopicID = rt.Topic, rt.TopicID
	for _, p := range rt.Partitions {
		fp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		fp.Partition, fp.Offset, fp.LeaderEpoch, fp.Metadata, fp.ErrorCode = p, -1, -1, kmsg.StringPtr(""), code
		ft.Partitions = append(ft.Partitions, fp)
	}
	return ft
}

// offsetFetchOne serves the versions that ask for one group.
func (b *Broker) offsetFetchOne(ctx context.Context, c call, req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = req.Group
	if req.Topics != nil || req.Version < 2 {
		rg.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, rt := range req.Topics {
		rg.Topics = append(rg.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: rt.Topic, Partitions: rt.Partitions})
	}
	fg := b.fetchOffsets(ctx, c, rg)
	if resp.ErrorCode = fg.ErrorCode; fg.ErrorCode != 0 && req.Version < 2 {
		for _, rt := range rg.Topics {
			fg.Topics = append(fg.Topics, unfetched(rt, fg.ErrorCode))
		}
	}
	for _, gt := range fg.Topics {
		ft := kmsg.NewOffsetFetchResponseTopic()
		ft.Topic = gt.Topic
		for _, gp := range gt.Partitions {
			ft.Partitions = append(ft.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: gp.Partition, Offset: gp.Offset, LeaderEpoch: gp.LeaderEpoch, Metadata: gp.Metadata, ErrorCode: gp.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, ft)
	}
}
