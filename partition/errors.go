package partition

import (
	"errors"
	"fmt"

	"ponor/partition/record"
)

// Errors that a caller branches on; they arrive wrapped, with what and where.
// The log's own errors (commitlog.ErrCorrupt, ErrBackpressure, ErrUnavailable,
// ErrFenced, ErrOffsetOutOfRange) come through as they are. Behind each stands
// the Kafka error that a client gets.
var (
	// ErrNotLeader: this node does not serve the partition (any more), or cannot
	// prove that it does. NOT_LEADER_OR_FOLLOWER.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrOpening: this node is the leader to be but the log is not open yet. It
	// always comes together with ErrNotLeader, for it is as retriable.
	ErrOpening = errors.New("partition is still opening")
	// ErrMoving: the partition is being handed to another node. Wait a moment
	// (Partition.AwaitMove) and look again. It comes together with ErrNotLeader.
	ErrMoving = errors.New("partition is moving")
	// ErrUnknown: the image has no such partition. UNKNOWN_TOPIC_OR_PARTITION.
	ErrUnknown = errors.New("unknown topic or partition")
	// ErrStaleEpoch: the caller's leader epoch is older. FENCED_LEADER_EPOCH.
	ErrStaleEpoch = errors.New("leader epoch is older than the partition's")
	// ErrUnknownEpoch: the caller's leader epoch is newer. UNKNOWN_LEADER_EPOCH.
	ErrUnknownEpoch = errors.New("leader epoch is newer than the partition's")

	// ErrInvalidRecord: the batch or a record breaks a rule; comes as a
	// *RecordError. INVALID_RECORD.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp: a timestamp is out of bounds; comes as a
	// *RecordError. INVALID_TIMESTAMP.
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrMessageTooLarge: the batch exceeds max.message.bytes (a producer splits
	// it on this) or unpacks to too much. MESSAGE_TOO_LARGE.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrRecordListTooLarge: the batch exceeds segment.bytes. RECORD_LIST_TOO_LARGE.
	ErrRecordListTooLarge = errors.New("record list larger than a segment")
	// ErrUnsupportedCompression: a codec that does not exist, or that the
	// request's version may not use. UNSUPPORTED_COMPRESSION_TYPE.
	ErrUnsupportedCompression = errors.New("unsupported compression type")

	// ErrOutOfOrderSequence: a gap in the sequence. OUT_OF_ORDER_SEQUENCE_NUMBER.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrDuplicateSequence: appended once, but longer ago than the last five
	// batches, so that its offset is not known. DUPLICATE_SEQUENCE_NUMBER.
	ErrDuplicateSequence = errors.New("duplicate sequence number")
	// ErrInvalidProducerEpoch: a newer epoch of the producer has written.
	// INVALID_PRODUCER_EPOCH.
	ErrInvalidProducerEpoch = errors.New("producer epoch is older than the current one")
	// ErrInvalidTxnState: a plain batch in the middle of a transaction of the
	// same producer. INVALID_TXN_STATE.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced: a marker of an older coordinator.
	// TRANSACTION_COORDINATOR_FENCED.
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced")

	// ErrPolicyViolation: DeleteRecords on a topic that is only compacted.
	// POLICY_VIOLATION.
	ErrPolicyViolation = errors.New("policy violation")
	// ErrUnsupportedTimestamp: ListOffsets with a negative timestamp that means
	// nothing. UNSUPPORTED_VERSION.
	ErrUnsupportedTimestamp = errors.New("unsupported special timestamp")
)

// MaxRecordErrors bounds the list in a RecordError; a batch of a million bad
// records is not worth a response of a hundred megabytes.
const MaxRecordErrors = 10_000

// RecordError says what a batch was refused for (KIP-467). Records lists every
// bad record, up to MaxRecordErrors; it is empty when the batch as a whole is
// at fault.
type RecordError struct {
	// Kind is ErrInvalidRecord or ErrInvalidTimestamp, which errors.Is finds.
	Kind    error
	Message string
	Records []BadRecord
}

// BadRecord is one refused record.
type BadRecord struct {
	// Index is the record's place in its batch, from 0.
	Index   int32
	Message string
}

// Error implements error.
func (e *RecordError) Error() string {
	if len(e.Records) == 0 {
		return fmt.Sprintf("%v: %s", e.Kind, e.Message)
	}
	first := e.Records[0]
	return fmt.Sprintf("%v: %s, the first is record %d: %s", e.Kind, e.Message, first.Index, first.Message)
}

// Unwrap returns the kind.
func (e *RecordError) Unwrap() error { return e.Kind }

// refused is the RecordError of a batch that is at fault as a whole.
func refused(format string, args ...any) error {
	return &RecordError{Kind: ErrInvalidRecord, Message: fmt.Sprintf(format, args...)}
}

// What a record can be refused for beyond its layout.
const (
	flawOffset     record.Flaw = "offsets inside a batch must count up from 0"
	flawKey        record.Flaw = "a compacted topic needs a key in every record"
	flawTimestamp  record.Flaw = "the timestamp is out of the bounds of message.timestamp.before.max.ms and message.timestamp.after.max.ms"
	flawNegative   record.Flaw = "the timestamp is negative"
	flawAppendTime record.Flaw = "a producer must not send records with timestamp type LogAppendTime"
)
