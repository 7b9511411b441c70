package sharedlog_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// soakStream is the naive twin of one stream.
type soakStream struct {
	p       metadata.Partition
	l       commitlog.Log
	batches [][]byte // patched; all that may exist
	ends    []commitlog.Offset
	commits []commitlog.Commit
	start   commitlog.Offset
}

// acked is how many batches somebody was told are durable.
func (s *soakStream) acked() int {
	n := len(s.ends) - len(s.commits)
	for i, c := range s.commits {
		if c.Resolved() && c.Err() == nil {
			n = len(s.ends) - len(s.commits) + i + 1
		}
	}
	return n
}

// A random life of several streams under faults of store and metadata, with
// takeovers, crashes, trims and all background work as fast as it goes: no
// acknowledged batch is ever lost, changed or doubled.
func TestSoak(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		soak(t, uint64(seed), 150)
	}
}

func soak(t *testing.T, seed uint64, steps int) {
	f := newFixture(t)
	rnd := rand.New(rand.NewPCG(seed, 7))
	boom := errors.New("boom")
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.GetRange, fault.GetTail, fault.Delete}, Chance: 0.05, Before: boom})
	f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.Delete}, Chance: 0.05, After: boom})
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetSealed() != nil {
			return sharedlogtest.Applied
		}
		switch time.Now().UnixNano() / 1000 % 20 {
		case 0:
			return sharedlogtest.Lost
		case 1:
			return sharedlogtest.Dropped
		}
		return sharedlogtest.Applied
	}
	tune := func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.SweepEvery = time.Millisecond, 2*time.Millisecond, 5*time.Millisecond
		c.MaxExtents, c.CacheBytes, c.ReadCacheBytes = 3, 1, 64<<10
		if seed%2 == 0 {
			c.CacheBytes = 8 << 20
		}
		if seed%3 != 0 {
			c.AdoptBytes = 1000
		}
	}
	n := f.start(1, tune)
	var streams []*soakStream
	for _, p := range f.topic(3, n) {
		streams = append(streams, &soakStream{p: p, l: f.open(n, p)})
	}
	broker := metadata.BrokerID(1)
	for range steps {
		s := streams[rnd.IntN(len(streams))]
		switch k := rnd.IntN(100); {
		case k < 60:
			s.append(f, rnd)
		case k < 80:
			s.check(f)
		case k < 88:
			if b := s.l.Bounds(); b.Stable > b.Start {
				to := b.Start + commitlog.Offset(rnd.Int64N(int64(b.Stable-b.Start)))
				err := s.l.Trim(f.ctx(), to)
				for errors.Is(err, commitlog.ErrUnavailable) {
					err = s.l.Trim(f.ctx(), to)
				}
				if err != nil {
					t.Fatalf("seed %d: trim: %v", seed, err)
				}
				s.start = to
			}
		case k < 96:
			time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
		default:
			if rnd.IntN(2) == 0 {
				n.Crash()
			}
			broker++
			m := f.start(broker, tune)
			f.c.Fence(n.Incarnation, m.Incarnation)
			f.until("the WAL is sealed", func() bool { return f.c.Seal(f.ctx(), n.Incarnation, m) == nil })
			for _, s := range streams {
				s.reopen(f, m)
			}
			n = m
		}
		if t.Failed() {
			t.Fatalf("seed %d failed", seed)
		}
	}
	for _, s := range streams {
		s.check(f)
	}
}

func (s *soakStream) append(f *fixture, rnd *rand.Rand) {
	b := f.batch(1+rnd.IntN(3), 100+rnd.IntN(3000))
	c, err := s.l.Append(b)
	if err != nil {
		if !isRetriable(err) {
			f.Fatalf("append: %v", err)
		}
		return
	}
	b = bytes.Clone(b)
	now, _ := f.c.Image().PartitionByStream(s.p.Stream)
	commitlog.Batch(b).SetBase(c.Base, now.Epoch)
	s.batches, s.ends, s.commits = append(s.batches, b), append(s.ends, c.Last+1), append(s.commits, c)
	if rnd.IntN(3) == 0 {
		s.l.Seal()
	}
}

// check reads the whole log and compares.
func (s *soakStream) check(f *fixture) {
	a := s.acked() // before the bounds, or an acknowledgement in between confuses
	b := s.l.Bounds()
	if b.Start < s.start {
		f.Fatalf("start is %d, was trimmed to %d", b.Start, s.start)
	}
	if a > 0 && b.Stable < s.ends[a-1] {
		f.Fatalf("stable is %d, acknowledged was %d", b.Stable, s.ends[a-1])
	}
	from := b.Start
	for from < b.Stable {
		r, err := s.l.Read(f.ctx(), from, commitlog.ReadOptions{MaxBytes: 4 << 10, MinOne: true})
		if errors.Is(err, commitlog.ErrUnavailable) {
			continue
		}
		if err != nil {
			f.Fatalf("read at %d: %v", from, err)
		}
		if r.Bytes == 0 {
			f.Fatalf("read at %d of %d is empty", from, b.Stable)
		}
		for _, p := range r.Bufs {
			for len(p) > 0 {
				var one commitlog.Batch
				one, p, err = commitlog.SplitBatch(p)
				if err != nil {
					f.Fatal(err)
				}
				s.same(f, one)
				from = one.LastOffset() + 1
			}
		}
		r.Release()
	}
}

// same wants a batch to be the one that was appended there.
func (s *soakStream) same(f *fixture, b commitlog.Batch) {
	for i, e := range s.ends {
		if e == b.LastOffset()+1 {
			if !bytes.Equal(s.batches[i], b) {
				f.Fatalf("batch at %d is not what was appended", b.BaseOffset())
			}
			return
		}
	}
	f.Fatalf("batch %d-%d was never appended", b.BaseOffset(), b.LastOffset())
}

// reopen opens the stream at its new owner and wants every acknowledged batch.
func (s *soakStream) reopen(f *fixture, n *sharedlogtest.Node) {
	acked := s.acked()
	for {
		now, _ := f.c.Image().PartitionByStream(s.p.Stream)
		l, err := n.Open(f.ctx(), s.p.ID(), now.Epoch, commitlog.Options{Checkpoints: remembers{}})
		if errors.Is(err, commitlog.ErrUnavailable) {
			continue
		}
		if err != nil {
			f.Fatalf("open: %v", err)
		}
		s.l = l
		break
	}
	end := s.l.Bounds().End
	k := 0
	for k < len(s.ends) && s.ends[k] <= end {
		k++
	}
	if k < acked {
		f.Fatalf("%d batches were acknowledged, the next owner has %d", acked, k)
	}
	if k > 0 && s.ends[k-1] != end {
		f.Fatalf("the log ends at %d, within a batch", end)
	}
	s.batches, s.ends, s.commits = s.batches[:k], s.ends[:k], nil
	s.check(f)
}
