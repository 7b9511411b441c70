package broker

import (
	"context"
	"time"

	"ponor/controller"
	"ponor/metadata"
)

// Admin are the changes of the cluster that clients ask for; *controller.Node is
// one. The quorum's leader carries them out, wherever it is, and a call returns
// when this node's image has the change. An error means that the outcome is
// unknown or that nobody could be asked; what the leader refused is in each
// item's own result. Results are one per item, in order.
type Admin interface {
	CreateTopics(ctx context.Context, topics []controller.TopicSpec, validateOnly bool) ([]controller.TopicResult, error)
	DeleteTopics(ctx context.Context, ids []metadata.TopicID) ([]*controller.Error, error)
	CreatePartitions(ctx context.Context, topics []controller.PartitionsSpec, validateOnly bool) ([]*controller.Error, error)
	AlterConfigs(ctx context.Context, resources []controller.ConfigResource, validateOnly bool) ([]*controller.Error, error)
	// Reassign changes replica lists; an empty list cancels a change under way.
	Reassign(ctx context.Context, changes []controller.PartitionChange) ([]*controller.Error, error)
	// ElectPreferred has partitions moved to their preferred leaders; it does not
	// wait for the moves.
	ElectPreferred(ctx context.Context, changes []controller.PartitionChange) ([]*controller.Error, error)
	// DescribeQuorum asks the quorum's leader who votes; AddVoter and RemoveVoter
	// change that, one step after another, and are idempotent.
	DescribeQuorum(ctx context.Context) (controller.QuorumInfo, error)
	AddVoter(ctx context.Context, id metadata.BrokerID, dir controller.DirectoryID) error
	RemoveVoter(ctx context.Context, id metadata.BrokerID, dir controller.DirectoryID) error
	// UnregisterBroker forgets a broker that is down, owns nothing and has no vote.
	UnregisterBroker(ctx context.Context, id metadata.BrokerID) error
	// AllocateProducerID returns an id that no producer ever had.
	AllocateProducerID(ctx context.Context) (int64, error)
}

var _ Admin = (*controller.Node)(nil)

// refused is a refusal as an error; a nil one is no error.
func refused(e *controller.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// adminTimeout bounds a change by the client's timeout. Zero or less means not
// to wait in Kafka; a change here is done or not within milliseconds, so it gets
// a second then.
func adminTimeout(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(time.Duration(millis)*time.Millisecond, time.Second))
}

// requestTimeout bounds changes whose request has no timeout of its own, in ms;
// below the 30 s after which clients give up by default.
const requestTimeout = 20_000
