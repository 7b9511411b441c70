package metadata

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"ponor/commitlog"
	"ponor/metadata/metadatapb"
)

// SnapshotVersion is the format version of snapshots that this release writes
// and the newest that it reads.
const SnapshotVersion = 1

// Snapshot is the image as one message. Large images are better written with
// WriteSnapshot, which gives the same bytes.
func Snapshot(img *Image) *metadatapb.Snapshot {
	s := img.header()
	for b := range img.Brokers() {
		s.Brokers = append(s.Brokers, img.snapBroker(b))
	}
	for w := range img.WALs() {
		s.Wals = append(s.Wals, snapWAL(w))
	}
	img.topics.Scan(func(_ string, t *topic) bool {
		s.Topics = append(s.Topics, img.snapTopic(t))
		return true
	})
	img.configs.Scan(func(_ string, o *overrides) bool {
		s.Configs = append(s.Configs, snapConfig(o))
		return true
	})
	for name, level := range img.Features() {
		s.Features = append(s.Features, &metadatapb.SnapFeature{Name: name, Level: level})
	}
	s.StoreUrl, s.StoreId = img.storeURL, img.storeID
	return s
}

// The field numbers of Snapshot's lists and of what follows them, for
// WriteSnapshot.
const (
	fieldBrokers  protowire.Number = 9
	fieldWALs     protowire.Number = 10
	fieldTopics   protowire.Number = 11
	fieldConfigs  protowire.Number = 12
	fieldFeatures protowire.Number = 13
	fieldStoreURL protowire.Number = 14
	fieldStoreID  protowire.Number = 15
)

// WriteSnapshot writes the image in the deterministic encoding that Hash is
// taken of, a topic at a time: the messages of Snapshot in the order of their
// field numbers, every list in the order of its table. Equal images give equal
// bytes.
func (img *Image) WriteSnapshot(w io.Writer) error {
	marshal := proto.MarshalOptions{Deterministic: true}
	buf, err := marshal.Marshal(img.header())
	emit := func(field protowire.Number, m proto.Message) bool {
		buf = protowire.AppendTag(buf, field, protowire.BytesType)
		buf = protowire.AppendVarint(buf, uint64(marshal.Size(m)))
		if buf, err = marshal.MarshalAppend(buf, m); err != nil {
			return false
		}
		if len(buf) >= 64<<10 {
			_, err = w.Write(buf)
			buf = buf[:0]
		}
		return err == nil
	}
	img.brokers.Scan(func(_ BrokerID, b *Broker) bool {
		return err == nil && emit(fieldBrokers, img.snapBroker(img.brokerView(b)))
	})
	img.wals.Scan(func(_ uint64, l *WAL) bool { return err == nil && emit(fieldWALs, snapWAL(*l)) })
	img.topics.Scan(func(_ string, t *topic) bool { return err == nil && emit(fieldTopics, img.snapTopic(t)) })
	img.configs.Scan(func(_ string, o *overrides) bool { return err == nil && emit(fieldConfigs, snapConfig(o)) })
	img.features.Scan(func(name string, level int32) bool {
		return err == nil && emit(fieldFeatures, &metadatapb.SnapFeature{Name: name, Level: level})
	})
	if err == nil && img.storeURL != "" {
		buf = protowire.AppendTag(buf, fieldStoreURL, protowire.BytesType)
		buf = protowire.AppendString(buf, img.storeURL)
	}
	if err == nil && img.storeID != "" {
		buf = protowire.AppendTag(buf, fieldStoreID, protowire.BytesType)
		buf = protowire.AppendString(buf, img.storeID)
	}
	if err == nil {
		_, err = w.Write(buf)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Hash is the SHA-256 of WriteSnapshot's bytes. Two nodes at the same index
// must have the same. It costs O(image).
func (img *Image) Hash() [32]byte {
	h := sha256.New()
	if err := img.WriteSnapshot(h); err != nil {
		panic(err) // a hash takes every write, and the messages are our own
	}
	return [32]byte(h.Sum(nil))
}

func (img *Image) header() *metadatapb.Snapshot {
	return &metadatapb.Snapshot{
		Version: SnapshotVersion, Index: uint64(img.index),
		ClusterId: img.clusterID, Generation: img.generation,
		NextBrokerEpoch: img.nextBrokerEpoch, NextStream: uint64(img.nextStream),
		NextProducerId: img.nextProducerID, NextObject: img.nextObject,
	}
}

func (img *Image) snapBroker(b Broker) *metadatapb.SnapBroker {
	r := &metadatapb.RegisterBroker{
		Broker: int32(b.ID), Nonce: b.Nonce[:], Zone: b.Zone, Voter: b.Voter,
		ControllerAddress: b.ControllerAddress, Version: b.Version,
	}
	for _, ep := range b.Endpoints {
		r.Endpoints = append(r.Endpoints, &metadatapb.Endpoint{Name: ep.Name, Host: ep.Host, Port: ep.Port, Security: ep.Security})
	}
	return &metadatapb.SnapBroker{
		Registration: r, Epoch: b.Incarnation.Epoch, Fenced: b.Fenced,
		State: &metadatapb.BrokerState{Broker: int32(b.ID), Cordoned: b.Cordoned, Draining: b.Draining},
	}
}

func snapWAL(w WAL) *metadatapb.SnapWAL {
	return &metadatapb.SnapWAL{
		Incarnation: w.Incarnation.Proto(), State: uint32(w.State), Trim: w.Trim, SealedEnd: w.SealedEnd,
		CmdSeq: w.CmdSeq, Sealer: w.Sealer.Proto(), Generation: w.Generation,
	}
}

func (img *Image) snapTopic(t *topic) *metadatapb.SnapTopic {
	s := &metadatapb.SnapTopic{
		Name: t.name, TopicId: t.id[:], Internal: t.internal, Deleting: t.deleting,
		Partitions: make([]*metadatapb.SnapPartition, 0, len(t.streams)),
	}
	for _, id := range t.streams {
		r, _ := img.streams.Get(id)
		p := r.partition(id)
		s.Partitions = append(s.Partitions, snapPartition(&p))
	}
	return s
}

func snapPartition(p *Partition) *metadatapb.SnapPartition {
	s := &metadatapb.SnapPartition{
		Replicas: numbers(p.Replicas), Adding: numbers(p.Adding), Removing: numbers(p.Removing),
		Owner: p.Owner.Proto(), Epoch: int32(p.Epoch), Stream: uint64(p.Stream),
		Start: int64(p.Start), End: int64(p.End), Gone: p.gone,
	}
	for _, x := range p.Extents {
		s.Extents = append(s.Extents, x.Proto())
	}
	for _, u := range p.Unsealed {
		s.Unsealed = append(s.Unsealed, u.Proto())
	}
	for _, h := range p.History {
		s.EpochHistory = append(s.EpochHistory, int32(h.Epoch))
		s.HistoryOffsets = append(s.HistoryOffsets, int64(h.Start))
	}
	return s
}

func numbers(ids []BrokerID) []int32 {
	if len(ids) == 0 {
		return nil
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func brokerIDs(ids []int32) []BrokerID {
	var out []BrokerID
	for _, id := range ids {
		out = append(out, BrokerID(id))
	}
	return slices.Clip(out)
}

func snapConfig(o *overrides) *metadatapb.SnapConfig {
	s := &metadatapb.SnapConfig{Kind: int32(o.key.kind), Name: o.key.name}
	for _, v := range o.values {
		s.Values = append(s.Values, &metadatapb.ConfigValue{Name: v.name, Value: v.value})
	}
	return s
}

// Proto is the wire form.
func (x Extent) Proto() *metadatapb.Extent {
	return &metadatapb.Extent{
		Object: x.Object, Position: x.Position, Length: x.Length, Base: int64(x.Base), End: int64(x.End),
		Epoch: int32(x.Epoch), Indirect: x.Indirect, MaxTimestamp: x.MaxTimestamp, Bytes: x.Bytes,
	}
}

// ExtentFrom reads the wire form.
func ExtentFrom(pb *metadatapb.Extent) Extent { return extentFrom(pb) }

func extentFrom(pb *metadatapb.Extent) Extent {
	return Extent{
		Object: pb.GetObject(), Position: pb.GetPosition(), Length: pb.GetLength(),
		Base: commitlog.Offset(pb.GetBase()), End: commitlog.Offset(pb.GetEnd()), Epoch: commitlog.Epoch(pb.GetEpoch()),
		Indirect: pb.GetIndirect(), MaxTimestamp: pb.GetMaxTimestamp(), Bytes: pb.GetBytes(),
	}
}

// DecodeSnapshot reads the bytes of a snapshot into an image.
func DecodeSnapshot(b []byte) (*Image, error) {
	s := new(metadatapb.Snapshot)
	if err := proto.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("decode snapshot: %w", err)
	}
	return FromSnapshot(s)
}

// FromSnapshot is the reverse of Snapshot. It refuses what is not an image that
// Apply could have made, as far as Check can tell.
func FromSnapshot(s *metadatapb.Snapshot) (*Image, error) {
	if s.GetVersion() != SnapshotVersion {
		return nil, fmt.Errorf("read snapshot: version %d, this release knows %d; upgrade the node", s.GetVersion(), SnapshotVersion)
	}
	e := begin(Empty())
	e.index, e.clusterID, e.generation, e.storeURL = Index(s.GetIndex()), s.GetClusterId(), s.GetGeneration(), s.GetStoreUrl()
	e.storeID = s.GetStoreId()
	e.nextBrokerEpoch, e.nextStream = s.GetNextBrokerEpoch(), commitlog.StreamID(s.GetNextStream())
	e.nextProducerID, e.nextObject = s.GetNextProducerId(), s.GetNextObject()
	for _, w := range s.GetWals() {
		e.setWAL(WAL{
			Incarnation: IncarnationFrom(w.GetIncarnation()), Generation: w.GetGeneration(), State: WALState(w.GetState()),
			Trim: w.GetTrim(), SealedEnd: w.GetSealedEnd(), CmdSeq: w.GetCmdSeq(), Sealer: IncarnationFrom(w.GetSealer()),
		})
	}
	for _, sb := range s.GetBrokers() {
		b, err := brokerFrom(sb.GetRegistration())
		if err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		b.Incarnation = Incarnation{Broker: b.ID, Epoch: sb.GetEpoch()}
		b.Cordoned, b.Draining = sb.GetState().GetCordoned(), sb.GetState().GetDraining()
		e.putBroker(b.ID, &b)
	}
	for _, st := range s.GetTopics() {
		if err := e.restoreTopic(st); err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
	}
	for _, c := range s.GetConfigs() {
		var values []configValue
		for _, v := range c.GetValues() {
			values = append(values, configValue{v.GetName(), v.GetValue()})
		}
		e.setConfigs(configKey{ConfigKind(c.GetKind()), c.GetName()}, values)
	}
	for _, f := range s.GetFeatures() {
		own(e, &e.features).Set(f.GetName(), f.GetLevel())
	}
	img := e.finish()
	if err := Check(img); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return img, nil
}

// restoreTopic reads a topic of a snapshot into the tables. Numbers that are
// out of place are left to Check.
func (e *edit) restoreTopic(st *metadatapb.SnapTopic) error {
	if len(st.GetTopicId()) != len(TopicID{}) {
		return fmt.Errorf("topic %q has an id of %d bytes", st.GetName(), len(st.GetTopicId()))
	}
	t := &topic{name: st.GetName(), id: TopicID(st.GetTopicId()), internal: st.GetInternal(), deleting: st.GetDeleting()}
	for i, sp := range st.GetPartitions() {
		p := &Partition{
			Topic: t.id, TopicName: t.name, Number: int32(i), Deleting: t.deleting, gone: sp.GetGone(),
			Replicas: brokerIDs(sp.GetReplicas()), Adding: brokerIDs(sp.GetAdding()), Removing: brokerIDs(sp.GetRemoving()),
			Owner: IncarnationFrom(sp.GetOwner()), Epoch: commitlog.Epoch(sp.GetEpoch()), Stream: commitlog.StreamID(sp.GetStream()),
			Start: commitlog.Offset(sp.GetStart()), End: commitlog.Offset(sp.GetEnd()),
		}
		for _, x := range sp.GetExtents() {
			p.Extents = append(p.Extents, extentFrom(x))
		}
		for _, u := range sp.GetUnsealed() {
			p.Unsealed = append(p.Unsealed, IncarnationFrom(u))
		}
		if len(sp.GetEpochHistory()) != len(sp.GetHistoryOffsets()) {
			return fmt.Errorf("%s has %d epochs with %d offsets", p, len(sp.GetEpochHistory()), len(sp.GetHistoryOffsets()))
		}
		for i, epoch := range sp.GetEpochHistory() {
			p.History = append(p.History, EpochStart{commitlog.Epoch(epoch), commitlog.Offset(sp.GetHistoryOffsets()[i])})
		}
		if _, dup := e.streams.Get(p.Stream); dup {
			return fmt.Errorf("%s has the stream %d of another partition", p, p.Stream)
		}
		t.streams = append(t.streams, p.Stream)
		e.put(nil, p)
	}
	e.putTopic(t)
	own(e, &e.names).Set(collisionKey(t.name), t.id)
	return nil
}
