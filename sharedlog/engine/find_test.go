package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog/engine"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
	"ponor/sharedlog/stream"
)

// slowImage lets something happen after the next Image was read and before it is
// returned.
type slowImage struct {
	engine.Meta
	then atomic.Pointer[func()]
}

func (m *slowImage) Image() *metadata.Image {
	img := m.Meta.Image()
	if f := m.then.Swap(nil); f != nil {
		(*f)()
	}
	return img
}

// What is packed and forgotten while a search by time looks at the image and at
// memory is in one of the two.
func TestSearchByTimeWhileItIsPacked(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := sharedlogtest.New()
	inc := c.Register(1)
	p := c.CreateTopic("t", 1, inc)[0]
	meta := &slowImage{Meta: c.Meta(inc)}
	e, err := engine.New(engine.Config{Bucket: mem.New(), Meta: meta, Incarnation: inc, CacheBytes: 16 << 20, SweepEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(ctx) }()
	defer func() { _ = e.Close(ctx); <-ended }()
	s, err := e.Open(ctx, p.Stream, stream.OpenOptions{Epoch: p.Epoch})
	if err != nil {
		t.Fatal(err)
	}
	for name, search := range map[string]func() (commitlog.Offset, bool, error){
		"FindTime":    func() (commitlog.Offset, bool, error) { return s.FindTime(ctx, 5000) },
		"FindMaxTime": func() (commitlog.Offset, bool, error) { return s.FindMaxTime(ctx) },
	} {
		want := s.Offsets().End
		commit, err := s.Append(kbatch.Sized(5000+int64(want), 1, 100, 1).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		s.Flush()
		if err := commit.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if name == "FindTime" {
			want = 0
		}
		packed := false
		pack := func() { packed = e.PackAndForget(ctx, p.Stream) }
		meta.then.Store(&pack)
		o, found, err := search()
		if err != nil || !found || o != want {
			t.Errorf("%s: %d, %v, %v while it was packed (%v), want %d", name, o, found, err, packed, want)
		}
		if meta.then.Load() != nil {
			t.Errorf("%s looked at no image", name)
		}
	}
	// The premise: packing does drop what was found in memory.
	if n := e.Pieces(p.Stream); n == 0 || !e.PackAndForget(ctx, p.Stream) || e.Pieces(p.Stream) != 0 {
		t.Errorf("%d pieces before packing, %d after", n, e.Pieces(p.Stream))
	}
}
