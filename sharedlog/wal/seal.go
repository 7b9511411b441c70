package wal

import (
	"context"
	"io"
	"log/slog"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// SealConfig says which WAL to seal.
type SealConfig struct {
	// Bucket, Prefix, ClusterID, Generation: as in Config.
	Bucket     objstore.Bucket
	Prefix     string
	ClusterID  string
	Generation uint64
	// Incarnation is whose WAL it is. It must be fenced in the image that Trim
	// is from (cmd-4).
	Incarnation metadata.Incarnation
	// By is the sealer's incarnation, for the fence.
	By metadata.Incarnation
	// Trim is the first slot still needed; slots below may be gone.
	Trim uint64
	// MaxInflight is the writers' window in slots, the first distance of a
	// fence ahead; default is the Bucket's.
	MaxInflight int
	// Parallel bounds concurrent reads, default 16.
	Parallel int
	// Rand gives the write id and jitter; default crypto/rand.
	Rand io.Reader
	// Logger, nil discards.
	Logger *slog.Logger
}

// Sealed is the result of Seal.
type Sealed struct {
	// End is e: the slot of the fence.
	End uint64
	// Slots are the indexes of slots Trim to End-1, in order.
	Slots []Index
}

// Seal ends the WAL of an incarnation that is gone. See doc.go for the rules.
// It is resumable, and any number of sealers agree on the result.
func Seal(ctx context.Context, cfg SealConfig) (Sealed, error) { return Sealed{}, nil }

// ReadIndex reads what slot seq holds, with one read of the object's tail if the
// index is not large. objstore.ErrNotFound: there is no such slot.
// commitlog.ErrCorrupt: it is not a slot of this WAL or damaged.
func ReadIndex(ctx context.Context, b objstore.Bucket, prefix string, inc metadata.Incarnation, seq uint64) (Header, Index, error) {
	return Header{}, Index{}, nil
}
