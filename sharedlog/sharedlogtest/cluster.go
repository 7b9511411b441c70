// Package sharedlogtest is a metadata quorum of one for tests of the shared
// log: the real metadata.Apply behind the interface that stores use, with the
// faults that a network adds. It is the controller without Raft, sessions or
// placement; the test says who is fenced and who takes over.
package sharedlogtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
)

// Cluster is the metadata of a test cluster. All methods are safe for
// concurrent use.
type Cluster struct {
	mu      sync.Mutex
	img     *metadata.Image
	changed chan struct{}
	// Hook, if set before use, sees every own command before it is applied and
	// says what becomes of it.
	Hook func(from metadata.Incarnation, cmd *metadatapb.Command) Fate
}

// Fate is what becomes of a submitted command.
type Fate int

// Fates. Lost and Dropped both look like an error without outcome to the
// submitter; only Lost is applied.
const (
	Applied Fate = iota
	Lost
	Dropped
)

// ErrNoReply is what a submitter gets whose command was Lost or Dropped.
var ErrNoReply = errors.New("no reply from the quorum")

// New returns an initialised cluster without brokers.
func New() *Cluster {
	c := &Cluster{img: metadata.Empty(), changed: make(chan struct{})}
	c.Must(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{
		ClusterId: "AAAAAAAAAAAAAAAAAAAAAA", Generation: 1, StoreUrl: "mem:",
	}}})
	return c
}

// Image is the newest one.
func (c *Cluster) Image() *metadata.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

// Changed is closed at the next change of the image.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Submit applies a command.
func (c *Cluster) Submit(cmd *metadatapb.Command) metadata.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apply(cmd)
}

func (c *Cluster) apply(cmd *metadatapb.Command) metadata.Result {
	img, res := metadata.Apply(c.img, c.img.Index()+1, &metadatapb.Entry{Version: 1, Commands: []*metadatapb.Command{cmd}})
	c.set(img)
	return res[0]
}

func (c *Cluster) set(img *metadata.Image) {
	c.img = img
	close(c.changed)
	c.changed = make(chan struct{})
}

// Must applies a command that cannot be refused.
func (c *Cluster) Must(cmd *metadatapb.Command) metadata.Result {
	res := c.Submit(cmd)
	if res.Err != nil {
		panic(fmt.Sprintf("sharedlogtest: %v", res.Err))
	}
	return res
}

// Register makes a new incarnation of a broker, which fences the one before.
func (c *Cluster) Register(broker metadata.BrokerID) metadata.Incarnation {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:])
	return c.Must(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: int32(broker), Nonce: nonce[:], Version: "test",
	}}}).Incarnation
}

// CreateTopic makes a topic whose partitions are all owned by owner.
func (c *Cluster) CreateTopic(name string, partitions int, owner metadata.Incarnation) []metadata.Partition {
	var id metadata.TopicID
	_, _ = rand.Read(id[:])
	cmd := &metadatapb.CreateTopic{Name: name, TopicId: id[:]}
	for range partitions {
		cmd.Partitions = append(cmd.Partitions, &metadatapb.PartitionSpec{Replicas: []int32{int32(owner.Broker)}, Owner: owner.Proto()})
	}
	c.Must(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: cmd}})
	return slices.Collect(c.Image().Partitions(id))
}

// Delete begins to delete a topic; it is gone when its owners say TopicsGone.
func (c *Cluster) Delete(id metadata.TopicID) {
	c.Must(&metadatapb.Command{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: id[:]}}})
}

// AddStream makes a topic of one partition with a given stream and epoch, which
// no command can: tests of the log contract choose those themselves.
func (c *Cluster) AddStream(name string, stream commitlog.StreamID, epoch commitlog.Epoch, owner metadata.Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pb := metadata.Snapshot(c.img)
	var id [16]byte
	_, _ = rand.Read(id[:])
	pb.Topics = append(pb.Topics, &metadatapb.SnapTopic{Name: name, TopicId: id[:], Partitions: []*metadatapb.SnapPartition{{
		Replicas: []int32{int32(owner.Broker)}, Owner: owner.Proto(), Epoch: int32(epoch), Stream: uint64(stream),
		EpochHistory: []int32{int32(epoch)}, HistoryOffsets: []int64{0},
	}}})
	slices.SortFunc(pb.Topics, func(a, b *metadatapb.SnapTopic) int { return slices.Compare(a.TopicId, b.TopicId) })
	pb.NextStream = max(pb.NextStream, uint64(stream)+1)
	pb.Index++
	img, err := metadata.FromSnapshot(pb)
	if err != nil {
		panic(fmt.Sprintf("sharedlogtest: %v", err))
	}
	c.set(img)
}

// SetEpoch sets a stream's epoch, also back, which no command can.
func (c *Cluster) SetEpoch(stream commitlog.StreamID, epoch commitlog.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pb := metadata.Snapshot(c.img)
	for _, t := range pb.Topics {
		for _, p := range t.Partitions {
			if p.Stream == uint64(stream) {
				p.Epoch, p.EpochHistory, p.HistoryOffsets = int32(epoch), []int32{int32(epoch)}, []int64{p.End}
			}
		}
	}
	pb.Index++
	img, err := metadata.FromSnapshot(pb)
	if err != nil {
		panic(fmt.Sprintf("sharedlogtest: %v", err))
	}
	c.set(img)
}

// Fence ends an incarnation; its partitions go to heir, which is also named the
// sealer.
func (c *Cluster) Fence(inc, heir metadata.Incarnation) {
	cmd := &metadatapb.Fence{Incarnation: inc.Proto(), Sealer: heir.Proto()}
	for p := range c.Image().Owned(inc) {
		cmd.Assignments = append(cmd.Assignments, &metadatapb.Assignment{TopicId: slices.Clone(p.Topic[:]), Partition: p.Number, Owner: heir.Proto()})
	}
	c.Must(&metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: cmd}})
}

// Takeover fences an incarnation, has heir seal its WAL and tells the metadata,
// as the controller and a sealer would.
func (c *Cluster) Takeover(ctx context.Context, inc metadata.Incarnation, heir *Node) error {
	c.Fence(inc, heir.Incarnation)
	return c.Seal(ctx, inc, heir)
}

// Seal has a node seal the WAL of a fenced incarnation and tells the metadata.
func (c *Cluster) Seal(ctx context.Context, inc metadata.Incarnation, by *Node) error {
	w, ok := c.Image().WAL(inc)
	if !ok || w.State == metadata.Sealed {
		return nil
	}
	cmd, err := by.Store.Seal(ctx, w)
	if err != nil {
		return err
	}
	res, err := by.Meta.SubmitOwn(ctx, &metadatapb.Command{Body: &metadatapb.Command_Sealed{Sealed: cmd}})
	if err != nil {
		return err
	}
	return res.Rejected()
}

// Meta is the view of one incarnation.
func (c *Cluster) Meta(inc metadata.Incarnation) *Meta { return &Meta{c: c, inc: inc} }

// Meta implements sharedlog.Meta for one incarnation.
type Meta struct {
	c   *Cluster
	inc metadata.Incarnation
	mu  sync.Mutex
	seq uint64
	cut bool
}

var _ sharedlog.Meta = (*Meta)(nil)

// Cut separates the broker from the quorum, or ends that.
func (m *Meta) Cut(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

// CutLocked is Cut(true) for a Hook, which runs during one of the broker's own
// submissions.
func (m *Meta) CutLocked() { m.cut = true }

func (m *Meta) isCut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut
}

// Image implements sharedlog.Meta.
func (m *Meta) Image() *metadata.Image { return m.c.Image() }

// SubmitOwn implements sharedlog.Meta.
func (m *Meta) SubmitOwn(ctx context.Context, cmd *metadatapb.Command) (metadata.Result, error) {
	if err := ctx.Err(); err != nil {
		return metadata.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut {
		return metadata.Result{}, ErrNoReply
	}
	cmd = proto.Clone(cmd).(*metadatapb.Command)
	m.seq++
	cmd.From, cmd.CmdSeq = m.inc.Proto(), m.seq
	fate := Applied
	if m.c.Hook != nil {
		fate = m.c.Hook(m.inc, cmd)
	}
	if fate == Dropped {
		return metadata.Result{}, ErrNoReply
	}
	res := m.c.Submit(cmd)
	if fate == Lost {
		return metadata.Result{}, ErrNoReply
	}
	return res, nil
}

// Barrier implements sharedlog.Meta.
func (m *Meta) Barrier(ctx context.Context) (*metadata.Image, error) {
	if m.isCut() {
		return nil, ErrNoReply
	}
	return m.c.Image(), ctx.Err()
}

// Wait implements sharedlog.Meta.
func (m *Meta) Wait(ctx context.Context, index metadata.Index) error {
	for {
		changed := m.c.Changed()
		if m.c.Image().Index() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
