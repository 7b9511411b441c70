package wal

import (
	"ponor/commitlog"
)

// Index says what one slot holds.
type Index struct {
	Seq    uint64
	Chunks []Chunk
}

// Chunk is the run of one stream's batches in a slot.
type Chunk struct {
	Stream    commitlog.StreamID
	Epoch     commitlog.Epoch
	Base, End commitlog.Offset // End is exclusive
	// Pos and Len delimit the chunk in the slot object, in bytes.
	Pos, Len     int64
	MaxTimestamp int64 // ms
	CRC32C       uint32
	// Batches are the deltas, in offset order: the chunk's first batch (leader
	// epochs), the last five batches of each idempotent producer, the first
	// batch of each transaction, and every control batch. Their LeaderEpoch is
	// the chunk's.
	Batches []commitlog.BatchInfo
}
