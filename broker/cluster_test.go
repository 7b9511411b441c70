package broker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"ponor/broker"
	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
	"ponor/rpc"
)

const clusterID = "bWVhc3VyZS1vZi10aW1lLQ"

// cluster is broker 1 of a cluster of three, with everything real but the
// controller, which is one image and metadata.Apply. It is the broker's Meta,
// Admin and Partitions.
type cluster struct {
	t     testing.TB
	store *memlog.Store
	media commitlog.Store // store, or a decorator of it
	host  *partition.Host
	*broker.Broker
	server *rpc.Server
	piped  bool // no listener: clients come through pipes, for synctest
	// onReply is rpc.ServerConfig.OnReply.
	onReply func(rpc.Served)
	addr    string
	self    metadata.Incarnation

	mu       sync.Mutex
	img      *metadata.Image
	changed  chan struct{}
	seq      map[metadata.Incarnation]uint64
	ids      int64
	parts    map[partKey]*partition.Partition
	opening  map[partKey]bool // Get answers ErrOpening
	adminErr error            // what Admin answers instead
	stuck    bool             // elections are taken and nothing happens
	deleted  []string         // topics that their owner closes when somebody waits for it
	quorum   controller.QuorumInfo
}

type partKey struct {
	topic  metadata.TopicID
	number int32
}

// newCluster starts a broker on loopback; edit changes it before.
func newCluster(t testing.TB, edit ...func(*cluster, *broker.Config)) *cluster {
	t.Helper()
	c := &cluster{
		t: t, store: memlog.New(memlog.Config{}), img: metadata.Empty(), changed: make(chan struct{}), ids: 1000,
		parts: make(map[partKey]*partition.Partition), opening: make(map[partKey]bool),
		seq: make(map[metadata.Incarnation]uint64),
	}
	c.media = c.store
	cfg := broker.Config{NodeID: 1, Meta: c, Admin: c, Partitions: c, StoreName: "mem://test"}
	for _, f := range edit {
		f(c, &cfg)
	}
	var l net.Listener
	c.addr = "127.0.0.1:9092"
	if !c.piped {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		c.addr = l.Addr().String()
	}
	c.must(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: clusterID, Generation: 1}}})
	for id := range int32(3) {
		inc := c.register(id+1, "zone-"+strconv.Itoa(int(id)))
		if id == 0 {
			c.self = inc
		}
	}
	c.Broker = broker.New(cfg)
	var err error
	if c.server, err = rpc.NewServer(rpc.ServerConfig{APIs: c.APIs("PLAINTEXT"), OnReply: c.onReply}); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	if l != nil {
		served.Go(func() { _ = c.server.Serve(context.Background(), l) })
	}
	t.Cleanup(func() {
		c.server.Close()
		served.Wait()
	})
	return c
}

// inBubble has a test wait for the broker, and the broker for what the test does, on
// virtual time.
func inBubble(t *testing.T, test func(*testing.T, *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newCluster(t, func(c *cluster, _ *broker.Config) { c.piped = true }))
	})
}

func (c *cluster) register(id int32, zone string) metadata.Incarnation {
	c.t.Helper()
	nonce := make([]byte, metadata.NonceBytes)
	_, _ = rand.Read(nonce)
	host, portText, _ := net.SplitHostPort(c.addr)
	port, _ := strconv.Atoi(portText)
	r := c.must(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: id, Nonce: nonce, Zone: zone,
		Endpoints: []*metadatapb.Endpoint{{Name: "PLAINTEXT", Host: host, Port: int32(port), Security: "PLAINTEXT"}, {Name: "INTERNAL", Host: "internal", Port: 9}},
	}}})
	return r.Incarnation
}

// apply applies one command and closes the partitions that are no longer ours.
func (c *cluster) apply(cmd *metadatapb.Command) metadata.Result {
	c.mu.Lock()
	img, results := metadata.Apply(c.img, c.img.Index()+1, metadata.NewEntry(cmd))
	c.img = img
	close(c.changed)
	c.changed = make(chan struct{})
	var lost []*partition.Partition
	for k, p := range c.parts {
		if now, ok := img.Partition(k.topic, k.number); !ok || now.Deleting || now.Owner != c.self || now.Epoch != p.Epoch() {
			lost = append(lost, p)
			delete(c.parts, k)
		}
	}
	c.mu.Unlock()
	for _, p := range lost {
		_ = p.Close(context.Background())
	}
	return results[0]
}

func (c *cluster) must(cmd *metadatapb.Command) metadata.Result {
	c.t.Helper()
	r := c.apply(cmd)
	if r.Err != nil {
		c.t.Fatalf("apply %T: %v", cmd.Body, r.Err)
	}
	return r
}

// Image, Changed, Barrier and Incarnation are broker.Meta.
func (c *cluster) Image() *metadata.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

func (c *cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.deleted {
		go c.gone(name)
	}
	c.deleted = nil
	return c.changed
}

func (c *cluster) Barrier(context.Context) (*metadata.Image, error) { return c.Image(), nil }

func (c *cluster) Incarnation() metadata.Incarnation { return c.self }

// Get and Await are broker.Partitions.
func (c *cluster) Get(topic metadata.TopicID, number int32) (*partition.Partition, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := partKey{topic, number}
	p, ok := c.img.Partition(topic, number)
	switch {
	case !ok || p.Deleting:
		return nil, partition.ErrUnknown
	case p.Owner != c.self:
		return nil, fmt.Errorf("%w: broker %d leads it", partition.ErrNotLeader, p.Owner.Broker)
	case c.opening[k]:
		return nil, fmt.Errorf("%w: %w", partition.ErrNotLeader, partition.ErrOpening)
	case c.parts[k] != nil:
		return c.parts[k], nil
	}
	open, err := partition.Open(context.Background(), partition.Config{
		ID: p.ID(), Epoch: p.Epoch, Store: c.media,
		Settings: func() metadata.TopicSettings { return c.Image().TopicSettings(p.TopicName) },
		Host:     c.host,
	})
	if err != nil {
		return nil, err
	}
	c.parts[k] = open
	return open, nil
}

func (c *cluster) Await(ctx context.Context, topic metadata.TopicID, number int32) (*partition.Partition, error) {
	for {
		changed := c.Changed()
		p, err := c.Get(topic, number)
		if err == nil || !errors.Is(err, partition.ErrOpening) {
			return p, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (c *cluster) CatchUp(context.Context) error { return nil }

// setOpening makes a partition look as if it was being opened here.
func (c *cluster) setOpening(topic metadata.TopicID, number int32, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening[partKey{topic, number}] = on
	close(c.changed)
	c.changed = make(chan struct{})
}

// topic makes a topic of n partitions, all owned by this broker.
func (c *cluster) topic(name string, n int32, configs ...string) metadata.TopicID {
	c.t.Helper()
	spec := controller.TopicSpec{Name: name, Partitions: n, ReplicationFactor: 3, Configs: map[string]string{}}
	for i := 0; i < len(configs); i += 2 {
		spec.Configs[configs[i]] = configs[i+1]
	}
	r, err := c.CreateTopics(context.Background(), []controller.TopicSpec{spec}, false)
	if err != nil || r[0].Err != nil {
		c.t.Fatalf("create topic %s: %v %v", name, err, r)
	}
	return r[0].ID
}

// move has the owner of a partition hand it to another broker.
func (c *cluster) move(topic metadata.TopicID, number int32, to metadata.BrokerID) {
	c.t.Helper()
	img := c.Image()
	p, _ := img.Partition(topic, number)
	target, _ := img.Broker(to)
	c.mu.Lock()
	c.seq[p.Owner]++
	seq := c.seq[p.Owner]
	c.mu.Unlock()
	c.must(&metadatapb.Command{From: p.Owner.Proto(), CmdSeq: seq, Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{Streams: []*metadatapb.FlipStream{{
		Stream: uint64(p.Stream), Epoch: int32(p.Epoch), End: int64(p.End), Target: target.Incarnation.Proto(),
	}}}}})
}

// deleteTopic is the command that deletes a topic.
func deleteTopic(id metadata.TopicID) *metadatapb.Command {
	return &metadatapb.Command{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: id[:]}}}
}

// gone ends the deletion of a topic that this broker owned all of.
func (c *cluster) gone(name string) {
	t, ok := c.Image().Topic(name)
	if !ok {
		return
	}
	c.mu.Lock()
	c.seq[c.self]++
	seq := c.seq[c.self]
	c.mu.Unlock()
	c.apply(&metadatapb.Command{From: c.self.Proto(), CmdSeq: seq, Body: &metadatapb.Command_TopicsGone{TopicsGone: &metadatapb.TopicsGone{TopicIds: [][]byte{t.ID[:]}}}})
}

// bumpEpoch gives a partition to this broker anew, at a newer epoch.
func (c *cluster) bumpEpoch(topic metadata.TopicID, number int32) {
	c.t.Helper()
	c.move(topic, number, 2)
	c.move(topic, number, c.self.Broker)
}

// clientAppend are the options of a Produce request, abort the marker that
// aborts a producer's transaction.
func (c *cluster) clientAppend() partition.AppendOptions { return partition.AppendOptions{} }

func (c *cluster) abort(producer int64, epoch int16) partition.Marker {
	return partition.Marker{ProducerID: producer, ProducerEpoch: epoch}
}

// fence ends a broker's incarnation.
func (c *cluster) fence(id metadata.BrokerID) {
	c.t.Helper()
	br, _ := c.Image().Broker(id)
	c.must(&metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: &metadatapb.Fence{Incarnation: br.Incarnation.Proto()}}})
}
