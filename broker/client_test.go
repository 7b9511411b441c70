package broker_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/rpc"
)

// client is a connection to the broker.
type client struct {
	t testing.TB
	*rpc.Client
}

func (c *cluster) dial() *client {
	c.t.Helper()
	cfg := rpc.ClientConfig{ClientID: "test"}
	if c.piped {
		ours, theirs := net.Pipe()
		go c.server.ServeConn(context.Background(), theirs)
		cl := rpc.NewClient(ours, cfg)
		c.t.Cleanup(func() { _ = cl.Close() })
		return &client{c.t, cl}
	}
	cl, err := rpc.Dial(context.Background(), new(net.Dialer).DialContext, c.addr, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return &client{c.t, cl}
}

// ask sends a request at a version and returns the response.
func ask[R kmsg.Response](cl *client, version int16, req kmsg.Request) R {
	cl.t.Helper()
	resp, err := try[R](cl, version, req)
	if err != nil {
		cl.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp
}

func try[R kmsg.Response](cl *client, version int16, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*long)
	defer cancel()
	req.SetVersion(version)
	resp, err := cl.Do(ctx, req)
	if err != nil || resp == nil {
		var none R
		return none, err
	}
	return resp.(R), nil
}

// isCode checks an error code by its Kafka name; nil is success.
func isCode(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	code, name := int16(0), "NONE"
	if want != nil {
		code, name = want.Code, want.Message
	}
	if got != code {
		t.Errorf("%s: error %v, want %s", what, kerr.ErrorForCode(got), name)
	}
}

// is compares two values.
func is[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// batch is one record batch of values, at a time that no clock is behind: that of a
// bubble begins in 2000.
func batch(values ...string) []byte {
	return kbatch.Values(min(1_700_000_000_000, time.Now().UnixMilli()), values...).Bytes()
}

// produceRequest is for one partition; the topic goes by name and id.
func produceRequest(topic string, id metadata.TopicID, number int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(long.Milliseconds())
	addProduce(req, topic, id, number, records)
	return req
}

func addProduce(req *kmsg.ProduceRequest, topic string, id metadata.TopicID, number int32, records []byte) {
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = number, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
}

// produce appends and returns the partition's answer.
func (cl *client) produce(version int16, topic string, id metadata.TopicID, number int32, records []byte) kmsg.ProduceResponseTopicPartition {
	cl.t.Helper()
	resp := ask[*kmsg.ProduceResponse](cl, version, produceRequest(topic, id, number, records))
	return resp.Topics[0].Partitions[0]
}

// mustProduce appends and fails the test if that is refused.
func (cl *client) mustProduce(topic string, number int32, values ...string) int64 {
	cl.t.Helper()
	p := cl.produce(9, topic, metadata.TopicID{}, number, batch(values...))
	if p.ErrorCode != 0 {
		cl.t.Fatalf("produce to %s-%d: %v", topic, number, kerr.ErrorForCode(p.ErrorCode))
	}
	return p.BaseOffset
}

// fetchRequest makes an empty Fetch that waits for up to wait.
func fetchRequest(wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 1, 50<<20, -1
	req.MaxWaitMillis = int32(wait.Milliseconds())
	return req
}

func addFetch(req *kmsg.FetchRequest, topic string, id metadata.TopicID, number int32, offset int64) *kmsg.FetchRequestTopicPartition {
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = number, offset, 1<<20
	rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return &req.Topics[len(req.Topics)-1].Partitions[0]
}

// fetchParts are all partitions of a response.
func fetchParts(resp *kmsg.FetchResponse) []kmsg.FetchResponseTopicPartition {
	var out []kmsg.FetchResponseTopicPartition
	for _, t := range resp.Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// values are the values of the records in a fetched partition.
func values(t testing.TB, p kmsg.FetchResponseTopicPartition) []string {
	t.Helper()
	batches, err := kbatch.DecodeAll(p.RecordBatches)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range batches {
		for _, r := range b.Records {
			out = append(out, string(r.Value))
		}
	}
	return out
}

// requestOf is a request as a handler sees it, without a connection.
func requestOf(req kmsg.Request) *rpc.Request {
	return &rpc.Request{Key: req.Key(), Version: req.GetVersion(), Body: req, Received: time.Now()}
}
