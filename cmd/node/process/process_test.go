package process_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/cmd/node/process"
	"ponor/metadata/metadatapb"
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

// start runs a node until stop or the end of ctx, and returns when it is ready.
func start(ctx context.Context, t *testing.T, store objstore.Bucket, partitions int32) (n *process.Node, clients string, stop func(), ended <-chan error) {
	t.Helper()
	at, quorum := listen(t), listen(t)
	n, err := process.New(process.Config{
		NodeID: 1, Bucket: store, Clients: at, Quorum: quorum, AutoCreateTopics: true, DefaultPartitions: partitions,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop = context.WithCancel(ctx)
	t.Cleanup(stop)
	end := make(chan error, 1)
	go func() { end <- n.Run(ctx) }()
	<-n.Ready()
	return n, at.Addr().String(), stop, end
}

// A node whose store can no longer tell what is durable, though nobody has
// fenced it, must not sit on its partitions: it ends, so that it is restarted or
// others take over.
func TestNodeEndsWhenItsStoreIsUndurable(t *testing.T) {
	store := fault.New(mem.New(), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, clients, _, ended := start(ctx, t, store, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(clients), kgo.AllowAutoTopicCreation())
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

// A broker that is fenced because its store hangs must not wait for that store
// before it registers again.
func TestNodeWithAHungStoreRegistersAgainSoon(t *testing.T) {
	faults := fault.New(mem.New(), 1)
	store := &walPuts{Bucket: faults}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, clients, stopNode, ended := start(ctx, t, store, 4)
	defer func() { stopNode(); <-ended }()
	client, err := kgo.NewClient(kgo.SeedBrokers(clients), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for p := range int32(4) {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	hold := make(chan struct{})
	defer close(hold)
	faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Hold: hold})
	before := store.n.Load()
	for p := range int32(4) {
		client.Produce(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}, nil)
	}
	ctl := n.Controller()
	old := ctl.Incarnation()
	waitFor(ctx, t, "writes hang", func() bool { return store.n.Load() > before })
	begun := time.Now()
	r, err := ctl.Submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: &metadatapb.Fence{Incarnation: old.Proto()}}})
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	waitFor(ctx, t, "a new incarnation", func() bool {
		b, _ := ctl.Image().Broker(1)
		return b.Incarnation != old && !b.Fenced
	})
	if took := time.Since(begun); took > 9*time.Second { // then writes that hang are given up
		t.Errorf("registered again after %v", took)
	}
}

// walPuts counts attempts to write a WAL slot.
type walPuts struct {
	objstore.Bucket
	n atomic.Int64
}

func (w *walPuts) PutNew(ctx context.Context, key string, body objstore.Body) error {
	if strings.Contains(key, "/wal/") {
		w.n.Add(1)
	}
	return w.Bucket.PutNew(ctx, key, body)
}

func waitFor(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A node whose cluster is restored from a backup while it runs must not go on: what it
// acknowledges is in no log of the restored cluster.
func TestNodeEndsWhenItsClusterWasRestored(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store, at, quorum := mem.New(), listen(t), listen(t)
	n, err := process.New(process.Config{NodeID: 1, Bucket: store, Clients: at, Quorum: quorum, GenerationEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	<-n.Ready()
	if _, err := objstore.ClaimGeneration(ctx, store, n.Controller().Image().ClusterID(), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, objstore.ErrRestored) {
		t.Errorf("the node ended with %v", err)
	}
}

// A stop goes from the outside in: partitions close while their log still waits for the
// store, clients hear what became of their records, and the quorum is there until all
// that is over.
func TestAStopLosesNoReply(t *testing.T) {
	faults := fault.New(mem.New(), 1)
	store := &walPuts{Bucket: faults}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, clients, stopNode, ended := start(ctx, t, store, 1)
	newClient := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(clients), kgo.AllowAutoTopicCreation(),
			kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	client, other := newClient(), newClient()
	for _, c := range []*kgo.Client{client, other} {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	hold := make(chan struct{})
	faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/wal/", Hold: hold})
	before := store.n.Load()
	acked := make(chan error, 1)
	client.Produce(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}, func(_ *kgo.Record, err error) { acked <- err })
	waitFor(ctx, t, "the write hangs", func() bool { return store.n.Load() > before })
	stopNode()
	waitFor(ctx, t, "the partition is closed to clients, who hear so", func() bool {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := other.ProduceSync(within, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
		var code *kerr.Error
		return errors.As(err, &code)
	})
	if _, err := n.Controller().Barrier(ctx); err != nil {
		t.Errorf("the quorum while the store still writes: %v", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the node ended while the store still writes: %v", err)
	case err := <-acked:
		t.Fatalf("answered while the store still writes: %v", err)
	default:
	}
	close(hold)
	if err := <-acked; err != nil {
		t.Errorf("a record that the store took during the stop: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
