package coordinator

import "errors"

// Errors that a caller branches on; they arrive wrapped.
var (
	// ErrNotCoordinator: this node does not coordinate the key, does not any
	// more, or cannot prove it. NOT_COORDINATOR.
	ErrNotCoordinator = errors.New("not the coordinator")
	// ErrLoading: this node is the coordinator to be and still reads the log.
	// COORDINATOR_LOAD_IN_PROGRESS.
	ErrLoading = errors.New("coordinator is loading")
	// ErrUnavailable: the topic does not exist yet, or the store takes no writes.
	// COORDINATOR_NOT_AVAILABLE.
	ErrUnavailable = errors.New("coordinator is not available")
	// ErrTooLarge: one of the records that the call would have written is larger
	// than the log takes; nothing of it happened.
	ErrTooLarge = errors.New("record is too large")
)
