package broker

// DeleteTopics v1-6: by name, from v6 also by id.
//
// Version notes:
//   v4 flexible
//   v5 error message (KIP-599)
//   v6 topic ids (KIP-516)

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) deleteTopics(ctx context.Context, _ call, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := answer[*kmsg.DeleteTopicsResponse](req)
	asked := req.Topics
	for i := range req.TopicNames {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &req.TopicNames[i]
		asked = append(asked, rt)
	}
	img := b.image()
	count := make(map[metadata.TopicID]int, len(asked))
	found := make([]metadata.Topic, len(asked))
	for i, rt := range asked {
		dt := kmsg.NewDeleteTopicsResponseTopic()
		dt.Topic, dt.TopicID = rt.Topic, rt.TopicID
		t, err := topicToDelete(img, rt)
		if err != nil {
			dt.ErrorCode, dt.ErrorMessage = codeAndMessage(err)
		} else {
			found[i] = t
			count[t.ID]++
			dt.Topic, dt.TopicID = &t.Name, t.ID
		}
		resp.Topics = append(resp.Topics, dt)
	}
	var ids []metadata.TopicID
	var at []int
	for i := range resp.Topics {
		dt := &resp.Topics[i]
		switch {
		case dt.ErrorCode != 0:
		case count[found[i].ID] > 1:
			dt.ErrorCode, dt.ErrorMessage = codeAndMessage(fail(kerr.InvalidRequest, "topic %q is named twice in the request", found[i].Name))
		default:
			ids, at = append(ids, found[i].ID), append(at, i)
		}
	}
	if len(ids) == 0 {
		return resp
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results, err := b.cfg.Admin.DeleteTopics(ctx, ids)
	var deleted []metadata.TopicID
	for i, k := range at {
		switch {
		case err != nil:
			resp.Topics[k].ErrorCode, resp.Topics[k].ErrorMessage = codeAndMessage(unknownOutcome(err))
		case results[i] != nil:
			resp.Topics[k].ErrorCode, resp.Topics[k].ErrorMessage = codeAndMessage(refused(results[i]))
		default:
			deleted = append(deleted, ids[i])
		}
	}
	b.awaitDeleted(ctx, deleted)
	return resp
}

// nameFreeWait bounds the wait for names that are free: more than it takes to seal a dead
// owner, and well below the time after which clients give up and ask again, to be told that
// there is no such topic.
const nameFreeWait = 3 * time.Second

// awaitDeleted waits a while until the names of topics are free, which is when owners have
// closed them, so that who deletes a topic can make it anew at once, as in Kafka. What takes
// longer is deleted all the same.
func (b *Broker) awaitDeleted(ctx context.Context, ids []metadata.TopicID) {
	ctx, cancel := context.WithTimeout(ctx, nameFreeWait)
	defer cancel()
	for {
		changed := b.cfg.Meta.Changed()
		img := b.image()
		ids = slices.DeleteFunc(ids, func(id metadata.TopicID) bool {
			_, there := img.TopicByID(id)
			return !there
		})
		if len(ids) == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// topicToDelete finds the topic that one entry names.
func topicToDelete(img *metadata.Image, rt kmsg.DeleteTopicsRequestTopic) (metadata.Topic, error) {
	switch byID := rt.TopicID != [16]byte{}; {
	case byID && rt.Topic != nil:
		return metadata.Topic{}, fail(kerr.InvalidRequest, "topic name and topic id cannot both be given")
	case byID:
		return topicWithID(img, rt.TopicID)
	case rt.Topic == nil:
		return metadata.Topic{}, fail(kerr.InvalidRequest, "neither topic name nor topic id is given")
	}
	t, err := topicNamed(img, *rt.Topic)
	if err != nil {
		// A name that cannot exist is unknown here, as in Kafka.
		return t, fail(kerr.UnknownTopicOrPartition, "topic %q does not exist", *rt.Topic)
	}
	return t, nil
}
