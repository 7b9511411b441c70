package segment

import (
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
)

// ScanRun builds the sparse index of an extent's bytes that have none (WAL
// data), checks every batch's own CRC and patches base offsets and epochs, so
// that body can be served. The index has the CRCs of the bytes as stored.
func ScanRun(x metadata.Extent, body []byte) (Entry, error) {
	e := Entry{Extent: x}
	next := x.Base
	for at := 0; at < len(body); {
		b, _, err := commitlog.SplitBatch(body[at:])
		if err != nil {
			return e, err
		}
		if err := b.CheckCRC(); err != nil {
			return e, err
		}
		if n := len(e.Blocks); n == 0 || e.Blocks[n-1].Length >= BlockBytes {
			e.Blocks = append(e.Blocks, Block{Base: next, Position: int64(at), MaxTimestamp: -1})
		}
		bl := &e.Blocks[len(e.Blocks)-1]
		bl.CRC = crc32.Update(bl.CRC, castagnoli, b)
		bl.Length += int64(len(b))
		bl.MaxTimestamp = max(bl.MaxTimestamp, b.MaxTimestamp())
		at += len(b)
		if next, err = patch(b, next, x.Epoch); err != nil {
			return e, err
		}
	}
	if next != x.End {
		return e, fmt.Errorf("%w: batches end at offset %d, their extent at %d", commitlog.ErrCorrupt, next, x.End)
	}
	return e, nil
}

// Patch sets base offsets and epochs of the batches in b, which are those of
// [base, end), where they differ.
func Patch(b []byte, base, end commitlog.Offset, epoch commitlog.Epoch) error {
	for len(b) > 0 {
		batch, rest, err := commitlog.SplitBatch(b)
		if err != nil {
			return err
		}
		if base, err = patch(batch, base, epoch); err != nil {
			return err
		}
		b = rest
	}
	if base != end {
		return fmt.Errorf("%w: batches end at offset %d instead of %d", commitlog.ErrCorrupt, base, end)
	}
	return nil
}

// patch sets one batch's header and returns the offset after it.
func patch(b commitlog.Batch, base commitlog.Offset, epoch commitlog.Epoch) (commitlog.Offset, error) {
	n := commitlog.Offset(b.LastOffsetDelta()) + 1
	if n <= 0 {
		return base, fmt.Errorf("%w: batch at offset %d spans %d offsets", commitlog.ErrCorrupt, base, n)
	}
	if b.BaseOffset() != base || b.LeaderEpoch() != epoch {
		b.SetBase(base, epoch)
	}
	return base + n, nil
}
