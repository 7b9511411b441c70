package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

// Config says what to verify.
type Config struct {
	// Bucket is the store; it is only read.
	Bucket objstore.Bucket
	// Image returns an image that holds everything that had happened anywhere
	// before the call: a read barrier. That of a stopped cluster is always the
	// same, and must be the newest that any voter has.
	Image func(context.Context) (*metadata.Image, error)
	// Checkpoint says what is wrong with the bytes of a checkpoint. Nil: they are
	// not looked into, only their CRC is checked.
	Checkpoint func([]byte) error
	// Parallel is how many objects are read at once, default 16. More helps where
	// the store is far away; each costs 4 MiB.
	Parallel int
	// Problem gets each problem when it is certain, Garbage each piece of
	// garbage, Progress a word now and then. Nil: nobody listens. They are
	// called one at a time.
	Problem  func(Problem)
	Garbage  func(Garbage)
	Progress func(Progress)
}

// Run verifies a store. An error means that it could not be done: the store or
// the metadata do not answer. What is wrong is in the Report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	img, err := cfg.Image(ctx)
	if err != nil {
		return nil, fmt.Errorf("get metadata: %w", err)
	}
	if img.ClusterID() == "" {
		return nil, errors.New("the metadata is empty: no cluster was made yet")
	}
	cfg.Parallel = cmp.Or(cfg.Parallel, 16)
	c := &checker{cfg: cfg, img: img, holes: make(map[metadata.Incarnation]hole)}
	c.mu.report = Report{
		Cluster: img.ClusterID(), Generation: img.Generation(), Index: img.Index(), Streams: img.PartitionCount(),
		Classes: classes(), List: []Problem{},
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"fences", c.fences}, {"live WALs", c.liveWALs}, {"extents", c.extents}, {"listing", c.listing},
	} {
		c.begin(step.name)
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("verify %s: %w", step.name, err)
		}
	}
	r := &c.mu.report
	r.Classes[fateMissing].Objects = c.mu.missing.len()
	return r, nil
}

// checker is one run.
type checker struct {
	cfg Config
	img *metadata.Image // the first one; what it refers to is what is checked
	// redo are streams of which something was replaced before it could be read.
	redo  []metadata.Partition
	holes map[metadata.Incarnation]hole

	mu struct {
		sync.Mutex
		report           Report
		step             string
		objects          int64
		indexed          objectSet // listed by index sections
		damaged, missing objectSet
	}
}

// hole is what a walk of a live WAL stopped at: a slot that was not there,
// although slots up to last were.
type hole struct{ first, last uint64 }

// begin starts a step.
func (c *checker) begin(step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.step, c.mu.objects = step, 0
}

// advance counts an object that was dealt with.
func (c *checker) advance(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.objects += n
	if c.cfg.Progress != nil {
		c.cfg.Progress(Progress{Step: c.mu.step, Objects: c.mu.objects, Bytes: c.mu.report.Bytes})
	}
}

// sound counts records that were read.
func (c *checker) sound(records, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.report.Records += records
	c.mu.report.Bytes += bytes
}

// problem reports something certain. n is the object if it has a name of ours.
func (c *checker) problem(n *metadata.ObjectName, p Problem) {
	p.Advice = advice[p.Kind]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n == nil:
	case p.Kind == Missing || p.Kind == Gap || p.Kind == NoFence && p.Position < 0:
		c.mu.missing.add(*n)
	default:
		c.mu.damaged.add(*n)
	}
	p.Position = max(p.Position, 0)
	r := &c.mu.report
	if r.Problems++; len(r.List) < MaxProblems {
		r.List = append(r.List, p)
	}
	if c.cfg.Problem != nil {
		c.cfg.Problem(p)
	}
}

// key is where an object lies.
func (c *checker) key(n metadata.ObjectName) string { return c.prefix(n.Creator) + "/" + n.String() }

// prefix is what the keys of an incarnation's objects start with.
func (c *checker) prefix(inc metadata.Incarnation) string {
	gen := c.img.Generation()
	if w, ok := c.img.WAL(inc); ok {
		gen = w.Generation
	}
	return objstore.GenerationPrefix(c.img.ClusterID(), gen)
}

// Reads are tried so often, the last time after some seconds, before the run is
// given up.
const (
	readTries = 5
	readPause = 200 * time.Millisecond
)

// ask calls the store until it answers something that is about the object.
func (c *checker) ask(ctx context.Context, f func() error) error {
	var err error
	pause := readPause
	for range readTries {
		if err = f(); err == nil || isBad(err) || errors.Is(err, objstore.ErrRefused) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
	return err
}

// isBad says whether an error says something of the object.
func isBad(err error) bool {
	for _, e := range []error{objstore.ErrNotFound, commitlog.ErrCorrupt, segment.ErrFormat, wal.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// kindOf is the kind of problem that a bad object is.
func kindOf(err error) Kind {
	if errors.Is(err, objstore.ErrNotFound) {
		return Missing
	}
	return Damaged
}

// inParallel calls f for 0 to n-1 by at most Parallel workers, and returns the
// first error, which ends them all.
func (c *checker) inParallel(ctx context.Context, n int, f func(ctx context.Context, w *worker, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, c.cfg.Parallel) {
		workers.Go(func() {
			w := &worker{c: c}
			for i := range next {
				if err := f(ctx, w, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
