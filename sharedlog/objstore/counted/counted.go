// Package counted is a Bucket decorator that counts requests, errors, bytes and
// time by operation and reason, for metrics and for tests that assert what a
// path costs.
package counted

import (
	"context"
	"errors"
	"time"

	"ponor/internal/metrics"
	"ponor/sharedlog/objstore"
)

// Op is an operation of a Bucket.
type Op uint8

// The operations.
const (
	PutNew Op = iota
	Put
	GetRange
	GetTail
	Head
	List
	Delete
	Settle
	Ops // how many there are
)

// String is the operation as a label.
func (o Op) String() string {
	return [...]string{"putnew", "put", "getrange", "gettail", "head", "list", "delete", "settle"}[o]
}

// Count is the sum over calls. ErrExists and ErrNotFound are answers, not
// errors. For Delete Requests counts calls, not objects.
type Count struct {
	Requests, Errors, Bytes int64
}

// Bucket counts calls to another one, as objstore.ReasonProbe unless they come
// through For. Several counters may decorate one another.
type Bucket struct {
	view
	views  [objstore.Reasons]view
	counts [Ops][objstore.Reasons]count
}

type count struct {
	errors, bytes metrics.Counter
	times         metrics.Durations // their number is that of requests
}

var _ objstore.Bucket = (*Bucket)(nil)

// New decorates inner.
func New(inner objstore.Bucket) *Bucket {
	b := new(Bucket)
	for r := range b.views {
		reason := objstore.Reason(r)
		b.views[r] = view{Bucket: objstore.For(inner, reason), b: b, reason: reason}
	}
	b.view = b.views[objstore.ReasonProbe]
	return b
}

// For implements what objstore.For asks for; it allocates nothing.
func (b *Bucket) For(r objstore.Reason) objstore.Bucket { return &b.views[r] }

// Count is the sum of one operation for one reason since New.
func (b *Bucket) Count(op Op, r objstore.Reason) Count {
	c := &b.counts[op][r]
	return Count{Requests: c.times.Count(), Errors: c.errors.Count(), Bytes: c.bytes.Count()}
}

// Total sums the counts of one operation over all reasons.
func (b *Bucket) Total(op Op) (sum Count) {
	for r := range objstore.Reasons {
		c := b.Count(op, r)
		sum.Requests += c.Requests
		sum.Errors += c.Errors
		sum.Bytes += c.Bytes
	}
	return sum
}

// Show writes the counts to a page. Every operation and reason has a count, also
// at 0; only those that were used have times.
func (b *Bucket) Show(p *metrics.Page) {
	for op := range Ops {
		for r := range objstore.Reasons {
			c := &b.counts[op][r]
			n := c.times.Count()
			p.Set(metrics.StoreRequests, float64(n), op.String(), r.String())
			p.Count(metrics.StoreErrors, &c.errors, op.String(), r.String())
			if op <= GetTail { // the others move no bytes of objects
				p.Count(metrics.StoreBytes, &c.bytes, op.String(), r.String())
			}
			if n > 0 {
				p.Durations(metrics.StoreSeconds, &c.times, op.String(), r.String())
			}
		}
	}
}

// view counts for one reason.
type view struct {
	objstore.Bucket
	b      *Bucket
	reason objstore.Reason
}

func (v *view) count(op Op, begun time.Time, bytes int64, err error) {
	c := &v.b.counts[op][v.reason]
	c.times.Observe(time.Since(begun))
	c.bytes.Add(bytes)
	if err != nil && !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrNotFound) {
		c.errors.Inc()
	}
}

// PutNew implements objstore.Bucket.
func (v *view) PutNew(ctx context.Context, key string, body objstore.Body) error {
	begun, n := time.Now(), body.Len() // the parts may be recycled after the call
	err := v.Bucket.PutNew(ctx, key, body)
	v.count(PutNew, begun, n, err)
	return err
}

// Put implements objstore.Bucket.
func (v *view) Put(ctx context.Context, key string, body objstore.Body) error {
	begun, n := time.Now(), body.Len()
	err := v.Bucket.Put(ctx, key, body)
	v.count(Put, begun, n, err)
	return err
}

// GetRange implements objstore.Bucket.
func (v *view) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	begun := time.Now()
	n, err := v.Bucket.GetRange(ctx, key, off, dst)
	v.count(GetRange, begun, int64(n), err)
	return n, err
}

// GetTail implements objstore.Bucket.
func (v *view) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	begun := time.Now()
	n, size, err := v.Bucket.GetTail(ctx, key, dst)
	v.count(GetTail, begun, int64(n), err)
	return n, size, err
}

// Head implements objstore.Bucket.
func (v *view) Head(ctx context.Context, key string) (objstore.Info, error) {
	begun := time.Now()
	info, err := v.Bucket.Head(ctx, key)
	v.count(Head, begun, 0, err)
	return info, err
}

// List implements objstore.Bucket.
func (v *view) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	begun := time.Now()
	err := v.Bucket.List(ctx, prefix, startAfter, fn)
	v.count(List, begun, 0, err)
	return err
}

// Delete implements objstore.Bucket. Deleting nothing is no request.
func (v *view) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	begun := time.Now()
	err := v.Bucket.Delete(ctx, keys...)
	v.count(Delete, begun, 0, err)
	return err
}

// Settle implements objstore.Bucket.
func (v *view) Settle(ctx context.Context, prefix string) error {
	begun := time.Now()
	err := v.Bucket.Settle(ctx, prefix)
	v.count(Settle, begun, 0, err)
	return err
}
