package metadata

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"ponor/commitlog"
)

// edit is the next image while one command makes it. Tables are taken over
// from the image before and copied, node by node, when first written. If the
// command is rejected the edit is dropped, so no command is applied by halves.
type edit struct {
	Image
	// from is the incarnation that submitted the command, zero for the
	// controller.
	from Incarnation
	// fresh holds the tables and sets that this edit may write to. It is only
	// looked up, never iterated.
	fresh map[any]struct{}
	// dying lists deleting topics whose partitions changed; they are removed
	// at the end of the command if nothing of them is left (del-1).
	dying []TopicID
	alike alike
}

func begin(img *Image) *edit {
	return &edit{Image: *img, fresh: make(map[any]struct{})}
}

// finish returns the image that the edit made.
func (e *edit) finish() *Image {
	img := e.Image
	return &img
}

// own makes a table writable for this edit and returns it.
func own[K cmp.Ordered, V any](e *edit, table **btree.Map[K, V]) *btree.Map[K, V] {
	if _, ok := e.fresh[*table]; !ok {
		e.copying.Lock()
		c := (*table).Copy()
		e.copying.Unlock()
		*table = c
		e.fresh[c] = struct{}{}
	}
	return *table
}

// set makes one set of an index writable and returns it, new if need be.
func (e *edit) set(index **btree.Map[uint64, *streamSet], epoch uint64) *streamSet {
	m := own(e, index)
	s, ok := m.Get(epoch)
	if _, mine := e.fresh[s]; ok && mine {
		return s
	}
	if ok {
		e.copying.Lock()
		s = &streamSet{*s.Map.Copy()}
		e.copying.Unlock()
	} else {
		s = new(streamSet)
	}
	e.fresh[s] = struct{}{}
	m.Set(epoch, s)
	return s
}

// unset takes a stream out of a set of an index; empty sets do not exist.
func (e *edit) unset(index **btree.Map[uint64, *streamSet], epoch uint64, s commitlog.StreamID) {
	set := e.set(index, epoch)
	set.Delete(s)
	if set.Len() == 0 {
		own(e, index).Delete(epoch)
	}
}

// put replaces the record of a partition, or creates (old nil) or removes (next
// nil) it, and keeps every index that is derived from partitions. It is the
// only writer of these.
func (e *edit) put(old, next *Partition) {
	var was, is Partition
	if old != nil {
		was = *old
	}
	if next != nil {
		is = *next
	}
	if next != nil {
		before, _ := e.streams.Get(is.Stream)
		own(e, &e.streams).Set(is.Stream, e.alike.record(next, before))
	} else {
		own(e, &e.streams).Delete(was.Stream)
	}
	if !slices.Equal(was.Replicas, is.Replicas) {
		e.placesMark = new(Mark)
	}
	e.putOwner(&was, &is)
	for _, inc := range was.Unsealed {
		if !slices.Contains(is.Unsealed, inc) {
			e.unset(&e.waiting, inc.Epoch, was.Stream)
		}
	}
	for _, inc := range is.Unsealed {
		if !slices.Contains(was.Unsealed, inc) {
			e.set(&e.waiting, inc.Epoch).Set(is.Stream, struct{}{})
		}
	}
	e.putReferences(was.Extents, is.Extents)
	// Which topic it is: of old, unless it is being created.
	id := was.Topic
	if old == nil {
		id = is.Topic
	}
	if (was.Deleting || is.Deleting) && !slices.Contains(e.dying, id) {
		e.dying = append(e.dying, id)
	}
}

// putOwner keeps the owned index. Its set is also renewed when the same owner's
// duties changed, which is what SameOwned looks at.
func (e *edit) putOwner(was, is *Partition) {
	switch {
	case was.Owner != is.Owner:
		if !was.Owner.IsZero() {
			e.unset(&e.owned, was.Owner.Epoch, was.Stream)
		}
		if !is.Owner.IsZero() {
			e.set(&e.owned, is.Owner.Epoch).Set(is.Stream, struct{}{})
		}
	case was.Epoch != is.Epoch || was.Deleting != is.Deleting || !slices.Equal(was.Unsealed, is.Unsealed):
		e.set(&e.owned, is.Owner.Epoch)
	}
}

// putReferences keeps the reference counts. What both lists start with is left
// alone, so that appending an extent costs one extent.
func (e *edit) putReferences(was, is []Extent) {
	same := 0
	for same < len(was) && same < len(is) && was[same] == is[same] {
		same++
	}
	// Count up before down: an object that stays referenced keeps its entry.
	for _, x := range is[same:] {
		n, _ := e.refs.Get(x.Object)
		own(e, &e.refs).Set(x.Object, n+1)
	}
	for _, x := range was[same:] {
		if n, _ := e.refs.Get(x.Object); n > 1 {
			own(e, &e.refs).Set(x.Object, n-1)
		} else {
			own(e, &e.refs).Delete(x.Object)
		}
	}
}

// putTopic replaces the record of a topic.
func (e *edit) putTopic(t *topic) {
	own(e, &e.topics).Set(string(t.id[:]), t)
	e.topicsMark = new(Mark)
}

// putBroker replaces the registration of a broker id; next nil removes it.
func (e *edit) putBroker(id BrokerID, next *Broker) {
	old, known := e.Broker(id)
	if next == nil {
		own(e, &e.brokers).Delete(id)
	} else {
		own(e, &e.brokers).Set(id, next)
	}
	if !known || next == nil || old.Zone != next.Zone {
		e.placesMark = new(Mark)
	}
}

// streamsOf is a copy of a set of an index, to be used while it changes.
func streamsOf(index *btree.Map[uint64, *streamSet], epoch uint64) []commitlog.StreamID {
	set, ok := index.Get(epoch)
	if !ok {
		return nil
	}
	return set.Keys()
}

// setWAL replaces the record of an incarnation.
func (e *edit) setWAL(w WAL) { own(e, &e.wals).Set(w.Incarnation.Epoch, &w) }

// setConfigs replaces the overrides of a resource; none removes it.
func (e *edit) setConfigs(key configKey, values []configValue) {
	if len(values) == 0 {
		own(e, &e.configs).Delete(key.encode())
	} else {
		own(e, &e.configs).Set(key.encode(), &overrides{key: key, values: values})
	}
	e.settings, e.configsMark = new(settingsCache), new(Mark)
}

// withEpoch records in a history that an epoch began at an offset, keeping the
// newest MaxHistory.
func withEpoch(h []EpochStart, epoch commitlog.Epoch, start commitlog.Offset) []EpochStart {
	if len(h) >= MaxHistory {
		h = h[len(h)-MaxHistory+1:]
	}
	return append(slices.Clone(h), EpochStart{Epoch: epoch, Start: start})
}

// aboveStart lets go of extents that lie below the log start. The newest one
// stays even so, because it carries the log's checkpoint (ext-4). Commands that may
// bring extents without a checkpoint (Sealed, Flip) do not come here: what they
// append to may still hold the only one.
func aboveStart(list []Extent, start commitlog.Offset) []Extent {
	drop := 0
	for drop < len(list)-1 && list[drop].End <= start {
		drop++
	}
	return slices.Clip(list[drop:])
}

// opened notes the start of the current epoch as soon as it is known: when
// nothing older has to be sealed any more.
func (p *Partition) opened() {
	if !p.Openable() {
		return
	}
	if !p.couldOpen() {
		p.History = withEpoch(p.History, p.Epoch, p.End)
	}
}

// couldOpen says that the owner was alive when nothing older was unsealed, so
// that its WAL may hold records of the stream.
func (p *Partition) couldOpen() bool {
	n := len(p.History)
	return n > 0 && p.History[n-1].Epoch == p.Epoch
}
