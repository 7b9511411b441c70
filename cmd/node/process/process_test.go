package process_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/cmd/node/process"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A node whose store can no longer tell what is durable, though nobody has
// fenced it, must not sit on its partitions: it ends, so that it is restarted or
// others take over.
func TestNodeEndsWhenItsStoreIsUndurable(t *testing.T) {
	store := fault.New(mem.New(), 1)
	clients, quorum := listen(t), listen(t)
	n, err := process.New(process.Config{
		NodeID: 1, Bucket: store, Clients: clients, Quorum: quorum, AutoCreateTopics: true, DefaultPartitions: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	<-n.Ready()
	client, err := kgo.NewClient(kgo.SeedBrokers(clients.Addr().String()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func() error {
		return client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
	}
	if err := produce(); err != nil {
		t.Fatal(err)
	}
	store.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Before: objstore.ErrUndurable})
	go func() { _ = produce() }() // which ends with the client
	if err := <-ended; !errors.Is(err, objstore.ErrUndurable) || !strings.Contains(err.Error(), "restart this node") {
		t.Errorf("the node ended with %v", err)
	}
}
