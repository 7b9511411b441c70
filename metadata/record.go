package metadata

import (
	"encoding/binary"
	"unsafe"

	"ponor/commitlog"
)

// record is a Partition as the image keeps it, by its stream. Every node has one
// of every partition of the cluster, so it holds little itself: what many
// partitions have alike they share, and what few have is behind rare. It is
// replaced, never changed.
type record struct {
	topic      *topicName
	replicas   *[]BrokerID
	history    *[]EpochStart
	rare       *rare // nil: none
	extents    []Extent
	start, end commitlog.Offset
	owner      Incarnation
	epoch      commitlog.Epoch
	number     int32
	deleting   bool
	gone       bool
}

// topicName is what a topic's partitions are called by.
type topicName struct {
	id   TopicID
	name string
}

// rare is what a partition has only while something happens to it.
type rare struct {
	adding, removing []BrokerID
	unsealed         []Incarnation
}

// partition is the partition whose log s is.
func (r *record) partition(s commitlog.StreamID) Partition {
	p := Partition{
		Topic: r.topic.id, TopicName: r.topic.name, Number: r.number, Deleting: r.deleting, gone: r.gone,
		Replicas: *r.replicas, Owner: r.owner, Epoch: r.epoch, Stream: s,
		Start: r.start, End: r.end, Extents: r.extents, History: *r.history,
	}
	if r.rare != nil {
		p.Adding, p.Removing, p.Unsealed = r.rare.adding, r.rare.removing, r.rare.unsealed
	}
	return p
}

// partition is the partition whose log s is, as Apply works with it.
func (img *Image) partition(s commitlog.StreamID) (*Partition, bool) {
	r, ok := img.streams.Get(s)
	if !ok {
		return nil, false
	}
	p := r.partition(s)
	return &p, true
}

// alike finds what records that one edit makes can share. It is only looked up,
// never iterated.
type alike struct {
	topics    map[TopicID]*topicName
	replicas  map[string]*[]BrokerID
	histories map[string]*[]EpochStart
}

// record makes the record of a partition; old is the one before, or nil.
func (a *alike) record(p *Partition, old *record) *record {
	r := &record{
		number: p.Number, deleting: p.Deleting, gone: p.gone, owner: p.Owner, epoch: p.Epoch,
		start: p.Start, end: p.End, extents: p.Extents,
	}
	if old != nil {
		r.topic, r.rare = old.topic, old.rare
		if same(*old.replicas, p.Replicas) {
			r.replicas = old.replicas
		}
		if same(*old.history, p.History) {
			r.history = old.history
		}
	}
	if r.topic == nil || r.topic.id != p.Topic || r.topic.name != p.TopicName {
		r.topic = a.topic(p)
	}
	if r.replicas == nil {
		r.replicas = a.replicaList(p.Replicas)
	}
	if r.history == nil {
		r.history = a.historyList(p.History)
	}
	switch x := r.rare; {
	case len(p.Adding)+len(p.Removing)+len(p.Unsealed) == 0:
		r.rare = nil
	case x == nil || !same(x.adding, p.Adding) || !same(x.removing, p.Removing) || !same(x.unsealed, p.Unsealed):
		r.rare = &rare{p.Adding, p.Removing, p.Unsealed}
	}
	return r
}

// same says whether two slices are the same memory.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || unsafe.SliceData(a) == unsafe.SliceData(b))
}

func (a *alike) topic(p *Partition) *topicName {
	t := a.topics[p.Topic]
	if t == nil || t.name != p.TopicName {
		t = &topicName{p.Topic, p.TopicName}
		put(&a.topics, p.Topic, t)
	}
	return t
}

func (a *alike) replicaList(list []BrokerID) *[]BrokerID {
	var key []byte
	for _, id := range list {
		key = binary.AppendVarint(key, int64(id))
	}
	found := a.replicas[string(key)]
	if found == nil {
		found = &list
		put(&a.replicas, string(key), found)
	}
	return found
}

// historyList shares the histories of partitions that were never written to:
// those of others are all different.
func (a *alike) historyList(list []EpochStart) *[]EpochStart {
	var key []byte
	for _, h := range list {
		if h.Start != 0 {
			return &list
		}
		key = binary.AppendVarint(key, int64(h.Epoch))
	}
	found := a.histories[string(key)]
	if found == nil {
		found = &list
		put(&a.histories, string(key), found)
	}
	return found
}

// put sets an entry of a map that may not have been made.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
