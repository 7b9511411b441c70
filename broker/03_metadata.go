package broker

// Metadata v0-13: brokers, topics, and who leads which partition.
//
// Version notes:
//   v0 an empty list means all topics; from v1 null does
//   v0-3 asking creates topics, if the broker allows it; from v4 by a flag
//   v5 offline replicas (KIP-112)
//   v7 leader epochs (KIP-320)
//   v8 authorized operations, when asked (KIP-430); of the cluster until v10
//   v9 flexible
//   v10 topic ids (KIP-516); v12 asks by them, with null names
//   v13 an error for the whole response (KIP-1102)

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) metadata(ctx context.Context, c call, req *kmsg.MetadataRequest) kmsg.Response {
	resp := answer[*kmsg.MetadataResponse](req)
	img := b.image()
	ask := metadataAsk{Broker: b, listener: c.listener, operations: req.IncludeTopicAuthorizedOperations}
	switch all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0; {
	case all:
		for t := range img.Topics() {
			if !t.Deleting {
				resp.Topics = append(resp.Topics, ask.topic(img, t))
			}
		}
	default:
		img, resp.Topics = ask.topics(ctx, img, req)
	}
	b.metadataCluster(resp, img, c.listener)
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	return resp
}

// metadataCluster fills in what is not about topics.
func (b *Broker) metadataCluster(resp *kmsg.MetadataResponse, img *metadata.Image, listener string) {
	id := img.ClusterID()
	resp.ClusterID = &id
	resp.ControllerID = b.controllerID(img)
	for br := range img.Brokers() {
		ep, ok := endpoint(br, listener)
		if !ok || br.Fenced {
			continue
		}
		mb := kmsg.NewMetadataResponseBroker()
		mb.NodeID, mb.Host, mb.Port, mb.Rack = int32(br.ID), ep.Host, ep.Port, rack(br)
		resp.Brokers = append(resp.Brokers, mb)
	}
}

// metadataAsk is the part of a request that applies to each topic.
type metadataAsk struct {
	*Broker
	listener   string
	operations bool
}

// topics answers for the topics asked for, in order and each once, and returns
// the image that has those it created.
func (a metadataAsk) topics(ctx context.Context, img *metadata.Image, req *kmsg.MetadataRequest) (*metadata.Image, []kmsg.MetadataResponseTopic) {
	img, failed := a.autoCreate(ctx, img, req)
	type key struct {
		name string
		id   metadata.TopicID
	}
	seen := make(map[key]bool, len(req.Topics))
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	for _, rt := range req.Topics {
		k := key{id: rt.TopicID}
		if rt.TopicID != (metadata.TopicID{}) && req.Version >= 12 {
			rt.Topic = nil
		}
		if rt.Topic != nil {
			k.name = *rt.Topic
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		t, err := askedTopic(img, req.Version, rt)
		if err != nil && failed[k.name] != nil {
			err = failed[k.name]
		}
		if err != nil {
			out = append(out, missingTopic(rt, err))
			continue
		}
		out = append(out, a.topic(img, t))
	}
	return img, out
}

// askedTopic finds the topic that one entry names. By id from v12 on, whatever name
// is with it, as the Java consumer sends an empty one; an older version that carries
// an id has misunderstood something.
func askedTopic(img *metadata.Image, version int16, rt kmsg.MetadataRequestTopic) (metadata.Topic, error) {
	byID := rt.TopicID != [16]byte{}
	switch {
	case byID && version < 12:
		return metadata.Topic{}, fail(kerr.InvalidRequest, "topic ids need version 12")
	case byID:
		return topicWithID(img, rt.TopicID)
	case rt.Topic == nil:
		return metadata.Topic{}, fail(kerr.InvalidRequest, "neither topic id nor name is given")
	}
	return topicNamed(img, *rt.Topic)
}

// autoCreate makes the missing topics if client and broker both allow it and
// waits until they are in the image (and so have a leader). failed says why
// one was not made.
func (a metadataAsk) autoCreate(ctx context.Context, img *metadata.Image, req *kmsg.MetadataRequest) (_ *metadata.Image, failed map[string]error) {
	// The flag begins with v4; before, asking is enough.
	if !(req.AllowAutoTopicCreation || req.Version < 4) || !a.autoCreates(img) {
		return img, nil
	}
	var specs []controller.TopicSpec
	for _, rt := range req.Topics {
		// Internal topics are made by their coordinators, with the right configs.
		if rt.Topic == nil || rt.TopicID != [16]byte{} || checkTopicName(*rt.Topic) != nil || controller.IsInternal(*rt.Topic) {
			continue
		}
		if _, ok := img.Topic(*rt.Topic); ok || slices.ContainsFunc(specs, func(s controller.TopicSpec) bool { return s.Name == *rt.Topic }) {
			continue
		}
		specs = append(specs, controller.TopicSpec{Name: *rt.Topic, Partitions: -1, ReplicationFactor: -1})
	}
	if len(specs) == 0 {
		return img, nil
	}
	failed = make(map[string]error)
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	results, err := a.cfg.Admin.CreateTopics(ctx, specs, false)
	for i, s := range specs {
		switch {
		case err != nil:
			a.log.WarnContext(ctx, "topic was not created on demand", "topic", s.Name, "err", err)
			// What every client retries, with or without a topic to ask about.
			failed[s.Name] = &apiError{code: kerr.LeaderNotAvailable}
		case results[i].Err != nil && codeOf(refused(results[i].Err)) != kerr.TopicAlreadyExists.Code:
			failed[s.Name] = refused(results[i].Err)
		}
	}
	return a.image(), failed
}

// autoCreates is auto.create.topics.enable as it holds here.
func (b *Broker) autoCreates(img *metadata.Image) bool {
	const name = "auto.create.topics.enable"
	value := b.brokerConfig(img, name).value
	return strings.EqualFold(value, "true")
}

// missingTopic answers for a topic with an error.
func missingTopic(rt kmsg.MetadataRequestTopic, err error) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID, mt.ErrorCode = rt.Topic, rt.TopicID, codeOf(err)
	mt.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return mt
}

// topic answers for one that exists.
func (a metadataAsk) topic(img *metadata.Image, t metadata.Topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID, mt.IsInternal = &t.Name, t.ID, t.Internal
	mt.AuthorizedOperations = operationsNotAsked
	if a.operations {
		mt.AuthorizedOperations = topicOperations
	}
	mt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Partitions)
	for p := range img.Partitions(t.ID) {
		l := leadershipOf(img, p, a.listener)
		mp := kmsg.NewMetadataResponseTopicPartition()
		if l.err != nil {
			mp.ErrorCode = l.err.Code
		}
		mp.Partition, mp.Leader, mp.LeaderEpoch = p.Number, l.leader, l.epoch
		mp.Replicas, mp.ISR, mp.OfflineReplicas = l.replicas, l.isr, l.offline
		mt.Partitions = append(mt.Partitions, mp)
	}
	return mt
}
