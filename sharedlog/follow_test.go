package sharedlog_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog"
	"ponor/sharedlog/sharedlogtest"
)

// followed reads what another node sees of a stream.
func (f *fixture) followed(n *sharedlogtest.Node, id commitlog.StreamID) (got []commitlog.Batch, b commitlog.Bounds) {
	f.Helper()
	log := n.Follow(id)
	b = log.Bounds()
	for at := b.Start; at < b.Stable; {
		r, err := log.Read(f.ctx(), at, commitlog.ReadOptions{MaxBytes: 4 << 10, MinOne: true})
		if err != nil {
			f.Fatalf("follow at %d of [%d, %d): %v", at, b.Start, b.Stable, err)
		}
		for _, p := range r.Bufs {
			for len(p) > 0 {
				one, rest, err := commitlog.SplitBatch(p)
				if err != nil {
					f.Fatal(err)
				}
				got, at, p = append(got, bytes.Clone(one)), one.LastOffset()+1, rest
			}
		}
		r.Release()
	}
	return got, b
}

// Whoever follows a stream sees what its owner packed, as its owner reads it, while it
// moves, is trimmed and its runs are merged.
func TestFollowSeesWhatIsCommitted(t *testing.T) {
	f := newFixture(t)
	merging := func(c *sharedlog.Config) { lazy(c); c.MaxExtents = 4 }
	nodes := []*sharedlogtest.Node{f.start(1, merging), f.start(2, merging), f.start(3, lazy)}
	owner, r := 0, rand.New(rand.NewPCG(1, 1))
	p := f.topic(1, nodes[owner])[0]
	l := f.open(nodes[owner], p)
	for i := range 60 {
		f.fill(l, 1+r.IntN(4), 200)
		if i%7 == 3 {
			l = f.moved(l, nodes[owner], nodes[1-owner], p)
			owner = 1 - owner
		} else if err := nodes[owner].Pack(f.ctx(), p.Stream); err != nil {
			t.Fatal(err)
		}
		if b := l.Bounds(); i%9 == 5 {
			if err := l.Trim(f.ctx(), b.Start+(b.Stable-b.Start)/2); err != nil {
				t.Fatal(err)
			}
		}
		got, b := f.followed(nodes[2], p.Stream)
		if has := l.Bounds(); b.Stable != has.Stable || b.Start != has.Start {
			t.Fatalf("round %d: followed [%d, %d), the log has [%d, %d)", i, b.Start, b.Stable, has.Start, has.Stable)
		}
		for j, want := range f.all(l, b.Start) {
			if j >= len(got) || !bytes.Equal(got[j], want) {
				t.Fatalf("round %d: batch %d of %d at offset %d is not what its owner reads", i, j, len(got), want.BaseOffset())
			}
		}
	}
	b := l.Bounds()
	for _, at := range []commitlog.Offset{b.Start - 1, b.End + 1} {
		if _, err := nodes[2].Follow(p.Stream).Read(f.ctx(), at, commitlog.ReadOptions{MaxBytes: 100}); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
			t.Errorf("follow at %d of [%d, %d): %v", at, b.Start, b.End, err)
		}
	}
}

// What is not packed yet is not seen: it is not known to be the stream's for ever.
func TestFollowDoesNotSeeTheTail(t *testing.T) {
	f := newFixture(t)
	a, b := f.start(1, lazy), f.start(2, lazy)
	p := f.topic(1, a)[0]
	l := f.open(a, p)
	f.fill(l, 3, 200)
	if err := a.Pack(f.ctx(), p.Stream); err != nil {
		t.Fatal(err)
	}
	f.fill(l, 2, 200)
	if got, _ := f.followed(b, p.Stream); len(got) != 3 {
		t.Errorf("%d batches, 3 were packed", len(got))
	}
	if err := b.Pack(f.ctx(), p.Stream); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("pack of another's stream: %v", err)
	}
	// A store that is not there holds nobody up.
	a.Meta.Cut(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Pack(ctx, p.Stream); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("pack without a quorum: %v", err)
	}
}
