package metadata

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"ponor/metadata/metadatapb"
)

// Code says why a command was rejected. It is an error, so a caller branches
// with errors.Is(err, metadata.ErrTopicExists). Numbers cross the wire and are
// never reused.
type Code uint32

// Why commands are rejected. ErrNonceConflict is a refusal
// that needs more than the image, so it is the controller's; it is numbered here
// because it travels in the same Result.
const (
	ErrInvalid            Code = 1  // the command makes no sense on any image
	ErrNotInitialized     Code = 2  // the cluster has no id yet
	ErrAlreadyInitialized Code = 3  // it has one
	ErrUnknownIncarnation Code = 4  // no such incarnation was ever registered
	ErrFencedIncarnation  Code = 5  // the submitter has ended (cmd-3)
	ErrStaleCommand       Code = 6  // cmd_seq at or below the last (cmd-1)
	ErrTopicExists        Code = 7  // the name or one too like it is taken
	ErrTopicDeleting      Code = 8  // it is being deleted (del-1); try again soon
	ErrUnknownTopic       Code = 9  // no topic of that name or id
	ErrUnknownPartition   Code = 10 // the topic has no such partition
	ErrUnknownStream      Code = 11 // no such stream, or no longer
	ErrUnknownBroker      Code = 12 // no such broker is registered
	ErrBrokerInUse        Code = 13 // it lives, or partitions still name it
	ErrNotOwner           Code = 14 // the submitter does not own the stream
	ErrStaleEpoch         Code = 15 // it does, but at another epoch
	ErrNotOpen            Code = 16 // an older WAL is not sealed yet (slot-4)
	ErrOutOfOrder         Code = 17 // extents do not start at the committed end (ext-1)
	ErrBelowTrim          Code = 18 // a slot below the WAL's trim (ext-4, cmd-4)
	ErrNotFenced          Code = 19 // only a fenced WAL can be sealed (cmd-4)
	ErrAlreadySealed      Code = 20 // the first Sealed won (cmd-4)
	ErrForeignObject      Code = 21 // not its creator's reference (obj-2)
	ErrConflict           Code = 22 // what was to be replaced is not there any more
	ErrTargetFenced       Code = 23 // an assignment to an incarnation that ended (cmd-3)
	ErrStaleGeneration    Code = 24 // not above the current generation
	ErrExhausted          Code = 25 // a counter has no room left
	ErrUnsupported        Code = 26 // a command or version of a later release
	ErrOffsetOutOfRange   Code = 27 // past the committed end
	ErrOtherStore         Code = 29 // the cluster's logs are in another store
	ErrNonceConflict      Code = 28 // another process heartbeats under the id (cmd-6); controller
)

// codeText is what Error says for each code.
var codeText = map[Code]string{
	ErrInvalid:            "invalid command",
	ErrNotInitialized:     "cluster is not initialized",
	ErrAlreadyInitialized: "cluster is already initialized",
	ErrUnknownIncarnation: "unknown incarnation",
	ErrFencedIncarnation:  "incarnation is fenced",
	ErrStaleCommand:       "command is older than one applied",
	ErrTopicExists:        "topic exists",
	ErrTopicDeleting:      "topic is being deleted",
	ErrUnknownTopic:       "unknown topic",
	ErrUnknownPartition:   "unknown partition",
	ErrUnknownStream:      "unknown stream",
	ErrUnknownBroker:      "unknown broker",
	ErrBrokerInUse:        "broker is in use",
	ErrNotOwner:           "not the owner of the stream",
	ErrStaleEpoch:         "stale stream epoch",
	ErrNotOpen:            "stream waits for an older WAL to be sealed",
	ErrOutOfOrder:         "extents are out of order",
	ErrBelowTrim:          "below the trim of the WAL",
	ErrNotFenced:          "incarnation is not fenced",
	ErrAlreadySealed:      "WAL is already sealed",
	ErrForeignObject:      "object may not be referenced",
	ErrConflict:           "extents have changed",
	ErrTargetFenced:       "target is not alive",
	ErrStaleGeneration:    "stale generation",
	ErrExhausted:          "id space is exhausted",
	ErrUnsupported:        "unsupported command",
	ErrOffsetOutOfRange:   "offset is past the committed end",
	ErrNonceConflict:      "broker id is in use by another process",
	ErrOtherStore:         "the cluster keeps its logs in another store",
}

// Error is the code in words.
func (c Code) Error() string {
	if s, ok := codeText[c]; ok {
		return s
	}
	return fmt.Sprintf("metadata error %d", uint32(c))
}

// Error is a rejection: what, where, what next. errors.Is finds its Code.
type Error struct {
	Code    Code
	Message string
	// Alarm: this cannot come of a race between honest nodes. It is evidence
	// of a bug or of damage and should be logged as an error.
	Alarm bool
}

// Error is the code and the details.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Error() + ": " + e.Message
}

// Unwrap makes errors.Is(err, ErrTopicExists) work.
func (e *Error) Unwrap() error { return e.Code }

func reject(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// alarm is a rejection that only a bug or damage can cause.
func alarm(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...), Alarm: true}
}

// Result is what one command came to. Fields that its kind does not name are
// zero.
type Result struct {
	// Err is nil if the command was accepted. Use Rejected to get an error.
	Err *Error
	// Incarnation is RegisterBroker's.
	Incarnation Incarnation
	// First is the first id of AllocateIDs' block.
	First uint64
	// TopicID is CreateTopic's, DeleteTopic's and CreatePartitions'.
	TopicID TopicID
	// Skipped counts entries that no longer applied and were left out:
	// CommitExtents and TrimStreams of streams that moved on, assignments of
	// Fence to partitions with a living owner or to dead brokers.
	Skipped int
}

// Rejected is Err as an error, nil if there is none.
func (r Result) Rejected() error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}

// Proto is the wire form.
func (r Result) Proto() *metadatapb.Result {
	pb := &metadatapb.Result{Incarnation: r.Incarnation.Proto(), First: r.First, Skipped: uint32(r.Skipped)}
	if !r.TopicID.IsZero() {
		pb.TopicId = r.TopicID[:]
	}
	if r.Err != nil {
		pb.Code, pb.Message, pb.Alarm = uint32(r.Err.Code), r.Err.Message, r.Err.Alarm
	}
	return pb
}

// ResultFrom reads the wire form.
func ResultFrom(pb *metadatapb.Result) Result {
	r := Result{
		Incarnation: IncarnationFrom(pb.GetIncarnation()),
		First:       pb.GetFirst(),
		Skipped:     int(pb.GetSkipped()),
	}
	copy(r.TopicID[:], pb.GetTopicId())
	if pb.GetCode() != 0 {
		r.Err = &Error{Code: Code(pb.GetCode()), Message: pb.GetMessage(), Alarm: pb.GetAlarm()}
	}
	return r
}

// Marshal encodes a Result for the wire.
func (r Result) Marshal() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(r.Proto())
}

// UnmarshalResult is the reverse of Marshal.
func UnmarshalResult(b []byte) (Result, error) {
	var pb metadatapb.Result
	if err := proto.Unmarshal(b, &pb); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return ResultFrom(&pb), nil
}
