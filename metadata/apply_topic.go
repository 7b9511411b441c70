package metadata

import (
	"math"
	"slices"
	"strconv"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata/metadatapb"
)

// maxReplicas bounds a replica list.
const maxReplicas = 128

// createTopic makes a topic, its partitions at epoch 0 and their streams.
func (e *edit) createTopic(c *metadatapb.CreateTopic) (Result, *Error) {
	if err := ValidateTopicName(c.GetName()); err != nil {
		return Result{}, reject(ErrInvalid, "%s", err)
	}
	if len(c.GetTopicId()) != len(TopicID{}) || TopicID(c.GetTopicId()).IsZero() {
		return Result{}, reject(ErrInvalid, "topic %q needs a topic id of 16 bytes that are not all zero", c.GetName())
	}
	// del-1: the name is in this table until every owner has stopped.
	if other, ok := e.Colliding(c.GetName()); ok {
		switch {
		case other.Deleting:
			return Result{}, reject(ErrTopicDeleting, "%q; try again soon", other.Name)
		case other.Name == c.GetName():
			return Result{}, reject(ErrTopicExists, "%q", other.Name)
		default:
			return Result{}, reject(ErrTopicExists, "%q collides with %q: '.' and '_' are the same in metric names", c.GetName(), other.Name)
		}
	}
	t := topic{name: c.GetName(), id: TopicID(c.GetTopicId()), internal: c.GetInternal()}
	if other, ok := e.TopicByID(t.id); ok {
		return Result{}, reject(ErrTopicExists, "id %s is that of %q", t.id, other.Name)
	}
	if len(c.GetPartitions()) == 0 {
		return Result{}, reject(ErrInvalid, "topic %q needs a partition", t.name)
	}
	if err := e.addPartitions(&t, c.GetPartitions()); err != nil {
		return Result{}, err
	}
	e.putTopic(&t)
	own(e, &e.names).Set(collisionKey(t.name), t.id)
	values := make([]configValue, 0, len(c.GetConfigs()))
	for name, value := range c.GetConfigs() {
		if err := checkConfig(name, value); err != nil {
			return Result{}, err
		}
		values = append(values, configValue{name, value})
	}
	if len(values) > 0 {
		if !plant.On(plant.MapOrder) {
			sortConfigs(values) // map order must not show
		}
		e.setConfigs(configKey{KindTopic, t.name}, values)
	}
	return Result{TopicID: t.id}, nil
}

// addPartitions checks partitions and gives them streams. The topic is a copy
// that the caller stores.
func (e *edit) addPartitions(t *topic, specs []*metadatapb.PartitionSpec) *Error {
	if len(t.streams)+len(specs) > math.MaxInt32 {
		return reject(ErrExhausted, "partitions of %q", t.name)
	}
	if e.nextStream > math.MaxUint64-commitlog.StreamID(len(specs)) {
		return reject(ErrExhausted, "streams")
	}
	t.streams = slices.Grow(slices.Clone(t.streams), len(specs))
	for _, spec := range specs {
		number := int32(len(t.streams))
		owner := IncarnationFrom(spec.GetOwner())
		if !e.Live(owner) { // cmd-3
			return reject(ErrTargetFenced, "%s shall own %s-%d; place it anew", owner, t.name, number)
		}
		replicas, err := e.replicas(spec.GetReplicas())
		if err != nil {
			return err
		}
		if !slices.Contains(replicas, owner.Broker) {
			return reject(ErrInvalid, "owner %s of %s-%d is not among its replicas", owner, t.name, number)
		}
		p := &Partition{
			Topic: t.id, TopicName: t.name, Number: number,
			Replicas: replicas, Owner: owner, Stream: e.nextStream,
		}
		p.opened()
		e.nextStream++ // never reused
		t.streams = append(t.streams, p.Stream)
		e.put(nil, p)
	}
	return nil
}

// replicas checks a replica list: registered brokers, each once.
func (e *edit) replicas(ids []int32) ([]BrokerID, *Error) {
	if len(ids) == 0 || len(ids) > maxReplicas {
		return nil, reject(ErrInvalid, "%d replicas; between 1 and %d are possible", len(ids), maxReplicas)
	}
	list, err := distinctBrokers(ids)
	if err != nil {
		return nil, err
	}
	for _, id := range list {
		if _, ok := e.brokers.Get(id); !ok {
			return nil, reject(ErrUnknownBroker, "%d in a replica list", id)
		}
	}
	return list, nil
}

func distinctBrokers(ids []int32) ([]BrokerID, *Error) {
	if len(ids) > maxReplicas {
		return nil, reject(ErrInvalid, "a list of %d brokers, the most is %d", len(ids), maxReplicas)
	}
	var list []BrokerID
	for _, id := range ids {
		if id < 0 || slices.Contains(list, BrokerID(id)) {
			return nil, reject(ErrInvalid, "broker %d in a replica list is negative or there twice", id)
		}
		list = append(list, BrokerID(id))
	}
	return list, nil
}

// topicFor finds a topic that a command may still change.
func (e *edit) topicFor(id []byte) (*topic, *Error) {
	t, ok := e.topics.Get(string(id))
	switch {
	case !ok:
		return nil, reject(ErrUnknownTopic, "no topic has id %x", id)
	case t.deleting:
		return nil, reject(ErrTopicDeleting, "%q", t.name)
	default:
		return t, nil
	}
}

// createPartitions adds partitions to a topic. The count that the proposer saw
// must still be true, so that two of them do not add twice.
func (e *edit) createPartitions(c *metadatapb.CreatePartitions) (Result, *Error) {
	t, err := e.topicFor(c.GetTopicId())
	if err != nil {
		return Result{}, err
	}
	if int(c.GetFrom()) != len(t.streams) {
		return Result{}, reject(ErrConflict, "%q has %d partitions, not %d", t.name, len(t.streams), c.GetFrom())
	}
	if len(c.GetPartitions()) == 0 {
		return Result{}, reject(ErrInvalid, "no partitions to add to %q", t.name)
	}
	next := *t
	if err := e.addPartitions(&next, c.GetPartitions()); err != nil {
		return Result{}, err
	}
	e.putTopic(&next)
	return Result{TopicID: next.id}, nil
}

// deleteTopic is the first phase of a deletion (del-1): clients do not see the
// topic any more, but the name stays taken until no owner can append to it.
func (e *edit) deleteTopic(c *metadatapb.DeleteTopic) (Result, *Error) {
	t, err := e.topicFor(c.GetTopicId())
	if err != nil {
		return Result{}, err
	}
	next := *t
	next.deleting = true
	e.putTopic(&next)
	for _, s := range t.streams {
		p, _ := e.partition(s)
		dying := *p
		dying.Deleting = true
		dying.gone = !e.Live(p.Owner)
		e.put(p, &dying)
	}
	return Result{TopicID: t.id}, nil
}

// topicsGone notes that the submitter has closed its partitions of these
// deleted topics for good (del-1). Topics that are not there any more, or not
// being deleted, are skipped.
func (e *edit) topicsGone(c *metadatapb.TopicsGone) (Result, *Error) {
	if e.from.IsZero() {
		return Result{}, reject(ErrInvalid, "TopicsGone needs an incarnation to speak for")
	}
	var r Result
	for _, id := range c.GetTopicIds() {
		t, ok := e.topics.Get(string(id))
		if !ok || !t.deleting {
			r.Skipped++
			continue
		}
		for _, s := range t.streams {
			p, _ := e.partition(s)
			if p.Owner == e.from && !p.gone {
				next := *p
				next.gone = true
				e.put(p, &next)
			}
		}
	}
	return r, nil
}

// stopped says that nobody can append to a partition of a deleted topic any
// more: its owner said so or is dead, and no WAL is left in which an append of
// a dead owner could still become durable (del-1, slot-3).
func (p *Partition) stopped() bool { return p.gone && p.Openable() }

// bury is the second phase of deletions (del-1): topics of which nothing can be
// appended to any more disappear with their streams, configs and references.
func (e *edit) bury() {
	for _, id := range e.dying {
		t, ok := e.topics.Get(string(id[:]))
		if !ok || !t.deleting || !e.allStopped(t) {
			continue
		}
		for _, s := range t.streams {
			p, _ := e.partition(s)
			e.put(p, nil)
		}
		own(e, &e.topics).Delete(string(id[:]))
		e.topicsMark = new(Mark)
		own(e, &e.names).Delete(collisionKey(t.name))
		if key := (configKey{KindTopic, t.name}); e.hasConfigs(key) {
			e.setConfigs(key, nil)
		}
	}
}

func (e *edit) allStopped(t *topic) bool {
	for _, s := range t.streams {
		if p, _ := e.partition(s); !p.stopped() {
			return false
		}
	}
	return true
}

// assignReplicas stores a replica list verbatim. It moves nothing: owners flip
// their partitions themselves.
func (e *edit) assignReplicas(c *metadatapb.AssignReplicas) (Result, *Error) {
	t, err := e.topicFor(c.GetTopicId())
	if err != nil {
		return Result{}, err
	}
	s, ok := e.stream(c.GetTopicId(), c.GetPartition())
	if !ok {
		return Result{}, reject(ErrUnknownPartition, "%s-%d", t.name, c.GetPartition())
	}
	p, _ := e.partition(s)
	next := *p
	if next.Replicas, err = e.replicas(c.GetReplicas()); err != nil {
		return Result{}, err
	}
	if next.Adding, err = distinctBrokers(c.GetAdding()); err != nil {
		return Result{}, err
	}
	if next.Removing, err = distinctBrokers(c.GetRemoving()); err != nil {
		return Result{}, err
	}
	for _, id := range next.Adding {
		if !slices.Contains(next.Replicas, id) || slices.Contains(next.Removing, id) {
			return Result{}, reject(ErrInvalid, "broker %d is added to %s, but not in its replicas or also removed", id, p)
		}
	}
	e.put(p, &next)
	return Result{TopicID: t.id}, nil
}

// Bounds on configs. What a value means is not Apply's business, see the
// package comment.
const (
	maxConfigName  = 255
	maxConfigValue = 32 << 10
	maxOverrides   = 1000 // of one resource
)

func checkConfig(name, value string) *Error {
	if name == "" || len(name) > maxConfigName || len(value) > maxConfigValue {
		return reject(ErrInvalid, "config %.64q: name of 1 to %d bytes, value of at most %d", name, maxConfigName, maxConfigValue)
	}
	return nil
}

// alterConfigs changes the overrides of one resource, op by op.
func (e *edit) alterConfigs(c *metadatapb.AlterConfigs) (Result, *Error) {
	key, err := e.configured(c.GetKind(), c.GetName())
	if err != nil {
		return Result{}, err
	}
	values := make(map[string]string)
	if !c.GetReplaceAll() {
		values = e.Configs(key.kind, key.name)
	}
	for _, op := range c.GetOps() {
		if err := checkConfig(op.GetName(), op.GetValue()); err != nil {
			return Result{}, err
		}
		if op.GetRemove() {
			delete(values, op.GetName())
		} else {
			values[op.GetName()] = op.GetValue()
		}
	}
	if len(values) > maxOverrides {
		return Result{}, reject(ErrInvalid, "%d overrides, the most is %d", len(values), maxOverrides)
	}
	list := make([]configValue, 0, len(values))
	for name, value := range values {
		list = append(list, configValue{name, value})
	}
	sortConfigs(list)
	e.setConfigs(key, list)
	return Result{}, nil
}

// configured checks that a resource can have configs.
func (e *edit) configured(kind int32, name string) (configKey, *Error) {
	if kind < 0 || kind > math.MaxInt8 {
		return configKey{}, reject(ErrInvalid, "resource kind %d cannot be configured", kind)
	}
	key := configKey{ConfigKind(kind), name}
	switch key.kind {
	case KindTopic:
		t, ok := e.topicByName(name)
		if !ok {
			return key, reject(ErrUnknownTopic, "%q", name)
		}
		_, err := e.topicFor(t.id[:])
		return key, err
	case KindBroker:
		if n, err := strconv.ParseInt(name, 10, 32); name != "" && (err != nil || n < 0 || strconv.Itoa(int(n)) != name) {
			return key, reject(ErrInvalid, "%q is no broker id", name)
		}
		return key, nil
	case KindClientMetrics, KindGroup:
		if name == "" || len(name) > maxConfigName {
			return key, reject(ErrInvalid, "resource name has to have 1 to %d bytes", maxConfigName)
		}
		return key, nil
	default:
		return key, reject(ErrInvalid, "resource kind %d cannot be configured", kind)
	}
}
