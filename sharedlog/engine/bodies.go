package engine

import (
	"context"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/wal"
)

// slotBodies gives the bytes of slots' chunks: from memory where they are,
// pinned, else from the store, whole slots.
type slotBodies struct {
	e      *Engine
	pinned []*wal.Slot
	last   *wal.Slot // the slot that pinned or body is about
	held   bool
	body   []byte
}

func (b *slotBodies) chunk(ctx context.Context, slot *wal.Slot, i int) ([][]byte, error) {
	index := slot.Index()
	c := &index.Chunks[i]
	if b.last != slot {
		b.last, b.body = slot, nil
		if b.held = slot.Acquire(); b.held {
			b.pinned = append(b.pinned, slot)
		} else {
			end := index.Chunks[len(index.Chunks)-1]
			b.body = make([]byte, end.Pos+end.Len)
			key := wal.SlotKey(b.e.prefix, b.e.cfg.Incarnation, slot.Seq())
			n, err := b.e.bucket(objstore.ReasonPack).GetRange(ctx, key, 0, b.body)
			if err != nil {
				b.last = nil
				return nil, fmt.Errorf("read back slot %d: %w", slot.Seq(), storeError(err))
			}
			b.body = b.body[:n]
		}
	}
	if b.held {
		return slot.Ranges(nil, i), nil
	}
	if int64(len(b.body)) < c.Pos+c.Len {
		return nil, fmt.Errorf("slot %d ends before %d: %w", slot.Seq(), c.Pos+c.Len, commitlog.ErrCorrupt)
	}
	p := b.body[c.Pos : c.Pos+c.Len : c.Pos+c.Len]
	if got := crc32.Checksum(p, commitlog.Castagnoli); got != c.CRC32C {
		return nil, fmt.Errorf("chunk of stream %d in slot %d has CRC %08x, its bytes %08x: %w", c.Stream, slot.Seq(), c.CRC32C, got, commitlog.ErrCorrupt)
	}
	return [][]byte{p}, nil
}

func (b *slotBodies) release() {
	for _, s := range b.pinned {
		s.Release()
	}
}
