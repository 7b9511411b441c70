package process_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/cmd/node/process"
	"ponor/internal/metrics"
	"ponor/rpc"
	"ponor/sharedlog/objstore/mem"
)

// page asks the node behind an address for its metrics, as 'ponor top' does.
func page(t *testing.T, ctx context.Context, addr string) map[string]*metrics.Family {
	t.Helper()
	c, err := rpc.Dial(ctx, new(net.Dialer).DialContext, addr, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text, err := process.AskMetrics(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// The table is what a node exports: nothing is missing and, as a Page takes rows
// of the table only, nothing else is there.
func TestNodeExportsTheWholeTable(t *testing.T) {
	clients, quorum := listen(t), listen(t)
	n, err := process.New(process.Config{
		NodeID: 1, Version: "v", Bucket: mem.New(), Clients: clients, Quorum: quorum, AutoCreateTopics: true, DefaultPartitions: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if n.Unready() == nil {
		t.Error("ready before it ran")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop, stopNode := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(stop) }()
	<-n.Ready()
	if err := n.Unready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	addr := clients.Addr().String()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if f := client.PollFetches(ctx); f.Err() != nil || f.NumRecords() != 1 {
		t.Fatalf("%d records, %v", f.NumRecords(), f.Err())
	}
	// For the metric that shows only errors that occurred.
	refuse(t, ctx, addr)
	got := page(t, ctx, addr)
	for _, m := range metrics.Table() {
		f := got[m.Name]
		if f == nil {
			t.Errorf("%s is in the table and not on the page", m.Name)
			continue
		}
		if f.Type != m.Kind.String() || f.Help != m.Help {
			t.Errorf("%s is shown as %s, %q", m.Name, f.Type, f.Help)
		}
		delete(got, m.Name)
	}
	for name := range got {
		t.Errorf("%s is on the page and not in the table", name)
	}
	got = page(t, ctx, addr)
	for id, want := range map[metrics.ID]float64{
		metrics.Ready: 1, metrics.Controller: 1, metrics.RaftLeader: 1, metrics.Registrations: 1, metrics.ProduceRecords: 1,
		metrics.ClusterPartitions: 2, metrics.ClusterOwned: 2, metrics.ClusterOffline: 0, metrics.ClusterTopics: 1,
	} {
		if v := got[id.Name()].Sum(); v != want {
			t.Errorf("%s is %v, want %v", id.Name(), v, want)
		}
	}
	if v := got[metrics.Partitions.Name()].Sum("state", "open"); v != 2 {
		t.Errorf("%v partitions are open, want 2", v)
	}
	if v := got[metrics.StoreRequests.Name()].Sum("op", "putnew", "reason", "wal"); v < 1 {
		t.Error("no write of the log was counted")
	}
	stopNode()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n.Unready() == nil {
		t.Error("ready after its end")
	}
}

// refuse has a fetch of a topic that is not there refused.
func refuse(t *testing.T, ctx context.Context, addr string) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionEpoch = 12, -1
	topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	topic.Topic, topic.Partitions = "absent", append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := rawFetch(ctx, addr, req)
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode == 0 {
		t.Fatalf("fetch of nothing: %+v, %v", resp, err)
	}
}

func rawFetch(ctx context.Context, addr string, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	conn, err := rpc.Dial(ctx, new(net.Dialer).DialContext, addr, rpc.ClientConfig{})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.FetchResponse), nil
}
