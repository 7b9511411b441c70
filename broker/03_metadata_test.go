package broker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/metadata"
)

// metadataRequest asks about topics by name; none at all is null, which is
// every topic.
func metadataRequest(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for i := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &names[i]
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func TestMetadataAtEveryVersion(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 2)
	cl := c.dial()
	for v := int16(0); v <= 13; v++ {
		resp := ask[*kmsg.MetadataResponse](cl, v, metadataRequest("t"))
		is(t, "brokers", len(resp.Brokers), 3)
		is(t, "topics", len(resp.Topics), 1)
		topic := resp.Topics[0]
		isCode(t, "topic", topic.ErrorCode, nil)
		is(t, "name", *topic.Topic, "t")
		is(t, "partitions", len(topic.Partitions), 2)
		p := topic.Partitions[1]
		is(t, "leader", p.Leader, 1)
		if !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, []int32{1, 2, 3}) {
			t.Errorf("v%d: replicas %v, in sync %v", v, p.Replicas, p.ISR)
		}
		if v >= 1 {
			is(t, "controller", resp.ControllerID, 1)
			is(t, "rack", *resp.Brokers[0].Rack, "zone-0")
		}
		if v >= 2 {
			is(t, "cluster id", *resp.ClusterID, clusterID)
		}
		if v >= 7 {
			is(t, "leader epoch", p.LeaderEpoch, 0)
		}
		if v >= 8 {
			is(t, "operations when not asked", topic.AuthorizedOperations, -2147483648)
		}
		if v >= 10 {
			is(t, "topic id", topic.TopicID, [16]byte(id))
		}
	}
}

// Version 0: an empty list is all topics. From 1: null is all, empty is none.
func TestMetadataOfAllTopics(t *testing.T) {
	c := newCluster(t)
	c.topic("a", 1)
	c.topic("b", 1)
	c.must(deleteTopic(c.topic("gone", 1)))
	cl := c.dial()
	none := metadataRequest()
	none.Topics = []kmsg.MetadataRequestTopic{}
	is(t, "v0 empty", len(ask[*kmsg.MetadataResponse](cl, 0, none).Topics), 2)
	is(t, "v1 empty", len(ask[*kmsg.MetadataResponse](cl, 1, none).Topics), 0)
	is(t, "v12 empty", len(ask[*kmsg.MetadataResponse](cl, 12, none).Topics), 0)
	is(t, "v1 null", len(ask[*kmsg.MetadataResponse](cl, 1, metadataRequest()).Topics), 2)
	is(t, "v13 null", len(ask[*kmsg.MetadataResponse](cl, 13, metadataRequest()).Topics), 2)
}

func TestMetadataErrors(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	topicID := func(id metadata.TopicID, name *string) kmsg.MetadataRequestTopic {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID, rt.Topic = id, name
		return rt
	}
	for _, tc := range []struct {
		name    string
		version int16
		topic   kmsg.MetadataRequestTopic
		want    *kerr.Error
	}{
		{"by id", 12, topicID(id, nil), nil},
		{"unknown name", 12, topicID(metadata.TopicID{}, kmsg.StringPtr("nope")), kerr.UnknownTopicOrPartition},
		{"invalid name", 12, topicID(metadata.TopicID{}, kmsg.StringPtr("a b")), kerr.InvalidTopicException},
		{"unknown id", 12, topicID(metadata.TopicID{7}, nil), kerr.UnknownTopicID},
		{"id before version 12", 10, topicID(id, kmsg.StringPtr("t")), kerr.InvalidRequest},
		{"id and name", 12, topicID(id, kmsg.StringPtr("other")), nil},
		{"id and empty name", 13, topicID(id, kmsg.StringPtr("")), nil}, // as the Java consumer asks
		{"unknown id and empty name", 13, topicID(metadata.TopicID{7}, kmsg.StringPtr("")), kerr.UnknownTopicID},
		{"neither", 12, topicID(metadata.TopicID{}, nil), kerr.InvalidRequest},
	} {
		req := metadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{tc.topic}
		resp := ask[*kmsg.MetadataResponse](cl, tc.version, req)
		is(t, tc.name+": topics", len(resp.Topics), 1)
		isCode(t, tc.name, resp.Topics[0].ErrorCode, tc.want)
	}
	is(t, "a name asked twice is answered once", len(ask[*kmsg.MetadataResponse](cl, 12, metadataRequest("t", "t")).Topics), 1)
}

// The ISR is the live part of the replica list; a dead owner leaves the
// partition without leader, an incoming one is shown at once.
func TestMetadataAfterAFence(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	c.fence(3)
	cl := c.dial()
	p := ask[*kmsg.MetadataResponse](cl, 9, metadataRequest("t")).Topics[0].Partitions[0]
	if !slices.Equal(p.ISR, []int32{1, 2}) || !slices.Equal(p.OfflineReplicas, []int32{3}) || !slices.Equal(p.Replicas, []int32{1, 2, 3}) {
		t.Errorf("replicas %v, in sync %v, offline %v", p.Replicas, p.ISR, p.OfflineReplicas)
	}
	isCode(t, "partition", p.ErrorCode, nil)

	c.move(id, 0, 2)
	c.fence(2) // nobody is named in its place
	resp := ask[*kmsg.MetadataResponse](cl, 9, metadataRequest("t"))
	p = resp.Topics[0].Partitions[0]
	isCode(t, "no owner", p.ErrorCode, kerr.LeaderNotAvailable)
	is(t, "no leader", p.Leader, -1)
	is(t, "brokers", len(resp.Brokers), 1)

	back := c.register(2, "zone-1") // it has to wait for its old WAL to be sealed
	part, _ := c.Image().Partition(id, 0)
	is(t, "owner", part.Owner, back)
	p = ask[*kmsg.MetadataResponse](cl, 9, metadataRequest("t")).Topics[0].Partitions[0]
	isCode(t, "incoming owner", p.ErrorCode, nil)
	is(t, "leader", p.Leader, 2)
}

// Topics are made on demand if broker and client both want it; before version 4
// asking is wanting (kafka-python 2.0.2 loops for ever otherwise).
func TestMetadataAutoCreate(t *testing.T) {
	on := newCluster(t, func(_ *cluster, cfg *broker.Config) { cfg.AutoCreateTopics = true })
	cl := on.dial()
	exists := func(name string) bool { _, ok := on.Image().Topic(name); return ok }
	for _, v := range []int16{0, 3} {
		name := "implied-" + string(rune('0'+v))
		resp := ask[*kmsg.MetadataResponse](cl, v, metadataRequest(name))
		isCode(t, name, resp.Topics[0].ErrorCode, nil)
		is(t, "has a leader", resp.Topics[0].Partitions[0].Leader, 1)
	}
	req := metadataRequest("flag", "bad/name", "__consumer_offsets")
	req.AllowAutoTopicCreation = true
	resp := ask[*kmsg.MetadataResponse](cl, 12, req)
	isCode(t, "by flag", resp.Topics[0].ErrorCode, nil)
	isCode(t, "invalid name", resp.Topics[1].ErrorCode, kerr.InvalidTopicException)
	isCode(t, "internal", resp.Topics[2].ErrorCode, kerr.UnknownTopicOrPartition)
	isCode(t, "no flag", ask[*kmsg.MetadataResponse](cl, 12, metadataRequest("no-flag")).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
	is(t, "not made", exists("no-flag"), false)

	req = metadataRequest("implied_0", "implied.x")
	req.AllowAutoTopicCreation = true
	isCode(t, "still fine", ask[*kmsg.MetadataResponse](cl, 12, req).Topics[1].ErrorCode, nil)

	on.refuseAll(errors.New("no quorum"))
	req = metadataRequest("later")
	req.AllowAutoTopicCreation = true
	code := ask[*kmsg.MetadataResponse](cl, 12, req).Topics[0].ErrorCode
	is(t, "no quorum: retriable", kerr.IsRetriable(kerr.ErrorForCode(code)), true)

	off := newCluster(t)
	isCode(t, "broker says no", ask[*kmsg.MetadataResponse](off.dial(), 0, metadataRequest("x")).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

// KIP-430: operations only when asked.
func TestMetadataAuthorizedOperations(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	cl := c.dial()
	req := metadataRequest("t")
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
	resp := ask[*kmsg.MetadataResponse](cl, 8, req)
	is(t, "topic", resp.Topics[0].AuthorizedOperations, 3576)
	is(t, "cluster", resp.AuthorizedOperations, 8096)
}

// Clients of another listener are told of its endpoints.
func TestMetadataOfAnotherListener(t *testing.T) {
	c := newCluster(t)
	for _, a := range c.APIs("INTERNAL") {
		if a.Key != 3 {
			continue
		}
		req := metadataRequest()
		req.SetVersion(12)
		resp := a.Handle(t.Context(), requestOf(req)).Body.(*kmsg.MetadataResponse)
		is(t, "host", resp.Brokers[0].Host, "internal")
	}
}

// KIP-631; what is in the way is told with a message.
func TestUnregisterBroker(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	unregister := func(id int32) *kmsg.UnregisterBrokerResponse {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		return ask[*kmsg.UnregisterBrokerResponse](cl, 0, req)
	}
	alive := unregister(3)
	isCode(t, "a live one", alive.ErrorCode, kerr.InvalidRequest)
	is(t, "a live one is told why", alive.ErrorMessage != nil, true)
	c.fence(3)
	isCode(t, "a dead one", unregister(3).ErrorCode, nil)
	isCode(t, "once more", unregister(3).ErrorCode, kerr.BrokerIDNotRegistered)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	is(t, "who is left", len(ask[*kmsg.DescribeClusterResponse](cl, 2, req).Brokers), 2)
}

func TestDescribeCluster(t *testing.T) {
	c := newCluster(t)
	c.fence(3)
	cl := c.dial()
	for v := int16(0); v <= 2; v++ {
		resp := ask[*kmsg.DescribeClusterResponse](cl, v, kmsg.NewPtrDescribeClusterRequest())
		isCode(t, "response", resp.ErrorCode, nil)
		is(t, "cluster id", resp.ClusterID, clusterID)
		is(t, "controller", resp.ControllerID, 1)
		is(t, "brokers", len(resp.Brokers), 2)
		is(t, "operations", resp.ClusterAuthorizedOperations, -2147483648)
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers, req.IncludeClusterAuthorizedOperations = true, true // KIP-1073
	resp := ask[*kmsg.DescribeClusterResponse](cl, 2, req)
	is(t, "with fenced ones", len(resp.Brokers), 3)
	is(t, "fenced", resp.Brokers[2].IsFenced, true)
	is(t, "operations", resp.ClusterAuthorizedOperations, 8096)
	for kind, want := range map[int8]*kerr.Error{2: kerr.MismatchedEndpointType, 5: kerr.UnsupportedEndpointType} { // KIP-919
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = kind
		isCode(t, "endpoint type", ask[*kmsg.DescribeClusterResponse](cl, 1, req).ErrorCode, want)
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	c := newCluster(t)
	id := c.topic("b", 3)
	c.topic("a", 2)
	c.topic("c", 4)
	cl := c.dial()
	describe := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) *kmsg.DescribeTopicPartitionsResponse {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, name := range names {
			rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
			rt.Topic = name
			req.Topics = append(req.Topics, rt)
		}
		return ask[*kmsg.DescribeTopicPartitionsResponse](cl, 0, req)
	}
	resp := describe(2000, nil, "nope", "b", "a b")
	isCode(t, "invalid", resp.Topics[0].ErrorCode, kerr.InvalidTopicException)
	b := resp.Topics[1]
	isCode(t, "b", b.ErrorCode, nil)
	is(t, "id", b.TopicID, [16]byte(id))
	is(t, "operations", b.AuthorizedOperations, 3576)
	is(t, "partitions", len(b.Partitions), 3)
	// Null here makes the Java Admin client fail (Kafka 4.4 sends empty lists).
	if p := b.Partitions[0]; p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
		t.Errorf("a list is null: %+v", p)
	}
	isCode(t, "unknown", resp.Topics[2].ErrorCode, kerr.UnknownTopicOrPartition)

	var seen []string // page by page, all topics by name
	var cursor *kmsg.DescribeTopicPartitionsRequestCursor
	for range 10 {
		resp := describe(2, cursor)
		n := 0
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				seen = append(seen, *topic.Topic+string(rune('0'+p.Partition)))
				n++
			}
		}
		if n > 2 {
			t.Errorf("%d partitions on a page of 2", n)
		}
		if resp.NextCursor == nil {
			break
		}
		cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	is(t, "all pages", strings.Join(seen, " "), "a0 a1 b0 b1 b2 c0 c1 c2 c3")
	bad := &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a", Partition: -1}
	isCode(t, "bad cursor", describe(2, bad, "a").Topics[0].ErrorCode, kerr.InvalidRequest)
}

func TestInitProducerID(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	last := int64(-1)
	for v := int16(0); v <= 5; v++ {
		resp := ask[*kmsg.InitProducerIDResponse](cl, v, kmsg.NewPtrInitProducerIDRequest())
		isCode(t, "response", resp.ErrorCode, nil)
		is(t, "a new id", resp.ProducerID > last, true)
		is(t, "epoch", resp.ProducerEpoch, 0)
		last = resp.ProducerID
	}
	for _, tc := range []struct {
		name string
		edit func(*kmsg.InitProducerIDRequest)
		want *kerr.Error
	}{
		{"transactional id", func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = kmsg.StringPtr("tx") }, kerr.UnsupportedVersion},
		{"empty transactional id", func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = kmsg.StringPtr("") }, kerr.InvalidRequest},
		{"id without epoch", func(r *kmsg.InitProducerIDRequest) { r.ProducerID = 5 }, kerr.InvalidRequest},
		{"id and epoch of before", func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 5, 1 }, nil},
	} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch = -1, -1
		tc.edit(req)
		isCode(t, tc.name, ask[*kmsg.InitProducerIDResponse](cl, 4, req).ErrorCode, tc.want)
	}
	c.refuseAll(errors.New("no quorum"))
	code := ask[*kmsg.InitProducerIDResponse](cl, 4, kmsg.NewPtrInitProducerIDRequest()).ErrorCode
	is(t, "no quorum: retriable", kerr.IsRetriable(kerr.ErrorForCode(code)), true)
}

func BenchmarkMetadata(b *testing.B) {
	c := newCluster(b)
	c.topic("t", 10_000)
	req := metadataRequest()
	req.SetVersion(12)
	api := c.APIs("")[3]
	r := requestOf(req)
	b.ReportAllocs()
	for b.Loop() {
		api.Handle(b.Context(), r)
	}
}
