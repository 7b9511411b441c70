package sim_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/jepsen/sim"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
)

// liar is a store that breaks one of its promises.
type liar struct {
	objstore.Bucket
	dead  <-chan struct{} // closed when the process dies
	mu    sync.Mutex
	puts  int
	every int // lie at every so many-th slot
	lie   func(l *liar, ctx context.Context, key string, body objstore.Body) error
}

// isFence says if a slot object is a fence (the kind of package wal's header).
func isFence(body objstore.Body) bool {
	const kind, fence = 9, 2
	b := slices.Concat(body.Parts...)
	return len(b) > kind && b[kind] == fence
}

// PutNew lies about some slots of write-ahead logs.
func (l *liar) PutNew(ctx context.Context, key string, body objstore.Body) error {
	if !strings.Contains(key, "/wal/") {
		return l.Bucket.PutNew(ctx, key, body)
	}
	l.mu.Lock()
	l.puts++
	now := l.puts%l.every == 0
	l.mu.Unlock()
	if !now {
		return l.Bucket.PutNew(ctx, key, body)
	}
	return l.lie(l, ctx, key, body)
}

// forgets reports success and stores nothing.
func forgets(*liar, context.Context, string, objstore.Body) error { return nil }

// early reports success at once and stores later, if its process has not died
// by then: an acknowledgement before it is durable.
func early(l *liar, ctx context.Context, key string, body objstore.Body) error {
	body = objstore.Body{Parts: [][]byte{slices.Concat(body.Parts...)}, CRC32C: body.CRC32C}
	go func() {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-l.dead:
			return
		}
		_ = l.Bucket.PutNew(context.WithoutCancel(ctx), key, body)
	}()
	return nil
}

// overwrites has no notion of "create only": a fence stops nobody, and replaces
// what was acknowledged.
func overwrites(l *liar, ctx context.Context, key string, body objstore.Body) error {
	err := l.Bucket.PutNew(ctx, key, body)
	if errors.Is(err, objstore.ErrExists) {
		return l.Bucket.Put(ctx, key, body)
	}
	return err
}

// deafToFences takes any object in the way for its own: an owner goes on after
// its fence.
func deafToFences(l *liar, ctx context.Context, key string, body objstore.Body) error {
	err := l.Bucket.PutNew(ctx, key, body)
	if errors.Is(err, objstore.ErrExists) && !isFence(body) {
		return nil
	}
	return err
}

// unsealed reports fences as stored and stores none: who comes next opens a log
// that its owner can still write to.
func unsealed(l *liar, ctx context.Context, key string, body objstore.Body) error {
	if isFence(body) {
		return nil
	}
	return l.Bucket.PutNew(ctx, key, body)
}

// hasty gives partitions away without their last records, as one would that
// does not freeze them first.
type hasty struct{ sharedlog.Meta }

// SubmitOwn changes flips.
func (h hasty) SubmitOwn(ctx context.Context, cmd *metadatapb.Command) (metadata.Result, error) {
	if cmd.GetFlip() != nil {
		cmd = proto.Clone(cmd).(*metadatapb.Command) // the log itself believes that all went
		for _, s := range cmd.GetFlip().GetStreams() {
			if n := len(s.GetTail()); n > 0 {
				s.End = s.Tail[n-1].GetBase()
				s.Tail = s.Tail[:n-1]
			}
		}
	}
	return h.Meta.SubmitOwn(ctx, cmd)
}

// TestPlantedBugsAreFound proves that a run sees a store that lies: each lie
// must be found within a few seeds of the fault that reveals it.
func TestPlantedBugsAreFound(t *testing.T) {
	const tries = 8
	plan := func(seed uint64, kind sim.Kind, length time.Duration) sim.Plan {
		p := sim.Plan{Seed: seed, Span: 25 * time.Second}
		for at := 3 * time.Second; at < 22*time.Second; at += length + 2*time.Second {
			p.Events = append(p.Events, sim.Event{At: at, For: length, Kind: kind, Who: sim.Anyone, Draw: seed + uint64(at/time.Second)})
		}
		return p
	}
	cases := []struct {
		name   string
		every  int
		lie    func(*liar, context.Context, string, objstore.Body) error
		meta   sim.MetaPlant
		kind   sim.Kind
		length time.Duration
		rules  string // any of them is enough
	}{
		// The next owner finds slots missing and refuses to go on.
		{"success without storing", 40, forgets, nil, sim.Kill, time.Second, "noted"},
		{"success before storing", 1, early, nil, sim.Kill, time.Second, "lost conflict realtime unread"},
		{"fences are overwritten", 1, overwrites, nil, sim.CutOff, 6 * time.Second, "lost conflict realtime unread"},
		{"an owner goes on after its fence", 1, deafToFences, nil, sim.Outcast, 4 * time.Second, "lost conflict realtime unread"},
		{"an owner opens before the seal", 1, unsealed, nil, sim.Outcast, 4 * time.Second, "lost conflict realtime unread"},
		{"a move leaves a record behind", 0, nil, func(m sharedlog.Meta, _ metadata.Incarnation) sharedlog.Meta { return hasty{m} },
			sim.Move, time.Second, "lost conflict realtime unread"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= tries; seed++ {
				opts := sim.Options{Meta: c.meta}
				if c.lie != nil {
					opts.Plant = func(b objstore.Bucket, dead <-chan struct{}) objstore.Bucket {
						return &liar{Bucket: b, dead: dead, every: c.every, lie: c.lie}
					}
				}
				r := simulate(t, plan(seed, c.kind, c.length), opts)
				for _, v := range r.Violations {
					if strings.Contains(c.rules, v.Rule) {
						t.Logf("seed %d: %v", seed, v)
						return
					}
				}
			}
			t.Errorf("not found with %d seeds", tries)
		})
	}
}
