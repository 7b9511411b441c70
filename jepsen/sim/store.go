package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/sharedlog/objstore"
)

// Errors of injected store faults, so that they can be told from others and
// counted.
var (
	errSlowDown = errors.New("503 slow down (injected)")
	errLost     = errors.New("response lost (injected)")
	errLate     = errors.New("timed out, lands later (injected)")
	errOwn      = fmt.Errorf("412 on a retry of its own (injected): %w", objstore.ErrExists)
	errNoRoom   = fmt.Errorf("no room (injected): %w", objstore.ErrFull)
)

// injected names the faults for the report.
var injected = map[error]string{
	errSlowDown: "store error before effect", errLost: "store response lost", errLate: "store write late",
	errOwn: "store exists after own success", errNoRoom: "store full",
}

// What the background work of logs does to the store, for the report.
const (
	packed  = "segments packed"
	indexed = "indexes written"
	swept   = "objects swept"
)

// storeView is the store as one process sees it: with latency, with that
// process's faults, and nothing after its death (Z1).
type storeView struct {
	objstore.Bucket // Kind only; every other method is below
	owner           *life
	world           *storeWorld
}

// storeWorld is what the views of all processes share.
type storeWorld struct {
	latency time.Duration
	wg      sync.WaitGroup // writes under way
	mu      struct {
		sync.Mutex
		rng    *rand.Rand
		counts map[string]int
		cuts   map[string]chan struct{} // host -> closed when its way to the store is open again
		slow   map[string]time.Duration
	}
}

func newStoreWorld(seed uint64, latency time.Duration) *storeWorld {
	w := &storeWorld{latency: latency}
	w.mu.rng = rand.New(rand.NewPCG(seed, 2))
	w.mu.counts, w.mu.cuts, w.mu.slow = map[string]int{}, map[string]chan struct{}{}, map[string]time.Duration{}
	return w
}

// view puts a process in front of a store.
func (w *storeWorld) view(p *life, inner objstore.Bucket) *storeView {
	return &storeView{Bucket: inner, owner: p, world: w}
}

func (w *storeWorld) count(what string) {
	w.mu.Lock()
	w.mu.counts[what]++
	w.mu.Unlock()
}

// cut stops a host's calls to the store until ended.
func (w *storeWorld) cut(host string) (end func()) {
	ch := make(chan struct{})
	w.mu.Lock()
	w.mu.cuts[host] = ch
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		if w.mu.cuts[host] == ch {
			delete(w.mu.cuts, host)
		}
		w.mu.Unlock()
		close(ch)
	})
}

// slowBy makes a host's calls slower until ended.
func (w *storeWorld) slowBy(host string, extra time.Duration) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.slow[host] += extra
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.slow[host] -= extra
	}
}

// draw decides how long a call takes.
func (w *storeWorld) draw(host string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.latency + time.Duration(w.mu.rng.ExpFloat64()*float64(w.latency))
	if w.mu.rng.IntN(300) == 0 {
		d *= 50
	}
	if extra := w.mu.slow[host]; extra > 0 {
		w.mu.counts["store slow"]++
		d += time.Duration(w.mu.rng.Int64N(int64(2 * extra)))
	}
	return d
}

// afterlife decides what becomes of a write whose caller died or gave up while
// it was under way: how much later it lands, or never.
func (w *storeWorld) afterlife() (later time.Duration, lands bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.mu.rng.IntN(3) {
	case 0:
		return 0, false
	case 1:
		return 0, true
	default:
		w.mu.counts["orphaned write lands late"]++
		return time.Duration(w.mu.rng.Int64N(int64(15 * time.Second))), true
	}
}

func (w *storeWorld) cutOf(host string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.cuts[host]
}

// arrive takes the time of a call's way to the store. orphan says that the
// caller is not waiting any more.
func (s *storeView) arrive(ctx context.Context) (orphan error) {
	t := time.NewTimer(s.world.draw(s.owner.host))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.owner.dead:
		return errKilled
	}
	for {
		cut := s.world.cutOf(s.owner.host)
		if cut == nil {
			return nil
		}
		s.world.count("store unreachable")
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.owner.dead:
			return errKilled
		}
	}
}

// note counts an injected fault.
func (s *storeView) note(err error) {
	for e, name := range injected {
		if errors.Is(err, e) {
			s.world.count(name)
		}
	}
}

// read runs a call that changes nothing; it ends with its caller.
func (s *storeView) read(ctx context.Context, f func(context.Context) error) error {
	if _, err := s.owner.running(); err != nil {
		return err
	}
	if err := s.arrive(ctx); err != nil {
		return fmt.Errorf("reach store: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.owner.ctx, cancel)()
	err := f(ctx)
	s.note(err)
	if waited, e := s.owner.running(); e != nil {
		return e
	} else if waited {
		s.world.count("store call across a pause")
	}
	return err
}

// write runs a call that may outlive its caller: once it is under way, neither
// death nor a context takes it back.
func (s *storeView) write(ctx context.Context, f func(context.Context) error) error {
	waited, err := s.owner.running()
	if err != nil {
		return err
	}
	if waited { // it was at the point of sending when it was stopped
		s.world.count("store write after a pause")
		ctx = context.WithoutCancel(ctx)
	}
	done := make(chan error, 1)
	s.world.wg.Go(func() {
		if orphan := s.arrive(ctx); orphan != nil {
			later, lands := s.world.afterlife()
			if !lands {
				return
			}
			time.Sleep(later)
		}
		err := f(context.WithoutCancel(ctx))
		s.note(err)
		done <- err
	})
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.owner.dead:
		return errKilled
	}
	if _, e := s.owner.running(); e != nil {
		return e
	}
	return err
}

// own copies a body that its owner will recycle.
func own(b objstore.Body) objstore.Body {
	return objstore.Body{Parts: [][]byte{slices.Concat(b.Parts...)}, CRC32C: b.CRC32C}
}

// PutNew implements objstore.Bucket.
func (s *storeView) PutNew(ctx context.Context, key string, body objstore.Body) error {
	body = own(body)
	return s.write(ctx, func(ctx context.Context) error {
		err := s.Bucket.PutNew(ctx, key, body)
		switch {
		case err != nil:
		case strings.Contains(key, "/seg/"):
			s.world.count(packed)
		case strings.Contains(key, "/idx/"):
			s.world.count(indexed)
		}
		return err
	})
}

// Put implements objstore.Bucket.
func (s *storeView) Put(ctx context.Context, key string, body objstore.Body) error {
	body = own(body)
	return s.write(ctx, func(ctx context.Context) error { return s.Bucket.Put(ctx, key, body) })
}

// Delete implements objstore.Bucket.
func (s *storeView) Delete(ctx context.Context, keys ...string) error {
	keys = slices.Clone(keys)
	return s.write(ctx, func(ctx context.Context) error {
		err := s.Bucket.Delete(ctx, keys...)
		if err == nil {
			s.world.count(swept)
		}
		return err
	})
}

// GetRange implements objstore.Bucket.
func (s *storeView) GetRange(ctx context.Context, key string, off int64, dst []byte) (n int, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		var err error
		n, err = s.Bucket.GetRange(ctx, key, off, dst)
		return err
	})
	return n, err
}

// GetTail implements objstore.Bucket.
func (s *storeView) GetTail(ctx context.Context, key string, dst []byte) (n int, size int64, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		var err error
		n, size, err = s.Bucket.GetTail(ctx, key, dst)
		return err
	})
	return n, size, err
}

// Head implements objstore.Bucket.
func (s *storeView) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		var err error
		info, err = s.Bucket.Head(ctx, key)
		return err
	})
	return info, err
}

// List implements objstore.Bucket.
func (s *storeView) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	return s.read(ctx, func(ctx context.Context) error { return s.Bucket.List(ctx, prefix, startAfter, fn) })
}

// Settle implements objstore.Bucket.
func (s *storeView) Settle(ctx context.Context, prefix string) error {
	return s.read(ctx, func(ctx context.Context) error { return s.Bucket.Settle(ctx, prefix) })
}

// Close leaves the store to the others.
func (s *storeView) Close() error { return nil }
