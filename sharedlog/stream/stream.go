// Package stream is the seam between a shared log and the storage service below
// it: the Stream layer of KIP-1183. A stream is the ordered bytes of one
// partition, counted in records; it knows batches and offsets, not topics,
// leaders, producers or retention. Package sharedlog builds a commitlog.Log on a
// Stream and nothing else, so another service can be put in its place by
// implementing Client and Stream; package engine implements them on an object
// store.
//
// What an implementation promises:
//
//	T1  StartOffset <= ConfirmOffset <= NextOffset, and neither of the first two
//	    ever moves back.
//	T2  ConfirmOffset is the end of the contiguous durable prefix: a batch that
//	    is durable behind one that is not does not count.
//	T3  Appends are taken in call order, offsets are dense, and after one failed
//	    no later one succeeds.
//	T4  After Open at an epoch returned, no append of an older epoch can become
//	    durable, and whatever one was told is durable is below NextOffset.
//	T5  Fetch returns whole batches below ConfirmOffset, verified, or
//	    commitlog.ErrCorrupt.
package stream

import (
	"context"
	"time"

	"ponor/commitlog"
)

// Client opens the streams of one storage service.
type Client interface {
	// Open takes ownership of a stream at an epoch and returns when it can be
	// appended to and read (T4). The control plane creates streams; one that
	// nothing was appended to is empty. commitlog.ErrFenced: the epoch or its
	// owner is out of date.
	Open(ctx context.Context, id commitlog.StreamID, opts OpenOptions) (Stream, error)
	// Get is the stream that is open now.
	Get(id commitlog.StreamID) (Stream, bool)
}

// OpenOptions accompany Open.
type OpenOptions struct {
	// Epoch is the owner's.
	Epoch commitlog.Epoch
	// Confirmed is called after ConfirmOffset moved or the stream was lost, from
	// a goroutine of the service; it must be quick and must not append.
	Confirmed func()
	// Checkpoints folds what recovery needs; nil keeps deltas only.
	Checkpoints commitlog.Checkpointer
	// RetentionAge is how long data is kept, to store alike with alike; <= 0 is
	// unlimited, nil unknown.
	RetentionAge func() time.Duration
}

// Stream is one open stream. All methods are safe for concurrent use; Append
// calls are ordered by the caller.
type Stream interface {
	// ID is the stream's.
	ID() commitlog.StreamID
	// Epoch is the one it was opened at.
	Epoch() commitlog.Epoch
	// Offsets are start, confirm and next offset at one moment (T1, T2).
	Offsets() commitlog.Bounds
	// Append takes one whole batch, copies it, and never waits; see
	// commitlog.Log.Append for its errors.
	Append(batch commitlog.Batch) (commitlog.Commit, error)
	// Fetch reads; see commitlog.Log.Read.
	Fetch(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error)
	// FindTime finds the first confirmed batch whose largest timestamp is at or
	// after ts (ms).
	FindTime(ctx context.Context, ts int64) (commitlog.Offset, bool, error)
	// FindMaxTime finds the first confirmed batch with the largest timestamp.
	FindMaxTime(ctx context.Context) (commitlog.Offset, bool, error)
	// Runs lists the pieces the stream is stored in, in order and without gap
	// from the start to the confirm offset. Where finding out takes reading from
	// the store and load is false, a coarse piece stands for many and fine is
	// false.
	Runs(ctx context.Context, load bool) (runs []Run, fine bool, err error)
	// Recovered is the newest checkpoint and the deltas since, without reading
	// record bytes.
	Recovered(ctx context.Context) (commitlog.Recovery, error)
	// Trim moves the start offset forward and returns when that is durable.
	Trim(ctx context.Context, to commitlog.Offset) error
	// Flush asks that what was appended becomes durable without waiting for more.
	Flush()
	// Close gives the stream up in order: outstanding appends resolve first, as
	// far as ctx allows. The data stays.
	Close(ctx context.Context) error
	// Destroy closes the stream at once and forgets what is in memory of it. The
	// control plane deletes streams; their data is swept when nothing names it.
	Destroy(ctx context.Context) error
}

// Run is a stored piece of a stream.
type Run struct {
	Base, End    commitlog.Offset
	Bytes        int64
	MaxTimestamp int64 // milliseconds
}
