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
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/controller"
	"ponor/internal/kbatch"
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
	*broker.Broker
	server *rpc.Server
	piped  bool // no listener: clients come through pipes, for synctest
	addr   string
	self   metadata.Incarnation

	mu       sync.Mutex
	img      *metadata.Image
	changed  chan struct{}
	seq      map[metadata.Incarnation]uint64
	ids      int64
	parts    map[partKey]*partition.Partition
	opening  map[partKey]bool // Get answers ErrOpening
	adminErr error            // what Admin answers instead
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
	if c.server, err = rpc.NewServer(rpc.ServerConfig{APIs: c.APIs("PLAINTEXT")}); err != nil {
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

// setOpening makes a partition look as if it was being opened here.
func (c *cluster) setOpening(topic metadata.TopicID, number int32, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening[partKey{topic, number}] = on
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cluster) refuseAll(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adminErr = err
}

func (c *cluster) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adminErr
}

// CreateTopics and what follows are broker.Admin, as simple as can be: the
// controller has its own tests.
func (c *cluster) CreateTopics(_ context.Context, topics []controller.TopicSpec, validateOnly bool) ([]controller.TopicResult, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]controller.TopicResult, len(topics))
	for i, spec := range topics {
		if have, ok := c.Image().Colliding(spec.Name); ok {
			code := controller.CodeTopicExists
			if have.Name != spec.Name {
				code = controller.CodeInvalidTopic
			}
			out[i].Err = &controller.Error{Code: code, Message: fmt.Sprintf("topic %q is in the way", have.Name)}
			continue
		}
		create := &metadatapb.CreateTopic{Name: spec.Name, TopicId: make([]byte, 16), Configs: spec.Configs, Internal: spec.Internal}
		_, _ = rand.Read(create.TopicId)
		n, rf := max(spec.Partitions, 1), max(spec.ReplicationFactor, 1)
		if len(spec.Assignments) > 0 {
			n, rf = int32(len(spec.Assignments)), int16(len(spec.Assignments[0]))
		}
		for p := range n {
			ps := &metadatapb.PartitionSpec{Owner: c.self.Proto(), Replicas: []int32{1, 2, 3}[:rf]}
			if ids := spec.Assignments[p]; ids != nil {
				ps.Replicas = nil
				for _, id := range ids {
					ps.Replicas = append(ps.Replicas, int32(id))
				}
			}
			create.Partitions = append(create.Partitions, ps)
		}
		if !validateOnly {
			r := c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: create}})
			if r.Err != nil {
				out[i].Err = rejected(r)
				continue
			}
		}
		out[i] = controller.TopicResult{ID: metadata.TopicID(create.TopicId), Partitions: n, ReplicationFactor: rf}
	}
	return out, nil
}

func (c *cluster) DeleteTopics(_ context.Context, ids []metadata.TopicID) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(ids))
	for i, id := range ids {
		out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: id[:]}}}))
	}
	return out, nil
}

func (c *cluster) CreatePartitions(_ context.Context, topics []controller.PartitionsSpec, validateOnly bool) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(topics))
	for i, spec := range topics {
		t, _ := c.Image().Topic(spec.Topic)
		create := &metadatapb.CreatePartitions{TopicId: t.ID[:], From: t.Partitions}
		for range spec.Count - t.Partitions {
			create.Partitions = append(create.Partitions, &metadatapb.PartitionSpec{Owner: c.self.Proto(), Replicas: []int32{1}})
		}
		if !validateOnly {
			out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: create}}))
		}
	}
	return out, nil
}

func (c *cluster) AlterConfigs(_ context.Context, resources []controller.ConfigResource, validateOnly bool) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(resources))
	for i, r := range resources {
		alter := &metadatapb.AlterConfigs{Kind: int32(r.Kind), Name: r.Name, ReplaceAll: r.ReplaceAll}
		for _, ch := range r.Changes {
			value := ch.Value
			if ch.Op == controller.ConfigAppend {
				old, _ := c.Image().Config(r.Kind, r.Name, ch.Name)
				value = old + "," + value
			}
			if err := metadata.ValidateTopicConfig(ch.Name, value); err != nil && r.Kind == metadata.KindTopic && ch.Op != controller.ConfigDelete {
				out[i] = &controller.Error{Code: controller.CodeInvalidConfig, Message: err.Error()}
			}
			alter.Ops = append(alter.Ops, &metadatapb.ConfigOp{Name: ch.Name, Value: value, Remove: ch.Op == controller.ConfigDelete})
		}
		if out[i] == nil && !validateOnly {
			out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: alter}}))
		}
	}
	return out, nil
}

// rejected is the controller's word for a rejection by the state machine.
func rejected(r metadata.Result) *controller.Error {
	if r.Err == nil {
		return nil
	}
	return &controller.Error{Code: controller.CodeInvalidRequest, Message: r.Err.Error()}
}

func (c *cluster) AllocateProducerID(context.Context) (int64, error) {
	if err := c.refusal(); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids++
	return c.ids, nil
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
	c.t.Helper()
	t, ok := c.Image().Topic(name)
	if !ok {
		return
	}
	c.mu.Lock()
	c.seq[c.self]++
	seq := c.seq[c.self]
	c.mu.Unlock()
	c.must(&metadatapb.Command{From: c.self.Proto(), CmdSeq: seq, Body: &metadatapb.Command_TopicsGone{TopicsGone: &metadatapb.TopicsGone{TopicIds: [][]byte{t.ID[:]}}}})
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
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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

// batch is one record batch of values at a fixed time.
func batch(values ...string) []byte { return kbatch.Values(1_700_000_000_000, values...).Bytes() }

// produceRequest is for one partition; the topic goes by name and id.
func produceRequest(topic string, id metadata.TopicID, number int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
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
