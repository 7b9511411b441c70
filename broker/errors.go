package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/commitlog"
	"ponor/controller"
	"ponor/coordinator"
	"ponor/metadata"
	"ponor/partition"
)

// apiError is an error with a Kafka code of its own and a message for the one
// who sent the request: what happened, where, what to do next.
type apiError struct {
	code    *kerr.Error
	message string
}

// Error is the message, or the code's own description.
func (e *apiError) Error() string {
	if e.message == "" {
		return e.code.Error()
	}
	return e.message
}

// fail makes an apiError.
func fail(code *kerr.Error, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...)}
}

// codes maps the errors of the packages below to Kafka codes: the first that
// matches counts. It is the only such table.
var codes = []struct {
	err  error
	code *kerr.Error
}{
	// First, for they come with the reasons below.
	{coordinator.ErrNotCoordinator, kerr.NotCoordinator},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrUnavailable, kerr.CoordinatorNotAvailable},
	{coordinator.ErrTooLarge, kerr.MessageTooLarge},

	// What is not (or no longer) led from here has an owner elsewhere: the client
	// asks Metadata and retries there.
	{partition.ErrNotLeader, kerr.NotLeaderForPartition},
	{partition.ErrUnknown, kerr.UnknownTopicOrPartition},
	{partition.ErrStaleEpoch, kerr.FencedLeaderEpoch},
	{partition.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{partition.ErrInvalidRecord, kerr.InvalidRecord},
	{partition.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{partition.ErrMessageTooLarge, kerr.MessageTooLarge},
	{partition.ErrRecordListTooLarge, kerr.RecordListTooLarge},
	{partition.ErrUnsupportedCompression, kerr.UnsupportedCompressionType},
	{partition.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{partition.ErrDuplicateSequence, kerr.DuplicateSequenceNumber},
	{partition.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{partition.ErrInvalidTxnState, kerr.InvalidTxnState},
	{partition.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{partition.ErrPolicyViolation, kerr.PolicyViolation},
	{partition.ErrUnsupportedTimestamp, kerr.UnsupportedVersion},

	{commitlog.ErrFenced, kerr.NotLeaderForPartition},
	{commitlog.ErrClosed, kerr.NotLeaderForPartition},
	{commitlog.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{commitlog.ErrCorrupt, kerr.CorruptMessage},
	{commitlog.ErrUnavailable, kerr.KafkaStorageError},
	// Nothing was appended and waiting helps; among Kafka's retriable codes
	// this is the one that makes no client look for another leader.
	{commitlog.ErrBackpressure, kerr.NotEnoughReplicas},

	{metadata.ErrTopicExists, kerr.TopicAlreadyExists},
	{metadata.ErrTopicDeleting, kerr.TopicAlreadyExists},
	{metadata.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{metadata.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{metadata.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{metadata.ErrNotOwner, kerr.NotLeaderForPartition},
	{metadata.ErrStaleEpoch, kerr.NotLeaderForPartition},
	{metadata.ErrFencedIncarnation, kerr.NotLeaderForPartition},
	{metadata.ErrInvalid, kerr.InvalidRequest},

	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.NetworkException},
}

// refusals maps the controller's refusals of single items.
var refusals = map[controller.ErrorCode]*kerr.Error{
	controller.CodeTopicExists:              kerr.TopicAlreadyExists,
	controller.CodeInvalidTopic:             kerr.InvalidTopicException,
	controller.CodeUnknownTopic:             kerr.UnknownTopicOrPartition,
	controller.CodeInvalidPartitions:        kerr.InvalidPartitions,
	controller.CodeInvalidReplicationFactor: kerr.InvalidReplicationFactor,
	controller.CodeInvalidAssignment:        kerr.InvalidReplicaAssignment,
	controller.CodeInvalidConfig:            kerr.InvalidConfig,
	controller.CodeInvalidRequest:           kerr.InvalidRequest,
	controller.CodeUnknownPartition:         kerr.UnknownTopicOrPartition,
	controller.CodePreferredUnavailable:     kerr.PreferredLeaderNotAvailable,
	controller.CodeElectionNotNeeded:        kerr.ElectionNotNeeded,
	controller.CodeNoReassignment:           kerr.NoReassignmentInProgress,
	controller.CodeUnknownBroker:            kerr.BrokerIDNotRegistered,
	controller.CodeNotSupported:             kerr.InvalidRequest,
	controller.CodeVoterNotFound:            kerr.VoterNotFound,
}

// codeOf finds the Kafka code of an error; nil is 0. What no row names is
// UNKNOWN_SERVER_ERROR.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	var own *apiError
	if errors.As(err, &own) {
		return own.code.Code
	}
	var refused *controller.Error
	if errors.As(err, &refused) {
		if code, ok := refusals[refused.Code]; ok {
			return code.Code
		}
		return kerr.UnknownServerError.Code
	}
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Code
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return row.code.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// codeAndMessage is codeOf and the error's text; nil has neither.
func codeAndMessage(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	text := err.Error()
	return codeOf(err), &text
}

// unknownOutcome is for a change that may or may not have been made: retriable,
// and with the reason.
func unknownOutcome(err error) error {
	if err == nil || codeOf(err) != kerr.UnknownServerError.Code {
		return err
	}
	return fail(kerr.RequestTimedOut, "the controller did not answer, the change may or may not have been made; look, then retry: %v", err)
}
