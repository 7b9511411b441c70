package commitlog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Offset is the position of a record in a log, counted in records from 0.
type Offset int64

// Epoch is a partition's leader epoch; for a shared log also the epoch at
// which its stream is owned.
type Epoch int32

// StreamID names the stream that holds a partition's log on shared storage. It
// is allocated by the metadata quorum and never reused.
type StreamID uint64

// ID names one partition's log towards every medium: shared logs go by Stream,
// local ones by Topic name and Partition (Kafka's directory names).
type ID struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Stream    StreamID
}

// String is Kafka's own form, topic-partition.
func (id ID) String() string { return fmt.Sprintf("%s-%d", id.Topic, id.Partition) }

// Errors a caller branches on. They arrive wrapped, with what and where.
var (
	// ErrOffsetOutOfRange: below Start or above End.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrFenced: another owner has the log now, or may have it, or a write of
	// unknown outcome ended this ownership (C3). Open it again to go on.
	ErrFenced = errors.New("log is fenced")
	// ErrClosed: this Log was closed by its owner.
	ErrClosed = errors.New("log is closed")
	// ErrCorrupt: bytes on the medium are not what was written.
	ErrCorrupt = errors.New("corrupt data")
	// ErrUnavailable: the medium does not answer or is full; retry later.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrBackpressure: the byte budget of unresolved appends is used up; retry
	// after earlier appends have resolved.
	ErrBackpressure = errors.New("append budget exhausted")
)

// Bounds are a log's offsets at one moment: Start is the first offset kept,
// Stable the end of what is durable in order, End the offset the next append
// gets.
type Bounds struct {
	Start, Stable, End Offset
}

// Segment describes one logical segment: what retention and the cleaner work
// on. The last one of a log is active and is never deleted or cleaned.
type Segment struct {
	Base, End    Offset
	Bytes        int64
	MaxTimestamp int64 // milliseconds since the epoch, -1 if empty
	Active       bool
}

// ReadOptions bound a Read.
type ReadOptions struct {
	// MaxBytes is the most to return, in bytes.
	MaxBytes int
	// MinOne returns the first batch even if it alone exceeds MaxBytes
	// (KIP-74), so that a consumer always makes progress.
	MinOne bool
	// Limit is an exclusive upper bound below which whole batches must start
	// (the last stable offset for read_committed); 0 means Stable. A reader
	// whose limit is really 0 need not ask: nothing lies below it.
	Limit Offset
}

// Records are whole batches in offset order, as one or more byte ranges that
// belong to the log. The holder calls Release exactly once when it is done, and
// soon: until then the memory is pinned. The zero value is empty.
type Records struct {
	Bufs    [][]byte
	Bytes   int
	release func()
}

// NewRecords wraps ranges with the function that unpins them; nil is allowed.
func NewRecords(bufs [][]byte, release func()) Records {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return Records{Bufs: bufs, Bytes: n, release: release}
}

// Release unpins the memory. It is safe on the zero value.
func (r *Records) Release() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
	r.Bufs = nil
}

// Log is one partition's log, owned by this process at one epoch. All methods
// are safe for concurrent use; Append calls are ordered by the caller (the
// partition's lock).
type Log interface {
	// Append takes exactly one whole batch, copies it (C12), gives it the
	// offsets from End on (C1) and patches base offset and epoch (C9). It never
	// waits (C2): ErrBackpressure, ErrUnavailable, ErrFenced, ErrClosed and
	// ErrCorrupt (Batch.Check) say at once that nothing was taken.
	Append(batch Batch) (Commit, error)
	// Read returns stable batches from an offset on (C7, C8, C14). It may do
	// I/O on cold data and honours ctx.
	Read(ctx context.Context, from Offset, opts ReadOptions) (Records, error)
	// BatchAt finds the first stable batch whose largest timestamp is at or
	// after ts (milliseconds). ok is false when there is none. Which record of
	// the batch it is, is for the partition to find out.
	BatchAt(ctx context.Context, ts int64) (base Offset, ok bool, err error)
	// MaxTimestampBatch finds the first stable batch that carries the largest
	// timestamp of the log (KIP-734). ok is false for an empty log.
	MaxTimestampBatch(ctx context.Context) (base Offset, ok bool, err error)
	// Bounds are the offsets now.
	Bounds() Bounds
	// Segments lists the logical segments in order, at least the active one.
	// They follow one another without gap from at or below Start to at or above
	// Stable; what lies wholly below Start is not listed.
	Segments() []Segment
	// Bytes is the size of what lies between Start and End, approximately.
	Bytes() int64
	// Trim moves Start forward (C10). It returns when the move is durable.
	// Past Stable it moves nothing and answers ErrOffsetOutOfRange; at or below
	// Start it moves nothing without an error.
	Trim(ctx context.Context, to Offset) error
	// Recovered is what Open found (C11). The Log forgets it afterwards; call it
	// once, before the first Append.
	Recovered(ctx context.Context) (Recovery, error)
	// Seal asks that whatever was appended is made durable as soon as possible,
	// without waiting for more to batch with it. It does not wait itself.
	Seal()
	// Close gives the log up in order: outstanding appends resolve first, as
	// far as ctx allows. The data stays.
	Close(ctx context.Context) error
}

// Recovery is the memory of a log at Open: a checkpoint made by Checkpointer
// and the batches appended since, oldest first.
type Recovery struct {
	Checkpoint []byte
	// CheckpointEnd: the checkpoint covers every batch below it.
	CheckpointEnd Offset
	Batches       []BatchInfo
}

// Checkpointer is the meaning that a medium needs but does not have: it folds
// batches into the partition's checkpoint (producer state, leader-epoch
// history, aborted transactions). It is pure: same input, same output.
type Checkpointer interface {
	Fold(checkpoint []byte, batches []BatchInfo) ([]byte, error)
}

// Settings are the parts of a topic's configuration that a medium acts on;
// zero means Kafka's default.
type Settings struct {
	SegmentBytes int64         // segment.bytes
	SegmentAge   time.Duration // segment.ms
	IndexBytes   int64         // index.interval.bytes (local logs)
	RetentionAge time.Duration // retention.ms, to pack alike with alike; <0 is unlimited
}

// Options accompany Open.
type Options struct {
	// OnStable is called after Stable moved, before the Commits that it is about
	// resolve, or after the log was lost, from a goroutine of the medium that may
	// hold a lock. It must be quick and must not call the Log.
	OnStable func()
	// Settings is asked whenever it matters, so that it may change live.
	Settings func() Settings
	// Checkpoints folds checkpoints; nil keeps none (every batch is replayed).
	Checkpoints Checkpointer
}

// Store opens logs in one medium.
type Store interface {
	// Open takes ownership of the log at epoch and fences every older owner
	// (C5). A log that does not exist yet is empty. ErrFenced: a newer owner
	// exists; the same epoch again is a re-open by its owner. It returns when
	// the log can serve.
	Open(ctx context.Context, id ID, epoch Epoch, opts Options) (Log, error)
	// Remove deletes a log's data for good. Removing what is not there is no
	// error.
	Remove(ctx context.Context, id ID) error
}
