// Package fault is a Bucket decorator that injects what real stores do: errors
// before or after the effect, lost responses, writes that land later, delay,
// stalls, a full store, damaged bytes. Rules are programmed by tests or given
// probabilities from a seed; with the same seed and the same order of calls the
// same faults happen.
package fault

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/sharedlog/objstore"
)

// Op is a method of a Bucket.
type Op string

// The methods.
const (
	PutNew   Op = "putnew"
	Put      Op = "put"
	GetRange Op = "getrange"
	GetTail  Op = "gettail"
	Head     Op = "head"
	List     Op = "list"
	Delete   Op = "delete"
	Settle   Op = "settle"
)

// Rule says which calls meet which fault. Its actions happen in the order of
// the fields.
type Rule struct {
	// Ops are the methods it is for, none means all.
	Ops []Op
	// Key must be part of the call's key (prefix for List and Settle); "" is in all.
	Key string
	// Skip lets that many matching calls pass first.
	Skip int
	// Times is how many calls meet the fault, 0 for all.
	Times int
	// Chance is the probability of the fault per call, 0 means 1.
	Chance float64

	// Delay waits first, or until the call's context ends.
	Delay time.Duration
	// Latency is added to Delay, drawn anew for each call.
	Latency Latency
	// Hold waits until it is closed, or until the call's context ends.
	Hold <-chan struct{}
	// HoldHard makes Delay and Hold ignore the context, like a hung mount.
	HoldHard bool
	// Before fails the call without effect.
	Before error
	// Late, with After set, fails a put at once and lets it land that much later.
	Late time.Duration
	// After fails the call after it has taken effect: a lost response.
	After error
	// Corrupt may change the bytes that a read returns.
	Corrupt func([]byte)
	// Stale makes List leave out objects that this Bucket has known for less
	// long. It learns of them by such lists.
	Stale time.Duration
}

// Latency is how long calls to a store on a network take: log-normal, most near
// the median and one in a hundred above P99. Zero takes no time.
type Latency struct{ Median, P99 time.Duration }

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263

func (l Latency) draw(rng *rand.Rand) time.Duration {
	if l.Median <= 0 {
		return 0
	}
	sigma := math.Log(float64(max(l.P99, l.Median))/float64(l.Median)) / z99
	return time.Duration(float64(l.Median) * math.Exp(sigma*rng.NormFloat64()))
}

// Bucket injects faults into another one.
type Bucket struct {
	objstore.Bucket
	late sync.WaitGroup // puts that land late; Close waits for them
	// follows are those of files; Close waits for their contexts to end.
	follows sync.WaitGroup
	mu      struct {
		sync.Mutex
		rng   *rand.Rand
		rules []*active
		known map[string]time.Time // since when, nil: nobody asked for it yet
	}
}

type active struct {
	Rule
	seen, hit int
}

var _ objstore.Bucket = (*Bucket)(nil)

// New decorates inner. The seed decides chances.
func New(inner objstore.Bucket, seed uint64) *Bucket {
	b := &Bucket{Bucket: inner}
	b.mu.rng = rand.New(rand.NewPCG(seed, 0))
	return b
}

// Add starts a rule; the function it returns ends it. The first matching rule of
// all that are active decides about a call.
func (b *Bucket) Add(r Rule) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &active{Rule: r}
	b.mu.rules = append(b.mu.rules, a)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.rules = slices.DeleteFunc(b.mu.rules, func(x *active) bool { return x == a })
	}
}

// hits are how many calls met each rule, in the order in which they were added.
func (b *Bucket) hits() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]int, len(b.mu.rules))
	for i, a := range b.mu.rules {
		out[i] = a.hit
	}
	return out
}

// Clear ends all rules.
func (b *Bucket) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.rules = nil
}

// match finds the fault for a call; the zero Rule is none.
func (b *Bucket) match(op Op, key string) Rule {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.mu.rules {
		if len(a.Ops) > 0 && !slices.Contains(a.Ops, op) || !strings.Contains(key, a.Key) {
			continue
		}
		if a.seen++; a.seen <= a.Skip || a.Times > 0 && a.hit >= a.Times {
			continue
		}
		if a.Chance > 0 && b.mu.rng.Float64() >= a.Chance {
			continue
		}
		a.hit++
		r := a.Rule
		r.Delay += r.Latency.draw(b.mu.rng)
		return r
	}
	return Rule{}
}

// before waits and fails as the rule says.
func (r Rule) before(ctx context.Context, op Op, key string) error {
	done := ctx.Done()
	if r.HoldHard {
		done = nil
	}
	if r.Delay > 0 {
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-done:
			return fmt.Errorf("%s %s: %w", op, key, ctx.Err())
		}
	}
	if r.Hold != nil {
		select {
		case <-r.Hold:
		case <-done:
			return fmt.Errorf("%s %s: %w", op, key, ctx.Err())
		}
	}
	return wrap(op, key, r.Before)
}

func wrap(op Op, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

// call runs f between before and after.
func (b *Bucket) call(ctx context.Context, op Op, key string, f func(Rule) error) error {
	r := b.match(op, key)
	if err := r.before(ctx, op, key); err != nil {
		return err
	}
	err := f(r)
	if r.After != nil {
		return wrap(op, key, r.After)
	}
	return err
}

type putFunc func(context.Context, string, objstore.Body) error

func (b *Bucket) put(ctx context.Context, op Op, key string, body objstore.Body, put putFunc) error {
	return b.call(ctx, op, key, func(r Rule) error {
		if r.Late == 0 || r.After == nil {
			return put(ctx, key, body)
		}
		// The caller recycles the parts when we return.
		own := objstore.Body{Parts: [][]byte{slices.Concat(body.Parts...)}, CRC32C: body.CRC32C}
		b.late.Go(func() {
			time.Sleep(r.Late)
			put(context.WithoutCancel(ctx), key, own) //nolint:errcheck // nobody is there to hear it
		})
		return nil
	})
}

// PutNew implements objstore.Bucket.
func (b *Bucket) PutNew(ctx context.Context, key string, body objstore.Body) error {
	return b.put(ctx, PutNew, key, body, b.Bucket.PutNew)
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body) error {
	return b.put(ctx, Put, key, body, b.Bucket.Put)
}

// GetRange implements objstore.Bucket.
func (b *Bucket) GetRange(ctx context.Context, key string, off int64, dst []byte) (n int, err error) {
	err = b.call(ctx, GetRange, key, func(r Rule) (err error) {
		n, err = b.Bucket.GetRange(ctx, key, off, dst)
		if r.Corrupt != nil {
			r.Corrupt(dst[:n])
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// GetTail implements objstore.Bucket.
func (b *Bucket) GetTail(ctx context.Context, key string, dst []byte) (n int, size int64, err error) {
	err = b.call(ctx, GetTail, key, func(r Rule) (err error) {
		n, size, err = b.Bucket.GetTail(ctx, key, dst)
		if r.Corrupt != nil {
			r.Corrupt(dst[:n])
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return n, size, nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = b.call(ctx, Head, key, func(Rule) (err error) {
		info, err = b.Bucket.Head(ctx, key)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	return b.call(ctx, List, prefix, func(r Rule) error {
		if r.Stale == 0 {
			return b.Bucket.List(ctx, prefix, startAfter, fn)
		}
		return b.Bucket.List(ctx, prefix, startAfter, func(o objstore.Info) error {
			if b.knownFor(o.Key) < r.Stale {
				return nil
			}
			return fn(o)
		})
	})
}

// knownFor is how long a key has been known, which begins now if it was not.
func (b *Bucket) knownFor(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, ok := b.mu.known[key]
	if !ok {
		since = time.Now()
		if b.mu.known == nil {
			b.mu.known = make(map[string]time.Time)
		}
		b.mu.known[key] = since
	}
	return time.Since(since)
}

// Delete implements objstore.Bucket. A rule's Key is looked for in the first key.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	return b.call(ctx, Delete, first, func(Rule) error { return b.Bucket.Delete(ctx, keys...) })
}

// Settle implements objstore.Bucket.
func (b *Bucket) Settle(ctx context.Context, prefix string) error {
	return b.call(ctx, Settle, prefix, func(Rule) error { return b.Bucket.Settle(ctx, prefix) })
}

// Close waits for writes that land late and closes the inner Bucket.
func (b *Bucket) Close() error {
	b.follows.Wait()
	b.late.Wait()
	return b.Bucket.Close()
}

// Land waits until every late write has landed.
func (b *Bucket) Land() { b.late.Wait() }

// FlipByte is a Corrupt function that damages the byte in the middle.
func FlipByte(p []byte) {
	if len(p) > 0 {
		p[len(p)/2] ^= 0xff
	}
}
