package engine

import (
	"container/list"
	"context"
	"sync"
)

// cacheKind says what a cache entry is, so that one budget holds them all.
type cacheKind uint8

const (
	cachePage    cacheKind = iota // verified record bytes of a run: []byte
	cacheRun                      // sparse index of a run: *runIndex
	cacheSection                  // decoded section: *segment.Section
	cacheObject                   // an object's trailer, directory and last bytes: *objectInfo
	cacheRaw                      // unverified bytes of an object around sections: []byte
)

// cacheKey names an entry: a position in an object.
type cacheKey struct {
	object   string
	position int64
	kind     cacheKind
}

// cache keeps what was read from the store under one byte budget, least
// recently used out first. Concurrent misses of one key load once. Values are
// ordinary Go memory: who still reads one that was evicted keeps it alive.
type cache struct {
	mu      sync.Mutex
	budget  int64
	used    int64
	entries map[cacheKey]*list.Element
	lru     list.List // front is the most recently used
	loading map[cacheKey]chan struct{}
	count   *Metrics
}

type cacheEntry struct {
	key   cacheKey
	value any
	size  int64
}

// entryOverhead is what an entry costs beside its value, roughly, in bytes.
const entryOverhead = 200

func newCache(budget int64, count *Metrics) *cache {
	return &cache{budget: budget, count: count, entries: make(map[cacheKey]*list.Element), loading: make(map[cacheKey]chan struct{})}
}

// get returns the entry, loading it if need be. load returns the value and its
// size. An error is not kept: every waiter tries again, and fails of its own.
func (c *cache) get(ctx context.Context, k cacheKey, load func(context.Context) (any, int64, error)) (any, error) {
	for {
		v, wait := c.claim(k)
		if v != nil {
			return v, nil
		}
		if wait == nil {
			v, size, err := load(ctx)
			c.finish(k, v, size, err)
			return v, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// claim returns the value, or a channel to wait on because somebody else loads
// it, or neither: then the caller must load it and call finish.
func (c *cache) claim(k cacheKey) (any, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[k]; ok {
		c.count.cacheHits.Inc()
		c.lru.MoveToFront(el)
		return el.Value.(*cacheEntry).value, nil
	}
	if ch, ok := c.loading[k]; ok {
		return nil, ch
	}
	c.count.cacheMisses.Inc()
	c.loading[k] = make(chan struct{})
	return nil, nil
}

// tryClaim is claim for those who would rather not wait: true means the caller
// loads.
func (c *cache) tryClaim(k cacheKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[k]; ok {
		return false
	}
	if _, ok := c.loading[k]; ok {
		return false
	}
	c.loading[k] = make(chan struct{})
	return true
}

// lacks says whether nobody has the first page of a run, nor is about to.
func (c *cache) lacks(object string, position int64) bool {
	run := cacheKey{object: object, position: position, kind: cacheRun}
	first := cacheKey{object: object, position: position, kind: cachePage}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading[run] != nil || c.loading[first] != nil {
		return false
	}
	return c.entries[run] == nil || c.entries[first] == nil
}

// finish ends a claim.
func (c *cache) finish(k cacheKey, v any, size int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.loading[k]; ok {
		delete(c.loading, k)
		close(ch)
	}
	if err == nil {
		c.putLocked(k, v, size)
	}
}

func (c *cache) putLocked(k cacheKey, v any, size int64) {
	size += entryOverhead
	if el, ok := c.entries[k]; ok {
		c.removeLocked(el)
	}
	if size > c.budget {
		return
	}
	c.used += size
	c.entries[k] = c.lru.PushFront(&cacheEntry{key: k, value: v, size: size})
	for c.used > c.budget {
		c.count.cacheEvictions.Inc()
		c.removeLocked(c.lru.Back())
	}
}

func (c *cache) removeLocked(el *list.Element) {
	en := el.Value.(*cacheEntry)
	c.lru.Remove(el)
	delete(c.entries, en.key)
	c.used -= en.size
}

// put adds a value that was not claimed.
func (c *cache) put(k cacheKey, v any, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(k, v, size)
}

// drop forgets everything of an object, because it is gone or damaged.
func (c *cache) drop(object string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, el := range c.entries {
		if k.object == object {
			c.removeLocked(el)
		}
	}
}

// bytes is the memory in use.
func (c *cache) bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
