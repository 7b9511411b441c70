// Package mem is a Bucket in memory, for tests and simulations. It forgets
// everything with the process, but several brokers in one process can share it.
package mem

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"ponor/sharedlog/objstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bucket is a store in memory. Objects are immutable slices, replaced whole;
// the lock is never held across a wait.
type Bucket struct {
	mu struct {
		sync.RWMutex
		objects btree.Map[string, []byte]
	}
}

var _ objstore.Bucket = (*Bucket)(nil)

// New returns an empty Bucket.
func New() *Bucket { return &Bucket{} }

// PutNew implements objstore.Bucket.
func (b *Bucket) PutNew(ctx context.Context, key string, body objstore.Body) error {
	return b.put(ctx, key, body, false)
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body) error {
	return b.put(ctx, key, body, true)
}

func (b *Bucket) put(ctx context.Context, key string, body objstore.Body, replace bool) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	data := make([]byte, 0, body.Len())
	for _, p := range body.Parts {
		data = append(data, p...)
	}
	if sum := crc32.Checksum(data, castagnoli); sum != body.CRC32C {
		return fmt.Errorf("put %s: body has checksum %08x, its bytes %08x", key, body.CRC32C, sum)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.mu.objects.Get(key); taken && !replace {
		return fmt.Errorf("put %s: %w", key, objstore.ErrExists)
	}
	b.mu.objects.Set(key, data)
	return nil
}

func (b *Bucket) object(ctx context.Context, key string) ([]byte, error) {
	if err := objstore.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.mu.objects.Get(key)
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, objstore.ErrNotFound)
	}
	return data, nil
}

// GetRange implements objstore.Bucket.
func (b *Bucket) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	data, err := b.object(ctx, key)
	if err != nil {
		return 0, err
	}
	if off < 0 || off > int64(len(data)) {
		return 0, nil
	}
	return copy(dst, data[off:]), nil
}

// GetTail implements objstore.Bucket.
func (b *Bucket) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	data, err := b.object(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	return copy(dst, data[max(0, len(data)-len(dst)):]), int64(len(data)), nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	data, err := b.object(ctx, key)
	return objstore.Info{Key: key, Size: int64(len(data))}, err
}

// List implements objstore.Bucket. It sees the objects of one moment.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	var page []objstore.Info
	b.mu.RLock()
	b.mu.objects.Ascend(max(prefix, startAfter), func(key string, data []byte) bool {
		if !strings.HasPrefix(key, prefix) {
			return key < prefix
		}
		if key > startAfter {
			page = append(page, objstore.Info{Key: key, Size: int64(len(data))})
		}
		return true
	})
	b.mu.RUnlock()
	for _, i := range page {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if err := fn(i); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		b.mu.objects.Delete(k)
	}
	return nil
}

// Settle implements objstore.Bucket; there is nothing to settle.
func (b *Bucket) Settle(ctx context.Context, prefix string) error { return ctx.Err() }

// Kind implements objstore.Bucket.
func (b *Bucket) Kind() objstore.Kind {
	return objstore.Kind{Name: "mem", URL: "mem:", MaxInflight: 2, TargetObject: 1 << 20, Volatile: true}
}

// Close implements objstore.Bucket and does nothing: others may share the
// Bucket, whose objects live as long as it is reachable.
func (b *Bucket) Close() error { return nil }
