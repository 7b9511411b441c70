package partition_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
)

// cluster is the metadata of a few brokers, applied by the real Apply.
type cluster struct {
	t       testing.TB
	mu      sync.Mutex
	img     *metadata.Image
	changed chan struct{}
	incs    []metadata.Incarnation
	seq     map[metadata.Incarnation]uint64
	fail    error // of SubmitOwn

	barriers atomic.Int64 // asked for
}

func newCluster(t testing.TB, brokers int) *cluster {
	c := &cluster{t: t, img: metadata.Empty(), changed: make(chan struct{}), seq: make(map[metadata.Incarnation]uint64)}
	c.apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: strings.Repeat("A", 22), Generation: 1}}})
	for i := range brokers {
		c.register(i)
	}
	return c
}

func (c *cluster) register(broker int) metadata.Incarnation {
	nonce := make([]byte, 16)
	nonce[0], nonce[1] = byte(broker+1), byte(len(c.incs))
	r := c.apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: int32(broker), Nonce: nonce, Endpoints: []*metadatapb.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1, Security: "PLAINTEXT"}}}}})
	c.incs = append(c.incs, r.Incarnation)
	return r.Incarnation
}

func (c *cluster) try(cmd *metadatapb.Command) metadata.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, results := metadata.Apply(c.img, c.img.Index()+1, metadata.NewEntry(cmd))
	c.img = next
	close(c.changed)
	c.changed = make(chan struct{})
	return results[0]
}

func (c *cluster) apply(cmd *metadatapb.Command) metadata.Result {
	c.t.Helper()
	r := c.try(cmd)
	if r.Err != nil {
		c.t.Fatalf("apply %v: %v", cmd, r.Err)
	}
	return r
}

func (c *cluster) create(name string, id byte, owners ...metadata.Incarnation) metadata.TopicID {
	c.t.Helper()
	topic := metadata.TopicID{id, 15: 1}
	create := &metadatapb.CreateTopic{Name: name, TopicId: topic[:]}
	for _, o := range owners {
		create.Partitions = append(create.Partitions, &metadatapb.PartitionSpec{Replicas: []int32{int32(o.Broker)}, Owner: o.Proto()})
	}
	c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: create}})
	return topic
}

func (c *cluster) fence(dead, next metadata.Incarnation, topic metadata.TopicID, partitions ...int32) {
	c.t.Helper()
	f := &metadatapb.Fence{Incarnation: dead.Proto(), Sealer: next.Proto()}
	for _, p := range partitions {
		f.Assignments = append(f.Assignments, &metadatapb.Assignment{TopicId: topic[:], Partition: p, Owner: next.Proto()})
	}
	c.apply(&metadatapb.Command{Body: &metadatapb.Command_Fence{Fence: f}})
}

func (c *cluster) seal(dead metadata.Incarnation) {
	c.t.Helper()
	c.apply(&metadatapb.Command{Body: &metadatapb.Command_Sealed{Sealed: &metadatapb.Sealed{Incarnation: dead.Proto()}}})
}

// node is one broker's view of the cluster.
type node struct {
	*cluster
	inc metadata.Incarnation
}

func (n node) Image() *metadata.Image {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.img
}

func (n node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n node) Barrier(context.Context) (*metadata.Image, error) {
	n.barriers.Add(1)
	return n.Image(), nil
}

func (n node) SubmitOwn(_ context.Context, cmd *metadatapb.Command) (metadata.Result, error) {
	n.mu.Lock()
	if err := n.fail; err != nil {
		n.mu.Unlock()
		return metadata.Result{}, err
	}
	n.seq[n.inc]++
	cmd.From, cmd.CmdSeq = n.inc.Proto(), n.seq[n.inc]
	n.mu.Unlock()
	return n.try(cmd), nil
}

// run starts a Set for an incarnation; the returned func stops it and waits.
func (c *cluster) run(inc metadata.Incarnation, cfg partition.SetConfig) (*partition.Set, func()) {
	cfg.Meta, cfg.Incarnation = node{c, inc}, inc
	s := partition.NewSet(cfg)
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	return s, func() { cancel(); wg.Wait() }
}

// slowStore delays and fails opening.
type slowStore struct {
	commitlog.Store
	delay time.Duration
	mu    sync.Mutex
	err   error
	open  int
	most  int
}

func (s *slowStore) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	t := time.NewTimer(s.delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.open--
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, id, epoch, opts)
}

func (s *slowStore) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func mustAppend(t *testing.T, p *partition.Partition) {
	t.Helper()
	a, err := p.Append(plain(1).Bytes(), clientAt(nowMs))
	if err == nil {
		err = a.Commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSetHostsWhatTheImageSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		store := memlog.New(memlog.Config{})
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store})
		defer stop()
		topic := c.create("t", 1, c.incs[0], c.incs[1])
		synctest.Wait()
		p, err := s.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, p)
		if _, err := s.Get(topic, 1); !errors.Is(err, partition.ErrNotLeader) || errors.Is(err, partition.ErrOpening) {
			t.Errorf("another broker's: %v", err)
		}
		if _, err := s.Get(topic, 2); !errors.Is(err, partition.ErrUnknown) {
			t.Errorf("no such partition: %v", err)
		}
		if got, err := p.OffsetFor(t.Context(), time.Now(), partition.TimestampLatest, 0); err != nil || got.Offset != 1 {
			t.Errorf("latest: %+v, %v", got, err)
		}
		if n := len(s.All()); n != 1 {
			t.Errorf("%d partitions", n)
		}
	})
}

// TestTakeover: the loser's waiters wake and its calls say so; the winner opens
// only once the WAL is sealed (slot-4), parks requests meanwhile, and finds
// everything that was acknowledged (C6).
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		store := memlog.New(memlog.Config{})
		s0, stop0 := c.run(c.incs[0], partition.SetConfig{Shared: store})
		defer stop0()
		s1, stop1 := c.run(c.incs[1], partition.SetConfig{Shared: store})
		defer stop1()
		topic := c.create("t", 1, c.incs[0])
		synctest.Wait()
		p, err := s0.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, p)
		w := partition.NewWaiter()
		defer w.Close()
		p.Watch(w)

		c.fence(c.incs[0], c.incs[1], topic, 0)
		woken(t, w)
		if _, err := p.Read(t.Context(), 0, partition.ReadOptions{}); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("the old owner reads: %v", err)
		}
		if _, err := s0.Get(topic, 0); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("the old owner's set: %v", err)
		}
		begun := time.Now()
		if _, err := s1.Await(t.Context(), topic, 0); !errors.Is(err, partition.ErrNotLeader) || !errors.Is(err, partition.ErrOpening) || !strings.Contains(err.Error(), "not sealed") {
			t.Errorf("before Sealed: %v", err)
		}
		if took := time.Since(begun); took != 500*time.Millisecond {
			t.Errorf("parked for %v, want 500 ms", took)
		}
		var parked sync.WaitGroup
		parked.Go(func() {
			q, err := s1.Await(t.Context(), topic, 0)
			if err != nil {
				t.Errorf("parked: %v", err)
				return
			}
			if q.Epoch() != 1 || q.HighWatermark() != 1 {
				t.Errorf("epoch %d, high watermark %d", q.Epoch(), q.HighWatermark())
			}
			mustAppend(t, q)
		})
		time.Sleep(100 * time.Millisecond)
		c.seal(c.incs[0])
		parked.Wait()
	})
}

func TestALogThatDoesNotOpenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		store := &slowStore{Store: memlog.New(memlog.Config{}), err: fmt.Errorf("%w: no route", commitlog.ErrUnavailable)}
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store})
		defer stop()
		topic := c.create("t", 1, c.incs[0])
		time.Sleep(time.Second)
		if _, err := s.Get(topic, 0); !errors.Is(err, partition.ErrOpening) || !strings.Contains(err.Error(), "no route") {
			t.Errorf("%v", err)
		}
		store.setErr(nil)
		time.Sleep(5 * time.Second)
		p, err := s.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, p)
	})
}

// restless fails a test whose Set looks at the image without end, and lets time
// go on.
type restless struct {
	node
	looks *atomic.Int64
}

func (r restless) Changed() <-chan struct{} {
	if r.looks.Add(1) == 100 {
		r.t.Error("the set spins")
	}
	if r.looks.Load() >= 100 {
		time.Sleep(time.Second)
	}
	return r.node.Changed()
}

// A log that failed to open at an epoch that is over, while it may not be opened
// at the next one yet, waits for the image and not for a clock.
func TestAFailureBeforeALogMayOpenDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		store := &slowStore{Store: memlog.New(memlog.Config{}), err: errors.New("too old"), delay: time.Second}
		n := restless{node{c, c.incs[0]}, new(atomic.Int64)}
		s := partition.NewSet(partition.SetConfig{Meta: n, Incarnation: n.inc, Shared: store})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		topic := c.create("t", 1, c.incs[0])
		time.Sleep(500 * time.Millisecond) // it is being opened
		p, _ := n.Image().Partition(topic, 0)
		if r, err := n.SubmitOwn(ctx, &metadatapb.Command{Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{Streams: []*metadatapb.FlipStream{{
			Stream: uint64(p.Stream), Epoch: int32(p.Epoch), Target: c.incs[1].Proto()}}}}}); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		c.fence(c.incs[1], c.incs[0], topic, 0)
		if p, _ = n.Image().Partition(topic, 0); p.Openable() || p.Owner != n.inc {
			t.Fatalf("owner %v, openable %t", p.Owner, p.Openable())
		}
		time.Sleep(10 * time.Second)
		store.setErr(nil)
		c.seal(c.incs[1])
		time.Sleep(2 * time.Second)
		if _, err := s.Get(topic, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestOpeningIsParallelAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		store := &slowStore{Store: memlog.New(memlog.Config{}), delay: 10 * time.Millisecond}
		owners := make([]metadata.Incarnation, 100)
		for i := range owners {
			owners[i] = c.incs[0]
		}
		topic := c.create("t", 1, owners...)
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store, Parallel: 20})
		defer stop()
		time.Sleep(49 * time.Millisecond)
		if n := len(s.All()); n == 100 || n == 0 {
			t.Errorf("%d open after 49 ms", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n := len(s.All()); n != 100 || store.most != 20 {
			t.Errorf("%d open, %d at a time, want 100 and 20", n, store.most)
		}
		if _, err := s.Await(t.Context(), topic, 99); err != nil {
			t.Error(err)
		}
	})
}

// TestDeletion is del-1: TopicsGone comes after every partition is closed, is
// repeated until it is accepted, and the name is free only then.
func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		store, local := memlog.New(memlog.Config{}), memlog.New(memlog.Config{})
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store, Local: local})
		defer stop()
		topic := c.create("t", 1, c.incs[0], c.incs[0])
		keep := c.create("keep", 2, c.incs[0])
		synctest.Wait()
		p, err := s.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		store.Hold() // closing has to wait for what is under way
		a, err := p.Append(plain(1).Bytes(), clientAt(nowMs))
		if err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.fail = errors.New("no leader")
		c.mu.Unlock()
		c.apply(&metadatapb.Command{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: topic[:]}}})
		time.Sleep(3 * time.Second)
		if _, err := s.Get(topic, 1); !errors.Is(err, partition.ErrUnknown) {
			t.Errorf("a deleted topic: %v", err)
		}
		store.Release()
		if err := a.Commit.Wait(t.Context()); err != nil {
			t.Errorf("an append before the deletion: %v", err)
		}
		time.Sleep(3 * time.Second)
		if _, ok := (node{c, c.incs[0]}).Image().TopicByID(topic); !ok {
			t.Fatal("the topic went before anybody said TopicsGone")
		}
		c.mu.Lock()
		c.fail = nil
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
		if _, ok := (node{c, c.incs[0]}).Image().TopicByID(topic); ok {
			t.Error("TopicsGone never came")
		}
		again := c.create("t", 3, c.incs[0])
		synctest.Wait()
		if p, err := s.Get(again, 0); err != nil || p.End() != 0 {
			t.Errorf("the new topic of the old name: %v", err)
		}
		if _, err := s.Get(keep, 0); err != nil {
			t.Errorf("another topic: %v", err)
		}
	})
}

func TestStopClosesEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		store := memlog.New(memlog.Config{})
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store})
		topic := c.create("t", 1, c.incs[0])
		synctest.Wait()
		p, err := s.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		store.Hold()
		a, err := p.Append(plain(1).Bytes(), clientAt(nowMs))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(stop)
		time.Sleep(time.Second)
		store.Release()
		wg.Wait()
		if err := a.Commit.Wait(t.Context()); err != nil {
			t.Errorf("what was under way: %v", err)
		}
		if _, err := s.Get(topic, 0); !errors.Is(err, partition.ErrNotLeader) || !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A store that hangs holds up the end of all partitions together for as long as
// that of one.
func TestStoppingIsBoundedInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		store := memlog.New(memlog.Config{})
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: store, Parallel: 2})
		owners := make([]metadata.Incarnation, 9)
		for i := range owners {
			owners[i] = c.incs[0]
		}
		c.create("t", 1, owners...)
		synctest.Wait()
		store.Hold()
		defer store.Release()
		all := s.All()
		for _, p := range all {
			if _, err := p.Append(plain(1).Bytes(), clientAt(nowMs)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		stop()
		if took := time.Since(start); len(all) != len(owners) || took > 11*time.Second {
			t.Errorf("%d partitions closed in %v, want %d in 10 s", len(all), took, len(owners))
		}
	})
}

func TestLocalTopicsGoToTheLocalStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		shared, local := &slowStore{Store: memlog.New(memlog.Config{})}, &slowStore{Store: memlog.New(memlog.Config{})}
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: shared, Local: local})
		defer stop()
		topic := metadata.TopicID{9}
		c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{
			Name: "l", TopicId: topic[:], Configs: map[string]string{"storage.mode": "local"},
			Partitions: []*metadatapb.PartitionSpec{{Replicas: []int32{0}, Owner: c.incs[0].Proto()}}}}})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if _, err := s.Get(topic, 0); err != nil {
			t.Fatal(err)
		}
		if !(node{c, c.incs[0]}).Image().TopicSettings("l").Local {
			t.Skip("the metadata does not resolve storage.mode")
		}
		if local.most != 1 || shared.most != 0 {
			t.Errorf("opened %d local and %d shared logs", local.most, shared.most)
		}
	})
}

// TestRetentionTicksForTheWholeSet: and config changes act without a re-open.
func TestRetentionTicksForTheWholeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		s, stop := c.run(c.incs[0], partition.SetConfig{Shared: memlog.New(memlog.Config{}), RetentionInterval: time.Minute})
		defer stop()
		topic := c.create("t", 1, c.incs[0])
		synctest.Wait()
		p, err := s.Get(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMilli()
		if _, err := p.Append(kbatch.Values(now, "x").Bytes(), clientAt(now)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if p.Start() != 0 || p.HighWatermark() != 1 {
			t.Fatalf("start %d, high watermark %d after two ticks", p.Start(), p.HighWatermark())
		}
		c.apply(&metadatapb.Command{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: &metadatapb.AlterConfigs{
			Kind: 2, Name: "t", Ops: []*metadatapb.ConfigOp{{Name: "retention.ms", Value: "1000"}}}}})
		if (node{c, c.incs[0]}).Image().TopicSettings("t").RetentionMs != 1000 {
			t.Skip("the metadata does not resolve retention.ms")
		}
		time.Sleep(2 * time.Minute)
		if p.Start() != 1 {
			t.Errorf("start %d, want 1: retention.ms was lowered", p.Start())
		}
	})
}

// TestSetFollowsARestlessImage: under -race, with partitions going to and fro.
func TestSetFollowsARestlessImage(t *testing.T) {
	c := newCluster(t, 2)
	store := memlog.New(memlog.Config{})
	var sets []*partition.Set
	for _, inc := range c.incs {
		s, stop := c.run(inc, partition.SetConfig{Shared: store})
		defer stop()
		sets = append(sets, s)
	}
	topic := c.create("t", 1, c.incs[0], c.incs[0], c.incs[1])
	acked := make([]commitlog.Offset, 3)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for n := range int32(3) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, s := range sets {
					p, err := s.Await(t.Context(), topic, n)
					if err != nil {
						continue
					}
					a, err := p.Append(plain(1).Bytes(), clientAt(nowMs))
					if err == nil && a.Commit.Wait(t.Context()) == nil {
						acked[n] = max(acked[n], a.Base+1)
					}
				}
			}
		})
	}
	for range 50 {
		for n := range int32(3) {
			img := (node{c, metadata.Incarnation{}}).Image()
			part, _ := img.Partition(topic, n)
			from := part.Owner
			to := c.incs[0]
			if from == to {
				to = c.incs[1]
			}
			flip := &metadatapb.Flip{Streams: []*metadatapb.FlipStream{{Stream: uint64(part.Stream), Epoch: int32(part.Epoch), End: int64(part.End), Target: to.Proto()}}}
			r, err := (node{c, from}).SubmitOwn(t.Context(), &metadatapb.Command{Body: &metadatapb.Command_Flip{Flip: flip}})
			if err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	for n := range int32(3) {
		part, _ := (node{c, metadata.Incarnation{}}).Image().Partition(topic, n)
		s := sets[part.Owner.Broker]
		p, err := s.Await(t.Context(), topic, n)
		if err != nil {
			t.Fatal(err)
		}
		if p.HighWatermark() < acked[n] || acked[n] == 0 || p.Epoch() != part.Epoch || part.Epoch != 50 {
			t.Errorf("partition %d: high watermark %d, acknowledged %d", n, p.HighWatermark(), acked[n])
		}
	}
}

// A node that has opened very many partitions gives the memory that this took
// back to the system, once it is quiet; one that opens a few never does.
func TestMemoryIsGivenBackAfterManyOpened(t *testing.T) {
	for partitions, want := range map[int]uint32{9_000: 0, 10_000: 1} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1)
			c.create("t", 1, slices.Repeat([]metadata.Incarnation{c.incs[0]}, partitions)...)
			collections := func() uint32 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.NumForcedGC
			}
			before := collections()
			s, stop := c.run(c.incs[0], partition.SetConfig{Shared: memlog.New(memlog.Config{})})
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := len(s.All()); got != partitions {
				t.Fatalf("%d of %d are open", got, partitions)
			}
			if got := collections() - before; got != want {
				t.Errorf("%d partitions: memory was given back %d times, want %d", partitions, got, want)
			}
			stop()
		})
	}
}
