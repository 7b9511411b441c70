// Package counted is a Bucket decorator that counts requests, bytes and errors
// by operation and class of object, for metrics and for tests that assert what a
// path costs.
package counted

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"

	"ponor/sharedlog/objstore"
)

// Key is what counts are kept by: the operation ("putnew", "put", "getrange",
// "gettail", "head", "list", "delete", "settle") and the class of the object.
type Key struct {
	Op, Class string
}

// Count is the sum over calls. ErrExists and ErrNotFound are answers, not
// errors. For delete Requests counts calls, not objects.
type Count struct {
	Requests, Errors, Bytes int64
}

// Bucket counts calls to another one.
type Bucket struct {
	objstore.Bucket
	class func(key string) string
	mu    struct {
		sync.Mutex
		counts map[Key]Count
	}
}

var _ objstore.Bucket = (*Bucket)(nil)

// New decorates inner. class names the class of a key and has few values; nil
// means Class.
func New(inner objstore.Bucket, class func(key string) string) *Bucket {
	if class == nil {
		class = Class
	}
	b := &Bucket{Bucket: inner, class: class}
	b.mu.counts = map[Key]Count{}
	return b
}

// Class is "wal", "seg" or "idx" for the keys of a shared log
// (<cluster>/<generation>/<class>/...), else "other".
func Class(key string) string {
	if part := strings.SplitN(key, "/", 4); len(part) > 2 {
		switch part[2] {
		case "wal", "seg", "idx":
			return part[2]
		}
	}
	return "other"
}

// Counts is a copy of all counts since New.
func (b *Bucket) Counts() map[Key]Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.mu.counts)
}

// Total sums the counts of one operation over all classes.
func (b *Bucket) Total(op string) (sum Count) {
	for k, c := range b.Counts() {
		if k.Op == op {
			sum.Requests += c.Requests
			sum.Errors += c.Errors
			sum.Bytes += c.Bytes
		}
	}
	return sum
}

func (b *Bucket) count(op, key string, bytes int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := Key{Op: op, Class: b.class(key)}
	c := b.mu.counts[k]
	c.Requests++
	c.Bytes += bytes
	if err != nil && !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrNotFound) {
		c.Errors++
	}
	b.mu.counts[k] = c
}

// PutNew implements objstore.Bucket.
func (b *Bucket) PutNew(ctx context.Context, key string, body objstore.Body) error {
	err := b.Bucket.PutNew(ctx, key, body)
	b.count("putnew", key, body.Len(), err)
	return err
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body) error {
	err := b.Bucket.Put(ctx, key, body)
	b.count("put", key, body.Len(), err)
	return err
}

// GetRange implements objstore.Bucket.
func (b *Bucket) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	n, err := b.Bucket.GetRange(ctx, key, off, dst)
	b.count("getrange", key, int64(n), err)
	return n, err
}

// GetTail implements objstore.Bucket.
func (b *Bucket) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	n, size, err := b.Bucket.GetTail(ctx, key, dst)
	b.count("gettail", key, int64(n), err)
	return n, size, err
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	info, err := b.Bucket.Head(ctx, key)
	b.count("head", key, 0, err)
	return info, err
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	err := b.Bucket.List(ctx, prefix, startAfter, fn)
	b.count("list", prefix, 0, err)
	return err
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	err := b.Bucket.Delete(ctx, keys...)
	for _, k := range keys[:min(1, len(keys))] {
		b.count("delete", k, 0, err)
	}
	return err
}

// Settle implements objstore.Bucket.
func (b *Bucket) Settle(ctx context.Context, prefix string) error {
	err := b.Bucket.Settle(ctx, prefix)
	b.count("settle", prefix, 0, err)
	return err
}
