package workload

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/jepsen/history"
)

// definite are the errors with which a broker says that it did nothing. What is
// not here, and all that is no broker's answer, has an unknown effect: among
// them NOT_LEADER_OR_FOLLOWER, which may follow an append (KAFKA-13574),
// NOT_ENOUGH_REPLICAS_AFTER_APPEND, COORDINATOR_* and UNKNOWN_SERVER_ERROR.
var definite = []error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.InvalidTopicException, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidPartitions,
	kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage, kerr.InvalidTimestamp,
	kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.UnsupportedVersion,
	kerr.NotController, kerr.NotEnoughReplicas, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping,
	kerr.InvalidTxnState, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID,
	kerr.TopicAlreadyExists, kerr.InvalidRequest, kerr.InvalidConfig, kerr.PolicyViolation, kerr.InvalidReplicationFactor,
	kerr.OffsetOutOfRange, kerr.FencedLeaderEpoch, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID,
	kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.RebalanceInProgress, kerr.OffsetMetadataTooLarge, kerr.NonEmptyGroup,
	kerr.GroupIDNotFound,
}

// outcome classifies an error. Repeated says that the request may have been
// sent more than once: then no answer is definite, because it is the answer to
// the last attempt only.
func outcome(err error, repeated bool) history.Outcome {
	if err == nil {
		return history.OK
	}
	if errors.Is(err, errUnsent) {
		return history.Fail
	}
	if repeated {
		return history.Info
	}
	for _, d := range definite {
		if errors.Is(err, d) {
			return history.Fail
		}
	}
	return history.Info
}

// retires says that a process cannot go on after an outcome.
func retires(t history.Outcome, err error) bool {
	return t == history.Info || errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID)
}
