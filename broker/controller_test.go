package broker_test

import (
	"context"
	"crypto/rand"
	"fmt"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func (c *cluster) refuseAll(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adminErr = err
}

func (c *cluster) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adminErr
}

// CreateTopics and what follows are broker.Admin, as simple as can be: the
// controller has its own tests.
func (c *cluster) CreateTopics(_ context.Context, topics []controller.TopicSpec, validateOnly bool) ([]controller.TopicResult, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]controller.TopicResult, len(topics))
	for i, spec := range topics {
		if have, ok := c.Image().Colliding(spec.Name); ok {
			code := controller.CodeTopicExists
			if have.Name != spec.Name {
				code = controller.CodeInvalidTopic
			}
			out[i].Err = &controller.Error{Code: code, Message: fmt.Sprintf("topic %q is in the way", have.Name)}
			continue
		}
		create := &metadatapb.CreateTopic{Name: spec.Name, TopicId: make([]byte, 16), Configs: spec.Configs, Internal: spec.Internal}
		_, _ = rand.Read(create.TopicId)
		n, rf := max(spec.Partitions, 1), max(spec.ReplicationFactor, 1)
		if len(spec.Assignments) > 0 {
			n, rf = int32(len(spec.Assignments)), int16(len(spec.Assignments[0]))
		}
		for p := range n {
			ps := &metadatapb.PartitionSpec{Owner: c.self.Proto(), Replicas: []int32{1, 2, 3}[:rf]}
			if ids := spec.Assignments[p]; ids != nil {
				ps.Replicas = nil
				for _, id := range ids {
					ps.Replicas = append(ps.Replicas, int32(id))
				}
			}
			create.Partitions = append(create.Partitions, ps)
		}
		if !validateOnly {
			r := c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: create}})
			if r.Err != nil {
				out[i].Err = rejected(r)
				continue
			}
		}
		out[i] = controller.TopicResult{ID: metadata.TopicID(create.TopicId), Partitions: n, ReplicationFactor: rf}
	}
	return out, nil
}

func (c *cluster) DeleteTopics(_ context.Context, ids []metadata.TopicID) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(ids))
	for i, id := range ids {
		t, _ := c.Image().TopicByID(id)
		if out[i] = rejected(c.apply(deleteTopic(id))); out[i] == nil {
			c.mu.Lock()
			c.deleted = append(c.deleted, t.Name)
			c.mu.Unlock()
		}
	}
	return out, nil
}

func (c *cluster) CreatePartitions(_ context.Context, topics []controller.PartitionsSpec, validateOnly bool) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(topics))
	for i, spec := range topics {
		t, _ := c.Image().Topic(spec.Topic)
		create := &metadatapb.CreatePartitions{TopicId: t.ID[:], From: t.Partitions}
		for range spec.Count - t.Partitions {
			create.Partitions = append(create.Partitions, &metadatapb.PartitionSpec{Owner: c.self.Proto(), Replicas: []int32{1}})
		}
		if !validateOnly {
			out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: create}}))
		}
	}
	return out, nil
}

func (c *cluster) AlterConfigs(_ context.Context, resources []controller.ConfigResource, validateOnly bool) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(resources))
	for i, r := range resources {
		alter := &metadatapb.AlterConfigs{Kind: int32(r.Kind), Name: r.Name, ReplaceAll: r.ReplaceAll}
		for _, ch := range r.Changes {
			value := ch.Value
			if ch.Op == controller.ConfigAppend {
				old, _ := c.Image().Config(r.Kind, r.Name, ch.Name)
				value = old + "," + value
			}
			if err := metadata.ValidateTopicConfig(ch.Name, value); err != nil && r.Kind == metadata.KindTopic && ch.Op != controller.ConfigDelete {
				out[i] = &controller.Error{Code: controller.CodeInvalidConfig, Message: err.Error()}
			}
			if err := c.Image().ValidateGroupConfig(ch.Name, value); err != nil && r.Kind == metadata.KindGroup && ch.Op != controller.ConfigDelete {
				out[i] = &controller.Error{Code: controller.CodeInvalidConfig, Message: err.Error()}
			}
			alter.Ops = append(alter.Ops, &metadatapb.ConfigOp{Name: ch.Name, Value: value, Remove: ch.Op == controller.ConfigDelete})
		}
		if out[i] == nil && !validateOnly {
			out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: alter}}))
		}
	}
	return out, nil
}

// rejected is the controller's word for a rejection by the state machine.
func rejected(r metadata.Result) *controller.Error {
	if r.Err == nil {
		return nil
	}
	return &controller.Error{Code: controller.CodeInvalidRequest, Message: r.Err.Error()}
}

func (c *cluster) UnregisterBroker(_ context.Context, id metadata.BrokerID) error {
	if err := c.refusal(); err != nil {
		return err
	}
	r := c.apply(&metadatapb.Command{Body: &metadatapb.Command_UnregisterBroker{UnregisterBroker: &metadatapb.UnregisterBroker{Broker: int32(id)}}})
	if r.Err != nil && r.Err.Code == metadata.ErrUnknownBroker {
		return &controller.Error{Code: controller.CodeUnknownBroker, Message: r.Err.Error()}
	}
	if r.Err != nil {
		return rejected(r)
	}
	return nil
}

func (c *cluster) AllocateProducerID(context.Context) (int64, error) {
	if err := c.refusal(); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids++
	return c.ids, nil
}

// Reassign takes every list at once and moves no leader.
func (c *cluster) Reassign(_ context.Context, changes []controller.PartitionChange) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(changes))
	for i, ch := range changes {
		p, _ := c.Image().Partition(ch.Topic, ch.Partition)
		assign := &metadatapb.AssignReplicas{TopicId: ch.Topic[:], Partition: ch.Partition}
		list := ch.Replicas
		switch {
		case len(list) == 0 && len(p.Adding)+len(p.Removing) == 0:
			out[i] = &controller.Error{Code: controller.CodeNoReassignment, Message: "none is under way"}
			continue
		case len(list) == 0:
			list = []metadata.BrokerID{p.Owner.Broker}
		case list[0] != p.Owner.Broker: // goes on until somebody moves it
			assign.Adding = []int32{int32(list[0])}
			list = append(list, p.Owner.Broker)
			assign.Removing = []int32{int32(p.Owner.Broker)}
		}
		for _, id := range list {
			assign.Replicas = append(assign.Replicas, int32(id))
		}
		out[i] = rejected(c.apply(&metadatapb.Command{Body: &metadatapb.Command_AssignReplicas{AssignReplicas: assign}}))
	}
	return out, nil
}

// ElectPreferred remembers what it was asked for; the test moves leaders.
func (c *cluster) ElectPreferred(_ context.Context, changes []controller.PartitionChange) ([]*controller.Error, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	out := make([]*controller.Error, len(changes))
	for i, ch := range changes {
		p, _ := c.Image().Partition(ch.Topic, ch.Partition)
		target, ok := c.Image().Broker(p.Replicas[0])
		if !ok || target.Fenced {
			out[i] = &controller.Error{Code: controller.CodePreferredUnavailable, Message: "it is offline"}
			continue
		}
		c.mu.Lock()
		stuck := c.stuck
		c.mu.Unlock()
		if !stuck {
			c.move(ch.Topic, ch.Partition, target.ID)
		}
	}
	return out, nil
}
