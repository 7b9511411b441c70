package controller

import (
	"errors"
	"fmt"
)

// Errors a caller branches on. They arrive wrapped, with what and where.
var (
	// ErrNotSubmitted: the command never left this process and never will.
	ErrNotSubmitted = errors.New("command was not submitted")
	// ErrUnknownOutcome: the command may have been applied, or may yet be.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrNotRegistered: this process has no incarnation, or it was fenced.
	ErrNotRegistered = errors.New("broker is not registered")
	// ErrClosed: the Node is closed.
	ErrClosed = errors.New("controller node is closed")
	// ErrWentBack: the cluster's metadata is older than what this process has
	// seen (K1). Run returns it; an operator must find out which is right.
	ErrWentBack = errors.New("cluster metadata went back")
	// ErrWrongCluster: the data directory or this process belongs to another
	// cluster.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrSuperseded: another process registered under this node id (cmd-6). Run
	// returns it and the process must exit.
	ErrSuperseded = errors.New("superseded by another process with the same node id")
	// ErrForeign: what was asked does not know the call; it may be no Ponor node.
	ErrForeign = errors.New("the call is not known there")
	// ErrDiverged: two sources disagree on one entry of the log. Run returns it.
	ErrDiverged = errors.New("metadata diverged")
)

// ErrorCode says why an admin operation refused one item.
type ErrorCode int32

// The codes of Error. Package broker maps them to Kafka's.
const (
	CodeNone ErrorCode = iota
	CodeTopicExists
	CodeInvalidTopic
	CodeUnknownTopic
	CodeInvalidPartitions
	CodeInvalidReplicationFactor
	CodeInvalidAssignment
	CodeInvalidConfig
	CodeInvalidRequest
	CodeUnknownPartition
	CodePreferredUnavailable
	CodeElectionNotNeeded
	CodeNoReassignment
	CodeUnknownBroker
	CodeNotSupported
	CodeVoterNotFound
	CodeInternal
)

// Error is the refusal of one item of an admin operation.
type Error struct {
	Code    ErrorCode
	Message string
}

// Error is the message: what, where, what next.
func (e *Error) Error() string { return e.Message }

func refuse(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
