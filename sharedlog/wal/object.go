package wal

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// SlotKey is the key of a slot object.
func SlotKey(prefix string, inc metadata.Incarnation, seq uint64) string {
	return fmt.Sprintf("%s%020d", SlotPrefix(prefix, inc), seq)
}

// SlotPrefix is what the keys of all slots of an incarnation start with.
func SlotPrefix(prefix string, inc metadata.Incarnation) string {
	return prefix + "/wal/" + inc.String() + "/0/"
}

// DecodeSlot reads a slot object, or its tail of at least the footer and the
// index, and of a longer object no more than that is needed. Repeated are the
// indexes of earlier slots that it carries, oldest first; they say nothing about
// whether those slots exist. A fence has an empty Index. Chunks' own checksums
// are not checked.
func DecodeSlot(tail []byte, size int64) (h Header, own Index, repeated []Index, err error) {
	h, err = decodeFooter(tail, size)
	if err != nil || h.Kind == Fence {
		return h, Index{Seq: h.Seq}, nil, err
	}
	at := len(tail) - HeaderBytes - int(h.indexLen)
	if at < 0 {
		return h, Index{}, nil, fmt.Errorf("%w: WAL index of %d bytes is cut off", commitlog.ErrCorrupt, h.indexLen)
	}
	index := tail[at : len(tail)-HeaderBytes]
	if got := crc32.Checksum(index, commitlog.Castagnoli); got != h.indexCRC {
		return h, Index{}, nil, fmt.Errorf("%w: WAL index has CRC %08x, its bytes %08x", commitlog.ErrCorrupt, h.indexCRC, got)
	}
	own, repeated, err = decodeIndex(&h, index)
	return h, own, repeated, err
}

// decodeFooter reads the header at the end of an object of that size.
func decodeFooter(tail []byte, size int64) (Header, error) {
	if len(tail) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: object of %d bytes is no WAL slot", commitlog.ErrCorrupt, size)
	}
	h, err := DecodeHeader(tail[len(tail)-HeaderBytes:])
	if err != nil {
		return h, err
	}
	if h.Size != uint64(size) {
		return h, fmt.Errorf("%w: WAL slot claims %d bytes and has %d", commitlog.ErrCorrupt, h.Size, size)
	}
	return h, nil
}

// EncodeEmptySlot is a data slot without chunks. Probing whether a WAL is fenced
// by creating its next slot (a negative read proves nothing) uses it.
func EncodeEmptySlot(h Header) []byte {
	index := []byte{0, 0} // no chunks, no repeated indexes
	h.Kind, h.Size = Data, uint64(2*HeaderBytes+len(index))
	h.indexLen, h.indexCRC = uint32(len(index)), crc32.Checksum(index, commitlog.Castagnoli)
	b := appendHeader(nil, &h)
	front := b
	b = append(b, index...)
	return append(b, front...)
}

// tailBytes is how much of an object the first read fetches: enough for the
// index of an ordinary slot.
const tailBytes = 64 << 10

// readSlot fetches and decodes slot seq.
func readSlot(ctx context.Context, b objstore.Bucket, key string) (Header, Index, []Index, error) {
	tail := make([]byte, tailBytes)
	n, size, err := b.GetTail(ctx, key, tail)
	if err != nil {
		return Header{}, Index{}, nil, fmt.Errorf("read slot: %w", err)
	}
	tail = tail[:n]
	h, err := decodeFooter(tail, size)
	if err != nil {
		return h, Index{}, nil, fmt.Errorf("read slot %s: %w", key, err)
	}
	if need := int64(h.indexLen) + HeaderBytes; need > int64(n) && h.Kind == Data {
		tail = make([]byte, need)
		if n, size, err = b.GetTail(ctx, key, tail); err != nil {
			return h, Index{}, nil, fmt.Errorf("read slot: %w", err)
		}
		tail = tail[:n]
	}
	h, own, repeated, err := DecodeSlot(tail, size)
	if err != nil {
		return h, Index{}, nil, fmt.Errorf("read slot %s: %w", key, err)
	}
	return h, own, repeated, nil
}

// ReadIndex reads what slot seq holds, with one read of the object's tail if the
// index is not large. objstore.ErrNotFound: there is no such slot.
// commitlog.ErrCorrupt: it is damaged or not this slot. A fence has no chunks.
func ReadIndex(ctx context.Context, b objstore.Bucket, prefix string, inc metadata.Incarnation, seq uint64) (Header, Index, error) {
	key := SlotKey(prefix, inc, seq)
	h, own, _, err := readSlot(ctx, b, key)
	if err == nil && (h.Incarnation != inc || h.Seq != seq) {
		err = fmt.Errorf("read slot %s: %w: it is slot %d of %s", key, commitlog.ErrCorrupt, h.Seq, h.Incarnation)
	}
	return h, own, err
}

// identity is what a header must say to belong to a WAL.
type identity struct {
	clusterID   string
	generation  uint64
	incarnation metadata.Incarnation
}

var errOther = errors.New("slot belongs to another WAL")

func (id identity) check(h *Header, seq uint64) error {
	if h.ClusterID != id.clusterID || h.Generation != id.generation || h.Incarnation != id.incarnation || h.Seq != seq || h.Lane != 0 {
		return fmt.Errorf("%w: %w: cluster %q generation %d incarnation %s slot %d", commitlog.ErrCorrupt, errOther, h.ClusterID, h.Generation, h.Incarnation, h.Seq)
	}
	return nil
}
