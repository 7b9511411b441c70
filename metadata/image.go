package metadata

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"ponor/commitlog"
)

// Index is the Raft index up to which an image has applied; with the
// generation it is the image's version.
type Index uint64

// streamSet is a set of streams, shared between images like every table. It is
// a type of its own because a btree.Map copies values that can copy themselves,
// all of a node with every write to one.
type streamSet struct {
	btree.Map[commitlog.StreamID, struct{}]
}

// topic is the record of a topic. It is replaced, never changed.
type topic struct {
	name               string
	id                 TopicID
	internal, deleting bool
	streams            []commitlog.StreamID // by partition number
}

// configKey names a configured resource, ordered by kind and then name.
type configKey struct {
	kind ConfigKind
	name string
}

// Image is the cluster's metadata at one Index. It is immutable: Apply returns
// the next one, which shares what did not change. All methods are safe from
// any goroutine and cost O(log n) unless they say otherwise. Slices in what
// they return are shared: do not change them.
//
// Every table is a copy-on-write B-tree whose values are records that are
// replaced, never changed. Tables that can be derived from others (indexes)
// are marked so; Check proves that they agree.
type Image struct {
	// copying serialises the taking of copies of tables: a copy stamps its
	// source as shared, a write that only other takers of copies see.
	copying *sync.Mutex

	index      Index
	clusterID  string
	generation uint64
	storeURL   string
	storeID    string

	nextBrokerEpoch uint64
	nextStream      commitlog.StreamID
	nextProducerID  uint64
	nextObject      uint64

	brokers  *btree.Map[BrokerID, *Broker]
	wals     *btree.Map[uint64, *WAL]                // by epoch
	topics   *btree.Map[string, *topic]              // by the bytes of the id
	streams  *btree.Map[commitlog.StreamID, *record] // every partition has one
	configs  *btree.Map[string, *overrides]          // by configKey.encode
	features *btree.Map[string, int32]               // by name
	names    *btree.Map[string, TopicID]             // index: collisionKey(name) -> id
	owned    *btree.Map[uint64, *streamSet]          // index: owner's epoch -> streams
	waiting  *btree.Map[uint64, *streamSet]          // index: unsealed WAL's epoch -> streams
	refs     *btree.Map[string, int]                 // index: object -> extents that name it
	settings *settingsCache                          // of this configs table

	topicsMark, placesMark, configsMark *Mark
}

// Mark stands for a part of an image. Two images with the same Mark agree in that
// part; those with others may agree as well. A nil Mark is one, too.
type Mark struct{ _ byte }

// TopicsMark is of the topics: names, ids, how many partitions, which are deleted.
func (img *Image) TopicsMark() *Mark { return img.topicsMark }

// PlacesMark is of the zones of brokers, and of who has replicas of what.
func (img *Image) PlacesMark() *Mark { return img.placesMark }

// Configured lists the names of the resources of a kind that have overrides.
func (img *Image) Configured(kind ConfigKind) iter.Seq[string] {
	return func(yield func(string) bool) {
		img.configs.Ascend(configKey{kind, ""}.encode(), func(_ string, o *overrides) bool {
			return o.key.kind == kind && yield(o.key.name)
		})
	}
}

// ConfigsMark is of all config overrides.
func (img *Image) ConfigsMark() *Mark { return img.configsMark }

// Empty is the image before the first command. It is at index 0.
func Empty() *Image {
	return &Image{
		copying:         new(sync.Mutex),
		nextBrokerEpoch: 1,
		nextStream:      1,
		brokers:         new(btree.Map[BrokerID, *Broker]),
		wals:            new(btree.Map[uint64, *WAL]),
		topics:          new(btree.Map[string, *topic]),
		streams:         new(btree.Map[commitlog.StreamID, *record]),
		configs:         new(btree.Map[string, *overrides]),
		features:        new(btree.Map[string, int32]),
		names:           new(btree.Map[string, TopicID]),
		owned:           new(btree.Map[uint64, *streamSet]),
		waiting:         new(btree.Map[uint64, *streamSet]),
		refs:            new(btree.Map[string, int]),
		settings:        new(settingsCache),
	}
}

// Index is the Raft index up to which the image has applied.
func (img *Image) Index() Index { return img.index }

// ClusterID is empty until InitCluster was applied.
func (img *Image) ClusterID() string { return img.clusterID }

// Generation is the part of the store that the cluster writes to, from 1.
func (img *Image) Generation() uint64 { return img.generation }

// StoreURL is the shared store named when the cluster was made, informative.
func (img *Image) StoreURL() string { return img.storeURL }

// StoreID is the id of the store that the cluster's logs are in, empty before
// the first node claimed one.
func (img *Image) StoreID() string { return img.storeID }

// Newer says whether img is a later version than o.
func (img *Image) Newer(o *Image) bool {
	return cmp.Or(cmp.Compare(img.generation, o.generation), cmp.Compare(img.index, o.index)) > 0
}

// Broker is the registration of a broker id.
func (img *Image) Broker(id BrokerID) (Broker, bool) {
	b, ok := img.brokers.Get(id)
	if !ok {
		return Broker{}, false
	}
	return img.brokerView(b), true
}

// brokerView is a broker as readers get it, Fenced taken from its WAL.
func (img *Image) brokerView(b *Broker) Broker {
	v := *b
	v.Fenced = !img.Live(b.Incarnation)
	return v
}

// Brokers lists the registered brokers by id, fenced ones too.
func (img *Image) Brokers() iter.Seq[Broker] {
	return func(yield func(Broker) bool) {
		img.brokers.Scan(func(_ BrokerID, b *Broker) bool { return yield(img.brokerView(b)) })
	}
}

// Live says whether an incarnation exists and was not fenced.
func (img *Image) Live(inc Incarnation) bool {
	w, ok := img.wals.Get(inc.Epoch)
	return ok && w.Incarnation == inc && w.State == Active
}

// WAL is the record of an incarnation, which outlives it.
func (img *Image) WAL(inc Incarnation) (WAL, bool) {
	w, ok := img.wals.Get(inc.Epoch)
	if !ok || w.Incarnation != inc {
		return WAL{}, false
	}
	return *w, true
}

// WALs lists all incarnations there ever were, in the order of registration.
func (img *Image) WALs() iter.Seq[WAL] {
	return func(yield func(WAL) bool) {
		img.wals.Scan(func(_ uint64, w *WAL) bool { return yield(*w) })
	}
}

func (t *topic) public() Topic {
	return Topic{Name: t.name, ID: t.id, Partitions: int32(len(t.streams)), Internal: t.internal, Deleting: t.deleting}
}

// topicByName finds a topic by its exact name.
func (img *Image) topicByName(name string) (*topic, bool) {
	id, ok := img.names.Get(collisionKey(name))
	if !ok {
		return nil, false
	}
	t, ok := img.topics.Get(string(id[:]))
	if !ok || t.name != name {
		return nil, false
	}
	return t, true
}

// Topic finds a topic by name; it may be Deleting.
func (img *Image) Topic(name string) (Topic, bool) {
	t, ok := img.topicByName(name)
	if !ok {
		return Topic{}, false
	}
	return t.public(), true
}

// Colliding finds the topic that keeps a name from being taken: the one of
// that name or one that differs only in '.' and '_'.
func (img *Image) Colliding(name string) (Topic, bool) {
	id, ok := img.names.Get(collisionKey(name))
	if !ok {
		return Topic{}, false
	}
	return img.TopicByID(id)
}

// TopicByID finds a topic by id; it may be Deleting.
func (img *Image) TopicByID(id TopicID) (Topic, bool) {
	t, ok := img.topics.Get(string(id[:]))
	if !ok {
		return Topic{}, false
	}
	return t.public(), true
}

// Topics lists all topics, Deleting ones too, by name ('.' and '_' order alike).
func (img *Image) Topics() iter.Seq[Topic] {
	return func(yield func(Topic) bool) {
		img.names.Scan(func(_ string, id TopicID) bool {
			t, ok := img.topics.Get(string(id[:]))
			return !ok || yield(t.public())
		})
	}
}

// TopicCount is the number of topics, Deleting ones too.
func (img *Image) TopicCount() int { return img.topics.Len() }

// PartitionCount is the number of partitions, Deleting ones too.
func (img *Image) PartitionCount() int { return img.streams.Len() }

// view is a partition as readers get it: the owner is always in Replicas.
func view(r *record, s commitlog.StreamID) Partition {
	v := r.partition(s)
	if !slices.Contains(v.Replicas, v.Owner.Broker) {
		v.Replicas = append(slices.Clip(v.Replicas), v.Owner.Broker)
	}
	return v
}

// Partition finds a partition of a topic by number.
func (img *Image) Partition(id TopicID, number int32) (Partition, bool) {
	t, ok := img.topics.Get(string(id[:]))
	if !ok || number < 0 || int(number) >= len(t.streams) {
		return Partition{}, false
	}
	return img.PartitionByStream(t.streams[number])
}

// Partitions lists the partitions of a topic by number.
func (img *Image) Partitions(id TopicID) iter.Seq[Partition] {
	return func(yield func(Partition) bool) {
		t, ok := img.topics.Get(string(id[:]))
		if !ok {
			return
		}
		for _, s := range t.streams {
			if r, ok := img.streams.Get(s); ok && !yield(view(r, s)) {
				return
			}
		}
	}
}

// PartitionByStream finds the partition whose log a stream is.
func (img *Image) PartitionByStream(s commitlog.StreamID) (Partition, bool) {
	r, ok := img.streams.Get(s)
	if !ok {
		return Partition{}, false
	}
	return view(r, s), true
}

// listed yields the partitions of a set of an index, by stream.
func (img *Image) listed(index *btree.Map[uint64, *streamSet], epoch uint64) iter.Seq[Partition] {
	return func(yield func(Partition) bool) {
		set, ok := index.Get(epoch)
		if !ok {
			return
		}
		set.Scan(func(s commitlog.StreamID, _ struct{}) bool {
			r, ok := img.streams.Get(s)
			return !ok || yield(view(r, s))
		})
	}
}

// Owned lists the partitions that an incarnation owns, by stream. It costs
// O(owned), as the following do.
func (img *Image) Owned(inc Incarnation) iter.Seq[Partition] {
	return img.listed(img.owned, inc.Epoch)
}

// OwnedCount is the number of partitions that an incarnation owns.
func (img *Image) OwnedCount(inc Incarnation) int {
	if set, ok := img.owned.Get(inc.Epoch); ok {
		return set.Len()
	}
	return 0
}

// Waiting lists the partitions that a WAL keeps from being opened until it is
// sealed: those whose records beyond the committed end it may hold.
func (img *Image) Waiting(wal Incarnation) iter.Seq[Partition] {
	return img.listed(img.waiting, wal.Epoch)
}

// SameOwned says, in O(1), that between two images nothing changed in what an
// incarnation owns, at which epochs, openable or not, deleting or not. False
// may be a false alarm.
func (img *Image) SameOwned(o *Image, inc Incarnation) bool {
	a, _ := img.owned.Get(inc.Epoch)
	b, _ := o.owned.Get(inc.Epoch)
	return a == b
}

// References counts the extents that name an object. What an index object
// lists inside is not counted; a sweeper has to read those itself.
func (img *Image) References(object string) int {
	n, _ := img.refs.Get(object)
	return n
}

// Objects lists the objects that extents name, in byte order.
func (img *Image) Objects() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) { img.refs.Scan(yield) }
}

// Feature is the finalized level of a feature, 0 if it is off (KIP-584).
func (img *Image) Feature(name string) int32 {
	l, _ := img.features.Get(name)
	return l
}

// Features lists the features that are on, by name.
func (img *Image) Features() iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) { img.features.Scan(yield) }
}
