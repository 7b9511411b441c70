package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

const (
	// maxPartitions bounds one topic; a typing error should not take the
	// cluster down.
	maxPartitions = 100_000
	// defaultReplicas is the replication factor of -1 where so many brokers
	// live.
	defaultReplicas = 3
)

// plan is what an admin operation wants to commit: the commands, for which
// item each of them is, and the items' results as known so far.
type plan struct {
	commands []*metadatapb.Command
	item     []int // of each command
	items    []*controllerpb.ItemResult
	placed   []partitionKey // that are asked to be where the commands say
	elect    []election     // to ask of owners
}

// election is a partition and its preferred leader, which it should move to.
type election struct {
	key partitionKey
	to  metadata.BrokerID
}

func newPlan(items int) *plan {
	p := &plan{items: make([]*controllerpb.ItemResult, items)}
	for i := range p.items {
		p.items[i] = &controllerpb.ItemResult{}
	}
	return p
}

func (p *plan) refuse(i int, e *Error) {
	p.items[i].Code, p.items[i].Message = int32(e.Code), e.Message
}

func (p *plan) add(i int, c *metadatapb.Command) {
	p.commands, p.item = append(p.commands, c), append(p.item, i)
}

// admin executes one operation on many items. It holds the gate from reading
// the image to having applied the commands, so that concurrent operations see
// each other; with validate_only nothing is committed. What is planned is done
// even if ctx ends meanwhile.
func (l *leadership) admin(ctx context.Context, r *controllerpb.AdminRequest) (*controllerpb.AdminResponse, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	img := l.images.image()
	p := l.planAdmin(img, r)
	resp := &controllerpb.AdminResponse{Index: uint64(img.Index()), Items: p.items}
	if r.ValidateOnly || len(p.commands) == 0 {
		return resp, nil
	}
	l.balance.place(p.placed, time.Now())
	for _, e := range p.elect { // owners ask as soon as the command reaches them
		l.moves.elect(e.key, e.to)
	}
	index, results, err := l.propose(p.commands)
	if err != nil {
		return nil, err
	}
	resp.Index = uint64(index)
	for i, res := range results {
		if res.Err != nil {
			p.refuse(p.item[i], refusalOf(res.Err))
		}
	}
	return resp, nil
}

func (l *leadership) planAdmin(img *metadata.Image, r *controllerpb.AdminRequest) *plan {
	switch {
	case len(r.CreateTopics) > 0:
		return planTopics(img, r.CreateTopics)
	case len(r.DeleteTopics) > 0:
		return planDeletes(img, r.DeleteTopics)
	case len(r.CreatePartitions) > 0:
		return planPartitions(img, r.CreatePartitions)
	case len(r.AlterConfigs) > 0:
		return planConfigs(img, r.AlterConfigs)
	case len(r.Reassign) > 0:
		return planReassign(img, r.Reassign)
	case len(r.ElectPreferred) > 0:
		return planElect(img, r.ElectPreferred)
	case len(r.Unregister) > 0:
		return planUnregister(img, r.Unregister, l.quorum.voter.voterIDs())
	case r.BrokerState != nil:
		return planState(img, r.BrokerState)
	}
	return newPlan(0)
}

// refusalOf turns a rejection by the state machine into a refusal.
func refusalOf(e *metadata.Error) *Error {
	code := CodeInternal
	switch e.Code {
	case metadata.ErrTopicExists, metadata.ErrTopicDeleting:
		code = CodeTopicExists
	case metadata.ErrUnknownTopic:
		code = CodeUnknownTopic
	case metadata.ErrUnknownPartition:
		code = CodeUnknownPartition
	case metadata.ErrUnknownBroker:
		code = CodeUnknownBroker
	case metadata.ErrInvalid, metadata.ErrConflict, metadata.ErrTargetFenced, metadata.ErrBrokerInUse:
		code = CodeInvalidRequest
	default:
	}
	return &Error{Code: code, Message: e.Error()}
}

func planTopics(img *metadata.Image, topics []*controllerpb.NewTopic) *plan {
	p := newPlan(len(topics))
	place := newPlacement(img, openToNew)
	for i, t := range topics {
		c, err := planTopic(img, place, t)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.items[i].TopicId = t.TopicId
		if c == nil { // the retry of a call whose reply was lost
			continue
		}
		p.items[i].Partitions = int32(len(c.Partitions))
		p.items[i].ReplicationFactor = int32(len(c.Partitions[0].Replicas))
		p.add(i, &metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: c}})
	}
	return p
}

func planTopic(img *metadata.Image, place *placement, t *controllerpb.NewTopic) (*metadatapb.CreateTopic, *Error) {
	if err := metadata.ValidateTopicName(t.Name); err != nil {
		return nil, refuse(CodeInvalidTopic, "%v", err)
	}
	if len(t.TopicId) != len(metadata.TopicID{}) {
		return nil, refuse(CodeInvalidRequest, "topic %q has an id of %d bytes", t.Name, len(t.TopicId))
	}
	if have, ok := img.Topic(t.Name); ok {
		switch {
		case have.ID == metadata.TopicID(t.TopicId):
			return nil, nil
		case have.Deleting:
			return nil, refuse(CodeTopicExists, "topic %q is being deleted; its name is free when every broker has closed it, try again", t.Name)
		}
		return nil, refuse(CodeTopicExists, "topic %q already exists", t.Name)
	}
	if other, ok := img.Colliding(t.Name); ok {
		return nil, refuse(CodeInvalidTopic, "topic %q collides with existing topic %q: '.' and '_' are the same in metric names", t.Name, other.Name)
	}
	if err := metadata.ValidateTopicConfigs(t.Configs); err != nil {
		return nil, refuse(CodeInvalidConfig, "%v", err)
	}
	if t.Configs["storage.mode"] == "local" {
		return nil, refuse(CodeInvalidConfig, "topic %q asks for storage.mode local: local logs are not replicated yet and would be lost with their broker; leave storage.mode out, or set it to shared", t.Name)
	}
	c := &metadatapb.CreateTopic{Name: t.Name, TopicId: t.TopicId, Configs: t.Configs, Internal: t.Internal}
	var err *Error
	if len(t.Assignments) > 0 {
		c.Partitions, err = assigned(img, place, t)
	} else {
		c.Partitions, err = spread(img, place, t)
	}
	return c, err
}

// spread places the partitions of a topic that left it to the controller.
func spread(img *metadata.Image, place *placement, t *controllerpb.NewTopic) ([]*metadatapb.PartitionSpec, *Error) {
	n := int(t.Partitions)
	if n == -1 {
		n = int(clusterDefault(img, "num.partitions", max(1, int64(t.DefaultPartitions))))
	}
	if n <= 0 {
		return nil, refuse(CodeInvalidPartitions, "number of partitions of topic %q must be larger than 0, or -1 for the default; it is %d", t.Name, t.Partitions)
	}
	if n > maxPartitions {
		return nil, refuse(CodeInvalidPartitions, "topic %q asks for %d partitions, the most is %d", t.Name, n, maxPartitions)
	}
	rf, live := int(t.ReplicationFactor), len(place.seats)
	if rf == -1 {
		rf = min(int(clusterDefault(img, "default.replication.factor", defaultReplicas)), live)
	}
	if rf <= 0 && live > 0 {
		return nil, refuse(CodeInvalidReplicationFactor, "replication factor of topic %q must be larger than 0, or -1 for the default; it is %d", t.Name, t.ReplicationFactor)
	}
	if live == 0 {
		return nil, refuse(CodeInvalidReplicationFactor, "no broker takes the partitions of topic %q: %s", t.Name, closedBrokers(img))
	}
	if rf > live {
		why := closedBrokers(img)
		if why != "" {
			why = ": " + why
		}
		return nil, refuse(CodeInvalidReplicationFactor, "replication factor %d of topic %q is larger than the number of available brokers, %d%s", rf, t.Name, live, why)
	}
	return place.topic(n, rf), nil
}

// clusterDefault is a number from the cluster-wide broker configs. A value set
// there is taken even for the replication factor, cut to what lives.
func clusterDefault(img *metadata.Image, name string, otherwise int64) int64 {
	if s, ok := img.Config(metadata.KindBroker, "", name); ok {
		var n int64
		if _, err := fmt.Sscan(s, &n); err == nil {
			return n
		}
	}
	return otherwise
}

// assigned checks a manual assignment as Kafka does: numbered from 0 without
// gaps, equally many distinct registered brokers each. The first live replica
// owns the partition.
func assigned(img *metadata.Image, place *placement, t *controllerpb.NewTopic) ([]*metadatapb.PartitionSpec, *Error) {
	if t.Partitions != -1 || t.ReplicationFactor != -1 {
		return nil, refuse(CodeInvalidRequest, "topic %q has both an assignment and a partition count or replication factor; these must be -1 then", t.Name)
	}
	if len(t.Assignments) > maxPartitions {
		return nil, refuse(CodeInvalidPartitions, "topic %q asks for %d partitions, the most is %d", t.Name, len(t.Assignments), maxPartitions)
	}
	lists := make([]*controllerpb.ReplicaList, len(t.Assignments))
	for n := range lists {
		list, ok := t.Assignments[int32(n)]
		if !ok {
			return nil, refuse(CodeInvalidAssignment, "assignment of topic %q has no partition %d; they must be numbered from 0 without gaps", t.Name, n)
		}
		lists[n] = list
	}
	return byHand(img, place, t.Name, lists, 0)
}

func byHand(img *metadata.Image, place *placement, topic string, lists []*controllerpb.ReplicaList, rf int) ([]*metadatapb.PartitionSpec, *Error) {
	specs := make([]*metadatapb.PartitionSpec, len(lists))
	for n, list := range lists {
		ids, err := replicaList(img, topic, list.GetBrokers())
		if err != nil {
			return nil, err
		}
		if rf == 0 {
			rf = len(ids)
		}
		if len(ids) != rf {
			return nil, refuse(CodeInvalidAssignment, "assignment of topic %q has partitions of %d and of %d replicas", topic, rf, len(ids))
		}
		owner, ok := liveOf(img, ids)
		if !ok {
			return nil, refuse(CodeInvalidAssignment, "all brokers in the assignment %v of topic %q are offline", list.GetBrokers(), topic)
		}
		place.take(owner.Broker)
		specs[n] = &metadatapb.PartitionSpec{Replicas: list.GetBrokers(), Owner: owner.Proto()}
	}
	return specs, nil
}

func replicaList(img *metadata.Image, topic string, list []int32) ([]metadata.BrokerID, *Error) {
	if len(list) == 0 {
		return nil, refuse(CodeInvalidAssignment, "assignment of topic %q has an empty replica list", topic)
	}
	ids := make([]metadata.BrokerID, 0, len(list))
	for _, b := range list {
		id := metadata.BrokerID(b)
		if slices.Contains(ids, id) {
			return nil, refuse(CodeInvalidAssignment, "assignment %v of topic %q names broker %d twice", list, topic, b)
		}
		if _, ok := img.Broker(id); !ok {
			return nil, refuse(CodeInvalidAssignment, "assignment %v of topic %q names broker %d, which is not registered", list, topic, b)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func planDeletes(img *metadata.Image, ids [][]byte) *plan {
	p := newPlan(len(ids))
	for i, b := range ids {
		p.items[i].TopicId = b
		var t metadata.Topic
		ok := len(b) == len(metadata.TopicID{})
		if ok {
			t, ok = img.TopicByID(metadata.TopicID(b))
		}
		if !ok {
			p.refuse(i, refuse(CodeUnknownTopic, "no topic has this id"))
			continue
		}
		if t.Deleting { // by this very call, whose first reply was lost, or by another
			continue
		}
		p.add(i, &metadatapb.Command{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: b}}})
	}
	return p
}

func planPartitions(img *metadata.Image, topics []*controllerpb.NewPartitions) *plan {
	p := newPlan(len(topics))
	place := newPlacement(img, openToNew)
	for i, t := range topics {
		c, err := planGrowth(img, place, t)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.items[i].Partitions = t.Count
		p.add(i, &metadatapb.Command{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: c}})
	}
	return p
}

func planGrowth(img *metadata.Image, place *placement, t *controllerpb.NewPartitions) (*metadatapb.CreatePartitions, *Error) {
	topic, ok := img.Topic(t.Topic)
	if !ok || topic.Deleting {
		return nil, refuse(CodeUnknownTopic, "topic %q does not exist", t.Topic)
	}
	more := int(t.Count) - int(topic.Partitions)
	switch {
	case more == 0:
		return nil, refuse(CodeInvalidPartitions, "topic %q already has %d partition(s)", t.Topic, t.Count)
	case more < 0:
		return nil, refuse(CodeInvalidPartitions, "topic %q currently has %d partition(s); %d would not be an increase", t.Topic, topic.Partitions, t.Count)
	case int(t.Count) > maxPartitions:
		return nil, refuse(CodeInvalidPartitions, "topic %q would have %d partitions, the most is %d", t.Topic, t.Count, maxPartitions)
	}
	c := &metadatapb.CreatePartitions{TopicId: topic.ID[:], From: topic.Partitions}
	have := slices.Collect(img.Partitions(topic.ID))
	rf := defaultReplicas
	if len(have) > 0 {
		rf = len(wantedReplicas(have[0]))
	}
	var err *Error
	switch {
	case len(t.Assignments) > 0 && len(t.Assignments) != more:
		err = refuse(CodeInvalidAssignment, "topic %q grows by %d partition(s), but %d assignment(s) were given", t.Topic, more, len(t.Assignments))
	case len(t.Assignments) > 0:
		c.Partitions, err = byHand(img, place, t.Topic, t.Assignments, rf)
	case len(place.seats) == 0:
		err = refuse(CodeInvalidReplicationFactor, "no broker takes new partitions of topic %q: %s", t.Topic, closedBrokers(img))
	default:
		// Fewer replicas than before rather than no partition, when brokers are
		// down: nothing is lost on a shared log.
		place.restart(have)
		c.Partitions = place.grow(more, min(rf, len(place.seats)))
	}
	return c, err
}

func planReassign(img *metadata.Image, changes []*controllerpb.PartitionChange) *plan {
	p := newPlan(len(changes))
	for i, c := range changes {
		part, err := partitionOf(img, c)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		k := partitionKey{part.Topic, part.Number}
		var want []metadata.BrokerID
		if len(c.Replicas) == 0 { // cancel: back to what it was
			if len(part.Adding)+len(part.Removing) == 0 {
				p.refuse(i, refuse(CodeNoReassignment, "no reassignment of %s is in progress", &part))
				continue
			}
			want = without(part.Replicas, part.Adding)
		} else if want, err = replicaList(img, part.TopicName, c.Replicas); err != nil {
			p.refuse(i, err)
			continue
		}
		before := without(part.Replicas, part.Adding)
		adding, removing := without(want, before), without(before, want)
		p.placed = append(p.placed, k)
		if slices.Contains(want, part.Owner.Broker) {
			p.add(i, assignCommand(k, want, nil, nil)) // nothing to wait for
			continue
		}
		p.add(i, assignCommand(k, append(slices.Clone(want), removing...), adding, removing))
	}
	return p
}

func planElect(img *metadata.Image, changes []*controllerpb.PartitionChange) *plan {
	p := newPlan(len(changes))
	for i, c := range changes {
		part, err := partitionOf(img, c)
		switch {
		case err != nil:
			p.refuse(i, err)
		case len(part.Replicas) == 0 || part.Owner.Broker == part.Replicas[0]:
			p.refuse(i, refuse(CodeElectionNotNeeded, "%s is led by its preferred leader", &part))
		default:
			if b, ok := img.Broker(part.Replicas[0]); !ok || b.Fenced {
				p.refuse(i, refuse(CodePreferredUnavailable, "broker %d, the preferred leader of %s, is offline", part.Replicas[0], &part))
				continue
			}
			// A command without effect, at which brokers ask for moves (wished).
			p.add(i, &metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
			e := election{partitionKey{part.Topic, part.Number}, part.Replicas[0]}
			p.placed, p.elect = append(p.placed, e.key), append(p.elect, e)
		}
	}
	return p
}

func partitionOf(img *metadata.Image, c *controllerpb.PartitionChange) (metadata.Partition, *Error) {
	if len(c.TopicId) != len(metadata.TopicID{}) {
		return metadata.Partition{}, refuse(CodeUnknownTopic, "no topic has this id")
	}
	p, ok := img.Partition(metadata.TopicID(c.TopicId), c.Partition)
	if !ok || p.Deleting {
		return p, refuse(CodeUnknownPartition, "no such partition: %d", c.Partition)
	}
	return p, nil
}

func without(ids, remove []metadata.BrokerID) []metadata.BrokerID {
	var out []metadata.BrokerID
	for _, id := range ids {
		if !slices.Contains(remove, id) {
			out = append(out, id)
		}
	}
	return out
}

// internalTopics are created by coordinators; package broker marks them.
var internalTopics = map[string]bool{
	"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true,
}

// IsInternal says whether a topic name is one of Kafka's internal topics.
func IsInternal(name string) bool { return strings.HasPrefix(name, "__") && internalTopics[name] }
