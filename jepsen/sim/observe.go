package sim

import (
	"context"
	"fmt"
	"time"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// observer looks at the nodes' images of the cluster from inside. Its fields
// belong to the goroutine that watches.
type observer struct {
	c      *cluster
	hashes map[metadata.Index][32]byte
	last   map[int]*metadata.Image // by node
	checks int
}

func newObserver(c *cluster) *observer {
	return &observer{c: c, hashes: map[metadata.Index][32]byte{}, last: map[int]*metadata.Image{}}
}

// watch looks every now and then until ctx ends.
func (o *observer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range o.c.nodes {
			o.look(n)
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// look checks one node's image: sound by itself, a legal successor of what this
// node knew before, and equal to what others knew at that index.
func (o *observer) look(n *node) {
	img := n.image()
	last := o.last[n.id]
	if img == nil || last != nil && img.Index() == last.Index() {
		return
	}
	o.checks++
	if err := metadata.Check(img); err != nil {
		o.c.time.violation("image of %s at %d: %v", n.name, img.Index(), err)
	}
	if last != nil && img.Index() > last.Index() { // a restarted process begins with an older one
		if err := metadata.CheckStep(last, img); err != nil {
			o.c.time.violation("image of %s: %v", n.name, err)
		}
	}
	o.last[n.id] = img
	hash := img.Hash()
	if other, ok := o.hashes[img.Index()]; ok && other != hash {
		o.c.time.violation("image of %s at %d differs from another node's", n.name, img.Index())
	}
	o.hashes[img.Index()] = hash
}

// agree waits until all nodes know the same, and compares.
func (o *observer) agree(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		hashes, lag := map[[32]byte]bool{}, ""
		var top metadata.Index
		low := ^metadata.Index(0)
		for _, n := range o.c.members() {
			img := n.image()
			if img == nil {
				lag = n.name + " does not run"
				break
			}
			hashes[img.Hash()] = true
			low, top = min(low, img.Index()), max(top, img.Index())
		}
		if lag == "" && top != low {
			lag = fmt.Sprintf("one node is at %d, another at %d", low, top)
		}
		if lag == "" {
			if len(hashes) != 1 {
				return fmt.Errorf("%d different images at index %d", len(hashes), top)
			}
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nodes do not agree %v after the faults: %s", within, lag)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// referenced checks that every object which an image refers to is in the store.
func referenced(ctx context.Context, img *metadata.Image, b objstore.Bucket) error {
	prefix := objstore.GenerationPrefix(img.ClusterID(), img.Generation())
	for object := range img.Objects() {
		if _, err := b.Head(ctx, prefix+"/"+object); err != nil {
			return fmt.Errorf("the metadata refers to an object that the store does not have: %w", err)
		}
	}
	return nil
}
