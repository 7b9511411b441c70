package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"ponor/controller/controllerpb"
	"ponor/metadata"
)

// TopicSpec asks for a topic.
type TopicSpec struct {
	Name string
	// Partitions is -1 for the default (num.partitions).
	Partitions int32
	// ReplicationFactor is -1 for the default: 3, or the number of live brokers
	// if that is less.
	ReplicationFactor int16
	// Assignments gives the replicas of each partition, the preferred leader
	// first; the two numbers must be -1 then.
	Assignments map[int32][]metadata.BrokerID
	Configs     map[string]string
	Internal    bool
}

// TopicResult is what became of one topic. Err is nil on success.
type TopicResult struct {
	ID                metadata.TopicID
	Partitions        int32
	ReplicationFactor int16
	Err               *Error
}

// PartitionsSpec asks for more partitions of a topic: Count in all afterwards.
type PartitionsSpec struct {
	Topic string
	Count int32
	// Assignments are the replicas of each new partition; empty lets the
	// controller choose.
	Assignments [][]metadata.BrokerID
}

// ConfigOpKind is what a ConfigChange does, numbered as in KIP-339.
type ConfigOpKind int8

// The kinds of config changes.
const (
	ConfigSet ConfigOpKind = iota
	ConfigDelete
	ConfigAppend
	ConfigSubtract
)

// ConfigChange is one change of one config.
type ConfigChange struct {
	Name, Value string
	Op          ConfigOpKind
}

// ConfigResource is a topic or broker whose configs change together or not at
// all. ReplaceAll puts every override that is not named back to its default
// (AlterConfigs, as opposed to IncrementalAlterConfigs).
type ConfigResource struct {
	Kind       metadata.ConfigKind
	Name       string
	Changes    []ConfigChange
	ReplaceAll bool
}

// PartitionChange names a partition, and for a reassignment its new replica
// list; an empty list cancels one.
type PartitionChange struct {
	Topic     metadata.TopicID
	Partition int32
	Replicas  []metadata.BrokerID
}

// CreateTopics creates topics, each on its own; the results are in the order
// of the specs. validateOnly checks and places without creating. Topic ids are
// drawn here, so a call repeated after a lost reply recognises its own topics.
// An error says that no leader answered: topics may then exist or not.
func (n *Node) CreateTopics(ctx context.Context, specs []TopicSpec, validateOnly bool) ([]TopicResult, error) {
	q := &controllerpb.AdminRequest{ValidateOnly: validateOnly}
	for _, s := range specs {
		id, err := newTopicID()
		if err != nil {
			return nil, err
		}
		t := &controllerpb.NewTopic{
			Name: s.Name, TopicId: id[:], Partitions: s.Partitions, ReplicationFactor: int32(s.ReplicationFactor),
			Configs: s.Configs, Internal: s.Internal || IsInternal(s.Name), DefaultPartitions: n.cfg.DefaultPartitions,
			Assignments: map[int32]*controllerpb.ReplicaList{},
		}
		for p, ids := range s.Assignments {
			t.Assignments[p] = &controllerpb.ReplicaList{Brokers: ints(ids)}
		}
		q.CreateTopics = append(q.CreateTopics, t)
	}
	items, err := n.admin(ctx, q, len(specs))
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}
	out := make([]TopicResult, len(items))
	for i, it := range items {
		out[i] = TopicResult{Partitions: it.GetPartitions(), ReplicationFactor: int16(it.GetReplicationFactor()), Err: itemError(it)}
		if out[i].Err == nil {
			out[i].ID = metadata.TopicID(q.CreateTopics[i].TopicId)
		}
	}
	return out, nil
}

func newTopicID() (id metadata.TopicID, err error) {
	for err == nil && (id[0] == 0 || id.String()[0] == '-') {
		// Kafka avoids ids that begin with a dash, for the sake of command lines;
		// the zero byte keeps clear of its reserved ids.
		if _, err = rand.Read(id[:]); err != nil {
			return id, fmt.Errorf("draw topic id: %w", err)
		}
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a version 4 UUID
	}
	return id, err
}

// DeleteTopics begins the deletion of topics (del-1). The results are in the
// order of the ids, nil for success.
func (n *Node) DeleteTopics(ctx context.Context, ids []metadata.TopicID) ([]*Error, error) {
	q := &controllerpb.AdminRequest{}
	for i := range ids {
		q.DeleteTopics = append(q.DeleteTopics, ids[i][:])
	}
	return n.adminErrors(ctx, "delete topics", q, len(ids))
}

// CreatePartitions adds partitions to topics, results in order.
func (n *Node) CreatePartitions(ctx context.Context, specs []PartitionsSpec, validateOnly bool) ([]*Error, error) {
	q := &controllerpb.AdminRequest{ValidateOnly: validateOnly}
	for _, s := range specs {
		t := &controllerpb.NewPartitions{Topic: s.Topic, Count: s.Count}
		for _, ids := range s.Assignments {
			t.Assignments = append(t.Assignments, &controllerpb.ReplicaList{Brokers: ints(ids)})
		}
		q.CreatePartitions = append(q.CreatePartitions, t)
	}
	return n.adminErrors(ctx, "create partitions", q, len(specs))
}

// AlterConfigs changes config overrides, results in order.
func (n *Node) AlterConfigs(ctx context.Context, resources []ConfigResource, validateOnly bool) ([]*Error, error) {
	q := &controllerpb.AdminRequest{ValidateOnly: validateOnly}
	for _, r := range resources {
		pb := &controllerpb.ConfigResource{Kind: int32(r.Kind), Name: r.Name, ReplaceAll: r.ReplaceAll}
		for _, c := range r.Changes {
			pb.Changes = append(pb.Changes, &controllerpb.ConfigChange{
				Name: c.Name, Value: c.Value, Op: controllerpb.ConfigChange_Op(c.Op),
			})
		}
		q.AlterConfigs = append(q.AlterConfigs, pb)
	}
	return n.adminErrors(ctx, "alter configs", q, len(resources))
}

// Reassign changes replica lists (AlterPartitionReassignments), results in
// order. Where the owner is not in the new list, it is asked to move the
// partition (see Move), and the list is completed when it has.
func (n *Node) Reassign(ctx context.Context, changes []PartitionChange) ([]*Error, error) {
	return n.adminErrors(ctx, "reassign partitions", &controllerpb.AdminRequest{Reassign: changesPB(changes)}, len(changes))
}

// ElectPreferred asks the owners of partitions to move them to their preferred
// leaders (ElectLeaders), results in order. It returns before the moves.
func (n *Node) ElectPreferred(ctx context.Context, changes []PartitionChange) ([]*Error, error) {
	return n.adminErrors(ctx, "elect leaders", &controllerpb.AdminRequest{ElectPreferred: changesPB(changes)}, len(changes))
}

// UnregisterBroker forgets a broker that is gone for good: one that is down, owns
// nothing and has no vote. Where it was a replica, another broker is instead.
// Refusals are *Error.
func (n *Node) UnregisterBroker(ctx context.Context, id metadata.BrokerID) error {
	errs, err := n.adminErrors(ctx, "unregister broker", &controllerpb.AdminRequest{Unregister: []int32{int32(id)}}, 1)
	if err == nil && errs[0] != nil {
		return errs[0]
	}
	return err
}

func changesPB(changes []PartitionChange) []*controllerpb.PartitionChange {
	out := make([]*controllerpb.PartitionChange, len(changes))
	for i := range changes {
		c := &changes[i]
		out[i] = &controllerpb.PartitionChange{TopicId: c.Topic[:], Partition: c.Partition, Replicas: ints(c.Replicas)}
	}
	return out
}

func (n *Node) adminErrors(ctx context.Context, what string, q *controllerpb.AdminRequest, want int) ([]*Error, error) {
	items, err := n.admin(ctx, q, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	out := make([]*Error, len(items))
	for i, it := range items {
		out[i] = itemError(it)
	}
	return out, nil
}

// admin runs an operation at the leader and waits until its effect is here.
// All of them may be repeated: creations are recognised by their ids, the rest
// says what shall be rather than what to change.
func (n *Node) admin(ctx context.Context, q *controllerpb.AdminRequest, want int) ([]*controllerpb.ItemResult, error) {
	if want == 0 {
		return nil, nil
	}
	q.ClusterId = n.clusterID()
	resp := new(controllerpb.AdminResponse)
	if err := n.client.call(ctx, laneAdmin, keyAdmin, q, resp); err != nil {
		return nil, err
	}
	switch c := resp.Outcome.GetCode(); {
	case c == controllerpb.Code_OK && len(resp.Items) == 0:
		return nil, errors.New("the controller that leads cannot do this: its build is older than that of the node that was asked; upgrade all controllers, then try again")
	case c != controllerpb.Code_OK || len(resp.Items) != want:
		return nil, fmt.Errorf("the leader answers %v with %d of %d results: %s", c, len(resp.Items), want, resp.Outcome.GetMessage())
	}
	return resp.Items, n.Wait(ctx, metadata.Index(resp.Index))
}

func itemError(it *controllerpb.ItemResult) *Error {
	if it.GetCode() == 0 {
		return nil
	}
	return &Error{Code: ErrorCode(it.GetCode()), Message: it.GetMessage()}
}
