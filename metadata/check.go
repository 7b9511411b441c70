package metadata

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"ponor/commitlog"
)

// Check proves the invariants that every image keeps by itself; the numbers are
// those of DESIGN.md. It is for tests, models and snapshots that came from
// elsewhere, and costs O(image log image).
func Check(img *Image) error {
	c := checker{
		img:     img,
		owned:   make(map[uint64]int),
		waiting: make(map[uint64]int),
		refs:    make(map[string]int),
	}
	for _, f := range []func() error{c.counters, c.incarnations, c.topics, c.indexes, c.configs} {
		if err := f(); err != nil {
			return fmt.Errorf("check image at %d: %w", img.index, err)
		}
	}
	return nil
}

// checker walks an image and counts what the indexes must say.
type checker struct {
	img     *Image
	owned   map[uint64]int
	waiting map[uint64]int
	refs    map[string]int
	streams int
}

func (c *checker) counters() error {
	img := c.img
	if img.nextBrokerEpoch == 0 || img.nextStream == 0 {
		return fmt.Errorf("M1: counters start at 1")
	}
	if img.clusterID == "" {
		if img.generation != 0 || img.brokers.Len()+img.wals.Len()+img.topics.Len()+img.configs.Len()+img.features.Len() != 0 {
			return fmt.Errorf("M1: there is something before InitCluster")
		}
		return nil
	}
	if img.generation == 0 {
		return fmt.Errorf("M1: generation is 0")
	}
	return nil
}

// incarnations checks M2 to M4.
func (c *checker) incarnations() (err error) {
	img := c.img
	alive := make(map[BrokerID]Incarnation)
	img.wals.Scan(func(epoch uint64, w *WAL) bool {
		err = c.wal(epoch, w)
		if err == nil && w.State == Active {
			if other, two := alive[w.Incarnation.Broker]; two {
				err = fmt.Errorf("M3: %s and %s are both active", other, w.Incarnation)
			}
			alive[w.Incarnation.Broker] = w.Incarnation
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	img.brokers.Scan(func(id BrokerID, b *Broker) bool {
		if _, ok := img.WAL(b.Incarnation); !ok || b.ID != id || b.Incarnation.Broker != id {
			err = fmt.Errorf("M2: broker %d has incarnation %s without a WAL", id, b.Incarnation)
		}
		if a, ok := alive[id]; ok && a != b.Incarnation {
			err = fmt.Errorf("M3: broker %d is registered as %s, but %s is active", id, b.Incarnation, a)
		}
		delete(alive, id)
		return err == nil
	})
	if err == nil && len(alive) > 0 {
		err = fmt.Errorf("M3: %d active incarnations of brokers that are not registered", len(alive))
	}
	return err
}

func (c *checker) wal(epoch uint64, w *WAL) error {
	switch inc := w.Incarnation; {
	case inc.Epoch != epoch || epoch == 0 || epoch >= c.img.nextBrokerEpoch || inc.Broker < 0:
		return fmt.Errorf("M2: WAL %s under epoch %d, the next is %d", inc, epoch, c.img.nextBrokerEpoch)
	case w.Generation == 0 || w.Generation > c.img.generation:
		return fmt.Errorf("M2: WAL %s is of generation %d, now is %d", inc, w.Generation, c.img.generation)
	case w.State > Sealed:
		return fmt.Errorf("M4: WAL %s has state %d", inc, w.State)
	case w.State == Sealed && w.SealedEnd < w.Trim, w.State != Sealed && w.SealedEnd != 0:
		return fmt.Errorf("M4: WAL %s is %s, trim %d, sealed end %d", inc, w.State, w.Trim, w.SealedEnd)
	case w.State != Fenced && !w.Sealer.IsZero():
		return fmt.Errorf("M4: WAL %s is %s and has sealer %s", inc, w.State, w.Sealer)
	}
	if _, ok := c.img.WAL(w.Sealer); !ok && !w.Sealer.IsZero() {
		return fmt.Errorf("M4: WAL %s has unknown sealer %s", w.Incarnation, w.Sealer)
	}
	return nil
}

// topics checks M5 and, per partition, M6 to M10.
func (c *checker) topics() (err error) {
	img := c.img
	if img.names.Len() != img.topics.Len() {
		return fmt.Errorf("M5: %d names of %d topics", img.names.Len(), img.topics.Len())
	}
	img.topics.Scan(func(key string, t *topic) bool {
		err = c.topic(key, t)
		return err == nil
	})
	if err == nil && c.streams != img.streams.Len() {
		err = fmt.Errorf("M5: topics have %d streams, the table %d", c.streams, img.streams.Len())
	}
	return err
}

func (c *checker) topic(key string, t *topic) error {
	if err := ValidateTopicName(t.name); err != nil {
		return fmt.Errorf("M5: %w", err)
	}
	id, ok := c.img.names.Get(collisionKey(t.name))
	if !ok || id != t.id || key != string(t.id[:]) || t.id.IsZero() || len(t.streams) == 0 {
		return fmt.Errorf("M5: topic %q (%s) with %d partitions is not where its name points", t.name, t.id, len(t.streams))
	}
	stopped := true
	for i, s := range t.streams {
		p, ok := c.img.partition(s)
		if !ok || p.Stream != s || s == 0 || s >= c.img.nextStream {
			return fmt.Errorf("M5: %s-%d has stream %d that is not there, or not yet", t.name, i, s)
		}
		if p.Topic != t.id || p.TopicName != t.name || p.Number != int32(i) || p.Deleting != t.deleting {
			return fmt.Errorf("M5: stream %d says it is %s, not %s-%d", s, p, t.name, i)
		}
		if err := c.partition(p); err != nil {
			return fmt.Errorf("%w (%s, stream %d)", err, p, s)
		}
		stopped = stopped && p.stopped()
	}
	c.streams += len(t.streams)
	if t.deleting && stopped {
		return fmt.Errorf("M10: %q is deleted and nobody can append to it, but it is still there", t.name)
	}
	return nil
}

func (c *checker) partition(p *Partition) error {
	for _, f := range []func(*Partition) error{c.ownership, c.runs, c.history} {
		if err := f(p); err != nil {
			return err
		}
	}
	if len(p.Replicas) == 0 || len(p.Replicas) > maxReplicas {
		return fmt.Errorf("M5: %d replicas", len(p.Replicas))
	}
	c.owned[p.Owner.Epoch]++
	for _, u := range p.Unsealed {
		c.waiting[u.Epoch]++
	}
	for _, x := range p.Extents {
		c.refs[x.Object]++
	}
	return nil
}

// ownership checks M6, M7 and M10.
func (c *checker) ownership(p *Partition) error {
	owner, ok := c.img.WAL(p.Owner)
	if !ok || p.Epoch < 0 {
		return fmt.Errorf("M6: owner %s at epoch %d was never registered", p.Owner, p.Epoch)
	}
	if len(p.Unsealed) > 1 {
		return fmt.Errorf("M7: %d WALs are unsealed; only one can hold records beyond the committed end", len(p.Unsealed))
	}
	for _, u := range p.Unsealed {
		if w, ok := c.img.WAL(u); !ok || w.State != Fenced {
			return fmt.Errorf("M7: waits for %s, which is not fenced and unsealed", u)
		}
	}
	if owner.State == Fenced && p.couldOpen() && !p.gone && p.Openable() {
		return fmt.Errorf("M7: owner %s is dead and unsealed and may have opened it, but it waits for nothing", p.Owner)
	}
	if p.gone && !p.Deleting || p.Deleting && !p.gone && owner.State != Active {
		return fmt.Errorf("M10: gone=%t, deleting=%t, owner %s is %s", p.gone, p.Deleting, p.Owner, owner.State)
	}
	return nil
}

// runs checks M8 and M9.
func (c *checker) runs(p *Partition) error {
	if p.Start < 0 || p.Start > p.End {
		return fmt.Errorf("M8: start %d, end %d", p.Start, p.End)
	}
	if len(p.Extents) == 0 {
		if p.End != 0 {
			return fmt.Errorf("M8: no extents although it ends at %d", p.End)
		}
		return nil
	}
	at := p.Extents[0].Base
	if at < 0 || at > p.Start {
		return fmt.Errorf("M8: first extent at %d is above the start %d", at, p.Start)
	}
	for _, x := range p.Extents {
		if x.Base != at || x.End <= x.Base {
			return fmt.Errorf("M8: extent [%d, %d) follows %d", x.Base, x.End, at)
		}
		if x.Position < 0 || x.Length <= 0 || x.Bytes < 0 || x.Epoch < 0 || !x.Indirect && x.Epoch > p.Epoch {
			return fmt.Errorf("M8: extent [%d, %d) cannot be: position %d, length %d, epoch %d", x.Base, x.End, x.Position, x.Length, x.Epoch)
		}
		if err := c.object(x); err != nil {
			return err
		}
		at = x.End
	}
	if at != p.End {
		return fmt.Errorf("M8: extents end at %d, the stream at %d", at, p.End)
	}
	return nil
}

func (c *checker) object(x Extent) error {
	n, err := ParseObjectName(x.Object)
	if err != nil {
		return fmt.Errorf("M9: %w", err)
	}
	if x.Indirect != (n.Kind == IndexObject) {
		return fmt.Errorf("M9: indirect=%t extent in %s", x.Indirect, x.Object)
	}
	w, ok := c.img.WAL(n.Creator)
	if !ok {
		return fmt.Errorf("M9: %s is of an unknown incarnation", x.Object)
	}
	if n.Kind == WALSlot && w.State == Sealed && n.Number >= w.SealedEnd {
		return fmt.Errorf("M9: %s is at or above the fence at %d", x.Object, w.SealedEnd)
	}
	return nil
}

func (c *checker) history(p *Partition) error {
	h := p.History
	if len(h) > MaxHistory {
		return fmt.Errorf("M6: %d epochs in the history", len(h))
	}
	for i, e := range h {
		if e.Epoch < 0 || e.Epoch > p.Epoch || e.Start < 0 || e.Start > p.End ||
			i > 0 && (e.Epoch <= h[i-1].Epoch || e.Start < h[i-1].Start) {
			return fmt.Errorf("M6: history %v at epoch %d, end %d", h, p.Epoch, p.End)
		}
	}
	if p.Openable() && !p.couldOpen() && c.img.Live(p.Owner) {
		return fmt.Errorf("M6: it is open, but history %v does not say where epoch %d began", h, p.Epoch)
	}
	return nil
}

// indexes checks M11: the tables that are derived say what the others say.
func (c *checker) indexes() error {
	img := c.img
	err := c.sets("owned", img.owned, c.owned, func(p *Partition, epoch uint64) bool { return p.Owner.Epoch == epoch })
	if err != nil {
		return err
	}
	err = c.sets("waiting", img.waiting, c.waiting, func(p *Partition, epoch uint64) bool {
		return slices.ContainsFunc(p.Unsealed, func(u Incarnation) bool { return u.Epoch == epoch })
	})
	if err != nil {
		return err
	}
	if img.refs.Len() != len(c.refs) {
		return fmt.Errorf("M11: %d objects are counted, %d are referenced", img.refs.Len(), len(c.refs))
	}
	img.refs.Scan(func(object string, n int) bool {
		if n <= 0 || c.refs[object] != n {
			err = fmt.Errorf("M11: %s is referenced %d times, counted %d", object, c.refs[object], n)
		}
		return err == nil
	})
	return err
}

func (c *checker) sets(name string, index *btree.Map[uint64, *streamSet], want map[uint64]int, in func(*Partition, uint64) bool) (err error) {
	if index.Len() != len(want) {
		return fmt.Errorf("M11: index %s has %d sets instead of %d", name, index.Len(), len(want))
	}
	index.Scan(func(epoch uint64, set *streamSet) bool {
		if set.Len() != want[epoch] {
			err = fmt.Errorf("M11: index %s has %d streams under %d instead of %d", name, set.Len(), epoch, want[epoch])
			return false
		}
		set.Scan(func(s commitlog.StreamID, _ struct{}) bool {
			if p, ok := c.img.partition(s); !ok || !in(p, epoch) {
				err = fmt.Errorf("M11: index %s has stream %d under %d", name, s, epoch)
			}
			return err == nil
		})
		return err == nil
	})
	return err
}

// configs checks M12.
func (c *checker) configs() (err error) {
	c.img.configs.Scan(func(key string, o *overrides) bool {
		if key != o.key.encode() || len(o.values) == 0 || len(o.values) > maxOverrides {
			err = fmt.Errorf("M12: %d configs of kind %d %q under %q", len(o.values), o.key.kind, o.key.name, key)
			return false
		}
		if _, ok := c.img.topicByName(o.key.name); !ok && o.key.kind == KindTopic {
			err = fmt.Errorf("M12: configs of %q, which is no topic", o.key.name)
		}
		for i, v := range o.values {
			if checkConfig(v.name, v.value) != nil || i > 0 && v.name <= o.values[i-1].name {
				err = fmt.Errorf("M12: config %q of %q is out of order or too long", v.name, o.key.name)
			}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	for name, level := range c.img.Features() {
		if name == "" || len(name) > maxFeatureName || level <= 0 {
			return fmt.Errorf("M12: feature %q at level %d", name, level)
		}
	}
	return nil
}
