package partition_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
)

// flipStore is a shared store that hands logs over: by the real Apply, when it
// is told to.
type flipStore struct {
	*memlog.Store
	node
	mu     sync.Mutex
	hold   chan struct{} // the outcome is unknown until it is closed
	refuse error
}

func (s *flipStore) Flip(ctx context.Context, streams []*metadatapb.FlipStream, freeze func()) []error {
	freeze()
	s.mu.Lock()
	hold, refuse := s.hold, s.refuse
	s.mu.Unlock()
	if hold != nil {
		<-hold // cmd-2: no ctx ends this
	}
	errs := make([]error, len(streams))
	for i, pb := range streams {
		if errs[i] = refuse; refuse != nil {
			continue
		}
		r, err := s.SubmitOwn(ctx, &metadatapb.Command{Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{Streams: []*metadatapb.FlipStream{pb}}}})
		if err == nil && r.Err != nil {
			err = r.Rejected()
		}
		errs[i] = err
	}
	return errs
}

func (s *flipStore) set(hold chan struct{}, refuse error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.refuse = hold, refuse
}

// movers are two brokers with one partition on the first.
type movers struct {
	*cluster
	sets   [2]*partition.Set
	stores [2]*flipStore
	topic  metadata.TopicID
}

func newMovers(t *testing.T, proof partition.Proof) (*movers, func()) {
	m := &movers{cluster: newCluster(t, 2)}
	medium := memlog.New(memlog.Config{})
	var stops [2]func()
	for i, inc := range m.incs {
		m.stores[i] = &flipStore{Store: medium, node: node{m.cluster, inc}}
		m.sets[i], stops[i] = m.run(inc, partition.SetConfig{Shared: m.stores[i], Proof: proof})
	}
	m.topic = m.create("t", 1, m.incs[0])
	synctest.Wait()
	return m, func() { stops[0](); stops[1]() }
}

func (m *movers) get(i int) *partition.Partition {
	m.t.Helper()
	p, err := m.sets[i].Get(m.topic, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// move hands the partition from one to the other in the background.
func (m *movers) move(from int) <-chan partition.HandedOver {
	done := make(chan partition.HandedOver, 1)
	p, _ := m.node(from).Image().Partition(m.topic, 0)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		done <- m.sets[from].Handover(ctx, []partition.Handover{{Topic: m.topic, Epoch: p.Epoch, Target: m.incs[1-from]}})[0]
	}()
	synctest.Wait()
	return done
}

func (m *movers) node(i int) node { return node{m.cluster, m.incs[i]} }

// A move parks appends until it is known who takes them; the target knows the
// producers (prod-1), and a retry that it gets is a duplicate.
func TestHandoverMovesThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := newMovers(t, nil)
		defer stop()
		p := m.get(0)
		for seq := range int32(7) {
			if a, err := p.Append(batch(9, seq, 1).Bytes(), clientAt(nowMs)); err != nil || a.Commit.Wait(t.Context()) != nil {
				t.Fatal(err)
			}
		}
		before := p.State()
		w := partition.NewWaiter()
		defer w.Close()
		p.Watch(w)
		hold := make(chan struct{})
		m.stores[0].set(hold, nil)
		done := m.move(0)
		if _, err := p.Append(batch(9, 7, 1).Bytes(), clientAt(nowMs)); !errors.Is(err, partition.ErrMoving) || !errors.Is(err, partition.ErrNotLeader) {
			t.Fatalf("append during a move: %v, want ErrMoving", err)
		}
		if again := m.sets[0].Handover(t.Context(), []partition.Handover{{Topic: m.topic, Target: m.incs[1]}}); !errors.Is(again[0].Err, partition.ErrMoving) {
			t.Errorf("a second move at the same time: %v", again[0].Err)
		}
		time.Sleep(20 * time.Millisecond)
		var parked sync.WaitGroup
		parked.Go(func() {
			if !p.AwaitMove(t.Context()) {
				t.Error("parked in vain")
			}
			if _, err := m.sets[0].Get(m.topic, 0); !errors.Is(err, partition.ErrNotLeader) || errors.Is(err, partition.ErrOpening) {
				t.Errorf("after the move: %v", err)
			}
		})
		synctest.Wait()
		close(hold)
		parked.Wait()
		out := <-done
		if out.Err != nil || out.Topic != "t" || out.Pause != 20*time.Millisecond {
			t.Fatalf("moved: %+v", out)
		}
		woken(t, w)
		synctest.Wait()
		q := m.get(1)
		if q.Epoch() != 1 || q.HighWatermark() != 7 {
			t.Errorf("the target has epoch %d, end %d", q.Epoch(), q.HighWatermark())
		}
		if !bytes.Equal(q.State(), before) {
			t.Error("the target's producer state is not the source's")
		}
		if a, err := q.Append(batch(9, 6, 1).Bytes(), clientAt(nowMs)); err != nil || !a.Duplicate || a.Base != 6 {
			t.Errorf("a retry at the target: %+v, %v", a, err)
		}
		if a, err := q.Append(batch(9, 7, 1).Bytes(), clientAt(nowMs)); err != nil || a.Duplicate || a.Base != 7 {
			t.Errorf("the next batch at the target: %+v, %v", a, err)
		}
	})
}

// A move that is called off leaves the partition as it was.
func TestHandoverThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := newMovers(t, nil)
		defer stop()
		m.stores[0].set(nil, errors.New("no"))
		if out := <-m.move(0); out.Err == nil {
			t.Fatal("moved")
		}
		mustAppend(t, m.get(0))
		m.stores[0].set(nil, nil)
		if out := <-m.move(0); out.Err != nil {
			t.Fatal(out.Err)
		}
		synctest.Wait()
		mustAppend(t, m.get(1))
		if out := <-m.move(1); out.Err != nil {
			t.Fatal(out.Err)
		}
		synctest.Wait()
		if p := m.get(0); p.Epoch() != 2 || p.HighWatermark() != 2 {
			t.Errorf("back at epoch %d with end %d", p.Epoch(), p.HighWatermark())
		}
	})
}

// always is a proof by own slots, which says nothing of a single partition.
type always struct{}

func (always) ProvenSince(time.Time) bool             { return true }
func (always) Prove(context.Context, time.Time) error { return nil }

// cmd-2, ans-2: while nobody knows whether a flip took effect, nothing is
// appended however long it takes; a proof of the incarnation is none for the
// partition, but what was proven before the freeze stays good for 10 s.
func TestHandoverOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := newMovers(t, always{})
		defer stop()
		p := m.get(0)
		mustAppend(t, p)
		hold := make(chan struct{})
		m.stores[0].set(hold, nil)
		done := m.move(0)
		begun := time.Now()
		if _, err := p.OffsetFor(t.Context(), time.Now(), partition.TimestampLatest, 0); err != nil && !errors.Is(err, partition.ErrMoving) {
			t.Errorf("latest offset: %v", err)
		}
		time.Sleep(time.Millisecond)
		if _, err := p.OffsetFor(t.Context(), time.Now(), partition.TimestampLatest, 0); !errors.Is(err, partition.ErrMoving) {
			t.Errorf("latest offset of a partition that may be another's: %v, want ErrMoving", err)
		}
		if p.AwaitMove(t.Context()) || time.Since(begun) != 500*time.Millisecond {
			t.Errorf("parked until %v after the freeze, want 500 ms", time.Since(begun))
		}
		if _, err := p.Read(t.Context(), 0, partition.ReadOptions{MaxBytes: 100}); err != nil {
			t.Errorf("fetch soon after the freeze: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := p.Append(plain(1).Bytes(), clientAt(nowMs)); !errors.Is(err, partition.ErrMoving) {
			t.Errorf("append a minute later: %v, want ErrMoving", err)
		}
		if _, err := p.Read(t.Context(), 0, partition.ReadOptions{MaxBytes: 100}); !errors.Is(err, partition.ErrNotLeader) {
			t.Errorf("fetch a minute later: %v, want ErrNotLeader", err)
		}
		select {
		case out := <-done:
			t.Fatalf("gave up: %+v", out)
		default:
		}
		m.stores[0].set(hold, errors.New("it was not applied"))
		close(hold)
		<-done // the refusal was read before, so it moved
		synctest.Wait()
		mustAppend(t, m.get(1))
	})
}

// A request that reaches the target before the image does is not sent away.
func TestAwaitCatchesUpWithTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		late := &lateMeta{node: node{c, c.incs[1]}}
		late.see()
		s := partition.NewSet(partition.SetConfig{Meta: late, Incarnation: c.incs[1], Shared: memlog.New(memlog.Config{})})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		topic := c.create("t", 1, c.incs[0])
		late.see()
		c.fence(c.incs[0], c.incs[1], topic, 0)
		c.seal(c.incs[0])
		if _, err := s.Get(topic, 0); errors.Is(err, partition.ErrOpening) {
			t.Fatal("the image is new already")
		}
		if p, err := s.Await(t.Context(), topic, 0); err != nil || p.Epoch() != 1 {
			t.Errorf("await: %v", err)
		}
		cancel()
		wg.Wait()
	})
}

// What comes late for a partition that was just handed over is answered from the
// image: its client waits for that before it turns to the new owner. Anything
// else that is not ours is asked about.
func TestARequestThatComesLateForAMoveDoesNotAskTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := newMovers(t, nil)
		defer stop()
		asked := func(i int) int64 {
			before := m.barriers.Load()
			if _, err := m.sets[i].Await(t.Context(), m.topic, 0); !errors.Is(err, partition.ErrNotLeader) {
				t.Errorf("await at node %d: %v", i, err)
			}
			return m.barriers.Load() - before
		}
		if n := asked(1); n != 1 {
			t.Errorf("before the move its target asked the quorum %d times, want once", n)
		}
		if h := <-m.move(0); h.Err != nil {
			t.Fatal(h.Err)
		}
		if n := asked(0); n != 0 {
			t.Errorf("after the move the old owner asked the quorum %d times, want never", n)
		}
		time.Sleep(2 * time.Second)
		if n := asked(0); n != 1 {
			t.Errorf("long after the move the old owner asked the quorum %d times, want once", n)
		}
	})
}

// lateMeta shows an image only when told or asked for a barrier.
type lateMeta struct {
	node
	mu   sync.Mutex
	img  *metadata.Image
	news chan struct{}
}

func (l *lateMeta) see() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.img = l.node.Image()
	if l.news != nil {
		close(l.news)
	}
	l.news = make(chan struct{})
}

func (l *lateMeta) Image() *metadata.Image {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.img
}

func (l *lateMeta) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}

func (l *lateMeta) Barrier(context.Context) (*metadata.Image, error) {
	l.see()
	return l.Image(), nil
}
