package broker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/partition"
)

func listOffsetsRequest(topic string, number int32, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = number, timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (cl *client) listOffset(version int16, topic string, number int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	cl.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](cl, version, listOffsetsRequest(topic, number, timestamp)).Topics[0].Partitions[0]
}

func TestListOffsets(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	c.topic("empty", 1)
	cl := c.dial()
	for _, ms := range []int64{1000, 3000, 2000, 3000} {
		p := cl.produce(9, "t", metadata.TopicID{}, 0, kbatch.Values(ms, "x").Bytes())
		isCode(t, "produce", p.ErrorCode, nil)
	}
	for _, tc := range []struct {
		name              string
		topic             string
		ask               int64
		since             int16 // UNSUPPORTED_VERSION before
		offset, timestamp int64
	}{
		{"latest", "t", -1, 1, 4, -1},
		{"earliest", "t", -2, 1, 0, -1},
		{"largest timestamp, the first record of it (Kafka 4.4, KIP-734)", "t", -3, 7, 1, 3000},
		{"earliest local (KIP-405)", "t", -4, 8, 0, -1},
		{"latest tiered: none (KIP-1005)", "t", -5, 9, -1, -1},
		{"earliest pending upload: none (KIP-1023)", "t", -6, 11, -1, -1},
		{"at a time", "t", 1500, 1, 1, 3000},
		{"after the last time", "t", 4000, 1, -1, -1},
		{"latest of an empty log", "empty", -1, 1, 0, -1},
		{"largest timestamp of an empty log", "empty", -3, 7, -1, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for v := int16(1); v <= 11; v++ {
				p := cl.listOffset(v, tc.topic, 0, tc.ask)
				if v < tc.since {
					isCode(t, "too old a version", p.ErrorCode, kerr.UnsupportedVersion)
					continue
				}
				isCode(t, "partition", p.ErrorCode, nil)
				is(t, "offset", p.Offset, tc.offset)
				is(t, "timestamp", p.Timestamp, tc.timestamp)
			}
		})
	}
}

func TestListOffsetsErrors(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	c.move(c.topic("moved", 1), 0, 2)
	cl := c.dial()
	isCode(t, "unknown topic", cl.listOffset(11, "nope", 0, -1).ErrorCode, kerr.UnknownTopicOrPartition)
	isCode(t, "unknown partition", cl.listOffset(11, "t", 9, -1).ErrorCode, kerr.UnknownTopicOrPartition)
	isCode(t, "led elsewhere", cl.listOffset(11, "moved", 0, -1).ErrorCode, kerr.NotLeaderForPartition)
	isCode(t, "means nothing", cl.listOffset(11, "t", 0, -7).ErrorCode, kerr.UnsupportedVersion)
	req := listOffsetsRequest("t", 0, -1) // KIP-320
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 5
	isCode(t, "epoch", ask[*kmsg.ListOffsetsResponse](cl, 4, req).Topics[0].Partitions[0].ErrorCode, kerr.UnknownLeaderEpoch)
	req = listOffsetsRequest("t", 0, -1) // Kafka refuses all of a partition's entries
	req.Topics = append(req.Topics, req.Topics[0])
	for _, topic := range ask[*kmsg.ListOffsetsResponse](cl, 4, req).Topics {
		isCode(t, "twice", topic.Partitions[0].ErrorCode, kerr.InvalidRequest)
	}
}

// read_committed ends at the last stable offset.
func TestListOffsetsIsolation(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	part, _ := c.Get(id, 0)
	a, err := part.Append(kbatch.Values(0, "tx").InTransaction(5, 0, 0).Bytes(), c.clientAppend())
	if err != nil {
		t.Fatal(err)
	}
	<-a.Commit.Done()
	req := listOffsetsRequest("t", 0, -1)
	is(t, "uncommitted", ask[*kmsg.ListOffsetsResponse](cl, 4, req).Topics[0].Partitions[0].Offset, 2)
	req.IsolationLevel = 1
	is(t, "committed", ask[*kmsg.ListOffsetsResponse](cl, 4, req).Topics[0].Partitions[0].Offset, 1)
}

// KIP-320, as Kafka 4.4 answers: a future epoch is -1/-1, a past one its own
// number and end.
func TestOffsetForLeaderEpoch(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	c.bumpEpoch(id, 0)
	cl.mustProduce("t", 0, "b")
	for v := int16(2); v <= 4; v++ {
		for _, tc := range []struct {
			topic              string
			number             int32
			current, epoch     int32
			wantEpoch, wantEnd int64
			want               *kerr.Error
		}{
			{"t", 0, -1, 0, 0, 1, nil},
			{"t", 0, 2, 2, 2, 2, nil},
			{"t", 0, -1, 9, -1, -1, nil},
			{"t", 0, 0, 0, -1, -1, kerr.FencedLeaderEpoch},
			{"t", 0, 9, 0, -1, -1, kerr.UnknownLeaderEpoch},
			{"t", 4, -1, 0, -1, -1, kerr.UnknownTopicOrPartition},
			{"nope", 0, -1, 0, -1, -1, kerr.UnknownTopicOrPartition},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = tc.topic
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = tc.number, tc.current, tc.epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := ask[*kmsg.OffsetForLeaderEpochResponse](cl, v, req).Topics[0].Partitions[0]
			isCode(t, "partition", p.ErrorCode, tc.want)
			is(t, "epoch", int64(p.LeaderEpoch), tc.wantEpoch)
			is(t, "end", p.EndOffset, tc.wantEnd)
		}
	}
}

// TestOneProofForAllPartitionsOfARequest: a client that asks for the ends of ten
// thousand partitions must not wait for ten thousand read barriers, and what was
// proven before it asked does not count (ans-2).
func TestOneProofForAllPartitionsOfARequest(t *testing.T) {
	var barriers atomic.Int64
	c := newCluster(t, func(c *cluster, _ *broker.Config) {
		c.host = &partition.Host{Proof: partition.NewBarrierProof(func(context.Context) (*metadata.Image, error) {
			barriers.Add(1)
			return nil, nil
		})}
	})
	c.topic("t", 100)
	cl := c.dial()
	for asked := 1; asked <= 2; asked++ {
		req := listOffsetsRequest("t", 0, -1)
		for n := int32(1); n < 100; n++ {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, listOffsetsRequest("t", n, -1).Topics[0].Partitions[0])
		}
		for _, p := range ask[*kmsg.ListOffsetsResponse](cl, 11, req).Topics[0].Partitions {
			isCode(t, "partition", p.ErrorCode, nil)
		}
		is(t, "barriers", barriers.Load(), int64(asked))
	}
}
