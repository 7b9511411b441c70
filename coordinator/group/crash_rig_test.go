package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
)

// fault is where a coordinator dies on the way of one append, or what is lost of it.
type fault int

const (
	noFault      fault = iota
	beforeAppend       // the log does not get it
	unwritten          // the log gets it and never has it durable
	unanswered         // it is durable, and the coordinator dies before it says so
	lostAnswer         // all is well but for the answer
)

func (f fault) String() string {
	return [...]string{"no fault", "before the append", "before it is durable", "before the answer", "lost answer"}[f]
}

// death is a coordinator of one partition that dies at one append, after which another
// takes over: all over one log.
type death struct {
	t      testing.TB
	store  *memlog.Store
	img    *metadata.Image
	id     commitlog.ID
	cfg    group.Config
	topics *fakeTopics
	at     int // the append, from 1
	kind   fault

	mu      sync.Mutex
	appends int
	epoch   commitlog.Epoch
	part    *partition.Partition
	now     *coordinator.Shards[*group.Machine]
	old     []*coordinator.Shards[*group.Machine] // who thinks that it still is it
	drop    bool                                  // the next answer
	wg      sync.WaitGroup
}

func newDeath(t testing.TB, at int, kind fault) *death {
	d := &death{t: t, at: at, kind: kind, store: memlog.New(memlog.Config{Latency: time.Millisecond}), img: metadata.Empty(), topics: &fakeTopics{topics: nil}}
	apply := func(c *metadatapb.Command) metadata.Result {
		img, results := metadata.Apply(d.img, d.img.Index()+1, metadata.NewEntry(c))
		if results[0].Err != nil {
			t.Fatal(results[0].Err)
		}
		d.img = img
		return results[0]
	}
	apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: strings.Repeat("A", 22), Generation: 1}}})
	reg := apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: 1, Nonce: make([]byte, metadata.NonceBytes), Endpoints: []*metadatapb.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1, Security: "PLAINTEXT"}}}}})
	topic := metadata.TopicID{1, 15: 1}
	apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{Name: "__consumer_offsets", TopicId: topic[:], Internal: true,
		Configs:    map[string]string{"cleanup.policy": "compact"},
		Partitions: []*metadatapb.PartitionSpec{{Replicas: []int32{1}, Owner: reg.Incarnation.Proto()}}}}})
	p, _ := d.img.Partition(topic, 0)
	d.id = p.ID()
	ids := 0
	d.cfg = group.Config{OffsetsRetention: time.Minute, OffsetsRetentionCheck: 10 * time.Second, Topics: func() group.Topics { return d.topics },
		NewID: func() string { ids++; return fmt.Sprint("id", ids) }}
	t.Cleanup(func() {
		d.wg.Wait()
		for _, s := range append(d.old, d.now) {
			s.Close()
		}
		_ = d.part.Close(context.Background())
	})
	d.takeOver()
	return d
}

// takeOver has another coordinator open the log. The one before is not told.
func (d *death) takeOver() {
	shards := coordinator.New(coordinator.Config[*group.Machine]{Topic: "__consumer_offsets", Image: func() *metadata.Image { return d.img }, Partitions: d,
		New: func(int32) *group.Machine { return group.New(d.cfg) }, LoadWait: time.Minute})
	d.mu.Lock()
	d.epoch++
	epoch := d.epoch
	d.mu.Unlock()
	p, err := partition.Open(context.Background(), partition.Config{ID: d.id, Epoch: epoch, Store: deathStore{d},
		Settings: func() metadata.TopicSettings { return d.img.TopicSettings("__consumer_offsets") },
		Host: &partition.Host{Closed: shards.Closed, Owns: func(_ metadata.TopicID, _ int32, e commitlog.Epoch) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return e == d.epoch
		}}})
	if err != nil {
		d.t.Error(err)
		return
	}
	shards.Opened(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now != nil {
		d.old = append(d.old, d.now)
	}
	d.part, d.now = p, shards
}

// Await is coordinator.Partitions.
func (d *death) Await(context.Context, metadata.TopicID, int32) (*partition.Partition, error) {
	return nil, partition.ErrNotLeader
}

// CatchUp is coordinator.Partitions.
func (d *death) CatchUp(context.Context) error { return nil }

// deathStore and deathLog stand between a coordinator and its log.
type deathStore struct{ d *death }

func (s deathStore) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	l, err := s.d.store.Open(ctx, id, epoch, opts)
	return deathLog{l, s.d}, err
}

func (s deathStore) Remove(ctx context.Context, id commitlog.ID) error {
	return s.d.store.Remove(ctx, id)
}

type deathLog struct {
	commitlog.Log
	d *death
}

func (l deathLog) Append(b commitlog.Batch) (commitlog.Commit, error) {
	d := l.d
	d.mu.Lock()
	d.appends++
	kind := d.kind
	if d.appends != d.at {
		kind = noFault
	}
	if kind == lostAnswer {
		d.drop = true
	}
	d.mu.Unlock()
	if kind == beforeAppend {
		d.wg.Go(d.takeOver)
		return commitlog.Commit{}, commitlog.ErrFenced
	}
	c, err := l.Log.Append(b)
	switch {
	case err != nil:
	case kind == unwritten:
		d.wg.Go(d.takeOver) // before the millisecond is over that it takes to write
	case kind == unanswered:
		silent := commitlog.NewSlot()
		d.wg.Go(func() {
			_ = c.Wait(context.Background())
			d.takeOver()
			silent.Resolve(commitlog.ErrFenced)
		})
		return commitlog.NewCommit(c.Base, c.Last, silent), nil
	}
	return c, err
}

var errLost = errors.New("no answer")

// current is who coordinates now.
func (d *death) current() *coordinator.Shards[*group.Machine] {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// answered is the error of a call as its caller sees it.
func (d *death) answered(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.drop {
		d.drop = false
		return errLost
	}
	return err
}

// tell is a call that is answered at once.
func tell[T any](d *death, at *coordinator.Shards[*group.Machine], f func(m *group.Machine, now time.Time) (T, []coordinator.Record)) (T, error) {
	return coordinatorAsk(d, at, func(m *group.Machine, now time.Time, reply func(T)) []coordinator.Record {
		v, records := f(m, now)
		reply(v)
		return records
	})
}

func coordinatorAsk[T any](d *death, at *coordinator.Shards[*group.Machine], f func(*group.Machine, time.Time, func(T)) []coordinator.Record) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	v, err := coordinator.Ask(ctx, at, grp, time.Now(), f)
	return v, d.answered(err)
}

// offsets is what the group committed for the partitions of t.
func (d *death) offsets() ([]int64, error) {
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group, req.MemberEpoch = grp, -1
	req.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0, 1, 2, 3}}}
	resp, err := tell(d, d.current(), func(m *group.Machine, _ time.Time) (kmsg.OffsetFetchResponseGroup, []coordinator.Record) {
		return m.OffsetFetch(req), nil
	})
	if err != nil {
		return nil, err
	}
	var list []int64
	for _, p := range resp.Topics[0].Partitions {
		list = append(list, p.Offset)
	}
	return list, nil
}
