package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ponor/metadata/metadatapb"
)

const (
	// producerBlock is how many producer ids are reserved at a time.
	producerBlock = 10_000
	// producerReserve is how many unused ones a broker holds at least, so that
	// new idempotent producers work while the quorum is away.
	producerReserve = 10_000
)

// producerIDs hands out producer ids from reserved blocks. What a process
// still held when it ended is never used; there are 2^63.
type producerIDs struct {
	refill chan struct{} // capacity 1: asks for another block
	mu     struct {
		sync.Mutex
		blocks []idBlock
		left   int64
		filled chan struct{} // closed when a block arrives
	}
}

type idBlock struct{ next, end int64 }

func newProducerIDs() *producerIDs {
	p := &producerIDs{refill: make(chan struct{}, 1)}
	p.mu.filled = make(chan struct{})
	return p
}

// AllocateProducerID returns an id that no other call on any node has ever
// returned. It waits for the quorum only if this broker has used up more than
// it holds in reserve.
func (n *Node) AllocateProducerID(ctx context.Context) (int64, error) {
	for {
		id, filled, ok := n.producers.take()
		if ok {
			return id, nil
		}
		select {
		case <-filled:
		case <-ctx.Done():
			return 0, fmt.Errorf("allocate producer id: %w", ctx.Err())
		case <-n.closing:
			return 0, fmt.Errorf("allocate producer id: %w", ErrClosed)
		}
	}
}

func (p *producerIDs) take() (int64, <-chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.left <= producerReserve {
		select {
		case p.refill <- struct{}{}:
		default:
		}
	}
	if len(p.mu.blocks) == 0 {
		return 0, p.mu.filled, false
	}
	b := &p.mu.blocks[0]
	id := b.next
	b.next++
	p.mu.left--
	if b.next == b.end {
		p.mu.blocks = p.mu.blocks[1:]
	}
	return id, nil, true
}

func (p *producerIDs) put(first int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.blocks = append(p.mu.blocks, idBlock{first, first + producerBlock})
	p.mu.left += producerBlock
	close(p.mu.filled)
	p.mu.filled = make(chan struct{})
}

func (p *producerIDs) low() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.left <= producerReserve
}

// runProducerIDs keeps the reserve full, from the first registration or the
// first id asked for on: a node that never serves clients reserves nothing.
func (n *Node) runProducerIDs(ctx context.Context) {
	wanted := false
	for {
		member := n.member.changed()
		wanted = wanted || !n.Incarnation().IsZero()
		for wanted && n.producers.low() && ctx.Err() == nil {
			if err := n.reserveIDs(ctx); err != nil && ctx.Err() == nil {
				n.log.Debug("cannot reserve producer ids", "err", err)
				select {
				case <-time.After(maxBackoff):
				case <-ctx.Done():
				}
			}
		}
		select {
		case <-n.producers.refill:
			wanted = true
		case <-member:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) reserveIDs(ctx context.Context) error {
	r, err := n.Submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_AllocateIds{
		AllocateIds: &metadatapb.AllocateIDs{Space: metadatapb.AllocateIDs_PRODUCER, Count: producerBlock},
	}})
	if err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	n.producers.put(int64(r.First))
	return nil
}
