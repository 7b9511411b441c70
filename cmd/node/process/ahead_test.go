package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/cmd/node/process"
	"ponor/controller"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/mem"
)

// A partition that keeps consumer groups moves to another node, which has its records
// by then, and answers for the groups.
func TestGroupsMoveWithTheirStateAhead(t *testing.T) {
	const topics, partitions = 20, 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := mem.New()
	first, clients, _, _ := start(ctx, t, store, 1)
	_, quorum, _ := first.Controller().LeaderInfo()
	at := listen(t)
	second, err := process.New(process.Config{NodeID: 2, Bucket: store, Clients: at, Join: []string{quorum}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- second.Run(running) }()
	defer func() { stop(); <-ended }()
	<-second.Ready()

	client, err := kgo.NewClient(kgo.SeedBrokers(clients, at.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	offsets := kadm.Offsets{}
	for topic := range topics {
		name := fmt.Sprint("t", topic)
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
			t.Fatal(err)
		}
		for p := range int32(partitions) {
			offsets.AddOffset(name, p, int64(topic)*1000+int64(p), -1)
		}
	}
	if err := admin.CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatal(err)
	}

	where := admin.FindGroupCoordinators(ctx, "g")["g"]
	if where.Err != nil {
		t.Fatal(where.Err)
	}
	nodes := map[metadata.BrokerID]*process.Node{1: first, 2: second}
	from := metadata.BrokerID(where.NodeID)
	to := 3 - from
	img := first.Controller().Image()
	topic, _ := img.Topic(group.OffsetsTopic)
	var changes []controller.PartitionChange
	for p := range img.Partitions(topic.ID) {
		changes = append(changes, controller.PartitionChange{Topic: topic.ID, Partition: p.Number, Replicas: []metadata.BrokerID{to}})
	}
	if _, err := first.Controller().Reassign(ctx, changes); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, "the partitions are at the other node", func() bool {
		for p := range first.Controller().Image().Partitions(topic.ID) {
			if p.Owner.Broker == from {
				return false
			}
		}
		return true
	})
	got, err := admin.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Offsets().Sorted()); n != topics*partitions {
		t.Errorf("%d offsets after the move", n)
	}
	var page bytes.Buffer
	if err := nodes[to].WriteMetrics(&page); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("ponor_coordinator_replayed_total{when=%q} %d\n", "ahead", topics*partitions); !strings.Contains(page.String(), want) {
		t.Errorf("want %s in %s", want, page.String())
	}
}

// gatedFlips is a store whose first hand-over waits, and that counts them.
type gatedFlips struct {
	*sharedlog.Store
	calls atomic.Int64
	gate  <-chan struct{}
}

func (g *gatedFlips) Flip(ctx context.Context, streams []*metadatapb.FlipStream, freeze func()) []error {
	if g.calls.Add(1) == 1 {
		<-g.gate
		ctx = context.WithoutCancel(ctx)
	}
	return g.Store.Flip(ctx, streams, freeze)
}

// countLines counts the lines of a log that have a message.
type countLines struct {
	slog.Handler
	message string
	n       *atomic.Int64
}

func (c countLines) Enabled(context.Context, slog.Level) bool { return true }

func (c countLines) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.message {
		c.n.Add(1)
	}
	return nil
}

// aheadRig is two nodes, of which the first has a topic of consumer groups with logs
// that are worth to be sent ahead.
type aheadRig struct {
	first  *process.Node
	target string // where the second listens
	topic  metadata.TopicID
	sent   atomic.Int64 // logs of the first one that were sent, or not
}

func newAheadRig(ctx context.Context, t *testing.T, partitions int32, tune func(*aheadRig, *process.Config)) *aheadRig {
	r := new(aheadRig)
	store, clients, quorum, at := mem.New(), listen(t), listen(t), listen(t)
	r.target = at.Addr().String()
	run := func(cfg process.Config) *process.Node {
		n, err := process.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- n.Run(running) }()
		t.Cleanup(func() { stop(); <-ended })
		<-n.Ready()
		return n
	}
	cfg := process.Config{NodeID: 1, Bucket: store, Clients: clients, Quorum: quorum,
		Logger: slog.New(countLines{slog.DiscardHandler, "log sent ahead of a move", &r.sent})}
	tune(r, &cfg)
	r.first = run(cfg)
	client, err := kgo.NewClient(kgo.SeedBrokers(clients.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, group.OffsetsTopic); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(ctx, 500, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	for p := range int32(500) {
		offsets.AddOffset("t", p, 1, -1)
	}
	topic, _ := r.first.Controller().Image().Topic(group.OffsetsTopic)
	r.topic = topic.ID
	filled := map[int32]bool{}
	for i := 0; len(filled) < int(partitions); i++ {
		name := fmt.Sprint("g", i)
		if p := coordinator.PartitionOf(name, partitions); !filled[p] {
			if err := admin.CommitAllOffsets(ctx, name, offsets); err != nil {
				t.Fatal(err)
			}
			filled[p] = true
		}
	}
	run(process.Config{NodeID: 2, Bucket: store, Clients: at, Join: []string{quorum.Addr().String()}})
	return r
}

// reassign asks for all partitions to be at a node; 0 cancels that.
func (r *aheadRig) reassign(ctx context.Context, t *testing.T, partitions int32, to metadata.BrokerID) {
	t.Helper()
	var changes []controller.PartitionChange
	for p := range partitions {
		c := controller.PartitionChange{Topic: r.topic, Partition: p}
		if to > 0 {
			c.Replicas = []metadata.BrokerID{to}
		}
		changes = append(changes, c)
	}
	errs, err := r.first.Controller().Reassign(ctx, changes)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range errs {
		if e != nil {
			t.Fatal(e)
		}
	}
}

// What was sent ahead while another hand-over went on moves in one: each has the store
// to itself and waits for its outcome.
func TestWhatWasSentAheadMovesTogether(t *testing.T) {
	const partitions = 12
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	flips := new(gatedFlips)
	gate := make(chan struct{})
	flips.gate = gate
	r := newAheadRig(ctx, t, partitions, func(_ *aheadRig, c *process.Config) {
		c.TunePartitions = func(set *partition.SetConfig) {
			flips.Store = set.Shared.(*sharedlog.Store)
			set.Shared = flips
		}
	})
	r.reassign(ctx, t, partitions, 2)
	waitFor(ctx, t, "all logs are sent", func() bool { return r.sent.Load() == partitions })
	close(gate)
	waitFor(ctx, t, "all partitions have moved", func() bool {
		for p := range r.first.Controller().Image().Partitions(r.topic) {
			if p.Owner.Broker != 2 {
				return false
			}
		}
		return true
	})
	if n := flips.calls.Load(); n > 3 {
		t.Errorf("%d hand-overs for %d partitions, want 2, and one for what was on its way", n, partitions)
	}
}

// A move that is called off while the log is sent is not made.
func TestMoveIsCancelledWhileTheLogIsSent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dialed, cancelled := make(chan struct{}, 100), make(chan struct{})
	var flips gatedFlips
	open := make(chan struct{})
	close(open)
	flips.gate = open
	r := newAheadRig(ctx, t, 1, func(r *aheadRig, c *process.Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == r.target {
				dialed <- struct{}{}
				<-cancelled
				return nil, errors.New("the target hangs")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		c.TunePartitions = func(set *partition.SetConfig) {
			flips.Store = set.Shared.(*sharedlog.Store)
			set.Shared = &flips
		}
	})
	r.reassign(ctx, t, 1, 2)
	<-dialed
	r.reassign(ctx, t, 1, 0)
	close(cancelled)
	waitFor(ctx, t, "sending has ended", func() bool { return r.sent.Load() == 1 })
	// Another move is made after what was sent.
	other, _ := r.first.Controller().Image().Topic("t")
	if _, err := r.first.Controller().Reassign(ctx, []controller.PartitionChange{{Topic: other.ID, Partition: 0, Replicas: []metadata.BrokerID{2}}}); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, "another partition has moved", func() bool {
		p, _ := r.first.Controller().Image().Partition(other.ID, 0)
		return p.Owner.Broker == 2
	})
	if p, _ := r.first.Controller().Image().Partition(r.topic, 0); p.Owner.Broker != 1 {
		t.Errorf("it moved to broker %d", p.Owner.Broker)
	}
}
